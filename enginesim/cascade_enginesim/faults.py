"""Faults that an engine can be told to have: by setting, by header, or at run time."""

import dataclasses
import re

from .errors import SettingsError

KINDS = {
    "429": "answers 429",
    "500": "answers 500",
    "hang": "never answers",
    "slow": "adds this many modelled seconds before the first byte (5)",
    "garbage": "answers 200 with a body that is no JSON",
    "truncate": "closes the connection after this many tokens (5)",
    "crash": "the process ends when this many more answers were begun (1)",
    "never-ready": "/ready and /health stay 503",
}
DEFAULTS = {"slow": 5.0, "truncate": 5.0, "crash": 1.0}
FORM = re.compile(r"([a-z0-9-]+)(?:=(\d+(?:\.\d+)?))?(?:\*(\d+))?")


@dataclasses.dataclass
class Fault:
    """One fault; ``left`` requests still meet it, ``None`` means all."""

    kind: str
    value: float
    left: int | None


def parse(text: str) -> dict[str, Fault]:
    """Reads ``429*3, slow=2, never-ready``: kind, ``=value``, ``*how many requests``.

    Raises ``SettingsError`` with the part that is wrong and the kinds there are.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = FORM.fullmatch(part)
        if match is None or match[1] not in KINDS:
            known = ", ".join(f"{kind} ({what})" for kind, what in KINDS.items())
            raise SettingsError(f"fault {part!r}: must be KIND[=VALUE][*COUNT] with one of {known}")
        value = float(match[2]) if match[2] else DEFAULTS.get(match[1], 1.0)
        found[match[1]] = Fault(match[1], value, int(match[3]) if match[3] else None)
    return found


class Faults:
    """The faults in force."""

    def __init__(self, active: dict[str, Fault]) -> None:
        self.active = active

    def replace(self, text: str) -> None:
        """Raises ``SettingsError``; the faults in force then stay."""
        self.active = parse(text)

    def meet(self, kind: str, header: str) -> float | None:
        """The fault's value if this request meets it; counts it. ``header`` adds its own faults.

        Raises ``SettingsError`` for a header that cannot be read.
        """
        own = parse(header).get(kind)
        if own is not None:
            return own.value
        fault = self.active.get(kind)
        if fault is None or fault.left == 0:
            return None
        if fault.left is not None:
            fault.left -= 1
        return fault.value

    def is_crash_due(self) -> bool:
        """Whether this answer is the one that ends the process; counts down otherwise."""
        fault = self.active.get("crash")
        if fault is None or fault.value <= 1:
            return True
        fault.value -= 1
        return False

    def has(self, kind: str) -> bool:
        return kind in self.active
