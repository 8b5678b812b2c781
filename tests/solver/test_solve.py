"""solve(problem): verdicts, pins, constraints, reachability, and what must never happen."""

import itertools
from typing import Any

import pytest

from cascade_solver import errors, reach
from cascade_solver.plan import Plan
from cascade_solver.problem import Problem
from cascade_solver.solve import solve
from tests.solver import builders

NAMES_3 = ("small", "medium", "large")


def gpus(plan: Plan) -> dict[str, int]:
    return {m.name: m.gpus_used for m in plan.models}


def loaded(rate: float) -> dict[str, Any]:
    return {**builders.document()["workload"], "rate": rate}


def in_force(plan: Plan, **thresholds: int) -> dict[str, Any]:
    return {
        "thresholds": thresholds or plan.thresholds(),
        "deployment": {
            name: [s.model_dump(by_alias=True) for s in sets]
            for name, sets in plan.deployment().items()
        },
    }


def test_a_plan_meets_qmin_inside_the_pool_and_says_why() -> None:
    plan = solve(builders.problem(NAMES_3, qmin=80, pools=builders.pool(24), workload=loaded(30)))
    assert plan.verdict == "Feasible"
    assert plan.meets_qmin
    assert plan.quality.predicted is not None
    assert plan.quality.predicted >= 80
    assert sum(gpus(plan).values()) <= 24
    assert (
        plan.objective
        == plan.latency_p95_seconds
        == max(m.latency_p95_seconds for m in plan.models)
    )
    for model in plan.models:
        assert any(f"requests reach {model.name}" in line for line in model.details)
        assert 0 < model.ttft_p95_seconds < model.latency_p95_seconds
    assert [m.threshold is None for m in plan.models] == [False, False, True]


def test_two_models_are_proved_within_half_a_percent() -> None:
    plan = solve(builders.problem(qmin=70, workload=loaded(30.0)))
    assert plan.search.proven_gap_percent is not None
    assert 0 <= plan.search.proven_gap_percent <= 0.5


def test_documents_survive_a_round_trip() -> None:
    plan = solve(builders.problem())
    assert Plan.model_validate_json(plan.model_dump_json(by_alias=True)) == plan


def test_same_problem_same_bytes() -> None:
    first, second = (solve(builders.problem(NAMES_3)) for _ in range(2))
    assert first.canonical_json() == second.canonical_json()


def test_permuted_requests_change_nothing() -> None:
    given = builders.document()
    reversed_rows = {
        "columns": {
            name: {key: values[::-1] for key, values in column.items()}
            for name, column in given["calibration"]["columns"].items()
        }
    }
    plans = [
        solve(Problem.model_validate({**given, "calibration": c}))
        for c in (given["calibration"], reversed_rows)
    ]
    assert plans[0].canonical_json() == plans[1].canonical_json()


@pytest.mark.parametrize("rate", [4.0, 40.0])
def test_more_gpus_are_never_worse(rate: float) -> None:
    workload = loaded(rate)
    objectives = [
        solve(builders.problem(NAMES_3, pools=builders.pool(n), workload=workload)).objective
        for n in (12, 14, 16, 20, 24, 32)
    ]
    for fewer, more in itertools.pairwise(objectives):
        assert more <= fewer * 1.01


def test_a_lower_qmin_is_never_worse() -> None:
    objectives = [
        solve(builders.problem(NAMES_3, qmin=q, pools=builders.pool(24))).objective
        for q in (75, 70, 65, 60, 50, 30)
    ]
    for strict, loose in itertools.pairwise(objectives):
        assert loose <= strict * 1.01


def test_a_higher_qmin_moves_requests_and_gpus_to_the_largest_model() -> None:
    """The direction of the paper's case study (science.md 1.8), on a loaded pool."""
    plans = [
        solve(builders.problem(NAMES_3, qmin=q, workload=loaded(60.0))).models[-1]
        for q in (50, 75, 85)
    ]
    visits, held = [m.visit_ratio for m in plans], [m.gpus_used for m in plans]
    assert visits[0] < visits[1] < visits[2]
    assert held[0] < held[1] < held[2]


def test_uncalibrated_starts_at_proportional_routing_and_steers() -> None:
    plan = solve(builders.problem(NAMES_3, calibration=None, pools=builders.pool(24)))
    assert plan.verdict == "Uncalibrated"
    assert plan.meets_qmin is None
    assert [m.visit_ratio for m in plan.models] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [m.threshold for m in plan.models] == [50, 67, None]
    assert [m.steer_quantile for m in plan.models] == [
        pytest.approx(1 / 2),
        pytest.approx(2 / 3),
        None,
    ]
    assert plan.quality.predicted is None
    assert plan.workload.input_score_counts == ()
    mean = sum(plan.workload.input_deciles) / 9
    assert mean == pytest.approx(500, rel=0.15)


def test_a_pinned_threshold_is_not_steered() -> None:
    plan = solve(builders.problem(calibration=None, pinnedThresholds={"small": 88}))
    assert (plan.models[0].threshold, plan.models[0].steer_quantile) == (88, None)


def test_an_uncalibrated_replan_keeps_steered_thresholds_when_asked() -> None:
    running = {"thresholds": {"small": 73}, "deployment": {}}
    kept, fresh = (
        solve(builders.problem(calibration=None, inForce=running, keepThresholds=keep))
        for keep in (True, False)
    )
    assert (kept.thresholds(), fresh.thresholds()) == ({"small": 73}, {"small": 50})
    assert kept.models[0].steer_quantile == 0.5


def test_a_stale_table_keeps_thresholds_in_force() -> None:
    table = {**builders.calibration(), "stale": "revision of small changed"}
    running = {"thresholds": {"small": 37}, "deployment": {}}
    plan = solve(builders.problem(calibration=table, inForce=running))
    assert plan.verdict == "StaleCalibration"
    assert plan.thresholds() == {"small": 37}
    assert any("revision of small changed" in line for line in plan.details)


@pytest.mark.parametrize(
    "fields",
    [
        {"keepThresholds": True},
        {"calibration": {**builders.calibration(), "effectiveSize": 61.0}},
    ],
    ids=["asked", "small-effective-sample"],
)
def test_thresholds_are_kept(fields: dict[str, Any]) -> None:
    running = {"thresholds": {"small": 37}, "deployment": {}}
    plan = solve(builders.problem(**fields, inForce=running))
    assert plan.thresholds() == {"small": 37}
    assert any("thresholds are kept" in line for line in plan.details)


def test_unreachable_quality_gives_the_best_plan_and_the_maximum() -> None:
    plan = solve(builders.problem(qmin=100))
    assert plan.verdict == "QualityUnreachable"
    assert plan.meets_qmin is False
    assert plan.quality.best_reachable == pytest.approx(plan.quality.predicted)
    assert any(f"at most {plan.quality.best_reachable:.1f}" in line for line in plan.details)


def test_an_overloaded_pool_gives_the_least_overloaded_plan() -> None:
    plan = solve(builders.problem(workload=loaded(5000.0)))
    assert plan.overloaded
    assert plan.verdict == "Feasible"
    assert max(m.utilisation for m in plan.models) > 1
    assert any("cannot carry 5000 requests/s" in line for line in plan.details)
    assert any(line.startswith("with ") and "overload" in line for line in plan.models[0].details)
    spread = [m.utilisation for m in plan.models if m.visit_ratio > 0]
    assert max(spread) < 10 * min(spread)


def test_pins_are_kept() -> None:
    models = [
        {"name": "small", "architecture": "Llama-3.1-8B", "pins": {"tensor": 2, "replicas": 3}},
        {"name": "large", "architecture": "Llama-3.1-70B", "minReplicas": 2},
    ]
    plan = solve(builders.problem(models=models, pinnedGpus={"large": 9}))
    small, large = plan.models
    assert [(s.tensor, s.replicas) for s in small.sets] == [(2, 3)]
    assert large.gpus_allocated == 9
    assert large.gpus_used <= 9
    assert sum(s.replicas for s in large.sets) >= 2


def test_a_pinned_threshold_is_kept_by_the_search() -> None:
    plan = solve(builders.problem(NAMES_3, pinnedThresholds={"medium": 55}))
    assert plan.models[1].threshold == 55


def test_too_few_gpus_name_what_is_needed() -> None:
    with pytest.raises(errors.InsufficientGpusError) as caught:
        solve(builders.problem(NAMES_3, pools=builders.pool(3)))
    assert (caught.value.needed, caught.value.available) == (4, 3)
    assert "small 1, medium 1, large 2" in str(caught.value)


def test_an_empty_pool_is_too_few() -> None:
    with pytest.raises(errors.InsufficientGpusError, match="the pool offers 0"):
        solve(builders.problem(pools=builders.pool(0)))


def test_a_replica_must_fit_the_free_gpus_of_one_node() -> None:
    pool = builders.pool(4, freePerNode=[1, 1, 1, 1])
    with pytest.raises(errors.InsufficientGpusError, match="a replica must fit one node"):
        solve(builders.problem(pools=pool))


def test_a_model_that_fits_no_node_names_every_excluded_shape() -> None:
    models = [
        {"name": "small", "architecture": "Llama-3.1-8B"},
        {"name": "large", "architecture": "DeepSeek-R1", "precision": "fp8"},
    ]
    with pytest.raises(errors.InfeasibleError) as caught:
        solve(builders.problem(models=models, calibration=None))
    assert set(caught.value.reasons) == {"large"}
    assert [line.split(":")[0] for line in caught.value.reasons["large"]] == [
        "TP1", "TP2", "TP4", "TP8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"objective": {"type": "Cost"}}, "$.objective.type: Cost"),
        ({"objective": {"latencySloSeconds": 3}}, "$.objective.latencySloSeconds"),
        ({"pools": builders.pool(8) + builders.pool(8)}, "$.pools: 2 pools"),
        ({"pinnedThresholds": {"large": 50}}, "$.pinnedThresholds.large"),
        ({"pinnedGpus": {"large": 1}}, "$.pinnedGpus.large: 1 is too few"),
        (
            {"capabilities": {"nodesPerReplica": 2}},
            "$.capabilities.nodesPerReplica: 2; allowed: 1",
        ),
        ({"capabilities": {"shapesPerModel": 2}}, "$.capabilities.shapesPerModel: 2; allowed: 1"),
        ({"capabilities": {"pipeline": True}}, "$.capabilities.pipeline: true; allowed: false"),
        ({"judge": {"latencySeconds": 0.5}}, "$.judge.latencySeconds: 0.5; allowed: 0"),
    ],
    ids=[
        "objective", "slo", "pools", "last-threshold", "pin-too-small", "nodes-per-replica",
        "shapes-per-model", "pipeline", "judge-latency",
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(errors.ProblemError) as caught:
        solve(builders.problem(**fields))
    assert [f for f in caught.value.faults if f.startswith(path)]


FREE_NODES = [
    (8, 8), (8, 4, 4), (5, 5, 5), (7, 7, 2), (3, 3, 3, 3, 3), (8, 1, 1, 1, 1, 1, 1, 1), (2,) * 8,
]  # fmt: skip


@pytest.mark.parametrize(
    ("price", "words"),
    [(2.5, "2.50"), (0.125, "0.125"), (0.0, "0.00")],
    ids=["cents", "finer-than-cents", "free"],
)
def test_a_pool_with_a_price_tells_what_the_plan_costs(price: float, words: str) -> None:
    plan = solve(builders.problem(pools=builders.pool(16, pricePerGpuHour=price)))
    used = sum(gpus(plan).values())
    assert plan.cost_per_hour == pytest.approx(used * price)
    told = next(line for line in plan.details if "per GPU hour" in line)
    assert told.startswith(f"{used} GPUs at {words} per GPU hour: ")
    total = told.removesuffix(" per hour").rpartition(" ")[2]
    assert float(total) == pytest.approx(used * price)


def test_a_pool_without_a_price_tells_no_cost_and_gets_the_same_plan() -> None:
    free, priced = (
        solve(builders.problem(pools=builders.pool(16, **fields)))
        for fields in ({}, {"pricePerGpuHour": 2.5})
    )
    assert free.cost_per_hour is None
    assert not any("per GPU hour" in line for line in free.details)
    assert free.deployment() == priced.deployment()
    assert free.thresholds() == priced.thresholds()


@pytest.mark.parametrize("free", FREE_NODES, ids=str)
def test_a_plan_always_fits_the_nodes(free: tuple[int, ...]) -> None:
    plan = solve(builders.problem(pools=builders.pool(sum(free), freePerNode=free)))
    left = list(free)
    sizes = sorted(
        (s.tensor for m in plan.models for s in m.sets for _ in range(s.replicas)), reverse=True
    )
    assert sizes
    for size in sizes:
        left.sort()
        node = next((i for i, room in enumerate(left) if room >= size), None)
        assert node is not None, f"no node of {free} has room for all of {sizes}"
        left[node] -= size


def test_an_llm_judge_loads_the_model_that_judges() -> None:
    workload = loaded(30.0)
    plain, judged = (
        solve(builders.problem(workload=workload, keepThresholds=True, inForce=force, judge=judge))
        for force in [{"thresholds": {"small": 70}, "deployment": {}}]
        for judge in ({"type": "Self"}, {"type": "LLM", "model": "large"})
    )
    assert judged.models[1].visit_ratio == plain.models[1].visit_ratio
    carried = [
        m.utilisation * sum(s.replicas * s.saturation_rate for s in m.sets)
        for m in (plain.models[1], judged.models[1])
    ]
    assert carried[1] - carried[0] == pytest.approx(30.0, rel=0.02)


def test_nobody_is_judged_at_threshold_0() -> None:
    force = {"thresholds": {"small": 0}, "deployment": {}}
    plan = solve(
        builders.problem(
            keepThresholds=True, inForce=force, judge={"type": "LLM", "model": "large"}
        )
    )
    assert plan.models[1].utilisation == 0
    assert plan.models[1].latency_p95_seconds == 0


def test_the_plan_in_force_is_kept_when_nothing_is_better() -> None:
    first = solve(builders.problem())
    again = solve(builders.problem(inForce=in_force(first)))
    assert again.deployment() == first.deployment()
    assert again.keeps_in_force
    assert again.in_force_objective == pytest.approx(again.objective)


def test_the_plan_in_force_is_priced_even_when_another_one_is_returned() -> None:
    first = solve(builders.problem(pools=builders.pool(4)))
    moved = solve(builders.problem(inForce=in_force(first)))
    assert moved.in_force_objective is not None
    assert moved.in_force_objective > moved.objective
    assert not moved.keeps_in_force


def test_running_replicas_stay_where_they_do_not_set_the_latency() -> None:
    """The small model could be a little faster with other replicas; that moves nothing."""
    fields: dict[str, Any] = {
        "qmin": 70,
        "workload": loaded(10.0),
        "pinnedThresholds": {"small": 45},
    }
    fresh = solve(builders.problem(**fields))
    running = in_force(fresh)
    slower = {**running["deployment"]["small"][0], "tensor": 2, "replicas": 1}
    assert slower != running["deployment"]["small"][0]
    running["deployment"]["small"] = [slower]
    kept = solve(builders.problem(**fields, inForce=running, allowDowntime=True))
    assert kept.deployment()["small"][0].tensor == 2
    assert kept.objective == pytest.approx(fresh.objective)
    assert kept.keeps_in_force


RUNNING = {
    "thresholds": {"small": 60},
    "deployment": {
        "small": [
            {"tensor": 4, "replicas": 1, "memFractionStatic": 0.8, "chunkedPrefillSize": 8192}
        ],
        "large": [
            {"tensor": 4, "replicas": 1, "memFractionStatic": 0.8, "chunkedPrefillSize": 8192}
        ],
    },
}
"""Eight GPUs, all taken by one TP4 replica of each model: no shape can change in place."""


def test_a_better_plan_behind_downtime_is_named_and_a_reachable_one_returned() -> None:
    fields: dict[str, Any] = {
        "pools": builders.pool(8),
        "workload": loaded(60.0),
        "inForce": RUNNING,
        "qmin": 30,
    }
    free = solve(builders.problem(**fields, allowDowntime=True))
    bound = solve(builders.problem(**fields))
    current = builders.problem(**fields).in_force
    assert current is not None
    assert reach.moves(current.deployment, free.deployment(), 8) is None
    assert reach.moves(current.deployment, bound.deployment(), 8) is not None
    assert bound.reachable
    assert free.objective < bound.objective
    assert "only downtime reaches it" in bound.needs_downtime
    assert free.needs_downtime == ""


def test_every_returned_plan_is_reachable_from_the_plan_before() -> None:
    plan = solve(builders.problem(NAMES_3, pools=builders.pool(16)))
    for qmin, rate in ((40, 30.0), (75, 3.0), (60, 80.0), (20, 1.0), (70, 20.0)):
        following = solve(
            builders.problem(
                NAMES_3,
                pools=builders.pool(16),
                qmin=qmin,
                workload=loaded(rate),
                inForce=in_force(plan),
            )
        )
        assert following.reachable
        assert reach.moves(plan.deployment(), following.deployment(), 16) is not None
        plan = following


def test_where_nothing_is_reachable_the_plan_says_so() -> None:
    models = [
        {"name": "small", "architecture": "Llama-3.1-8B", "pins": {"tensor": 2}},
        {"name": "large", "architecture": "Llama-3.1-70B"},
    ]
    plan = solve(builders.problem(models=models, pools=builders.pool(8), inForce=RUNNING))
    assert not plan.reachable
    assert "only downtime reaches" in plan.needs_downtime


def test_planned_workload_describes_the_table() -> None:
    plan = solve(builders.problem())
    counts = plan.workload.input_score_counts
    assert (len(counts), len(counts[0])) == (5, 10)
    assert sum(map(sum, counts)) == pytest.approx(plan.workload.n) == pytest.approx(400)
    assert len(plan.workload.input_edges) == 4
    small, large = plan.models
    assert plan.workload.escalation_ratio == {"small": pytest.approx(large.visit_ratio)}
    assert plan.workload.mean_score["small"] == small.mean_score


def test_a_single_model_needs_no_thresholds() -> None:
    plan = solve(
        builders.problem(("small",), calibration=builders.calibration(("small",)), qmin=10)
    )
    assert plan.verdict == "Feasible"
    assert plan.thresholds() == {}


def test_few_rows_at_a_model_are_pointed_out() -> None:
    table = builders.calibration(n=60)
    plan = solve(builders.problem(calibration=table))
    assert any("calibration rows reach this model" in line for line in plan.models[1].details)


def test_the_fewest_gpus_are_named_as_such() -> None:
    plan = solve(builders.problem(pools=builders.pool(3)))
    assert [m.gpus_used for m in plan.models] == [1, 2]
    for model in plan.models:
        assert f"{model.gpus_used} GPU(s) are the fewest that hold it" in model.details


def test_models_out_of_order_are_pointed_out() -> None:
    table = builders.calibration(("large", "small"))
    models = [
        {"name": "large", "architecture": "Llama-3.1-70B"},
        {"name": "small", "architecture": "Llama-3.1-8B"},
    ]
    plan = solve(builders.problem(models=models, calibration=table))
    assert any("the last model is not the best one" in line for line in plan.details)


def test_progress_is_told_after_each_round() -> None:
    told: list[str] = []
    plan = solve(builders.problem(NAMES_3), told.append)
    assert len(told) == plan.search.rounds
    assert told[0].startswith("round 1: J ")
