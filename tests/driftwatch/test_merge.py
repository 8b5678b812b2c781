"""Windows of several pods add up to those of the cascade, or are left out."""

import random

import pytest

from cascade_driftwatch import merge
from cascade_router.window import Window
from tests.driftwatch import traffic
from tests.driftwatch.traffic import STATIONARY, WINDOW_SECONDS

ROWS = tuple((i,) * 10 for i in range(5))


def windows(count: int, seed: int, first: int = 0, plan_id: str = "p1") -> list[Window]:
    rng = random.Random(seed)
    return [traffic.window(STATIONARY, rng, first + i, plan_id) for i in range(count)]


def test_counts_of_pods_add_up_by_weight() -> None:
    one, two = windows(3, 1), windows(3, 2)
    found = merge.usable([traffic.report("a", one), traffic.report("b", two)], "p1")
    assert [w.requests for w in found] == [
        x.requests + y.requests for x, y in zip(one, two, strict=True)
    ]
    for merged, x, y in zip(found, one, two, strict=True):
        assert sum(merged.input_counts) == x.requests + y.requests
        assert merged.seconds == WINDOW_SECONDS
        small, a, b = merged.models[0], x.models[0], y.models[0]
        assert small.score_sum == a.score_sum + b.score_sum
        assert small.visits == a.visits + b.visits
        assert small.score_counts[5] == a.score_counts[5] + b.score_counts[5]


def test_joint_histograms_add_up() -> None:
    one = [w.model_copy(update={"input_score_counts": ROWS}) for w in windows(1, 1)]
    found = merge.usable([traffic.report("a", one), traffic.report("b", one)], "p1")
    assert found[0].input_score_counts == tuple(tuple(2 * n for n in row) for row in ROWS)


def test_clocks_may_differ_by_less_than_a_second() -> None:
    one = windows(2, 1)
    two = [w.model_copy(update={"start": w.start + 0.4}) for w in windows(2, 2)]
    assert len(merge.usable([traffic.report("a", one), traffic.report("b", two)], "p1")) == 2


def test_windows_of_another_plan_are_ignored() -> None:
    mixed = windows(3, 1, plan_id="p0") + windows(2, 1, first=3)
    found = merge.usable([traffic.report("a", mixed)], "p1")
    assert [w.start for w in found] == [3 * WINDOW_SECONDS, 4 * WINDOW_SECONDS]


def test_open_windows_are_ignored() -> None:
    *closed, last = windows(3, 1)
    opened = last.model_copy(update={"closed": False})
    assert len(merge.usable([traffic.report("a", [*closed, opened])], "p1")) == 2


def test_windows_before_the_youngest_pod_began_are_ignored() -> None:
    """What a pod counted that is no longer there is unknown, so the sum would be too small."""
    old, young = traffic.report("a", windows(6, 1)), traffic.report("b", windows(2, 2, first=4))
    found = merge.usable([old, young], "p1")
    assert [w.start for w in found] == [4 * WINDOW_SECONDS, 5 * WINDOW_SECONDS]


def test_a_window_that_one_pod_lacks_is_ignored() -> None:
    whole, holed = windows(4, 1), windows(4, 2)
    del holed[2]
    found = merge.usable([traffic.report("a", whole), traffic.report("b", holed)], "p1")
    assert [w.start / WINDOW_SECONDS for w in found] == [0, 1, 3]


def test_a_pod_without_windows_leaves_none() -> None:
    reports = [traffic.report("a", windows(6, 1)), traffic.report("b", [], now=1e6)]
    assert merge.usable(reports, "p1") == ()


def test_windows_that_began_too_early_are_ignored() -> None:
    found = merge.usable([traffic.report("a", windows(4, 1))], "p1", not_before=450.0)
    assert [w.start for w in found] == [600.0, 900.0]


def test_no_router_gives_no_windows() -> None:
    assert merge.usable([], "p1") == ()


def test_a_first_window_cut_short_counts_with_its_own_length() -> None:
    first, *rest = windows(3, 1)
    short = first.model_copy(update={"start": 200.0, "seconds": 100.0})
    found = merge.usable([traffic.report("a", [short, *rest])], "p1")
    assert [w.seconds for w in found] == [100.0, WINDOW_SECONDS, WINDOW_SECONDS]


def test_consecutive_windows_join_to_a_longer_one() -> None:
    parts = windows(3, 1)
    joined = merge.joined(parts)
    assert joined.seconds == 3 * WINDOW_SECONDS
    assert joined.requests == sum(w.requests for w in parts)
    assert joined.models[0].visits == pytest.approx(joined.requests)


def test_joining_copes_with_a_model_that_came_later() -> None:
    one, two = windows(2, 1)
    only_small = one.model_copy(update={"models": one.models[:1]})
    joined = merge.joined([only_small, two])
    assert [m.name for m in joined.models] == ["small", "large"]
    assert joined.models[1].visits == two.models[1].visits
