"""The live suite: a control plane with simulated nodes, the operator as a process, scenes."""

import itertools
import json
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from cascade_cluster.handle import Cluster
from tests import apiserver
from tests.operator.live import access
from tests.operator.live import scene as scenes
from tests.operator.live.process import OperatorProcess

NUMBERS = itertools.count()
SESSION = secrets.token_hex(2)
MakeOperator = Callable[..., OperatorProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kwok)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What the operator said stands beside a failure."""
    report = yield
    process = getattr(item, "funcargs", {}).get("operator")
    if report.when == "call" and report.failed and process is not None:
        report.sections.append(("operator", process.tail()))
    return report


@pytest.fixture(scope="session")
def cluster(kwok_cluster: Cluster) -> Cluster:
    """The cluster with the custom resource definition and the operator's namespace."""
    apiserver.install_definition(kwok_cluster)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": access.NAMESPACE}}
    kwok_cluster.kubectl("apply", "-f", "-", input=json.dumps(namespace))
    return kwok_cluster


@pytest.fixture(scope="session")
def make_operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> MakeOperator:
    """make_operator(watch_namespaces=(), code="", **environment): an operator, not yet started,
    with the rights that the chart gives it and no others."""

    def made(
        watch_namespaces: tuple[str, ...] = (), code: str = "", **environment: str
    ) -> OperatorProcess:
        folder = tmp_path_factory.mktemp("operator")
        kubeconfig = access.kubeconfig(cluster, folder, watch_namespaces)
        settings = {
            "CASCADE_NAMESPACE": access.NAMESPACE,
            "CASCADE_CLUSTER_SCOPED": json.dumps(not watch_namespaces),
            "CASCADE_WATCH_NAMESPACES": json.dumps(list(watch_namespaces)),
            # A Lease that no earlier session can hold.
            "CASCADE_LEASE_NAME": f"cascade-operator-{SESSION}",
            "CASCADE_LEASE_RETRY_SECONDS": "1",
            "CASCADE_RESYNC_SECONDS": "8",
            **environment,
        }
        return OperatorProcess(kubeconfig, folder / "operator.log", settings, code)

    return made


@pytest.fixture(scope="session")
def operator(make_operator: MakeOperator) -> Iterator[OperatorProcess]:
    """One operator for all tests; its log is kept in the session's folder."""
    process = make_operator()
    process.start()
    yield process
    assert process.stop() == 0, process.tail()


@pytest_asyncio.fixture
async def scene(cluster: Cluster, operator: OperatorProcess) -> AsyncIterator[scenes.Scene]:
    """A namespace with one node of 16 GPUs."""
    namespace = f"scene-{SESSION}-{next(NUMBERS)}"
    nodes = cluster.add_gpu_nodes(1, gpus_per_node=16, labels={"scene": namespace})
    async with scenes.opened(cluster, namespace) as opened:
        opened.nodes = nodes
        yield opened
    cluster.kubectl("delete", "node", "--wait=false", *nodes)
