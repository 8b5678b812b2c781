"""A cascade's life: it becomes Ready, follows its spec, survives the operator, and goes."""

import asyncio
import json
import time
from typing import Any

from cascade_driftwatch import report
from cascade_operator import errors, kube, names, plan_record, views
from tests.operator import samples
from tests.operator.live.process import OperatorProcess
from tests.operator.live.scene import Body, Scene, model

LIMIT = 8


async def assert_pods_follow_the_plan(scene: Scene, name: str = "chat") -> None:
    """Replicas, GPU limits and engine flags of all sets are those of the plan."""
    plan = await scene.plan(name)
    wanted = sorted(
        (m["name"], s["replicas"], s["tensor"], s["memFractionStatic"], s["chunkedPrefillSize"])
        for m in plan["models"]
        for s in m["sets"]
    )
    found = []
    for entry in await scene.objects(kube.STATEFUL_SET):
        if views.labels(entry)[names.LABEL_CASCADE] != name:
            continue
        container = entry["spec"]["template"]["spec"]["containers"][0]
        flags = dict(zip(container["args"], container["args"][1:], strict=False))
        tensor = int(flags["--tp-size"])
        assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == tensor
        found.append(
            (
                views.labels(entry)[names.LABEL_MODEL],
                entry["spec"]["replicas"],
                tensor,
                float(flags["--mem-fraction-static"]),
                int(flags["--chunked-prefill-size"]),
            )
        )
    assert sorted(found) == wanted
    ready = [
        p for p in await scene.objects(kube.POD) if views.condition(p, "Ready")["status"] == "True"
    ]
    engines = [p for p in ready if views.labels(p)[names.LABEL_COMPONENT] == names.COMPONENT_ENGINE]
    assert len(engines) == sum(replicas for _, replicas, *_ in wanted)


def assert_never_over(scene: Scene, limit: int) -> None:
    history = scene.committed()
    worst = max(history)
    assert worst[0] <= limit, f"{worst[0]} of {limit} GPUs committed after {worst[1]}"
    assert worst[0] > 0


async def versions(scene: Scene) -> dict[str, str]:
    """resourceVersion of the cascade and of every child."""
    found = {}
    kinds = (
        kube.CASCADE, kube.STATEFUL_SET, kube.DEPLOYMENT, kube.CONFIG_MAP, kube.SERVICE,
        kube.SERVICE_ACCOUNT, kube.ROLE, kube.ROLE_BINDING,
    )  # fmt: skip
    for resource in kinds:
        for body in await scene.objects(resource):
            key = f"{resource.plural}/{body['metadata']['name']}"
            found[key] = body["metadata"]["resourceVersion"]
    return found


async def passes_after(operator: OperatorProcess, count: int, seconds: float = 45.0) -> None:
    """Waits until the operator has ended so many more passes."""
    goal = operator.metric("cascade_operator_passes_total") + count
    async with asyncio.timeout(seconds):
        while operator.metric("cascade_operator_passes_total") < goal:
            await asyncio.sleep(0.2)


async def test_models_qmin_and_pool_are_enough(scene: Scene) -> None:
    document = scene.document(limit=LIMIT)
    del document["spec"]["search"]
    await scene.create(document)
    body = await scene.until_settled()
    assert views.condition(body, "PlanReady")["reason"] == "Uncalibrated"
    assert "calibrate" in views.condition(body, "PlanReady")["message"]
    await assert_pods_follow_the_plan(scene)
    assert_never_over(scene, LIMIT)
    used = {m["name"]: m["gpusUsed"] for m in (await scene.plan())["models"]}
    assert {m["name"]: m["gpus"] for m in body["status"]["models"]} == used
    # kopf has left nothing behind: no finalizer, no annotation of its own.
    assert "finalizers" not in body["metadata"]
    assert "annotations" not in body["metadata"]


async def test_pods_and_flags_follow_qmin_pool_and_engine_arguments(
    scene: Scene, operator: OperatorProcess
) -> None:
    await scene.calibrate(samples.table())
    await scene.create(scene.document(limit=LIMIT, qmin=60))
    await scene.until_settled()
    before = await scene.plan()
    await scene.change("chat", qmin=85)
    await scene.until_settled()
    after = await scene.plan()
    assert after["models"][0]["threshold"] > before["models"][0]["threshold"]
    assert (await scene.router()).models[0].threshold == after["models"][0]["threshold"]
    await assert_pods_follow_the_plan(scene)

    pool = scene.document(limit=12)["spec"]["gpuPool"]
    assert_never_over(scene, LIMIT)
    await scene.change("chat", gpuPool=pool)
    await scene.until_settled()
    await assert_pods_follow_the_plan(scene)
    assert sum(m["gpusUsed"] for m in (await scene.plan())["models"]) > LIMIT
    assert_never_over(scene, 12)

    large = {s["metadata"]["uid"] for s in await scene.objects(kube.STATEFUL_SET)
             if views.labels(s)[names.LABEL_MODEL] == "large"}  # fmt: skip
    models = [model("small", samples.SMALL, engine={"args": ["--max-running-requests", "64"]}),
              model("large", samples.LARGE)]  # fmt: skip
    await scene.change("chat", models=models)
    await scene.until_settled()
    await assert_pods_follow_the_plan(scene)
    assert_never_over(scene, 12)
    sets = await scene.objects(kube.STATEFUL_SET)
    small = [s for s in sets if views.labels(s)[names.LABEL_MODEL] == "small"]
    arguments = small[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[-2:] == ["--max-running-requests", "64"]
    # Nothing rolls that need not: the other model's sets are the same objects.
    assert large == {s["metadata"]["uid"] for s in sets} - {s["metadata"]["uid"] for s in small}


async def test_a_second_pass_writes_nothing(scene: Scene, operator: OperatorProcess) -> None:
    await scene.create(scene.document(limit=LIMIT))
    await scene.until_settled()
    await passes_after(operator, 2)  # what the last writes still trigger, and a full resync
    before = await versions(scene)
    writes = operator.metric("cascade_operator_writes_total")
    await passes_after(operator, 2)
    assert await versions(scene) == before
    assert operator.metric("cascade_operator_writes_total") == writes

    # What somebody else changes is put right.
    path = kube.SERVICE.path(scene.namespace, names.serving_service("chat", "small"))
    await scene.api.merge(path, {"spec": {"selector": {names.LABEL_MODEL: "other"}}}, "somebody")
    async with asyncio.timeout(10):
        while (await scene.api.get(path))["spec"]["selector"][names.LABEL_MODEL] != "small":
            await asyncio.sleep(0.1)


async def test_a_killed_operator_changes_nothing_and_goes_on(
    scene: Scene, operator: OperatorProcess
) -> None:
    await scene.create(scene.document(limit=LIMIT))
    await scene.until_settled()
    pods = scene.pod_uids()
    operator.kill()
    operator.start()
    await passes_after(operator, 1)
    assert scene.pod_uids() == pods
    # In the middle of a change the next operator finds its place.
    changed = model("large", samples.LARGE, engine={"args": ["--max-running-requests", "64"]})
    models = [model("small", samples.SMALL), changed]
    await scene.change("chat", models=models, gpuPool=scene.document(limit=12)["spec"]["gpuPool"])
    await scene.until_condition("Reconciling", "True")
    operator.kill()
    operator.start()
    await scene.until_settled()
    await assert_pods_follow_the_plan(scene)
    assert_never_over(scene, 12)


async def test_a_deleted_cascade_takes_its_children_along(scene: Scene) -> None:
    await scene.create(scene.document(limit=LIMIT))
    body = await scene.until_settled()
    started = time.monotonic()
    await scene.api.delete(kube.CASCADE.path(scene.namespace, "chat"), body["metadata"]["uid"])
    kinds = (kube.STATEFUL_SET, kube.DEPLOYMENT, kube.SERVICE, kube.ROLE, kube.POD)
    async with asyncio.timeout(30):
        while True:
            left = [b for kind in kinds for b in await scene.objects(kind) if _is_child(b)]
            unmarked = [b for b in left if "deletionTimestamp" not in b["metadata"]]
            if unmarked:
                assert time.monotonic() - started < 10, [b["metadata"]["name"] for b in unmarked]
            if not left:
                break
            await asyncio.sleep(0.2)


def _is_child(body: Body) -> bool:
    return names.LABEL_CASCADE in views.labels(body)


async def test_a_namespace_with_cascades_can_be_deleted(scene: Scene) -> None:
    await scene.create(scene.document(limit=LIMIT))
    await scene.until_settled()
    space = kube.Resource("v1", "Namespace", "namespaces", is_namespaced=False)
    path = space.path(name=scene.namespace)
    body = await scene.api.get(path)
    await scene.api.delete(path, body["metadata"]["uid"])
    async with asyncio.timeout(40):
        while True:
            try:
                await scene.api.get(path)
            except errors.NotFoundError:
                break
            await asyncio.sleep(0.2)


DRIFT: dict[str, Any] = {
    "verdict": "Stable",
    "observedPlan": "none",
    "since": "2026-01-01T00:00:00Z",
    "lastUpdate": "2026-01-01T00:00:00Z",
    "message": "no test fired",
}


async def write_drift(scene: Scene, entry: Body) -> None:
    """``status.drift`` as drift-watch writes it."""
    document = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "chat"},
        "status": {"drift": entry},
    }
    path = kube.CASCADE.path(scene.namespace, "chat") + "/status"
    await scene.api.apply(path, document, names.DRIFTWATCH_FIELD_MANAGER)


async def test_a_drift_verdict_starts_a_pass_within_five_seconds(scene: Scene) -> None:
    await scene.create(scene.document(limit=LIMIT))
    body = await scene.until_settled()
    assert views.condition(body, "DriftWatchHealthy")["reason"] == "Waiting"
    await write_drift(scene, DRIFT)

    def is_seen(found: Body) -> bool:
        return bool(views.condition(found, "DriftWatchHealthy")["reason"] == "Stale")

    body = await scene.until("the drift entry to be seen", is_seen, seconds=5)
    assert body["status"]["drift"] == DRIFT


def heavier_window(plan: Body, rate_factor: float) -> Body:
    """Traffic in the plan's own bins: so many times as frequent, prompts twice as long."""
    planned = plan["workload"]
    return samples.window(
        60 * rate_factor * planned["rate"],
        inputDeciles=[round(2 * tokens) for tokens in planned["inputDeciles"]],
        inputEdges=[round(edge) for edge in planned["inputEdges"]],
    )


async def replaced_plan(scene: Scene) -> str:
    """Revision of the plan that the one in force replaced."""
    path = kube.CONFIG_MAP.path(scene.namespace, names.plan("chat"))
    record = json.loads((await scene.api.get(path))["data"][plan_record.RECORD_KEY])
    return str(record["previous"]["revision"])


async def children(scene: Scene) -> dict[str, str]:
    """resourceVersion of everything but the cascade, whose status the verdicts are written to."""
    return {k: v for k, v in (await versions(scene)).items() if not k.startswith("cascade")}


async def test_a_shifted_window_plans_again_exactly_once(
    scene: Scene, operator: OperatorProcess
) -> None:
    await scene.calibrate(samples.table())
    # Neither cooldown nor minimum gain: only the verdict itself can hold a second plan back.
    drift = {"cooldownSeconds": 0, "minimumGainPercent": 0}
    await scene.create(scene.document(limit=LIMIT, drift=drift))
    before = (await scene.until_settled())["status"]["plan"]["revision"]
    first = await scene.plan()
    shifted = {"verdict": "Drifted", "observedPlan": before, "message": "the rate rose"}
    await write_drift(scene, {**DRIFT, **shifted, "window": heavier_window(first, 4.0)})
    await scene.until("another plan", lambda b: b["status"]["plan"]["revision"] != before)
    after = (await scene.until_settled())["status"]["plan"]["revision"]
    second = await scene.plan()
    assert second["workload"]["rate"] == 4 * first["workload"]["rate"]
    assert second["models"][0]["threshold"] != first["models"][0]["threshold"]
    assert (await scene.router()).models[0].threshold == second["models"][0]["threshold"]
    await assert_pods_follow_the_plan(scene)
    await passes_after(operator, 2)
    assert await replaced_plan(scene) == before
    calm = await children(scene)

    # The operator has surely seen an entry once its own status tells of it.
    entry = {**DRIFT, "lastUpdate": report.timestamp(time.time())}
    await write_drift(scene, {**entry, **shifted, "window": heavier_window(first, 4.4)})
    await scene.until_condition("DriftWatchHealthy", "True", "Fresh")
    await passes_after(operator, 2)
    assert await children(scene) == calm

    stable = {"since": entry["lastUpdate"], "observedPlan": after}
    await write_drift(scene, {**entry, **stable, "window": heavier_window(first, 4.4)})
    await scene.until("Stable", lambda b: bool(b["status"]["summary"]["drift"] == "Stable"))
    await passes_after(operator, 2)
    assert await children(scene) == calm
    assert (await scene.cascade())["status"]["plan"]["revision"] == after


async def test_an_approval_puts_the_proposed_plan_into_force_within_five_seconds(
    scene: Scene,
) -> None:
    await scene.create(scene.document(limit=LIMIT, planPolicy={"mode": "Propose"}))
    body = await scene.until(
        "a proposal", lambda b: bool(b.get("status", {}).get("plan", {}).get("proposed"))
    )
    assert await scene.objects(kube.STATEFUL_SET) == []
    revision = body["status"]["plan"]["proposed"]["revision"]
    await scene.annotate(kube.CASCADE, "chat", **{names.ANNOTATION_APPROVE: revision})

    def is_begun(found: Body) -> bool:
        return bool(found["status"]["plan"].get("revision") == revision)

    await scene.until("the plan to be in force", is_begun, seconds=5)
    await scene.until_settled()
    await assert_pods_follow_the_plan(scene)
