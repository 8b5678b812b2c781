"""The level with real pods, in the order of its start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cascade_cluster import archives, binaries, image_store, images, machine, nodes, services
from cascade_cluster.console import say
from cascade_cluster.credentials import Credentials
from cascade_cluster.handle import Cluster
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


def start_containerd(launcher: Launcher, cache: Path) -> None:
    """Start the nodes' containerds, with the project's images if they were built before."""
    pause = archives.pause_archive(binaries.build(binaries.PAUSE, cache) / "pause")
    present = all_nodes(launcher.instance)
    prepared = image_store.find(cache, pause)

    def make(node: Node) -> None:
        node.folder.mkdir()
        if prepared is not None:
            image_store.seed(prepared[0], node)

    with ThreadPoolExecutor() as pool:
        list(pool.map(make, present))
    for node in present:
        nodes.start_containerd(launcher, node)
    for node in present:
        nodes.wait_until_serving(node, partial(launcher.check, f"containerd-{node.index}"))
        if prepared is None:
            nodes.import_image(node.socket, pause)
    if prepared is not None:
        image_store.note(launcher.instance, prepared[1])


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


def load_images(cache: Path, instance: Instance | None) -> list[str]:
    """Build the project's images; into the nodes of a running cluster, or for the next one."""
    pause = archives.pause_archive(binaries.build(binaries.PAUSE, cache) / "pause")
    present = images.ensure(cache)
    if instance is not None:
        image_store.load(cache, instance, all_nodes(instance), present)
    else:
        image_store.prepare(cache, pause, present)
    return [image.reference for image in present]


def load_archive(instance: Instance, archive: Path) -> None:
    """Load an image archive into all nodes."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: nodes.import_image(node.socket, archive), all_nodes(instance)))
