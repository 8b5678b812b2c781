"""Nodes that run real pods: isolation, network, names and GPUs."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cascade_cluster import archives, base_image, clusters, processes
from cascade_cluster.handle import Cluster
from cascade_cluster.instance import load
from cascade_cluster.launcher import Launcher
from cascade_cluster.settings import from_environment

pytestmark = pytest.mark.pods

IMAGE = "cascade-test/python:1"
SERVER = ["python3", "-m", "http.server", "8080"]
RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def namespace(pods_cluster: Cluster) -> Iterator[str]:
    """A namespace that admits restricted pods only, in a cluster that has an image with Python."""
    settings = from_environment()
    base = base_image.ensure(settings.cache)
    archive = base.archive.with_name(f"test-{base.key}.tar")
    if not archive.exists():
        archives.pack(archive, IMAGE, base.archive, {"User": "65532", "Cmd": SERVER})
    clusters.load_archive(settings, pods_cluster.name, archive)
    name = f"t-{time.time_ns()}"
    pods_cluster.kubectl("create", "namespace", name)
    pods_cluster.kubectl(
        "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted"
    )
    yield name
    pods_cluster.kubectl("delete", "namespace", name, "--wait=false")


def pod(namespace: str, name: str, node: str, gpus: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name.split("-")[0]}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": RESTRICTED_POD,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "securityContext": RESTRICTED_CONTAINER,
                    "resources": {"limits": {"nvidia.com/gpu": gpus}} if gpus else {},
                    "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                }
            ],
        },
    }


def apply(cluster: Cluster, *documents: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(items))


def wait_ready(cluster: Cluster, namespace: str, *names: str) -> None:
    pods = [f"pod/{name}" for name in names]
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "-n", namespace, *pods)


@pytest.fixture(scope="module")
def web(pods_cluster: Cluster, namespace: str) -> dict[str, str]:
    """A web server on each node behind one Service; returns the addresses of the pods."""
    names = [f"web-{index}" for index in range(2)]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    apply(
        pods_cluster,
        service,
        *[pod(namespace, name, f"node-{index}") for index, name in enumerate(names)],
    )
    wait_ready(pods_cluster, namespace, *names)
    items = pods_cluster.get("pods", "-n", namespace, "-l", "app=web")["items"]
    return {item["metadata"]["name"]: item["status"]["podIP"] for item in items}


FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).status)"


@pytest.mark.parametrize("source", ["web-0", "web-1"])
def test_pods_reach_each_other_across_nodes_by_address_service_and_name(
    pods_cluster: Cluster, namespace: str, web: dict[str, str], source: str
) -> None:
    def fetch(url: str) -> str:
        return pods_cluster.kubectl(
            "exec", "-n", namespace, source, "--", "python3", "-c", FETCH, url
        ).strip()

    service = pods_cluster.get("service", "web", "-n", namespace)["spec"]["clusterIP"]
    for address in web.values():
        assert fetch(f"http://{address}:8080/") == "200"
    # Several times: each connection may go to another pod, and one of them is the source itself.
    for _ in range(4):
        assert fetch(f"http://{service}/") == "200"
    assert fetch(f"http://web.{namespace}.svc.cluster.local/") == "200"
    assert fetch("http://web/") == "200"


def test_pods_and_services_answer_to_this_host(
    pods_cluster: Cluster, namespace: str, web: dict[str, str]
) -> None:
    service = pods_cluster.get("service", "web", "-n", namespace)["spec"]["clusterIP"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in [f"http://{service}/", *[f"http://{address}:8080/" for address in web.values()]]:
        with opener.open(url, timeout=5) as answer:
            assert answer.status == 200
    assert "GET / HTTP" in pods_cluster.kubectl("logs", "-n", namespace, "web-0")


def test_a_pod_reaches_the_api_server_with_its_service_account(
    pods_cluster: Cluster, namespace: str, web: dict[str, str]
) -> None:
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    program = (
        "import ssl, urllib.error, urllib.request as u\n"
        f"token = open('{folder}/token').read()\n"
        f"context = ssl.create_default_context(cafile='{folder}/ca.crt')\n"
        "url = 'https://kubernetes.default.svc/api/v1/nodes'\n"
        "request = u.Request(url, headers={'Authorization': 'Bearer ' + token})\n"
        "try:\n"
        "    u.urlopen(request, timeout=5, context=context)\n"
        "except urllib.error.HTTPError as error:\n"
        "    print(error.code)\n"
    )
    out = pods_cluster.kubectl("exec", "-n", namespace, "web-0", "--", "python3", "-c", program)
    # Known, but without the right to list nodes.
    assert out.strip() == "403"


def gpus(cluster: Cluster, node: str) -> tuple[str, str]:
    status = cluster.get("node", node)["status"]
    return status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]


def test_the_scheduler_counts_gpus(pods_cluster: Cluster, namespace: str) -> None:
    names = [f"gpu-{index}" for index in range(3)]
    for name in names[:2]:
        apply(pods_cluster, pod(namespace, name, "node-0", gpus=3))
    wait_ready(pods_cluster, namespace, *names[:2])
    apply(pods_cluster, pod(namespace, names[2], "node-0", gpus=3))
    pods_cluster.kubectl(
        "wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "--timeout=30s",
        "-n", namespace, f"pod/{names[2]}",
    )  # fmt: skip
    pods_cluster.kubectl("delete", "pod", "-n", namespace, names[0])
    wait_ready(pods_cluster, namespace, names[2])


def test_gpus_outlive_a_restart_of_the_kubelet(pods_cluster: Cluster, namespace: str) -> None:
    instance = load(from_environment().clusters / pods_cluster.name)
    if instance is None or instance.provider != "local":
        pytest.skip("only our own nodes can be restarted from here")
    before = instance.process("kubelet-1")
    words = Path(f"/proc/{before.pid}/cmdline").read_bytes().split(b"\0")[:-1]
    processes.stop([before])
    Launcher(instance).start("kubelet-1", [os.fsdecode(word) for word in words])
    restarted = time.time()
    # Its first report after the restart is the one that could have dropped them.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        conditions = pods_cluster.get("node", "node-1")["status"]["conditions"]
        beats = [each["lastHeartbeatTime"] for each in conditions if each["type"] == "Ready"]
        if beats[0] > time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(restarted + 1)):
            break
        time.sleep(0.2)
    else:
        pytest.fail("the restarted kubelet did not report")
    assert gpus(pods_cluster, "node-1") == ("8", "8")
