"""Window: what one router process saw in a span of time, numbers only, for drift-watch."""

from typing import Literal

from pydantic import Field

from .document import Document

LENGTH_EDGES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
                6144, 8192, 12288, 16384, 32768, 65536, 131072)  # fmt: skip
"""Upper edges, in tokens, of the length histograms (one more bin lies above the last)."""

SCORE_BINS = 10
"""Scores are counted in 10 bins of 10 points; 100 falls into the last."""


class ModelWindow(Document):
    """One model's share of a window: visitors, what became of them, and their scores."""

    name: str
    visits: int = 0
    accepted: int = 0
    escalated: int = 0
    no_verdict: int = 0
    failed: int = 0
    degraded: int = 0
    """Answers returned below the threshold, because no escalation was left or possible."""
    score_counts: tuple[int, ...] = (0,) * SCORE_BINS
    score_sum: int = 0
    """Sum of all scores given here; divided by the sum of ``score_counts`` it is their mean."""
    threshold_in_force: int | None = None


class Sample(Document):
    """One scored request of the reservoir. ``scores``: model -> points, visited models only."""

    arrival: float
    input_tokens: int
    output_tokens: int
    scores: dict[str, int | None]
    signals: dict[str, float | None] = Field(default_factory=dict)
    accepted_by: str | None
    forced: bool = False


class Window(Document):
    """Counts of one span [start, start + seconds), Unix seconds.

    ``requests`` counts cascade requests only (forced ones are apart); lengths are counted at the
    first model in the bins of ``LENGTH_EDGES``; ``input_score_counts`` is the joint histogram
    [input-length bin of the plan x score bin] at the first model.
    """

    schema_version: Literal[1] = 1
    start: float
    seconds: float
    closed: bool
    plan_id: str
    requests: int = 0
    forced_requests: int = 0
    failed_requests: int = 0
    input_counts: tuple[int, ...] = (0,) * (len(LENGTH_EDGES) + 1)
    output_counts: tuple[int, ...] = (0,) * (len(LENGTH_EDGES) + 1)
    input_score_counts: tuple[tuple[int, ...], ...] = ()
    models: tuple[ModelWindow, ...] = ()
    samples: tuple[Sample, ...] = ()
    samples_seen: int = 0


class WindowReport(Document):
    """Answer of ``GET /internal/window`` on the admin port: newest window last."""

    schema_version: Literal[1] = 1
    pod: str
    cascade: str
    namespace: str
    now: float
    windows: tuple[Window, ...]
