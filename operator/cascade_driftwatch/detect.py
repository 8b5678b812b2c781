"""Whether live windows still belong to the planned workload: all tests of one look; pure.

The tests of science.md section 2: CUSUM on the rate, which fires alone; Kolmogorov-Smirnov and
stability index on lengths, z-tests on escalation and scores, which need two windows in a row, or
one pooled from three, to agree.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from cascade_router.window import ModelWindow, Window

from . import measures, merge
from .planned import PlanInForce

POOLED_WINDOWS = 3
POOLED_LOOKS = 10
"""A pooled window is looked at again with every window that joins it: the error is shared."""

LEANING = 0.5
"""Share of its own threshold that a window reaches to count as leaning to a pooled result."""

RUN_LENGTH_WINDOWS = 500
"""The CUSUM's threshold: a false alarm once in this many windows over alpha, at most."""

DISPERSION_FLOOR = 2.0
"""Public traces show 2 to 6 at a minute; a window is never trusted as if it were Poisson's."""

WINDOW_SHARE = 0.6
"""At most this part of the CUSUM's threshold from one window: traffic that begins or ends within
a window is no drift, so that at least two have to agree."""

MINIMUM_REQUESTS = 20
"""Requests a window needs before its lengths or shares say anything, whatever the sample size."""

TOLERATED_ESCALATION = 0.05
TOLERATED_POINTS = 3.0
"""Differences too small to re-plan for, however certain: shares and points of score."""

NO_VERDICT_LIMIT = 0.1
"""Share of visits without a verdict above which escalation shows the judge's state, not traffic."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """``alpha``: chance of a false alarm shared by the sliding tests; ``stability``: PSI above
    which lengths count as shifted; ``time_scale``: how much faster than modelled traffic runs;
    ``sample_size``: judged requests behind a test of escalation or scores before it may fire."""

    alpha: float = 0.01
    stability: float = 0.2
    time_scale: float = 1.0
    sample_size: int = 50


@dataclasses.dataclass(frozen=True)
class Test:
    """One test of one look; it fires when the statistic's size is above the threshold.

    ``speaks``: False for a window of fewer judged requests than the sample size, which may lean
    to a pooled result but never fires by itself.
    """

    name: str
    statistic: float
    threshold: float
    speaks: bool = True

    @property
    def fired(self) -> bool:
        return self.speaks and abs(self.statistic) > self.threshold

    @property
    def strength(self) -> float:
        return abs(self.statistic) / self.threshold


@dataclasses.dataclass(frozen=True)
class Look:
    """Result of one look. ``convinced``: the tests that made it a drift; empty when it is none.

    ``onset``: how many of the last windows the drift is known to cover, 0 when there is none.
    """

    tests: tuple[Test, ...]
    convinced: tuple[Test, ...]
    onset: int

    @property
    def is_drift(self) -> bool:
        return bool(self.convinced)


def look(plan: PlanInForce, windows: Sequence[Window], limits: Limits) -> Look:
    """Tests the windows, oldest first, against the plan's workload."""
    busy = [w for w in windows if w.requests]
    up, onset_up = _cusum(plan, busy, limits, upward=True)
    down, onset_down = _cusum(plan, busy, limits, upward=False)
    sliding = _sliding(plan, busy, limits)
    convinced = [test for test in (up, down) if test.fired]
    convinced += _convincing(sliding)
    onset = 0
    if convinced:
        onset = max(onset_up * up.fired, onset_down * down.fired, 2)
    return Look((up, down, *sliding), tuple(convinced), min(onset, len(busy)))


def _cusum(
    plan: PlanInForce, windows: Sequence[Window], limits: Limits, *, upward: bool
) -> tuple[Test, int]:
    """The one-sided test on the rate, and since how many windows its sum has been rising."""
    threshold = math.log(RUN_LENGTH_WINDOWS / limits.alpha)
    longest = max((w.seconds for w in windows), default=0.0)
    counts = [w.requests for w in windows if w.seconds > 0.9 * longest]
    spread = measures.dispersion(counts, DISPERSION_FLOOR)
    total, rising = 0.0, 0
    for window in windows:
        expected = plan.workload.rate * limits.time_scale * window.seconds
        gain = measures.rate_evidence(window.requests, expected, spread, upward)
        total = max(0.0, total + min(gain, WINDOW_SHARE * threshold))
        rising = rising + 1 if total else 0
    # The first window of a longer rise may hold both kinds of traffic.
    rising -= rising > 2
    return Test(f"rate/cusum-{'up' if upward else 'down'}", total, threshold), rising


Measure = Callable[[Window, float], Test | None]
"""A test of one window at one level of error; ``None`` when the window says too little."""


def _sliding(plan: PlanInForce, windows: Sequence[Window], limits: Limits) -> list[Test]:
    """All tests that need agreement, each at its strongest: two windows in a row, or one pooled."""
    if not windows:
        return []
    measured, shared = _measures(plan, limits)
    recent = windows[-POOLED_WINDOWS:]
    pool = merge.joined(recent)
    found = []
    for measure in measured:
        single = [measure(window, shared) for window in recent]
        pooled = measure(pool, shared / POOLED_LOOKS) if len(recent) == POOLED_WINDOWS else None
        candidates = []
        leaning = _leaning(single, pooled.statistic) if pooled and pooled.speaks else []
        if pooled is not None and len(leaning) > 1:
            candidates.append(pooled)
        speaking = [test for test in single[-2:] if test is not None and test.speaks]
        if len(speaking) == 2:
            weaker = min(speaking, key=lambda test: test.strength)
            if speaking[0].statistic * speaking[1].statistic >= 0:
                candidates.append(weaker)
        if candidates:
            found.append(max(candidates, key=lambda test: test.strength))
    return found


def _leaning(tests: Sequence[Test | None], towards: float) -> list[Test]:
    """The windows that lean to the pooled result by themselves: one odd window convinces nobody."""
    return [t for t in tests if t and t.statistic * towards >= 0 and t.strength > LEANING]


def fits(plan: PlanInForce, window: Window, limits: Limits) -> bool:
    """Whether no test of this window alone fires: what the return of the traffic is known by."""
    measured, shared = _measures(plan, limits)
    found = [test for measure in measured if (test := measure(window, shared)) is not None]
    rates = [_cusum(plan, [window], limits, upward=upward)[0] for upward in (True, False)]
    return not _convincing(found) and all(test.strength < WINDOW_SHARE for test in rates)


def _measures(plan: PlanInForce, limits: Limits) -> tuple[list[Measure], float]:
    """The tests that apply, and the alpha that each may use: shared by all but the stability
    index, whose limit is fixed. A plan whose thresholds the router steers is held to rate and
    lengths only."""
    workload, found = plan.workload, []
    named = (("inputTokens", workload.input_deciles), ("outputTokens", workload.output_deciles))
    for name, deciles in named:
        if len(deciles) == len(measures.DECILES):
            found.append(_lengths(name, deciles, workload.size))
    fixed = [
        _stability(name, deciles, limits.stability)
        for name, deciles in named
        if len(deciles) == len(measures.DECILES)
    ]
    if not plan.is_steered:
        for model, share in workload.escalation_ratio.items():
            found.append(_escalation(model, share, workload.size, limits.sample_size))
            score = workload.mean_score.get(model)
            if score is not None:
                found.append(_score(model, score, workload.size, limits.sample_size))
    return [*found, *fixed], limits.alpha / max(1, len(found))


def _counts(window: Window, name: str) -> tuple[int, ...]:
    return window.input_counts if name == "inputTokens" else window.output_counts


def _lengths(name: str, deciles: Sequence[float], size: float) -> Measure:
    def measure(window: Window, alpha: float) -> Test | None:
        counts = _counts(window, name)
        n = sum(counts)
        if n < MINIMUM_REQUESTS:
            return None
        threshold = measures.ks_threshold(n, size, alpha)
        return Test(f"{name}/ks", measures.ks_distance(counts, deciles), threshold)

    return measure


def _stability(name: str, deciles: Sequence[float], limit: float) -> Measure:
    def measure(window: Window, alpha: float) -> Test | None:
        counts = _counts(window, name)
        if sum(counts) < MINIMUM_REQUESTS:
            return None
        return Test(f"{name}/psi", measures.stability_index(counts, deciles), limit)

    return measure


def _model(window: Window, name: str) -> ModelWindow | None:
    """The model's counts, if they show its traffic and not a judge that is gone."""
    found = next((m for m in window.models if m.name == name), None)
    return None if found is None or lacks_verdicts(found) else found


def lacks_verdicts(model: ModelWindow) -> bool:
    """Whether so many answers stayed without a verdict that the rest say nothing."""
    return no_verdict_share(model) >= NO_VERDICT_LIMIT


def no_verdict_share(model: ModelWindow) -> float:
    """Share of the visits to be judged for which the judge gave no verdict."""
    judged, _ = escalation_share(model)
    return model.no_verdict / judged if judged else 0.0


def escalation_share(model: ModelWindow) -> tuple[int, float]:
    """Judged visits, and the share of them that would go on; answers kept for want of capacity
    below the threshold count as escalations, because the traffic asked for one."""
    passed = model.escalated + model.degraded
    judged = model.accepted + passed
    return judged, passed / judged if judged else 0.0


def _escalation(name: str, planned: float, size: float, needed: int) -> Measure:
    def measure(window: Window, alpha: float) -> Test | None:
        model = _model(window, name)
        judged, share = escalation_share(model) if model else (0, 0.0)
        if judged < MINIMUM_REQUESTS:
            return None
        error = measures.share_error(planned, judged, size)
        z = measures.excess(share - planned, error, TOLERATED_ESCALATION)
        return Test(f"escalation/{name}", z, measures.normal_threshold(alpha), judged >= needed)

    return measure


def _score(name: str, planned: float, size: float, needed: int) -> Measure:
    def measure(window: Window, alpha: float) -> Test | None:
        model = _model(window, name)
        n, mean, variance = measures.score_moments(model) if model else (0, 0.0, 0.0)
        if n < MINIMUM_REQUESTS:
            return None
        error = math.sqrt(variance * (1 / n + (1 / size if size > 0 else 0.0)))
        z = measures.excess(mean - planned, error, TOLERATED_POINTS)
        return Test(f"score/{name}", z, measures.normal_threshold(alpha), n >= needed)

    return measure


def _convincing(tests: Sequence[Test]) -> list[Test]:
    """Lengths convince only when distance and stability index both fire; the others alone."""
    fired = {test.name for test in tests if test.fired}
    return [
        test
        for test in tests
        if test.fired
        and (
            "Tokens/" not in test.name
            or {f"{test.name.partition('/')[0]}/{kind}" for kind in ("ks", "psi")} <= fired
        )
    ]
