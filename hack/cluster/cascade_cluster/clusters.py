"""Finds or starts a cluster: the user's own, then kind, then ours."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cascade_cluster import binaries, kind, local, packages, pods, teardown
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster, installed_or_compiled
from cascade_cluster.instance import Instance, load, lock
from cascade_cluster.network import MAX_NODES
from cascade_cluster.settings import Settings


def up(settings: Settings, name: str, level: str, nodes: int = 2, gpus: int = 8) -> Cluster:
    """A cluster of the given level; started only if there is none."""
    _check_size(nodes, gpus)
    if settings.kubeconfig is not None:
        say(f"using the cluster of CASCADE_KUBECONFIG={settings.kubeconfig}; nothing is started")
        return _existing(settings, settings.kubeconfig)
    present = load(settings.clusters / name)
    provider = present.provider if present is not None else choose_provider()
    if provider == "kind":
        return kind.up(settings, name, level, nodes, gpus)
    return local.up(settings, name, level, nodes, gpus)


def up_with_images(settings: Settings, name: str, nodes: int = 2, gpus: int = 8) -> Cluster:
    """A cluster with real pods whose nodes hold the project's images."""
    present = load(settings.clusters / name)
    is_new = present is None or not local.is_running(present)
    if settings.kubeconfig is None and is_new and choose_provider() == "local":
        # Side by side: one waits for the network and the disk while the other compiles. The nodes
        # then start with the images inside.
        _check_size(nodes, gpus)
        packages.ensure("pods", install=settings.install)
        packages.ensure("images", install=settings.install)
        with ThreadPoolExecutor() as pool:
            compiling = pool.submit(binaries.build, binaries.KUBE, settings.cache)
            built = pods.build_images(settings.cache)
            compiling.result()
        return local.up(settings, name, "pods", nodes, gpus, built)
    cluster = up(settings, name, "pods", nodes, gpus)
    images(settings, name)
    return cluster


def _check_size(nodes: int, gpus: int) -> None:
    if not 1 <= nodes <= MAX_NODES or gpus < 0:
        raise ClusterError(f"Between 1 and {MAX_NODES} nodes, with 0 or more GPUs each, please.")


def choose_provider() -> str:
    """kind where a Docker engine answers, as that is the ordinary way; else our own processes."""
    return "kind" if kind.is_usable() else "local"


def _existing(settings: Settings, kubeconfig: Path) -> Cluster:
    if not kubeconfig.is_file():
        raise ClusterError(
            f"There is no file {kubeconfig}.", "CASCADE_KUBECONFIG names it as the cluster to use."
        )
    programs = installed_or_compiled(settings.cache)
    return Cluster("existing", "existing", kubeconfig, programs, settings.data / "existing")


def find(settings: Settings, name: str) -> Cluster:
    """A cluster that is up already."""
    if settings.kubeconfig is not None:
        return _existing(settings, settings.kubeconfig)
    instance = load(settings.clusters / name)
    if instance is None or not instance.is_ready:
        raise ClusterError(f"There is no cluster {name}.", "", f"Start it: up --name {name}")
    return handle(settings, instance)


def handle(settings: Settings, instance: Instance) -> Cluster:
    """The running cluster that a record describes."""
    if instance.provider == "kind":
        return kind.handle(settings, instance)
    return local.handle(instance)


def down(settings: Settings, name: str) -> None:
    """End a cluster and remove what was made for it; the user's own is never touched."""
    if settings.kubeconfig is not None:
        say("the cluster of CASCADE_KUBECONFIG is yours: nothing was started, nothing is stopped")
        return
    folder = settings.clusters / name
    with lock(folder):
        instance = load(folder)
        if instance is not None and instance.provider == "kind":
            kind.delete(instance)
        teardown.remove(folder)
    say(f"cluster {name} is gone; kept for the next one: {settings.cache}, and Go's own caches")


def status(settings: Settings) -> Iterator[str]:
    """A line per cluster."""
    if settings.kubeconfig is not None:
        yield f"CASCADE_KUBECONFIG={settings.kubeconfig}: used instead of any cluster of ours"
    folders = sorted(settings.clusters.glob("*/")) if settings.clusters.is_dir() else []
    for folder in folders:
        instance = load(folder)
        if instance is None:
            yield f"{folder.name}: unfinished; the next `up` or `down` removes it"
            continue
        is_running = kind.is_running if instance.provider == "kind" else local.is_running
        state = "up" if is_running(instance) else "broken; the next `up` replaces it"
        level = f"{instance.provider}, level {instance.level}"
        nodes = f", {instance.nodes} nodes" if instance.nodes else ""
        yield f"{instance.name}: {state}, {level}{nodes}, {instance.url}"
    if not folders:
        yield "no clusters"


def images(settings: Settings, name: str) -> list[str]:
    """Build the project's images and load them into the nodes, or keep them for the next `up`."""
    if settings.kubeconfig is not None:
        raise ClusterError(
            "Images cannot be loaded into the cluster of CASCADE_KUBECONFIG.",
            "How its nodes get images is its owner's affair.",
            "Build them with docker from the Dockerfiles and push them to a registry it can reach.",
        )
    instance = load(settings.clusters / name)
    provider = instance.provider if instance is not None else choose_provider()
    if provider == "kind":
        return kind.load_images(settings, instance)
    packages.ensure("pods", install=settings.install)
    packages.ensure("images", install=settings.install)
    running = instance if instance is not None and local.is_running(instance) else None
    if running is not None and running.level != "pods":
        raise ClusterError(
            f"The cluster {name} has the level {running.level}, which runs no images."
        )
    if running is not None:
        built = pods.load_images(settings.cache, running)
    else:
        built = pods.build_images(settings.cache)
    return [image.reference for image in built]


def load_archive(settings: Settings, name: str, archive: Path) -> None:
    """Load an image archive that somebody else made into the nodes of a running cluster."""
    find(settings, name)
    instance = load(settings.clusters / name)
    if instance is None or instance.level != "pods":
        raise ClusterError(f"The cluster {name} has no nodes that run images.")
    if instance.provider == "kind":
        kind.load_archive(instance, archive)
    else:
        pods.load_archive(instance, archive)
