"""The same cluster by way of kind, where a Docker engine answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cascade_cluster import binaries, images, kwok, nodes, processes, teardown, wheelhouse
from cascade_cluster.commands import run, succeeds
from cascade_cluster.console import say
from cascade_cluster.credentials import Credentials
from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster, installed_or_compiled
from cascade_cluster.images import Image
from cascade_cluster.instance import Instance, load, lock
from cascade_cluster.launcher import Launcher
from cascade_cluster.settings import Settings

# The Python of the public base image that the Dockerfiles name as their default.
IMAGE_PYTHON = "3.11"
PREFIX = "cascade-"
START_TIMEOUT_SECONDS = 600


def is_usable() -> bool:
    """Whether an engine answers (the client alone is not enough) and kind is there."""
    return shutil.which("kind") is not None and succeeds(["docker", "info"])


def cluster_settings(level: str, node_count: int) -> dict[str, Any]:
    """kind's configuration: workers where pods run, the control plane alone elsewhere."""
    roles = ["control-plane", *["worker"] * (node_count if level == "pods" else 0)]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role} for role in roles],
    }


def create_arguments(instance: Instance) -> list[str]:
    return [
        "kind", "create", "cluster", "--name", PREFIX + instance.name,
        "--config", str(instance.folder / "kind.json"),
        "--kubeconfig", str(instance.kubeconfig), "--wait", "180s",
    ]  # fmt: skip


def delete_arguments(instance: Instance) -> list[str]:
    return [
        "kind", "delete", "cluster", "--name", PREFIX + instance.name,
        "--kubeconfig", str(instance.kubeconfig),
    ]  # fmt: skip


def build_arguments(image: Image, context: Path) -> list[str]:
    """`docker build`: the Dockerfile's own default is the base."""
    return ["docker", "build", "--tag", image.reference, str(context)]


def load_arguments(instance: Instance, references: Sequence[str]) -> list[str]:
    return ["kind", "load", "docker-image", "--name", PREFIX + instance.name, *references]


def load_archive_arguments(instance: Instance, archive: Path) -> list[str]:
    return ["kind", "load", "image-archive", "--name", PREFIX + instance.name, str(archive)]


def worker_names(instance: Instance) -> list[str]:
    """kind's names: worker, worker2, worker3, ..."""
    numbers = ["", *[str(index) for index in range(2, instance.nodes + 1)]][: instance.nodes]
    return [f"{PREFIX}{instance.name}-worker{number}" for number in numbers]


def up(settings: Settings, name: str, level: str, node_count: int, gpus: int) -> Cluster:
    """Start a cluster with kind, or return the running one."""
    folder = settings.clusters / name
    with lock(folder):
        present = load(folder)
        if present is not None and is_running(present):
            if present.level != level:
                raise ClusterError(
                    f"The cluster {name} runs already, at level {present.level}.",
                    "",
                    f"Run `down --name {name}` first, or choose another name.",
                )
            say(f"cluster {name} is up already")
            return handle(settings, present)
        instance = Instance(folder, level, provider="kind")
        instance.nodes = node_count if level == "pods" else 0
        instance.save()
        # An earlier run that was killed may have left half a cluster.
        teardown.end_processes(folder)
        delete(instance)
        (folder / "kind.json").write_text(json.dumps(cluster_settings(level, node_count)))
        say("starting a cluster with kind")
        run(create_arguments(instance), timeout_seconds=START_TIMEOUT_SECONDS)
        cluster = handle(settings, instance)
        instance.url = cluster.url
        if level == "kwok":
            _start_kwok(settings, instance)
        nodes.set_gpus(cluster, worker_names(instance), gpus)
        instance.is_ready = True
        instance.save()
        return cluster


def _start_kwok(settings: Settings, instance: Instance) -> None:
    """kwok runs beside kind and reaches it as its administrator."""
    credentials = Credentials(instance.folder / "credentials")
    credentials.folder.mkdir(exist_ok=True)
    shutil.copy(instance.kubeconfig, credentials.kubeconfig("kwok"))
    program = binaries.build(binaries.KWOK, settings.cache) / "kwok"
    kwok.start(Launcher(instance), program, credentials)


def handle(settings: Settings, instance: Instance) -> Cluster:
    """The cluster as its users see it."""
    programs = installed_or_compiled(settings.cache)
    return Cluster(instance.name, instance.level, instance.kubeconfig, programs, instance.folder)


def is_running(instance: Instance) -> bool:
    """Whether the start was completed and kwok, if it belongs to the level, still runs."""
    return instance.is_ready and all(processes.is_alive(each) for each in instance.processes)


def delete(instance: Instance) -> None:
    run(delete_arguments(instance), timeout_seconds=120)


def load_images(settings: Settings, instance: Instance | None) -> list[str]:
    """Build with docker, which caches by itself, and load into the nodes if they run."""
    wheels = wheelhouse.freeze(settings.cache)
    present = images.describe("docker", sources=wheels.sources)
    for image in present:
        context = settings.cache / "images" / f".context-{image.component}"
        shutil.rmtree(context, ignore_errors=True)
        wheels.context(context, image.component, IMAGE_PYTHON, image.dockerfile)
        say(f"building {image.reference}")
        run(build_arguments(image, context), timeout_seconds=images.BUILD_TIMEOUT_SECONDS)
        shutil.rmtree(context)
    references = [image.reference for image in present]
    if instance is not None:
        say("loading the images into kind's nodes")
        run(load_arguments(instance, references), timeout_seconds=600)
    return references


def load_archive(instance: Instance, archive: Path) -> None:
    run(load_archive_arguments(instance, archive), timeout_seconds=600)
