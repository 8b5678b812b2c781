"""The levels without real pods: an API server, and simulated nodes."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cascade_cluster.errors import CommandError
from cascade_cluster.handle import Cluster
from cascade_cluster.kwok import ANNOTATIONS

PAUSE = {"name": "main", "image": "none"}


def eventually(holds: Callable[[], object], seconds: float = 20) -> None:
    """Fail unless the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.1)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, so that a reused cluster is as good as a new one."""
    name = f"t-{time.time_ns()}"
    cluster = request.getfixturevalue(
        "api_cluster" if request.node.get_closest_marker("api") else "kwok_cluster"
    )
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.api
def test_server_side_apply_tells_of_conflicts(api_cluster: Cluster, namespace: str) -> None:
    def apply(manager: str, value: str) -> str:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "shared", "namespace": namespace},
            "data": {"key": value},
        }
        return api_cluster.kubectl(
            "apply", "--server-side", f"--field-manager={manager}", "-f", "-",
            input=json.dumps(document),
        )  # fmt: skip

    apply("one", "a")
    with pytest.raises(CommandError, match="conflict"):
        apply("two", "b")
    assert api_cluster.get("configmap", "shared", "-n", namespace)["data"] == {"key": "a"}


@pytest.mark.api
def test_the_restricted_pod_standard_is_enforced(api_cluster: Cluster, namespace: str) -> None:
    api_cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    # There is no controller that would make it.
    api_cluster.kubectl("create", "serviceaccount", "default", "-n", namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": namespace},
        "spec": {"containers": [PAUSE]},
    }
    with pytest.raises(CommandError, match="violates PodSecurity"):
        api_cluster.kubectl("create", "-f", "-", input=json.dumps(pod))


@pytest.mark.api
def test_the_handle_has_what_a_client_library_needs(api_cluster: Cluster) -> None:
    context = ssl.create_default_context(cafile=str(api_cluster.ca))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def status(token: str) -> int:
        request = urllib.request.Request(
            f"{api_cluster.url}/api/v1/nodes", headers={"Authorization": f"Bearer {token}"}
        )
        try:
            with opener.open(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert status(api_cluster.admin_token) == 200
    assert status("wrong") == 401
    assert "v3." in api_cluster.helm("version", "--short")


def stateful_set(
    namespace: str, name: str, replicas: int, gpus: int, annotations: dict[str, str]
) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"set": name}},
            "template": {
                "metadata": {"labels": {"set": name}, "annotations": annotations},
                "spec": {"containers": [{**PAUSE, "resources": limits}]},
            },
        },
    }


def start_set(
    cluster: Cluster, namespace: str, replicas: int, gpus: int = 1, **faults: str
) -> Callable[[], list[dict[str, Any]]]:
    """Create a StatefulSet and return a reader of its pods."""
    annotations = {
        f"{ANNOTATIONS}/{name.replace('_', '-')}": value for name, value in faults.items()
    }
    document = stateful_set(namespace, "set", replicas, gpus, annotations)
    cluster.kubectl("create", "-f", "-", input=json.dumps(document))
    return lambda: list(cluster.get("pods", "-n", namespace)["items"])


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture
def gpu_nodes(kwok_cluster: Cluster) -> Iterator[list[str]]:
    """Two nodes of 8 GPUs that only this test's pods select."""
    names = kwok_cluster.add_gpu_nodes(2, gpus_per_node=8, labels={"pool": "a"})
    yield names
    kwok_cluster.kubectl("delete", "node", *names, "--wait=false")


@pytest.mark.kwok
def test_a_set_with_gpus_becomes_ready_and_the_rest_stays_pending(
    kwok_cluster: Cluster, namespace: str, gpu_nodes: list[str]
) -> None:
    pods = start_set(kwok_cluster, namespace, replicas=5, gpus=4)
    eventually(lambda: sum(map(is_ready, pods())) == 4)
    pending = [pod for pod in pods() if not is_ready(pod)]
    assert [pod["status"]["phase"] for pod in pending] == ["Pending"]
    kwok_cluster.add_gpu_nodes(1, gpus_per_node=4)
    eventually(lambda: sum(map(is_ready, pods())) == 5)


@pytest.mark.kwok
def test_readiness_waits_for_the_delay(
    kwok_cluster: Cluster, namespace: str, gpu_nodes: list[str]
) -> None:
    pods = start_set(kwok_cluster, namespace, replicas=1, ready_delay="3s")
    eventually(lambda: [pod["status"]["phase"] for pod in pods()] == ["Running"])
    assert not is_ready(pods()[0])
    eventually(lambda: is_ready(pods()[0]))
    conditions = {each["type"]: each for each in pods()[0]["status"]["conditions"]}
    started, ready = (
        time.mktime(time.strptime(conditions[name]["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ"))
        for name in ("Initialized", "Ready")
    )
    # Both are whole seconds.
    assert 2 <= ready - started <= 6


@pytest.mark.kwok
def test_readiness_and_crashes_can_be_switched_while_a_pod_runs(
    kwok_cluster: Cluster, namespace: str, gpu_nodes: list[str]
) -> None:
    pods = start_set(kwok_cluster, namespace, replicas=1, never_ready="true")

    def annotate(*words: str) -> None:
        kwok_cluster.kubectl("annotate", "pod", "set-0", "-n", namespace, "--overwrite", *words)

    eventually(lambda: [pod["status"]["phase"] for pod in pods()] == ["Running"])
    assert not is_ready(pods()[0])
    annotate(f"{ANNOTATIONS}/never-ready-")
    eventually(lambda: is_ready(pods()[0]))
    annotate(f"{ANNOTATIONS}/crashloop=true")
    eventually(
        lambda: (
            pods()[0]["status"]["containerStatuses"][0]["state"].get("waiting", {}).get("reason")
            == "CrashLoopBackOff"
        )
    )
    assert not is_ready(pods()[0])
    annotate(f"{ANNOTATIONS}/crashloop-")
    eventually(lambda: is_ready(pods()[0]))
    annotate(f"{ANNOTATIONS}/never-ready=true")
    eventually(lambda: not is_ready(pods()[0]))


@pytest.mark.kwok
def test_a_deleted_pod_stays_for_the_terminating_delay(
    kwok_cluster: Cluster, namespace: str, gpu_nodes: list[str]
) -> None:
    pods = start_set(kwok_cluster, namespace, replicas=1, terminating_delay="3s")
    eventually(lambda: is_ready(pods()[0]) if pods() else False)
    first = pods()[0]["metadata"]["uid"]
    started = time.monotonic()
    kwok_cluster.kubectl("delete", "pod", "set-0", "-n", namespace, "--wait=false")
    while time.monotonic() < started + 2:
        seen = pods()
        assert [pod["metadata"]["uid"] for pod in seen] == [first]
        assert "deletionTimestamp" in seen[0]["metadata"]
    eventually(lambda: [pod["metadata"]["uid"] for pod in pods()] not in ([first], []))


@pytest.mark.kwok
def test_a_simulated_node_can_be_taken_down(kwok_cluster: Cluster, gpu_nodes: list[str]) -> None:
    def status() -> str:
        node = kwok_cluster.get("node", gpu_nodes[0])
        ready = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
        return str(ready[0]["status"])

    kwok_cluster.kubectl("annotate", "node", gpu_nodes[0], f"{ANNOTATIONS}/down=true")
    eventually(lambda: status() == "False")
    kwok_cluster.kubectl("annotate", "node", gpu_nodes[0], f"{ANNOTATIONS}/down-")
    eventually(lambda: status() == "True")
