"""Errors of the operator, named by what the caller does next."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import reasons


@dataclass(frozen=True)
class Fault:
    """One thing wrong in a document: where, what stood there, and what to do.

    ``path`` is the field as the user wrote it (``spec.models[0].pins.pipeline``), ``value`` what
    it holds (``None`` when it is missing), ``allowed`` says in words what is allowed.
    """

    path: str
    value: Any
    allowed: str

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.path} is missing: {self.allowed}"
        shown = json.dumps(self.value, default=str)
        return f"{self.path} is {shown[:200]}: {self.allowed}"


class OperatorError(Exception):
    """Base of the operator's own errors; the message is written for the user."""


class SpecError(OperatorError):
    """The resource asks for what cannot be done: permanent until the user changes it.

    ``faults`` holds all of them, in the order of the document.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(str(fault) for fault in self.faults))


class PlanningError(OperatorError):
    """No plan was found; the plan in force stays. ``reason`` is the word for conditions."""

    reason = "PlanningFailed"


class InfeasibleError(PlanningError):
    """Some model has no shape that could run here; the message holds the constraints."""

    reason = "Infeasible"


class InsufficientGpusError(PlanningError):
    """The pool has too few GPUs: ``needed`` at least, ``available`` there."""

    reason = reasons.INSUFFICIENT_GPUS

    def __init__(self, message: str, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(message)


class UnknownModelError(PlanningError):
    """An architecture or a GPU type that the planner's catalogue does not hold."""

    reason = "UnknownModel"


class PlanningFailedError(PlanningError):
    """The planner itself failed: out of time or memory, or a defect."""


class ClusterApiError(OperatorError):
    """The API server refused or did not answer. ``status`` is the HTTP status, 0: no answer."""

    def __init__(self, what: str, status: int, message: str) -> None:
        self.what = what
        self.status = status
        super().__init__(f"{what}: {message}" + (f" (HTTP {status})" if status else ""))


class UnavailableError(ClusterApiError):
    """Busy, restarting or not reachable: the same request may succeed later."""


class ConflictError(ClusterApiError):
    """Somebody else changed the object: read again, then decide again."""


class NotFoundError(ClusterApiError):
    """There is no such object."""


class ApiRefusedError(ClusterApiError):
    """Forbidden or invalid: the same request will be refused again."""


class LeadershipLostError(OperatorError):
    """Another operator may be acting by now: nothing more may be written."""
