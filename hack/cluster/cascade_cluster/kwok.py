"""Simulated nodes: kwok plays their kubelets, with delays and faults chosen by annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cascade_cluster.credentials import Credentials
from cascade_cluster.launcher import Launcher

STAGES = Path(__file__).resolve().parent / "stages"
MANAGED = "kwok.x-k8s.io/node"
ANNOTATIONS = "sim.cascade-operator.io"
NODE_READY_TIMEOUT = "60s"


def start(launcher: Launcher, program: Path, credentials: Credentials) -> None:
    """Start kwok for the nodes that carry its annotation."""
    launcher.start(
        "kwok",
        [
            program, f"--kubeconfig={credentials.kubeconfig('kwok')}",
            f"--config={STAGES / 'nodes.yaml'}", f"--config={STAGES / 'pods.yaml'}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={MANAGED}=fake",
            # Addresses that nobody answers on; they only have to look right.
            "--cidr=10.250.0.0/16", "--node-ip=10.249.0.1",
            "--node-lease-duration-seconds=40",
        ],
    )  # fmt: skip


def node(name: str, gpus: int, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A simulated node with GPUs."""
    resources = {
        "cpu": "192",
        "memory": "2Ti",
        "ephemeral-storage": "4Ti",
        "pods": "250",
        "nvidia.com/gpu": str(gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {MANAGED: "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
                **(labels or {}),
            },
        },
        "status": {"capacity": resources, "allocatable": resources},
    }


def add_gpu_nodes(
    kubectl: Callable[..., str], count: int, gpus: int, labels: Mapping[str, str] | None
) -> list[str]:
    """Add simulated nodes, numbered on from those that are there, and wait until they are Ready."""
    present = set(kubectl("get", "nodes", "-o", "name").split())
    names: list[str] = []
    number = 0
    while len(names) < count:
        name = f"gpu-{number}"
        if f"node/{name}" not in present:
            names.append(name)
        number += 1
    items = [node(name, gpus, labels) for name in names]
    # `create` keeps the status of a new Node, as it does for a kubelet that registers.
    kubectl(
        "create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )
    kubectl(
        "wait", "--for=condition=Ready", f"--timeout={NODE_READY_TIMEOUT}",
        *[f"node/{name}" for name in names],
    )  # fmt: skip
    return names
