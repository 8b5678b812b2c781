"""Nodes: one containerd and one kubelet each, all in the cluster's namespaces."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascade_cluster.commands import run, wait_until
from cascade_cluster.credentials import Credentials
from cascade_cluster.errors import CommandError, WaitError
from cascade_cluster.handle import Cluster
from cascade_cluster.launcher import Launcher
from cascade_cluster.network import Network

GPU = "nvidia.com/gpu"
PLUGINS = Path("/usr/lib/cni")
PAUSE_IMAGE = "cascade-operator/pause:1"
READY_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Node:
    """Names, addresses and folders of one node."""

    index: int
    net: Network
    folder: Path

    @property
    def name(self) -> str:
        return node_name(self.index)

    @property
    def address(self) -> str:
        return self.net.node(self.index)

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"


def node_name(index: int) -> str:
    return f"node-{index}"


def containerd_settings(node: Node) -> str:
    """containerd's configuration (its version 2, which the releases 1.6 to 2 read)."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
root = "{node.folder}/containerd"
state = "{node.folder}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{node.socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{node.folder}/opt"
[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
# A root without CAP_SYS_RESOURCE may not make a process less likely to be killed.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[{cri}.cni]
bin_dir = "{PLUGINS}"
conf_dir = "{node.folder}/cni"
[{cri}.containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def cni_settings(node: Node) -> dict[str, Any]:
    """The pod network of one node: a cable per pod, routed by the host.

    Routed rather than bridged: replies of a Service's pod on the same bridge would bypass the
    address translation, unless a kernel module that not every machine has sends them through it.
    """
    return {
        "cniVersion": "0.4.0",
        "name": node.name,
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(node.folder / "addresses"),
                    "ranges": [[{"subnet": node.net.pods(node.index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def kubelet_settings(node: Node, credentials: Credentials) -> dict[str, Any]:
    """The kubelet's configuration: no eviction, no node-wide limits, its own folders."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": node.address,
        "port": 10250,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(credentials.ca)},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDomain": "cluster.local",
        "clusterDNS": [node.net.dns],
        "resolvConf": str(node.folder / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "evictionHard": {},
        # Images come from archives: what is collected as garbage would not come back.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": False,
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "5s",
        "localStorageCapacityIsolation": False,
    }


def containerd_program() -> str:
    return shutil.which("containerd") or "/usr/bin/containerd"


def start_containerd(launcher: Launcher, node: Node) -> None:
    """Start a node's containerd."""
    (node.folder / "cni").mkdir()
    (node.folder / "cni" / "10-pods.conflist").write_text(json.dumps(cni_settings(node)))
    settings = node.folder / "containerd.toml"
    settings.write_text(containerd_settings(node))
    launcher.start(f"containerd-{node.index}", [containerd_program(), "--config", settings])


def wait_until_serving(node: Node, alive: Callable[[], None]) -> None:
    """Wait until containerd answers; its socket file alone appears earlier."""

    def is_serving() -> bool:
        if not node.socket.exists():
            return False
        try:
            run(["ctr", "--address", node.socket, "--connect-timeout", "1s", "version"])
        except CommandError:
            return False
        return True

    wait_until(f"containerd at {node.socket}", is_serving, timeout_seconds=30, alive=alive)


def import_image(socket: Path, archive: Path) -> None:
    """Load an image archive into the part of containerd that the kubelet sees."""
    run(
        ["ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive],
        timeout_seconds=300,
    )


def start_kubelet(launcher: Launcher, node: Node, kube: Path, credentials: Credentials) -> None:
    """Start a node's kubelet; it registers the node by itself."""
    (node.folder / "resolv.conf").write_text(f"nameserver {node.net.dns}\n")
    settings = node.folder / "kubelet.json"
    settings.write_text(json.dumps(kubelet_settings(node, credentials)))
    launcher.start(
        f"kubelet-{node.index}",
        [
            kube, "kubelet", f"--config={settings}",
            f"--kubeconfig={credentials.kubeconfig(node.name)}",
            f"--root-dir={node.folder / 'kubelet'}",
            f"--cert-dir={node.folder / 'pki'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        ],
    )  # fmt: skip


def wait_until_ready(launcher: Launcher, nodes: list[Node], cluster: Cluster) -> None:
    """Wait until all nodes are Ready."""
    names = [f"kubelet-{node.index}" for node in nodes]

    def are_ready() -> bool:
        ready = [
            item["metadata"]["name"]
            for item in cluster.get("nodes")["items"]
            for condition in item["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]
        return set(ready) >= {node.name for node in nodes}

    try:
        wait_until(
            "the nodes to be Ready",
            are_ready,
            timeout_seconds=READY_TIMEOUT_SECONDS,
            alive=lambda: launcher.check(*names),
            poll_seconds=0.1,
        )
    except WaitError as error:
        raise WaitError(error.what, launcher.explain(*names)) from error


def set_gpus(cluster: Cluster, names: list[str], gpus: int) -> None:
    """Give nodes GPUs that exist in their status only; scheduler and quota count them."""
    patch = json.dumps({"status": {"capacity": {GPU: str(gpus)}, "allocatable": {GPU: str(gpus)}}})
    with ThreadPoolExecutor() as pool:
        list(
            pool.map(
                lambda name: cluster.kubectl(
                    "patch", "node", name, "--subresource=status", "--type=merge", "-p", patch
                ),
                names,
            )
        )
