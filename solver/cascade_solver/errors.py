"""What can go wrong while planning, named by what the caller does next."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import pydantic
import pydantic_core

D = TypeVar("D", bound=pydantic.BaseModel)


class SolverError(Exception):
    """Base of all planner errors; the message is written for the user."""


class ProblemError(SolverError):
    """The problem document is wrong: ``faults`` holds one line per fault (path, value, allowed)."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class UnknownNameError(SolverError):
    """A name that a catalogue does not hold; ``known`` lists what it holds."""

    kind = "name"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"unknown {self.kind} {name!r}; known: {', '.join(self.known)}")


class UnknownArchitectureError(UnknownNameError):
    """No architecture of this name: use a known one or hand in the model's config.json."""

    kind = "architecture"


class UnknownGpuError(UnknownNameError):
    """No GPU type of this name."""

    kind = "GPU type"


class InfeasibleError(SolverError):
    """Some model has no shape that could run here.

    ``reasons``: model -> for each shape tried, the constraint that excluded it.
    """

    def __init__(self, reasons: Mapping[str, Sequence[str]]) -> None:
        self.reasons = {name: tuple(lines) for name, lines in reasons.items()}
        super().__init__(
            "; ".join(f"{name}: {', '.join(lines)}" for name, lines in self.reasons.items())
        )


class InsufficientGpusError(SolverError):
    """The pool has too few GPUs: ``needed`` at least, ``available`` there."""

    def __init__(self, needed: int, available: int, explanation: str) -> None:
        self.needed = needed
        self.available = available
        super().__init__(
            f"needs at least {needed} GPUs, the pool offers {available}: {explanation}"
        )


def lines(error: SolverError) -> tuple[str, ...]:
    """What to show for an error: one line per fault."""
    if isinstance(error, ProblemError):
        return error.faults
    if isinstance(error, InfeasibleError):
        return tuple(
            f"{name}: no shape is possible: {'; '.join(reasons)}"
            for name, reasons in error.reasons.items()
        )
    return (str(error),)


SHOWN_VALUE_CHARACTERS = 80
SHOWN_FAULTS = 50


def validated(document: type[D], value: object) -> D:
    """``value`` as a document of this type.

    Raises ``ProblemError`` with one line per fault: JSON path, value, what is allowed.
    """
    try:
        return document.model_validate(value)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False)
        faults = [_fault(e) for e in found if not _follows(e, found)]
        if len(faults) > SHOWN_FAULTS:
            faults = [*faults[:SHOWN_FAULTS], f"... and {len(faults) - SHOWN_FAULTS} more faults"]
        raise ProblemError(faults) from error


def _follows(
    error: pydantic_core.ErrorDetails, found: Sequence[pydantic_core.ErrorDetails]
) -> bool:
    """A list that counts as too short only because its entries are wrong is no second fault."""
    loc = error["loc"]
    return error["type"] == "too_short" and any(
        len(e["loc"]) > len(loc) and e["loc"][: len(loc)] == loc for e in found
    )


def _fault(error: pydantic_core.ErrorDetails) -> str:
    path = "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{path}: missing; {message.lower()}"
    if error["type"] == "value_error":
        # The document's own checks name values and remedy themselves.
        return f"{path}: {message}"
    shown = repr(error["input"])
    if len(shown) > SHOWN_VALUE_CHARACTERS:
        shown = shown[:SHOWN_VALUE_CHARACTERS] + "..."
    return f"{path}: {shown}; {message}"
