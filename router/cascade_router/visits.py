"""What happened to one request: the models it visited, their scores, and how it ended."""

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["accepted", "escalated", "degraded", "failed"]


@dataclass(slots=True)
class Visit:
    """One model asked. Ends in exactly one outcome; ``reason`` says why it was passed on."""

    model: str
    outcome: Outcome = "failed"
    score: int | None = None
    signal: float | None = None
    is_judged: bool = False
    reason: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(slots=True)
class Trace:
    """One request of one plan. ``arrival`` in Unix seconds, ``started`` on the steady clock."""

    plan_id: str
    arrival: float
    started: float
    forced: str | None
    request_id: str
    visits: list[Visit] = field(default_factory=list)
    answered_by: str | None = None
    degraded: str = ""

    @property
    def path(self) -> str:
        """Models asked, in order."""
        return ",".join(v.model for v in self.visits)

    @property
    def scores(self) -> str:
        """``model=points`` for each model asked below the last; ``none`` without a verdict."""
        shown = [v for v in self.visits if v.is_judged]
        return ",".join(f"{v.model}={'none' if v.score is None else v.score}" for v in shown)

    def headers(self) -> list[tuple[str, str]]:
        """The response headers that tell the decision and name the request."""
        return [("x-request-id", self.request_id), *self._decision()]

    def note(self) -> str:
        """The decision for a stream whose headers have gone out before it."""
        return " ".join(f"{name}={value}" for name, value in self._decision())

    def _decision(self) -> list[tuple[str, str]]:
        given = [
            ("x-cascade-model", self.answered_by or ""),
            ("x-cascade-path", self.path),
            ("x-cascade-scores", self.scores),
            ("x-cascade-plan", self.plan_id),
            ("x-cascade-degraded", self.degraded),
        ]
        return [(name, value) for name, value in given if value]
