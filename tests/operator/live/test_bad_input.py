"""Bad input and bad luck: a clear condition, no crash, no hot loop, no cost to anybody else."""

import asyncio
from typing import Any

import pytest

from cascade_operator import kube, names, views
from tests.operator import samples
from tests.operator.live.process import OperatorProcess
from tests.operator.live.scene import Scene, model

BAD: dict[str, tuple[dict[str, Any], str, str, tuple[str, ...]]] = {
    "unknown GPU type": (
        {"gpuPool": [{"gpuType": "H1000", "limit": 8}]},
        "Stalled",
        "InvalidSpec",
        ("spec.gpuPool[0].gpuType", "H1000", "H100"),
    ),
    "unknown architecture": (
        {"models": [model("small", samples.SMALL), model("large", "nobody/nothing-7b")]},
        "Stalled",
        "InvalidSpec",
        ("spec.models[1].source.huggingFace.id", "nobody/nothing-7b", samples.LARGE),
    ),
    "no node fits the model": (
        {"models": [model("large", "deepseek-ai/DeepSeek-V3")]},
        "PlanReady",
        "Infeasible",
        ("large", "TP8"),
    ),
    "empty pool": (
        {"gpuPool": [{"gpuType": "H100", "nodeSelector": {"scene": "nowhere"}}]},
        "PlanReady",
        "InsufficientGPUs",
        ("0 GPUs",),
    ),
    "pool too small": (
        {"gpuPool": [{"gpuType": "H100", "limit": 2}]},
        "PlanReady",
        "InsufficientGPUs",
        ("2",),
    ),
}


def calm(operator: OperatorProcess) -> float:
    return operator.metric("cascade_operator_passes_total")


async def assert_no_hot_loop(operator: OperatorProcess, seconds: float = 3.0) -> None:
    """Passes that nothing asked for: only the resync of this suite's operator is due."""
    before = calm(operator)
    await asyncio.sleep(seconds)
    assert calm(operator) - before <= 3


@pytest.mark.parametrize(("fields", "kind", "reason", "words"), BAD.values(), ids=BAD)
async def test_it_is_told_what_is_wrong(
    scene: Scene,
    operator: OperatorProcess,
    fields: dict[str, Any],
    kind: str,
    reason: str,
    words: tuple[str, ...],
) -> None:
    document = scene.document()
    document["spec"] |= fields
    if "nodeSelector" not in document["spec"]["gpuPool"][0]:
        document["spec"]["gpuPool"][0]["nodeSelector"] = {"scene": scene.namespace}
    await scene.create(document)
    status = "True" if kind == "Stalled" else "False"
    message = await scene.until_condition(kind, status, reason)
    missing = [word for word in words if word not in message]
    assert not missing, message
    assert await scene.objects(kube.STATEFUL_SET) == []
    await assert_no_hot_loop(operator)
    assert operator.is_running


async def test_a_quality_out_of_reach_gives_the_best_plan_and_says_so(scene: Scene) -> None:
    await scene.calibrate(samples.table())
    await scene.create(scene.document(qmin=99))
    await scene.until_settled()
    message = await scene.until_condition("QualityMet", "False", "QualityUnreachable")
    best = (await scene.plan())["quality"]["bestReachable"]
    assert f"{best:.1f}" in message
    await scene.until_condition("PlanReady", "True", "QualityUnreachable")


async def test_a_wrong_table_is_named_by_row_and_column(scene: Scene) -> None:
    lines = samples.table(rows=60).splitlines()
    cells = lines[5].split(",")
    cells[1] = "140"
    lines[5] = ",".join(cells)
    await scene.calibrate("\n".join(lines))
    await scene.create(scene.document())
    message = await scene.until_condition("PlanReady", "False", "InvalidCalibration")
    where = "row 5 (line 6, request_id r-4), column small.score"
    assert f"{where}: '140' is not an integer from 0 to 100" in message


async def test_the_younger_of_two_cascades_gets_what_is_left(scene: Scene) -> None:
    made = [await scene.create(scene.document(name, limit=None)) for name in ("one", "two")]
    metadata = [body["metadata"] for body in made]
    ages = sorted((m["creationTimestamp"], m["uid"], m["name"]) for m in metadata)
    elder, younger = (name for _, _, name in ages)
    await scene.until_settled(elder)
    message = await scene.until_condition("PlanReady", "False", "InsufficientGPUs", name=younger)
    assert elder in message
    worst = max(scene.committed())
    assert worst[0] <= 16, worst
    # What the elder gives back is the younger's.
    body = await scene.cascade(elder)
    await scene.api.delete(kube.CASCADE.path(scene.namespace, elder), body["metadata"]["uid"])
    await scene.until_settled(younger)
    worst = max(scene.committed())
    assert worst[0] <= 16, worst


async def test_a_pod_that_never_gets_ready_is_named(scene: Scene) -> None:
    document = scene.document(rollout={"stepDeadlineSeconds": 30})
    fault = asyncio.create_task(break_first_pod(scene, "small"))
    await scene.create(document)
    name = await fault
    await scene.until_condition("ModelsReady", "False", mentions=name)
    await scene.until_condition("Reconciling", "True", mentions=name)
    await scene.until_condition("Stalled", "True", seconds=60, mentions=name)
    # A better spec helps: the bad set makes room, and nothing is over the limit meanwhile.
    fixed = model("small", samples.SMALL, engine={"image": "engine:other"})
    await scene.change("chat", models=[fixed, model("large", samples.LARGE)])
    await scene.until_settled()
    assert max(scene.committed())[0] <= 8


async def break_first_pod(scene: Scene, model_name: str) -> str:
    """The first pod of a model never gets Ready; returns its name."""
    while True:
        for pod in await scene.objects(kube.POD):
            if views.labels(pod).get(names.LABEL_MODEL) == model_name:
                name = str(pod["metadata"]["name"])
                broken = {"sim.cascade-operator.io/never-ready": "true"}
                await scene.annotate(kube.POD, name, **broken)
                return name
        await asyncio.sleep(0.05)


async def test_what_only_downtime_could_reach_is_named_and_not_done(scene: Scene) -> None:
    models = [
        model("small", samples.SMALL, pins={"tensor": 4, "replicas": 1}),
        model("large", samples.LARGE, pins={"tensor": 4, "replicas": 1}),
    ]
    await scene.create(scene.document(limit=8, models=models))
    await scene.until_settled()
    pods = scene.pod_uids()
    models[1] = {**models[1], "engine": {"args": ["--max-running-requests", "64"]}}
    await scene.change("chat", models=models)
    message = await scene.until_condition("PlanApplied", "False", "NeedsDowntime")
    assert "rollout.allowDowntime" in message
    assert scene.pod_uids() == pods
    await scene.change("chat", rollout={"allowDowntime": True})
    await scene.until_settled()
    assert len(scene.pod_uids() - pods) == 1
    assert max(scene.committed())[0] <= 8


async def test_a_lost_node_is_named_and_its_return_heals(scene: Scene) -> None:
    await scene.create(scene.document())
    await scene.until_settled()
    pods = scene.pod_uids()
    path = kube.NODE.path(name=scene.nodes[0])
    down = "sim.cascade-operator.io/down"
    await scene.api.merge(path, {"metadata": {"annotations": {down: "true"}}}, "user")
    await scene.until_condition("ModelsReady", "False", "NodeLost")
    await scene.api.merge(path, {"metadata": {"annotations": {down: None}}}, "user")
    await scene.until_settled()
    assert scene.pod_uids() == pods
