"""Pods meet the restricted Pod Security Standard, as the API server's admission sees them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster
from tests.charts.conftest import NAMESPACE, ROOT, Render, pick

pytestmark = pytest.mark.api


def admit(server: Cluster, template: dict[str, Any], account: str) -> None:
    """Creates the template's pod as a dry run in a namespace that enforces ``restricted``."""
    spec = {**template["spec"], "serviceAccountName": account}
    metadata = {**template["metadata"], "name": "probe", "namespace": NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    server.kubectl("create", "--dry-run=server", "-f", "-", input=yaml.safe_dump(pod))


@pytest.fixture(scope="module")
def account(server: Cluster) -> str:
    """No controller makes the default account here."""
    name = "probe"
    manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    server.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=yaml.safe_dump(manifest))
    return name


@pytest.mark.parametrize("values", [{}, {"runAsUser": None}], ids=["user", "user-of-the-platform"])
@pytest.mark.parametrize("name", ["cascade-operator", "drift-watch"])
def test_pods_of_the_chart_are_admitted(
    server: Cluster, account: str, render: Render, name: str, values: dict[str, Any]
) -> None:
    deployment = pick(render(values), "Deployment", name)
    admit(server, deployment["spec"]["template"], account)
    spec = deployment["spec"]["template"]["spec"]
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert ("runAsUser" in spec["securityContext"]) == (not values)


def test_the_calibration_job_is_admitted(server: Cluster, account: str) -> None:
    text = (ROOT / "examples" / "01-two-models" / "calibrate.yaml").read_text()
    job = pick(list(yaml.safe_load_all(text)), "Job")
    template = copy.deepcopy(job["spec"]["template"])
    admit(server, template, account)


def _as_root(spec: dict[str, Any]) -> None:
    spec["securityContext"]["runAsNonRoot"] = False


def _without_seccomp(spec: dict[str, Any]) -> None:
    del spec["securityContext"]["seccompProfile"]


def _with_capabilities(spec: dict[str, Any]) -> None:
    del spec["containers"][0]["securityContext"]["capabilities"]


@pytest.mark.parametrize("spoil", [_as_root, _without_seccomp, _with_capabilities])
def test_a_weaker_pod_is_refused(
    server: Cluster, account: str, render: Render, spoil: Callable[[dict[str, Any]], None]
) -> None:
    template = pick(render(), "Deployment", "cascade-operator")["spec"]["template"]
    spoil(template["spec"])
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        admit(server, template, account)
