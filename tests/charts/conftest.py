"""The charts as helm renders them, and installed objects on the API server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade_cluster.handle import Cluster
from tests import apiserver

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "cascade-operator"
CRD_CHART = ROOT / "charts" / "cascade-operator-crds"
RELEASE, NAMESPACE = "cascade-operator", "cascade-system"

Values = dict[str, Any]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def render(api_cluster: Cluster) -> Render:
    """render(values, chart=...) -> the rendered objects."""

    def rendered(values: Values | None = None, chart: Path = CHART) -> list[dict[str, Any]]:
        # The version is named because a client that talks to no server assumes an old one.
        text = api_cluster.helm(
            "template", RELEASE, str(chart), "--namespace", NAMESPACE, "--kube-version", "1.30.0",
            "--values", "-", input=yaml.safe_dump(values or {}),
        )  # fmt: skip
        return [each for each in yaml.safe_load_all(text) if each]

    return rendered


@pytest.fixture(scope="session")
def server(api_cluster: Cluster) -> Iterator[Cluster]:
    """The API server with the definition and the namespaces that the tests use."""
    apiserver.install_definition(api_cluster)
    for name, labels in ((NAMESPACE, "restricted"), ("team-a", ""), ("team-b", "")):
        manifest = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {"pod-security.kubernetes.io/enforce": labels} if labels else {},
            },
        }
        api_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(manifest))
    yield api_cluster


def pick(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """The one object of this kind (whose name ends so)."""
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(name)]
    return found


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(deployment: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e.get("value", "") for e in container(deployment)["env"]}
