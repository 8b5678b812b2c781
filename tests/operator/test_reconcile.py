"""The pass: order of writes, isolation, planning once, status in any case."""

import asyncio
from typing import Any

import pytest

from cascade_operator import (
    childplan,
    errors,
    events,
    kube,
    names,
    observe,
    reasons,
    reconcile,
    spec,
)
from cascade_solver import plan as plans
from tests.operator import samples
from tests.operator.memory import MemoryCluster, Planner


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> Planner:
    found = Planner(samples.plan(verdict="Uncalibrated"))
    monkeypatch.setattr(childplan, "solve", found)
    return found


def larger(replicas: int) -> plans.Plan:
    """The sample plan with other replicas of the small model."""
    small, large = samples.plan().models
    sets = (small.sets[0].model_copy(update={"replicas": replicas}),)
    gpus = {"gpus_used": 2 * replicas, "gpus_allocated": 2 * replicas}
    return samples.plan(
        verdict="Uncalibrated", models=(small.model_copy(update={"sets": sets, **gpus}), large)
    )


async def test_a_new_cascade_gets_plan_routing_children_and_status(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create()
    await cluster.run(key)
    assert cluster.condition(key, "Ready")["status"] == "True"
    assert cluster.condition(key, "PlanApplied")["status"] == "True"
    assert planner.calls == 1
    written = [path for path in cluster.api.requests if path.startswith("PATCH")]
    order = [
        next(i for i, path in enumerate(written) if f"/{name}" in path)
        for name in (
            "configmaps/chat-plan",
            "configmaps/chat-router",
            "deployments",
            "statefulsets",
        )
    ]
    assert order == sorted(order)
    assert set(cluster.reasons()) == {
        events.PLAN_CHANGED, events.ROUTER_CONFIG_UPDATED, events.MODEL_SCALED, events.READY,
    }  # fmt: skip


async def test_an_unchanged_pass_asks_for_nothing_and_writes_nothing(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create()
    await cluster.run(key)
    before = len(cluster.api.requests)
    result = await cluster.reconciler.reconcile(key)
    assert result == reconcile.Result()
    # The table's ConfigMap does not exist and so cannot be cached.
    asked = [request for request in cluster.api.requests[before:] if "calibration" not in request]
    assert asked == []


async def test_a_restarted_operator_writes_nothing(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create()
    await cluster.run(key)
    restarted = cluster.restarted()
    await restarted.reconciler.reconcile(key)
    assert restarted.writer.requests == 0
    assert planner.calls == 1


async def test_a_wrong_spec_stops_nothing_that_runs(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create()
    await cluster.run(key)
    sets = [p for p, o in cluster.api.objects.items() if o.get("kind") == "StatefulSet"]
    cluster.change(key, gpuPool=[{"gpuType": "H1000", "limit": 12, "gpusPerNode": 8}])
    await cluster.run(key)
    assert cluster.condition(key, "Stalled")["reason"] == "InvalidSpec"
    assert "H1000" in cluster.condition(key, "Stalled")["message"]
    assert [p for p, o in cluster.api.objects.items() if o.get("kind") == "StatefulSet"] == sets


@pytest.mark.parametrize(
    ("error", "calls_at_once", "calls_later"),
    [
        pytest.param(errors.InfeasibleError("TP8 does not fit"), 1, 1, id="infeasible stays so"),
        pytest.param(errors.PlanningFailedError("out of time"), 1, 2, id="failed is tried again"),
    ],
)
async def test_a_problem_that_was_not_solved_is_not_solved_in_every_pass(
    monkeypatch: pytest.MonkeyPatch,
    error: errors.PlanningError,
    calls_at_once: int,
    calls_later: int,
) -> None:
    planner = Planner(error)
    monkeypatch.setattr(childplan, "solve", planner)
    cluster = MemoryCluster()
    key = cluster.create()
    for _ in range(3):
        result = await cluster.reconciler.reconcile(key)
    assert planner.calls == calls_at_once
    assert cluster.condition(key, "PlanReady")["status"] == "False"
    assert str(error) in cluster.condition(key, "PlanReady")["message"]
    assert (result.again_after is not None) == (calls_later > 1)
    cluster.clock += 3600
    await cluster.reconciler.reconcile(key)
    assert planner.calls == calls_later
    # Once per transition, not once per pass.
    assert cluster.reasons().count(events.PLAN_INFEASIBLE) == 1


async def test_a_newer_spec_ends_the_planning_of_the_older_one(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create()
    planner.gate.clear()
    running = asyncio.create_task(cluster.reconciler.reconcile(key))
    while not planner.calls:
        await asyncio.sleep(0)
    assert cluster.condition(key, "Reconciling")["reason"] == "Planning"
    cluster.change(key, qmin=80)
    cluster.reconciler.newer_spec(key, 2)
    result = await running
    assert result == reconcile.Result(again_after=0.0)
    assert not any("plan" in path for path in cluster.api.objects)
    planner.gate.set()
    await cluster.run(key)
    assert cluster.condition(key, "Ready")["observedGeneration"] == 2


async def test_plans_are_computed_one_at_a_time(planner: Planner) -> None:
    cluster = MemoryCluster()
    first = cluster.create("first")
    second = cluster.create("second", gpuPool=[{"gpuType": "H100", "limit": 4, "gpusPerNode": 8}])
    planner.gate.clear()
    tasks = [asyncio.create_task(cluster.reconciler.reconcile(k)) for k in (first, second)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert planner.calls == 1
    planner.gate.set()
    await asyncio.gather(*tasks)


async def test_the_younger_cascade_gets_what_the_elder_leaves(planner: Planner) -> None:
    cluster = MemoryCluster()
    elder = cluster.create("elder")
    younger = cluster.create("younger")
    await cluster.reconciler.reconcile(younger)
    message = cluster.condition(younger, "PlanReady")["message"]
    # The elder has no plan yet and may take its 12; the younger's need of at least 5 is not left.
    assert planner.calls == 1, message
    await cluster.run(elder)
    plan = cluster.api.objects[kube.CONFIG_MAP.path("demo", "elder-plan")]
    assert plan["metadata"]["annotations"][names.ANNOTATION_GPUS] == "12"
    body = cluster.cascade(younger)
    pool = observe.observe(cluster.caches, body, spec.parse(body), None, cluster.clock).pool
    assert (pool.usable, pool.others, pool.elder) == (4, 12, "demo/elder")


async def test_a_refused_child_is_told_and_does_not_stop_the_others(planner: Planner) -> None:
    cluster = MemoryCluster()
    refused = errors.ApiRefusedError("PATCH service", 403, "exceeded quota")
    cluster.api.refusals = {"PATCH /api/v1/namespaces/demo/services": refused}
    key = cluster.create()
    result = await cluster.reconciler.reconcile(key)
    assert result.has_failed
    assert "exceeded quota" in cluster.condition(key, "Reconciling")["message"]
    assert any(o.get("kind") == "StatefulSet" for o in cluster.api.objects.values())
    cluster.api.refusals = {}
    await cluster.run(key)
    assert cluster.condition(key, "Ready")["status"] == "True"


async def test_a_plan_that_cannot_be_stored_moves_nothing(planner: Planner) -> None:
    cluster = MemoryCluster()
    error = errors.UnavailableError("PATCH", 503, "etcd has no leader")
    cluster.api.refusals = {"PATCH /api/v1/namespaces/demo/configmaps/chat-plan": error}
    key = cluster.create()
    result = await cluster.reconciler.reconcile(key)
    assert result.has_failed
    assert not any(o.get("kind") == "StatefulSet" for o in cluster.api.objects.values())


async def test_a_status_that_is_refused_does_not_stop_the_work(planner: Planner) -> None:
    cluster = MemoryCluster()
    invalid = errors.ApiRefusedError("PATCH status", 422, "unknown field")
    path = f"{kube.CASCADE.path('demo', 'chat')}/status"
    cluster.api.refusals = {f"PATCH {path}": invalid}
    key = cluster.create()
    result = await cluster.reconciler.reconcile(key)
    assert result.has_failed
    assert any(o.get("kind") == "StatefulSet" for o in cluster.api.objects.values())


async def test_without_the_lease_nothing_is_written(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create()
    cluster.may_write = False
    with pytest.raises(errors.LeadershipLostError):
        await cluster.reconciler.reconcile(key)
    assert not [r for r in cluster.api.requests if not r.startswith("GET")]


async def test_gpus_move_without_passing_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(larger(2), larger(1), larger(4))
    monkeypatch.setattr(childplan, "solve", planner)
    cluster = MemoryCluster()
    key = cluster.create()
    await cluster.run(key)
    seen = []
    for qmin, replicas in ((70, 1), (71, 4)):
        cluster.change(key, qmin=qmin)
        await cluster.run(key)
        sets = [o for o in cluster.api.objects.values() if o.get("kind") == "StatefulSet"]
        small = [o for o in sets if o["metadata"]["labels"][names.LABEL_MODEL] == "small"]
        seen.append(small[0]["spec"]["replicas"] == min(replicas, 2))
        assert sum(_gpus(entry) for entry in sets) <= 12
    # 4 x 2 + 2 x 4 GPUs are more than the limit of 12: the last move stops where it must.
    assert seen == [True, True]
    assert cluster.condition(key, "PlanApplied")["reason"] == "InsufficientGPUs"


def _gpus(entry: dict[str, Any]) -> int:
    container = entry["spec"]["template"]["spec"]["containers"][0]
    return int(container["resources"]["limits"]["nvidia.com/gpu"]) * int(entry["spec"]["replicas"])


async def test_what_is_no_longer_rendered_is_deleted(planner: Planner) -> None:
    cluster = MemoryCluster()
    key = cluster.create(router={"replicas": 2})
    await cluster.run(key)
    path = kube.DISRUPTION_BUDGET.path("demo", names.router("chat"))
    assert path in cluster.api.objects
    cluster.change(key, router={"replicas": 1})
    await cluster.run(key)
    assert path not in cluster.api.objects


async def test_a_cluster_without_drift_watch_is_ready_and_says_that_nothing_is_watched(
    planner: Planner,
) -> None:
    cluster = MemoryCluster(drift_watch_enabled=False)
    key = cluster.create()
    await cluster.run(key)
    assert cluster.condition(key, "Ready")["status"] == "True"
    assert cluster.condition(key, "DriftWatchHealthy")["reason"] == reasons.OFF


async def test_a_plan_that_no_longer_fits_is_not_adopted(planner: Planner) -> None:
    """Another cascade takes GPUs while this one is being planned."""
    cluster = MemoryCluster()
    key = cluster.create()
    planner.gate.clear()
    running = asyncio.create_task(cluster.reconciler.reconcile(key))
    while not planner.calls:
        await asyncio.sleep(0)
    cluster.put_foreign_pod("node-0", gpus=8)
    planner.gate.set()
    assert await running == reconcile.Result(again_after=0.0)
    assert not any(o.get("kind") == "StatefulSet" for o in cluster.api.objects.values())
