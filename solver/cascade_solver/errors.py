"""What can go wrong while planning, named by what the caller does next."""

from collections.abc import Mapping, Sequence


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
