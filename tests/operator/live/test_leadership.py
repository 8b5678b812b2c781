"""Who may act: the Lease, namespaced rights, and a mutant that the hand-over test must notice."""

import asyncio
from collections.abc import Iterator

import pytest

from cascade_cluster.handle import Cluster
from cascade_operator import kube
from tests.operator import samples
from tests.operator.live import access, test_life
from tests.operator.live.conftest import SESSION, MakeOperator
from tests.operator.live.process import OperatorProcess
from tests.operator.live.scene import Scene, model

LEASE = f"cascade-operator-{SESSION}"
GROW_BEFORE_SHRINK = """
from cascade_operator import ledger
ledger.free = lambda pool, sets: 1000
"""


@pytest.fixture
def alone(
    operator: OperatorProcess, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """No other operator acts meanwhile."""
    operator.kill()
    yield
    # Namespaced tests take the cluster-wide rights away.
    access.kubeconfig(cluster, tmp_path_factory.mktemp("again"))
    operator.start()


async def test_who_loses_the_lease_ends_and_writes_nothing_more(
    scene: Scene, operator: OperatorProcess
) -> None:
    await scene.create(scene.document(limit=8))
    await scene.until_settled()
    path = kube.LEASE.path(access.NAMESPACE, LEASE)
    await scene.api.merge(path, {"spec": {"holderIdentity": "another"}}, "user")
    assert await asyncio.to_thread(operator.wait, 15) == 3
    before = await test_life.versions(scene)
    lease = await scene.api.get(path)
    assert lease["spec"]["holderIdentity"] == "another"
    await scene.change("chat", qmin=80)
    await scene.api.delete(path, lease["metadata"]["uid"])
    before.pop("cascadeservices/chat")
    after = await test_life.versions(scene)
    after.pop("cascadeservices/chat")
    assert after == before
    operator.start()
    await scene.until_settled()


async def test_an_operator_of_one_namespace_needs_no_right_outside(
    scene: Scene, alone: None, make_operator: MakeOperator
) -> None:
    namespaced = make_operator((scene.namespace,))
    namespaced.start()
    try:
        document = scene.document(limit=8)
        document["spec"]["gpuPool"][0] |= {"gpusPerNode": 16}
        await scene.create(document)
        await scene.until_settled()
        await test_life.assert_pods_follow_the_plan(scene)
        test_life.assert_never_over(scene, 8)
        assert namespaced.metric("cascade_operator_watch_errors_total") == 0
    finally:
        assert namespaced.stop() == 0, namespaced.tail()


async def test_a_mutant_that_grows_before_it_shrinks_is_noticed(
    scene: Scene, alone: None, make_operator: MakeOperator
) -> None:
    mutant = make_operator(code=GROW_BEFORE_SHRINK)
    mutant.start()
    try:
        await scene.create(scene.document(limit=8))
        await scene.until_settled()
        test_life.assert_never_over(scene, 8)
        changed = {"engine": {"args": ["--max-running-requests", "64"]}}
        models = [
            model("small", samples.SMALL, **changed), model("large", samples.LARGE, **changed)
        ]  # fmt: skip
        await scene.change("chat", models=models)
        await scene.until_settled()
        with pytest.raises(AssertionError, match="of 8 GPUs committed"):
            test_life.assert_never_over(scene, 8)
    finally:
        mutant.kill()
