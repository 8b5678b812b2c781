"""What the values of the charts become."""

import json
from typing import Any

import pytest
import yaml

from cascade_checks import generated
from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster
from tests.charts.conftest import (
    CHART,
    CRD_CHART,
    ROOT,
    Render,
    container,
    environment,
    pick,
)

pytestmark = pytest.mark.api

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize("chart", [CHART, CRD_CHART], ids=lambda c: c.name)
def test_lint_finds_nothing(api_cluster: Cluster, chart: Any) -> None:
    api_cluster.helm("lint", "--strict", str(chart))


def test_the_definitions_chart_is_the_definition_and_survives_its_release(render: Render) -> None:
    (rendered,) = render(chart=CRD_CHART)
    annotations = rendered["metadata"].pop("annotations")
    assert annotations == {"helm.sh/resource-policy": "keep"}
    assert rendered == yaml.safe_load((ROOT / generated.CRD).read_text())


@pytest.mark.parametrize(
    ("values", "images"),
    [
        pytest.param(
            {},
            (
                "cascade-operator/operator:0.1.0",
                "cascade-operator/router:0.1.0",
                "lmsysorg/sglang:v0.5.23",
            ),
            id="defaults",
        ),
        pytest.param(
            {"imageRegistry": "registry.example.com", "engine": {"image": {"tag": "own"}}},
            (
                "registry.example.com/cascade-operator/operator:0.1.0",
                "registry.example.com/cascade-operator/router:0.1.0",
                "registry.example.com/lmsysorg/sglang:own",
            ),
            id="registry",
        ),
        pytest.param(
            {"image": {"digest": DIGEST}, "router": {"image": {"registry": "a.example:5000"}}},
            (
                f"cascade-operator/operator@{DIGEST}",
                "a.example:5000/cascade-operator/router:0.1.0",
                "lmsysorg/sglang:v0.5.23",
            ),
            id="digest-and-own-registry",
        ),
    ],
)
def test_images(render: Render, values: dict[str, Any], images: tuple[str, str, str]) -> None:
    objects = render(values)
    operator = pick(objects, "Deployment", "cascade-operator")
    settings = environment(operator)
    assert images == (
        container(operator)["image"],
        settings["CASCADE_ROUTER_IMAGE"],
        settings["CASCADE_ENGINE_IMAGE"],
    )
    assert container(pick(objects, "Deployment", "drift-watch"))["image"] == images[0]


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        pytest.param({}, "CASCADE_CLUSTER_SCOPED", "true", id="cluster-scoped"),
        pytest.param({}, "CASCADE_TIME_SCALE", "1", id="time-scale-default"),
        pytest.param({"timeScale": 10}, "CASCADE_TIME_SCALE", "10", id="time-scale-number"),
        pytest.param({"timeScale": "2.5"}, "CASCADE_TIME_SCALE", "2.5", id="time-scale-text"),
        pytest.param({}, "CASCADE_RUN_AS_USER", "65532", id="user"),
        pytest.param({"runAsUser": None}, "CASCADE_RUN_AS_USER", "", id="user-of-the-platform"),
        pytest.param(
            {"planning": {"memoryMiB": 2048}}, "CASCADE_PLANNING_MEMORY_MIB", "2048", id="planning"
        ),
        pytest.param(
            {"networkPolicies": {"enabled": True}},
            "CASCADE_NETWORK_POLICIES",
            "true",
            id="policies",
        ),
        pytest.param({"logLevel": "debug"}, "CASCADE_LOG_LEVEL", "debug", id="log-level"),
        pytest.param(
            {"resyncSeconds": 1000000 // 100}, "CASCADE_RESYNC_SECONDS", "10000", id="resync"
        ),
    ],
)
def test_values_reach_the_operator(
    render: Render, values: dict[str, Any], name: str, value: str
) -> None:
    assert environment(pick(render(values), "Deployment", "cascade-operator"))[name] == value


@pytest.mark.parametrize(
    ("values", "name", "value"),
    [
        pytest.param(
            {"watchNamespaces": ["team-a"]}, "CASCADE_WATCH_NAMESPACES", ["team-a"], id="namespaces"
        ),
        pytest.param(
            {"engine": {"env": [{"name": "A", "value": 'say "hi"'}]}},
            "CASCADE_ENGINE_ENV",
            [{"name": "A", "value": 'say "hi"'}],
            id="engine-env",
        ),
        pytest.param(
            {"networkPolicies": {"clients": [{"podSelector": {}}]}},
            "CASCADE_NETWORK_POLICY_CLIENTS",
            [{"podSelector": {}}],
            id="clients",
        ),
        pytest.param(
            {"imagePullSecrets": ["pull"]}, "CASCADE_IMAGE_PULL_SECRETS", ["pull"], id="secrets"
        ),
    ],
)
def test_lists_reach_the_operator_as_json(
    render: Render, values: dict[str, Any], name: str, value: Any
) -> None:
    settings = environment(pick(render(values), "Deployment", "cascade-operator"))
    assert json.loads(settings[name]) == value


@pytest.mark.parametrize("name", ["cascade-operator", "drift-watch"])
def test_one_pod_each_recreated_with_probes_and_limits(render: Render, name: str) -> None:
    deployment = pick(render(), "Deployment", name)
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    only = container(deployment)
    assert only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert only["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert only["ports"] == [{"name": "metrics", "containerPort": 9090}]
    assert "memory" in only["resources"]["limits"]


def test_the_operators_memory_limit_holds_a_planning_run(render: Render) -> None:
    deployment = pick(render(), "Deployment", "cascade-operator")
    limit = container(deployment)["resources"]["limits"]["memory"]
    planning = int(environment(deployment)["CASCADE_PLANNING_MEMORY_MIB"])
    assert int(limit.removesuffix("Mi")) >= planning + 256


def test_the_operator_finds_the_images_machine_code_in_a_folder_it_may_write(
    render: Render,
) -> None:
    deployment = pick(render(), "Deployment", "cascade-operator")
    spec = deployment["spec"]["template"]["spec"]
    (copy,) = spec["initContainers"]
    folder = environment(deployment)["NUMBA_CACHE_DIR"]
    assert copy["command"] == ["cp", "-r", "/opt/numba-cache/.", folder]
    assert copy["image"] == container(deployment)["image"]
    for each in (copy, container(deployment)):
        assert {"name": "machine-code", "mountPath": folder} in each["volumeMounts"]
    assert "NUMBA_CACHE_DIR=/opt/numba-cache" in (ROOT / "operator" / "Dockerfile").read_text()


def test_drift_watch_can_be_left_out(render: Render) -> None:
    objects = render({"driftWatch": {"enabled": False}, "networkPolicies": {"enabled": True}})
    assert not [o for o in objects if o["metadata"]["name"].endswith("drift-watch")]
    assert [o["kind"] for o in objects].count("NetworkPolicy") == 1


def test_pod_monitors_only_when_asked(render: Render) -> None:
    assert not [o for o in render() if o["kind"] == "PodMonitor"]
    values = {"podMonitors": {"enabled": True, "labels": {"release": "prometheus"}}}
    monitors = [o for o in render(values) if o["kind"] == "PodMonitor"]
    assert [m["metadata"]["labels"]["release"] for m in monitors] == ["prometheus"] * 2
    own, cascades = monitors
    pod = pick(render(), "Deployment", "drift-watch")["spec"]["template"]["metadata"]["labels"]
    assert own["spec"]["selector"]["matchLabels"].items() <= pod.items()
    assert cascades["spec"]["namespaceSelector"] == {"any": True}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"timescale": "2"}, ("timescale",), id="unknown"),
        pytest.param({"runAsUser": 0}, ("runAsUser", "1"), id="root"),
        pytest.param({"imagePullPolicy": "Sometimes"}, ("imagePullPolicy", "Always"), id="policy"),
        pytest.param({"timeScale": "fast"}, ("timeScale", "fast"), id="time-scale"),
        pytest.param({"timeScale": "0.0"}, ("timeScale", "0.0"), id="time-scale-zero"),
        pytest.param({"timeScale": 0}, ("timeScale", "0"), id="time-scale-number-zero"),
        pytest.param({"watchNamespaces": "team-a"}, ("watchNamespaces", "array"), id="no-list"),
        pytest.param({"image": {"digest": "sha256:12"}}, ("image", "digest"), id="digest"),
        pytest.param({"image": {"name": "x"}}, ("image", "name"), id="image-field"),
        pytest.param({"engine": {"env": [{"name": "A"}]}}, ("env", "value"), id="env"),
        pytest.param({"planning": {"memoryMiB": 10}}, ("memoryMiB", "256"), id="memory"),
        pytest.param({"networkPolicies": {"clients": [{}]}}, ("clients",), id="empty-peer"),
        pytest.param(
            {"operator": {"resources": {"limits": {"memory": "much"}}}}, ("memory",), id="quantity"
        ),
        pytest.param({"podMonitors": {"interval": "often"}}, ("interval", "often"), id="interval"),
        pytest.param({"logLevel": "loud"}, ("logLevel", "warning"), id="level"),
        pytest.param(
            {"lease": {"durationSeconds": 20, "renewDeadlineSeconds": 15}},
            ("requestTimeoutSeconds", "8", "durationSeconds - renewDeadlineSeconds"),
            id="lease-too-tight",
        ),
    ],
)
def test_wrong_values_are_refused(
    render: Render, values: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ClusterError) as refused:
        render(values)
    assert [word for word in words if word not in str(refused.value)] == []
