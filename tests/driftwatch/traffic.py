"""Plans and seeded windows of traffic, for the tests of drift-watch."""

import bisect
import dataclasses
import random
from typing import Any

from cascade_driftwatch.planned import PlanInForce, Workload
from cascade_router.window import LENGTH_EDGES, ModelWindow, Window, WindowReport

WINDOW_SECONDS = 300.0
PLAN_ROWS = 400


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What the traffic is like: requests per window, medians of log-normal lengths in tokens, the
    share that the first of two models passes on, its mean score and the scores' spread."""

    requests: float = 300.0
    input_median: float = 800.0
    output_median: float = 180.0
    spread: float = 0.7
    escalation: float = 0.35
    score: float = 68.0
    score_spread: float = 20.0
    burstiness: float = 1.0
    """Variance over mean of the requests per window."""

    def count(self, rng: random.Random) -> int:
        deviation = (self.requests * self.burstiness) ** 0.5
        return max(0, round(rng.gauss(self.requests, deviation)))

    def lengths(self, rng: random.Random, median: float, n: int) -> list[int]:
        return [max(1, round(median * rng.lognormvariate(0.0, self.spread))) for _ in range(n)]

    def scores(self, rng: random.Random, n: int) -> list[int]:
        drawn = (rng.gauss(self.score, self.score_spread) for _ in range(n))
        return [min(100, max(0, round(score))) for score in drawn]


STATIONARY = Traffic()


def plan(
    traffic: Traffic = STATIONARY, revision: str = "p1", seed: int = 1, **changes: Any
) -> PlanInForce:
    """The plan made for this traffic from a table of ``PLAN_ROWS`` rows."""
    rng = random.Random(seed)
    inputs, outputs = (
        sorted(traffic.lengths(rng, median, PLAN_ROWS))
        for median in (traffic.input_median, traffic.output_median)
    )
    passed = sum(rng.random() < traffic.escalation for _ in range(PLAN_ROWS))
    scores = traffic.scores(rng, PLAN_ROWS)
    workload = Workload(
        rate=traffic.requests / WINDOW_SECONDS,
        n=PLAN_ROWS,
        inputDeciles=tuple(inputs[k * PLAN_ROWS // 10] for k in range(1, 10)),
        outputDeciles=tuple(outputs[k * PLAN_ROWS // 10] for k in range(1, 10)),
        escalationRatio={"small": passed / PLAN_ROWS},
        meanScore={"small": sum(scores) / PLAN_ROWS, "large": 85.0},
        inputEdges=tuple(inputs[k * PLAN_ROWS // 5] for k in range(1, 5)),
    )
    return PlanInForce(revision, is_steered=False, workload=workload.model_copy(update=changes))


def histogram(lengths: list[int]) -> tuple[int, ...]:
    counts = [0] * (len(LENGTH_EDGES) + 1)
    for length in lengths:
        counts[bisect.bisect_left(LENGTH_EDGES, length)] += 1
    return tuple(counts)


def window(
    traffic: Traffic, rng: random.Random, index: int = 0, plan_id: str = "p1", **changes: Any
) -> Window:
    """One closed window; the ``index``-th since the epoch."""
    n = traffic.count(rng)
    scores = traffic.scores(rng, n)
    passed = sum(rng.random() < traffic.escalation for _ in range(n))
    counts = [0] * 10
    for score in scores:
        counts[min(score // 10, 9)] += 1
    small = ModelWindow(
        name="small",
        visits=n,
        accepted=n - passed,
        escalated=passed,
        score_counts=tuple(counts),
        score_sum=sum(scores),
        threshold_in_force=60,
    )
    return Window(
        start=index * WINDOW_SECONDS,
        seconds=WINDOW_SECONDS,
        closed=True,
        plan_id=plan_id,
        requests=n,
        input_counts=histogram(traffic.lengths(rng, traffic.input_median, n)),
        output_counts=histogram(traffic.lengths(rng, traffic.output_median, n)),
        models=(small, ModelWindow(name="large", visits=passed, accepted=passed)),
    ).model_copy(update=changes)


def row(traffic: Traffic, count: int, seed: int = 3, first: int = 0) -> list[Window]:
    """Consecutive windows of the same traffic."""
    rng = random.Random(seed)
    return [window(traffic, rng, first + i) for i in range(count)]


def report(pod: str, windows: list[Window], now: float | None = None) -> WindowReport:
    last = windows[-1] if windows else None
    end = last.start + last.seconds if last else 0.0
    return WindowReport(
        pod=pod,
        cascade="chat",
        namespace="team-a",
        now=end if now is None else now,
        windows=tuple(windows),
    )
