"""The live suite: a control plane with simulated nodes, the operator as a process, scenes."""

import itertools
import json
import secrets
import socket
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from cascade_cluster.handle import Cluster
from tests.operator.live import scene as scenes
from tests.operator.live.process import ROOT, OperatorProcess

CRD = ROOT / "crds" / "cascadeservices.yaml"
SYSTEM = "cascade-system"
NUMBERS = itertools.count()
SESSION = secrets.token_hex(2)


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
    kwok_cluster.kubectl("apply", "--server-side", "-f", CRD)
    kwok_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", CRD)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    kwok_cluster.kubectl("apply", "-f", "-", input=json.dumps(namespace))
    return kwok_cluster


@pytest.fixture(scope="session")
def operator(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator for all tests; its log is kept in the session's folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    process = OperatorProcess(
        cluster,
        port,
        log,
        {
            "CASCADE_NAMESPACE": SYSTEM,
            # A Lease that no earlier session can hold.
            "CASCADE_LEASE_NAME": f"cascade-operator-{SESSION}",
            "CASCADE_RESYNC_SECONDS": "8",
        },
    )
    process.start()
    yield process
    assert process.stop() == 0, process.tail()


@pytest_asyncio.fixture
async def scene(cluster: Cluster, operator: OperatorProcess) -> AsyncIterator[scenes.Scene]:
    """A namespace with one node of 16 GPUs."""
    namespace = f"scene-{SESSION}-{next(NUMBERS)}"
    nodes = cluster.add_gpu_nodes(1, gpus_per_node=16, labels={"scene": namespace})
    async with scenes.opened(cluster, namespace) as opened:
        yield opened
    cluster.kubectl("delete", "node", "--wait=false", *nodes)
