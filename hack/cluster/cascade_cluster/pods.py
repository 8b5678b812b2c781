"""The level with real pods, in the order of its start."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cascade_cluster import archives, binaries, image_store, images, machine, nodes, services
from cascade_cluster.console import say
from cascade_cluster.credentials import Credentials
from cascade_cluster.handle import Cluster
from cascade_cluster.images import Image
from cascade_cluster.instance import Instance
from cascade_cluster.launcher import Launcher
from cascade_cluster.network import Network
from cascade_cluster.nodes import Node


def create_machine(launcher: Launcher, cache: Path) -> Network:
    """Make the namespaces that everything else of the cluster starts in."""
    pause = binaries.build(binaries.PAUSE, cache) / "pause"
    return machine.create(launcher, pause, launcher.instance.nodes)


def all_nodes(instance: Instance) -> list[Node]:
    """The nodes of a cluster; none below the level pods."""
    if instance.network is None:
        return []
    net = Network(instance.network)
    return [
        Node(index, net, instance.folder / nodes.node_name(index))
        for index in range(instance.nodes)
    ]


def start_containerd(launcher: Launcher, cache: Path, built: Sequence[Image] | None) -> None:
    """Start the nodes' containerds with the given images, or with those of the code as it is.

    The latter only if they were built before: a cluster needs none.
    """
    pause = archives.pause_archive(binaries.build(binaries.PAUSE, cache) / "pause")
    present = all_nodes(launcher.instance)
    built = built or image_store.find(cache)
    store = image_store.prepare(cache, pause, built) if built else None

    def make(node: Node) -> None:
        node.folder.mkdir()
        if store is not None:
            image_store.seed(store, node)

    with ThreadPoolExecutor() as pool:
        list(pool.map(make, present))
    for node in present:
        nodes.start_containerd(launcher, node)
    for node in present:
        nodes.wait_until_serving(node, partial(launcher.check, f"containerd-{node.index}"))
        if store is None:
            nodes.import_image(node.socket, pause)
    image_store.note(launcher.instance, built)


def start_nodes(
    launcher: Launcher,
    kube: Path,
    credentials: Credentials,
    net: Network,
    cluster: Cluster,
    gpus: int,
) -> None:
    """Start kubelets, kube-proxy and CoreDNS, and wait until the nodes are Ready, with GPUs."""
    present = all_nodes(launcher.instance)
    for node in present:
        nodes.start_kubelet(launcher, node, kube, credentials)
    services.start(launcher, kube, credentials, net, cluster)
    nodes.wait_until_ready(launcher, present, cluster)
    nodes.set_gpus(cluster, [node.name for node in present], gpus)
    say(f"{len(present)} nodes Ready, each with {gpus} GPUs in its status")


def build_images(cache: Path) -> list[Image]:
    """Build the project's images, and unpack them for nodes that are yet to start."""
    built = images.ensure(cache)
    pause = archives.pause_archive(binaries.build(binaries.PAUSE, cache) / "pause")
    image_store.prepare(cache, pause, built)
    return built


def load_images(cache: Path, instance: Instance) -> list[Image]:
    """Build the project's images and load them into the nodes of a running cluster."""
    built = images.ensure(cache)
    image_store.load(cache, instance, all_nodes(instance), built)
    return built


def load_archive(instance: Instance, archive: Path) -> None:
    """Load an image archive into all nodes."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: nodes.import_image(node.socket, archive), all_nodes(instance)))
