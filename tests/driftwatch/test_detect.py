"""Noise raises no alarm, a shift raises exactly one, for the reason that it has."""

import dataclasses
import random
from collections.abc import Iterable
from typing import Any

import pytest

from cascade_driftwatch import detect, report, verdict
from cascade_driftwatch.planned import PlanInForce
from cascade_router.window import Window
from tests.driftwatch import traffic
from tests.driftwatch.traffic import STATIONARY, Traffic

KEPT = 12
"""Windows that a router keeps."""


def findings(
    plan: PlanInForce, windows: Iterable[Window], replans: bool = False
) -> list[verdict.Finding]:
    """One look after each window, each given the entry that the one before it wrote.

    ``replans``: a drift is answered by a new revision of the same plan, as the operator would.
    """
    entry: dict[str, Any] = {}
    kept: list[Window] = []
    found = []
    for window in windows:
        kept = [*kept, window.model_copy(update={"plan_id": plan.revision})][-KEPT:]
        now = window.start + window.seconds
        found.append(verdict.find(entry, plan, kept, detect.Limits(), now))
        entry = report.entry(found[-1], now, 1.0)
        if replans and found[-1].verdict == "Drifted":
            plan, kept = dataclasses.replace(plan, revision=plan.revision + "'"), []
    return found


def drifts(found: list[verdict.Finding]) -> list[verdict.Finding]:
    """The findings that began a drift: the operator re-plans once for each."""
    return [
        now
        for before, now in zip([None, *found[:-1]], found, strict=True)
        if now.verdict == "Drifted" and (before is None or before.since != now.since)
    ]


@pytest.mark.parametrize(
    ("changes", "seed"),
    [
        *(pytest.param({"requests": 50.0}, seed, id=f"50-requests-{seed}") for seed in range(5)),
        *(pytest.param({"requests": 200.0}, seed, id=f"200-requests-{seed}") for seed in range(3)),
        pytest.param({"requests": 1000.0}, 0, id="1000-requests"),
        pytest.param({"requests": 200.0, "burstiness": 4.0}, 0, id="bursty"),
    ],
)
def test_500_stationary_windows_raise_at_most_one_replan(
    changes: dict[str, float], seed: int
) -> None:
    same = dataclasses.replace(STATIONARY, **changes)
    plan = traffic.plan(same, seed=100 + seed)
    found = findings(plan, traffic.row(same, 500, seed), replans=True)
    assert len(drifts(found)) <= 1
    assert sum(f.verdict == "Stable" for f in found) > 450


SHIFTS = [
    pytest.param({"requests": 450.0}, "rate/cusum-up", id="more-requests"),
    pytest.param({"requests": 150.0}, "rate/cusum-down", id="fewer-requests"),
    pytest.param({"input_median": 1500.0}, "inputTokens/psi", id="longer-prompts"),
    pytest.param({"output_median": 340.0}, "outputTokens/ks", id="longer-answers"),
    pytest.param({"escalation": 0.62}, "escalation/small", id="harder"),
    pytest.param({"score": 52.0}, "score/small", id="worse-scores"),
]


@pytest.mark.parametrize(("changes", "reason"), SHIFTS)
def test_a_shifted_window_pair_fires_exactly_once_for_its_reason(
    changes: dict[str, float], reason: str
) -> None:
    shifted = dataclasses.replace(STATIONARY, **changes)
    calm = traffic.row(STATIONARY, 10)
    windows = calm + traffic.row(shifted, 2, seed=8, first=10)
    found = findings(traffic.plan(), windows)
    assert [f.verdict for f in found[:11]].count("Drifted") == 0
    assert found[11].verdict == "Drifted"
    assert reason in {test.name for test in found[11].convinced}


@pytest.mark.parametrize(("changes", "reason"), SHIFTS)
def test_a_lasting_shift_is_one_drift_until_the_plan_changes(
    changes: dict[str, float], reason: str
) -> None:
    shifted = dataclasses.replace(STATIONARY, **changes)
    windows = traffic.row(STATIONARY, 10) + traffic.row(shifted, 30, seed=8, first=10)
    found = findings(traffic.plan(), windows)
    assert len(drifts(found)) == 1
    assert {f.verdict for f in found[12:]} == {"Drifted"}
    assert len({f.since for f in found[12:]}) == 1


def test_the_plan_for_the_shifted_traffic_ends_the_drift() -> None:
    shifted = dataclasses.replace(STATIONARY, requests=500.0, input_median=1500.0)
    windows = traffic.row(shifted, 30, seed=8)
    adapted = traffic.plan(shifted, revision="p2")
    found = findings(adapted, windows)
    assert {f.verdict for f in found} == {"Stable"}


def test_a_single_odd_window_is_no_drift() -> None:
    odd = dataclasses.replace(STATIONARY, requests=600.0, input_median=1600.0, escalation=0.8)
    windows = [
        *traffic.row(STATIONARY, 6),
        *traffic.row(odd, 1, first=6),
        *traffic.row(STATIONARY, 1, seed=4, first=7),
    ]
    assert findings(traffic.plan(), windows)[6].verdict == "Stable"


def test_traffic_that_begins_and_ends_within_windows_is_no_drift() -> None:
    half = dataclasses.replace(STATIONARY, requests=150.0)
    none = dataclasses.replace(STATIONARY, requests=0.0)
    windows = [
        *traffic.row(none, 2),
        *traffic.row(half, 1, first=2),
        *traffic.row(STATIONARY, 5, first=3),
        *traffic.row(half, 1, seed=9, first=8),
        *traffic.row(none, 10, first=9),
    ]
    verdicts = [f.verdict for f in findings(traffic.plan(), windows)]
    assert "Drifted" not in verdicts
    assert verdicts[5] == "Stable"
    assert verdicts[-1] == "Unknown"


def test_a_drift_ends_when_the_traffic_has_returned_for_three_windows() -> None:
    shifted = dataclasses.replace(STATIONARY, escalation=0.7)
    windows = traffic.row(STATIONARY, 6) + traffic.row(shifted, 4, first=6)
    windows += traffic.row(STATIONARY, 20, seed=5, first=10)
    verdicts = [f.verdict for f in findings(traffic.plan(), windows)]
    assert verdicts[9] == "Drifted"
    assert verdicts[-1] == "Stable"
    assert verdicts.index("Stable", 9) >= 12


def test_the_evidence_of_a_drift_holds_the_shifted_windows_only() -> None:
    shifted = dataclasses.replace(STATIONARY, requests=600.0)
    windows = traffic.row(STATIONARY, 10) + traffic.row(shifted, 8, seed=8, first=10)
    for finding in findings(traffic.plan(), windows)[11:]:
        assert finding.evidence is not None
        assert finding.evidence.requests / finding.evidence.seconds == pytest.approx(2.0, rel=0.06)


def test_a_rate_is_compared_in_modelled_time() -> None:
    fast = [
        w.model_copy(update={"start": w.start / 20, "seconds": w.seconds / 20})
        for w in traffic.row(STATIONARY, 6)
    ]
    plan = traffic.plan()
    assert not detect.look(plan, fast, detect.Limits(time_scale=20.0)).is_drift
    names = {t.name for t in detect.look(plan, fast, detect.Limits()).convinced}
    assert names == {"rate/cusum-up"}


def test_a_steered_plan_is_held_to_rate_and_lengths_only() -> None:
    harder = dataclasses.replace(STATIONARY, escalation=0.9, score=30.0)
    steered = dataclasses.replace(traffic.plan(), is_steered=True)
    seen = detect.look(steered, traffic.row(harder, 6), detect.Limits())
    assert not seen.is_drift
    assert {t.name.partition("/")[0] for t in seen.tests} == {
        "rate",
        "inputTokens",
        "outputTokens",
    }
    longer = dataclasses.replace(STATIONARY, input_median=2500.0)
    assert detect.look(steered, traffic.row(longer, 6), detect.Limits()).is_drift


def test_a_lost_judge_is_no_drift_of_the_traffic() -> None:
    def judged_nowhere(window: Window) -> Window:
        small, large = window.models
        lost = small.model_copy(
            update={
                "accepted": 0,
                "escalated": small.visits,
                "no_verdict": small.visits,
                "score_counts": (0,) * 10,
                "score_sum": 0,
            }
        )
        return window.model_copy(update={"models": (lost, large)})

    windows = [judged_nowhere(w) for w in traffic.row(STATIONARY, 6)]
    assert not detect.look(traffic.plan(), windows, detect.Limits()).is_drift


def test_answers_kept_for_want_of_capacity_count_as_escalations() -> None:
    def bucket_empty(window: Window) -> Window:
        small, large = window.models
        kept = small.model_copy(update={"escalated": 0, "degraded": small.escalated})
        return window.model_copy(update={"models": (kept, large)})

    windows = [bucket_empty(w) for w in traffic.row(STATIONARY, 6)]
    assert not detect.look(traffic.plan(), windows, detect.Limits()).is_drift
    harder = dataclasses.replace(STATIONARY, escalation=0.7)
    windows = [bucket_empty(w) for w in traffic.row(harder, 6)]
    assert detect.look(traffic.plan(), windows, detect.Limits()).is_drift


@pytest.mark.parametrize(
    "changes", [{"escalation": 0.75}, {"score": 45.0}], ids=["escalation", "score"]
)
def test_the_sample_size_decides_how_many_judged_requests_are_enough(
    changes: dict[str, float],
) -> None:
    harder = dataclasses.replace(STATIONARY, requests=60.0, burstiness=0.0, **changes)
    plan = traffic.plan(dataclasses.replace(STATIONARY, requests=60.0))
    windows = traffic.row(harder, 3)
    reached = {
        size: verdict.find({}, plan, windows, detect.Limits(sample_size=size), 900.0).verdict
        for size in (60, 180, 181)
    }
    assert reached == {60: "Drifted", 180: "Drifted", 181: "Stable"}
    pair = {
        size: detect.look(plan, windows[:2], detect.Limits(sample_size=size)).is_drift
        for size in (60, 61)
    }
    assert pair == {60: True, 61: False}


def test_rate_and_lengths_are_tested_below_the_sample_size() -> None:
    longer = dataclasses.replace(STATIONARY, requests=60.0, burstiness=0.0, input_median=3000.0)
    plan = traffic.plan(dataclasses.replace(STATIONARY, requests=60.0))
    seen = detect.look(plan, traffic.row(longer, 3), detect.Limits(sample_size=1000))
    assert "inputTokens/ks" in {test.name for test in seen.convinced}


def test_lengths_need_both_distance_and_stability_index() -> None:
    """With many requests a small shift is certain, but not worth a new plan."""
    slightly = Traffic(requests=5000.0, input_median=1000.0)
    plan = traffic.plan(dataclasses.replace(STATIONARY, requests=5000.0), n=100_000)
    seen = detect.look(plan, traffic.row(slightly, 4), detect.Limits())
    fired = {test.name for test in seen.tests if test.fired}
    assert "inputTokens/ks" in fired
    assert "inputTokens/psi" not in fired
    assert not seen.is_drift


@pytest.mark.parametrize("length", [8, 100, 400, 512, 3000])
def test_equal_lengths_fit_their_own_plan_and_no_other(length: int) -> None:
    def constant(value: int) -> list[Window]:
        counts = traffic.histogram([value] * 300)
        return [w.model_copy(update={"input_counts": counts}) for w in traffic.row(STATIONARY, 4)]

    plan = traffic.plan(input_deciles=(float(length),) * 9)
    assert not detect.look(plan, constant(length), detect.Limits()).is_drift
    assert detect.look(plan, constant(length * 4), detect.Limits()).is_drift


def test_too_little_traffic_is_unknown_and_says_how_much_there_was() -> None:
    few = dataclasses.replace(STATIONARY, requests=4.0, burstiness=0.0)
    found = findings(traffic.plan(few), traffic.row(few, 3))[-1]
    assert found.verdict == "Unknown"
    assert "12 requests in 3 whole windows of plan p1, 20 are needed" in found.reason


def test_alpha_is_shared_by_the_sliding_tests() -> None:
    windows = traffic.row(STATIONARY, 4)
    steered = dataclasses.replace(traffic.plan(), is_steered=True)
    few, many = (
        {t.name: t.threshold for t in detect.look(p, windows, detect.Limits()).tests}
        for p in (steered, traffic.plan())
    )
    assert many["inputTokens/ks"] > few["inputTokens/ks"]


def test_the_seed_of_the_noise_does_not_decide() -> None:
    """Two windows drawn alike never agree by luck on the strongest test, over many draws."""
    rng = random.Random(11)
    plan = traffic.plan()
    alarms = 0
    for _ in range(300):
        pair = [traffic.window(STATIONARY, rng, i) for i in range(2)]
        alarms += detect.look(plan, pair, detect.Limits()).is_drift
    assert alarms == 0
