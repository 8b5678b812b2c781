"""Starts a cluster from our own binaries, up to the level that is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cascade_cluster import (
    binaries,
    control_plane,
    credentials,
    kwok,
    nodes,
    packages,
    pods,
    processes,
    teardown,
)
from cascade_cluster.console import say
from cascade_cluster.control_plane import Endpoints
from cascade_cluster.credentials import Credentials
from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster, Programs
from cascade_cluster.images import Image
from cascade_cluster.instance import Instance, load, lock
from cascade_cluster.launcher import Launcher
from cascade_cluster.ports import free_ports
from cascade_cluster.settings import Settings


def up(
    settings: Settings,
    name: str,
    level: str,
    node_count: int,
    gpus: int,
    built: Sequence[Image] | None = None,
) -> Cluster:
    """Start the cluster, its nodes with the built images, or return the running one."""
    folder = settings.clusters / name
    with lock(folder):
        present = load(folder)
        if present is not None and is_running(present):
            _check_equal(present, level, node_count)
            say(f"cluster {name} is up already")
            return handle(present)
        if folder.exists():
            say(f"removing what an earlier run left of cluster {name}")
            teardown.remove(folder)
        packages.ensure(level, install=settings.install)
        programs = binaries.build(binaries.KUBE, settings.cache)
        instance = Instance(folder, level, programs=str(programs))
        instance.nodes = node_count if level == "pods" else 0
        instance.save()
        try:
            _start(settings, instance, programs, gpus, built)
        except BaseException as error:
            # The folder stays, with the logs; the processes would only be in the way.
            teardown.end_processes(folder)
            if isinstance(error, ClusterError):
                raise type(error)(error.what, error.why, f"All logs: {instance.logs}") from error
            raise
        instance.is_ready = True
        instance.save()
        return handle(instance)


def is_running(instance: Instance) -> bool:
    """Whether the start was completed and everything that was started still runs."""
    everything = [*instance.processes, *([instance.machine] if instance.machine else [])]
    return instance.is_ready and all(processes.is_alive(process) for process in everything)


def _check_equal(present: Instance, level: str, node_count: int) -> None:
    if present.level != level or (level == "pods" and present.nodes != node_count):
        raise ClusterError(
            f"The cluster {present.name} runs already, at level {present.level}"
            + (f" with {present.nodes} nodes." if present.level == "pods" else "."),
            "A cluster does not change its level or its nodes.",
            f"Run `down --name {present.name}` first, or choose another name.",
        )


def _start(
    settings: Settings,
    instance: Instance,
    programs: Path,
    gpus: int,
    built: Sequence[Image] | None,
) -> None:
    launcher = Launcher(instance)
    net = None
    if instance.level == "pods":
        net = pods.create_machine(launcher, settings.cache)
        endpoints = Endpoints(net.api, net.services, 6443, 2379, 2380, 10257, 10259)
        addresses = [net.api, net.first_service, "127.0.0.1"]
    else:
        ports = free_ports(5)
        endpoints = Endpoints("127.0.0.1", "10.96.0.0/16", *ports)
        addresses = ["127.0.0.1", "10.96.0.1"]
    node_names = [nodes.node_name(index) for index in range(instance.nodes)]
    made = credentials.create(instance.folder / "credentials", addresses, node_names)
    instance.url = endpoints.url
    for user in [*credentials.USERS, *node_names]:
        credentials.write_kubeconfig(made, user, endpoints.url, made.kubeconfig(user))
    shutil.copy(made.kubeconfig("admin"), instance.kubeconfig)
    _write_wrappers(instance, programs)
    kube = programs / "kube"
    control_plane.start_api(launcher, kube, made, endpoints)
    if instance.level == "pods":
        pods.start_containerd(launcher, settings.cache, built)
    control_plane.wait_for_api(launcher, made, endpoints)
    say(f"API server ready at {endpoints.url}")
    if instance.level != "api":
        control_plane.start_controllers(launcher, kube, made, endpoints)
    if instance.level == "kwok":
        _start_kwok(launcher, settings, made)
    if net is not None:
        pods.start_nodes(launcher, kube, made, net, handle(instance), gpus)


def _start_kwok(launcher: Launcher, settings: Settings, made: Credentials) -> None:
    program = binaries.build(binaries.KWOK, settings.cache) / "kwok"
    kwok.start(launcher, program, made)
    say("kwok plays the simulated nodes")


def _write_wrappers(instance: Instance, programs: Path) -> None:
    """`bin/kubectl` and `bin/helm` in the cluster's folder, for people and for scripts."""
    commands = {"kubectl": f"'{programs}/kube' kubectl", "helm": f"'{programs}/helm'"}
    (instance.folder / "bin").mkdir()
    for name, command in commands.items():
        script = instance.folder / "bin" / name
        script.write_text(f"#!/bin/sh\nKUBECONFIG='{instance.kubeconfig}' exec {command} \"$@\"\n")
        script.chmod(0o755)


def handle(instance: Instance) -> Cluster:
    """The cluster as its users see it."""
    programs = Programs((f"{instance.programs}/kube", "kubectl"), (f"{instance.programs}/helm",))
    return Cluster(instance.name, instance.level, instance.kubeconfig, programs, instance.folder)
