"""cost(problem, thresholds, deployment): what a given plan would do."""

import pytest

from cascade_solver import errors
from cascade_solver.cost import cost
from cascade_solver.problem import DeployedSet
from cascade_solver.solve import solve
from tests.solver import builders


def test_the_cost_of_a_plan_is_what_the_plan_predicts() -> None:
    problem = builders.problem(("small", "medium", "large"), pools=builders.pool(24))
    plan = solve(problem)
    found = cost(problem, plan.thresholds(), plan.deployment())
    assert found.latency_p95_seconds == pytest.approx(plan.latency_p95_seconds)
    assert found.objective == pytest.approx(plan.objective)
    assert found.quality == pytest.approx(plan.quality.predicted)
    assert found.utilisation == pytest.approx({m.name: m.utilisation for m in plan.models})
    assert found.visit_ratio == pytest.approx({m.name: m.visit_ratio for m in plan.models})


def test_two_sets_share_the_load_by_what_they_can_carry() -> None:
    problem = builders.problem()
    small, large = (
        DeployedSet(tensor=t, replicas=1, mem_fraction_static=0.83, chunked_prefill_size=8192)
        for t in (1, 4)
    )
    one = cost(problem, {"small": 60}, {"small": (small,), "large": (large,)})
    two = cost(problem, {"small": 60}, {"small": (small, large), "large": (large,)})
    assert two.utilisation["small"] < one.utilisation["small"] / 2


def test_a_model_without_replicas_is_overloaded() -> None:
    plan = solve(builders.problem())
    found = cost(builders.problem(), {"small": 60}, {"small": plan.deployment()["small"]})
    assert found.overloaded == ("large",)
    assert found.latency_p95_seconds is None
    assert found.objective is None


def test_uncalibrated_cost_has_no_quality() -> None:
    problem = builders.problem(calibration=None)
    plan = solve(problem)
    found = cost(problem, plan.thresholds(), plan.deployment())
    assert found.quality is None
    assert found.latency_p95_seconds == pytest.approx(plan.latency_p95_seconds)


def test_a_missing_threshold_is_named() -> None:
    with pytest.raises(errors.ProblemError, match=r"\$\.thresholds\.small: missing"):
        cost(builders.problem(), {}, {})
