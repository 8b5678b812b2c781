"""Both charts install on a real API server, and the definition outlives its release."""

import pytest
import yaml

from cascade_cluster.handle import Cluster
from tests.apiserver import Api
from tests.charts.conftest import CHART, CRD_CHART
from tests.crd import documents

pytestmark = pytest.mark.api

SYSTEM = "install-test"
DEFINITION = "cascadeservices.cascade-operator.io"


def test_install_apply_uninstall(server: Cluster) -> None:
    # Ownership is taken because other tests have applied the definition by kubectl.
    for chart in (CRD_CHART, CHART):
        server.helm(
            "upgrade", "--install", chart.name, str(chart), "--namespace", SYSTEM,
            "--create-namespace", "--take-ownership",
        )  # fmt: skip
    installed = server.get("deployments", "-n", SYSTEM)["items"]
    assert {d["metadata"]["name"] for d in installed} == {
        "cascade-operator",
        "cascade-operator-drift-watch",
    }
    code, answer = Api(server).create(documents.MINIMAL)
    assert code == 201, answer
    try:
        text = yaml.safe_dump(documents.MINIMAL)
        server.kubectl("apply", "-n", "team-b", "-f", "-", input=text)
        for chart in (CHART, CRD_CHART):
            server.helm("uninstall", chart.name, "--namespace", SYSTEM)
        assert server.get("deployments", "-n", SYSTEM)["items"] == []
        assert server.get("crd", DEFINITION)["metadata"]["name"] == DEFINITION
        assert server.get("csc", "chat", "-n", "team-b")["spec"]["qmin"] == 75
    finally:
        server.kubectl("delete", "csc", "chat", "-n", "team-b")
