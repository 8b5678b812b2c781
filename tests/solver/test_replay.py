"""Routing semantics and replay (science.md 1.2)."""

import numpy as np
import pytest

from cascade_solver import replay
from cascade_solver.problem import Calibration
from tests.solver import builders

SCORES = {"a": [90, 50, 20, 80], "b": [95, 80, 40, 10], "c": [99, 90, 70, 60]}
NAMES = ("a", "b", "c")


def walk(thresholds: replay.Thresholds, **fields: object) -> replay.Walk:
    return replay.walk(replay.table(builders.table(SCORES, **fields), NAMES), thresholds)


@pytest.mark.parametrize(
    ("thresholds", "visits", "quality"),
    [
        ((0, 0), (1.0, 0.0, 0.0), (90 + 50 + 20 + 80) / 4),
        ((101, 101), (1.0, 1.0, 1.0), (99 + 90 + 70 + 60) / 4),
        ((80, 80), (1.0, 0.5, 0.25), (90 + 80 + 70 + 80) / 4),
        ((81, 80), (1.0, 0.75, 0.5), (90 + 80 + 70 + 60) / 4),
        ((101, 0), (1.0, 1.0, 0.0), (95 + 80 + 40 + 10) / 4),
    ],
    ids=["accept-all", "accept-none", "equal-is-accepted", "one-above", "second-answers"],
)
def test_walk(thresholds: replay.Thresholds, visits: tuple[float, ...], quality: float) -> None:
    found = walk(thresholds)
    assert found.visit_ratio == pytest.approx(visits)
    assert found.quality == pytest.approx(quality)


def test_weights_count_as_repeated_rows() -> None:
    weighted = walk((80, 80), weights=[1, 0, 3, 0])
    assert weighted.visit_ratio == pytest.approx((1.0, 0.75, 0.75))
    assert weighted.quality == pytest.approx((90 + 3 * 70) / 4)


def test_lengths_are_conditional_on_reaching_the_model() -> None:
    given = builders.table({"a": [0, 100], "b": [50, 50]}).model_dump()
    given["columns"]["b"]["input_tokens"] = (1000, 10)
    data = replay.table(Calibration.model_validate(given), ("a", "b"))
    assert replay.walk(data, (50,)).mean_input[1] == 1000


def test_quality_comes_from_audit_scores_where_there_are_some() -> None:
    given = builders.table({"a": [90, 90], "b": [95, 95]}).model_dump()
    data = replay.table(Calibration.model_validate(given), ("a", "b"))
    assert data.biased
    for name, audit in (("a", (40, 60)), ("b", (70, 80))):
        given["columns"][name]["audit"] = audit
    audited = replay.table(Calibration.model_validate(given), ("a", "b"))
    assert not audited.biased
    assert replay.walk(audited, (0,)).quality == 50
    given["columns"]["b"]["audit"] = (70, None)
    partly = replay.table(Calibration.model_validate(given), ("a", "b"))
    assert partly.biased
    assert replay.walk(partly, (101,)).quality == pytest.approx((70 + 95) / 2)


def test_start_point_passes_on_one_half_then_two_thirds() -> None:
    random = np.random.default_rng(0)
    scores = {n: random.permutation(np.arange(3000) % 101).tolist() for n in NAMES}
    data = replay.table(builders.table(scores), NAMES)
    found = replay.walk(data, replay.proportional(data))
    assert found.visit_ratio == pytest.approx((1.0, 1 / 2, 1 / 3), abs=0.01)


def test_the_order_of_rows_has_no_influence() -> None:
    given = builders.calibration(NAMES_3, n=300)
    order = np.random.default_rng(5).permutation(300)
    shuffled = {
        "columns": {
            name: {k: [v[i] for i in order] for k, v in column.items()}
            for name, column in given["columns"].items()
        }
    }
    first, second = (
        replay.table(Calibration.model_validate(c), NAMES_3) for c in (given, shuffled)
    )
    assert first.scores.tobytes() == second.scores.tobytes()
    assert first.inputs.tobytes() == second.inputs.tobytes()


NAMES_3 = ("small", "medium", "large")
