"""Removes a cluster of ours, whatever state a crash or a kill has left it in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from cascade_cluster import fixed_folders, processes
from cascade_cluster.commands import wait_until
from cascade_cluster.errors import ClusterError
from cascade_cluster.instance import FOLDER_VARIABLE, load
from cascade_cluster.network import Network
from cascade_cluster.processes import Process


def remains(folder: Path) -> list[Process]:
    """Processes started for the cluster, found by the variable that each of them inherited."""
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            found.append(processes.observe(entry.name, int(entry.name), folder / "none"))
        except (OSError, ClusterError):
            continue  # it ended while we looked, or belongs to another user
    return found


def end_processes(folder: Path) -> None:
    """Kill every process of the cluster and wait until the last is gone.

    Force is right here: the data go with the cluster, so nobody has anything to save. The death
    of the namespaces' first process makes the kernel kill all others in them, containers included,
    and drop their mounts and network devices.
    """
    instance = load(folder)
    known = [] if instance is None else list(instance.processes)
    if instance is not None and instance.machine is not None:
        known.insert(0, instance.machine)
    for process in known:
        processes.send(process, signal.SIGKILL)

    def is_gone() -> bool:
        left = remains(folder)
        for process in left:
            processes.send(process, signal.SIGKILL)
        return not left and not any(processes.is_alive(process) for process in known)

    wait_until(f"the end of the processes of {folder.name}", is_gone, timeout_seconds=30)
    if instance is not None and instance.network is not None:
        device = Network(instance.network).device
        # The kernel takes a network namespace apart late when sockets of killed processes linger;
        # without the device on our side nothing of it is left to see or to collide with.
        subprocess.run(["ip", "link", "delete", device], capture_output=True, check=False)
        wait_until(
            f"the removal of the network device {device}",
            lambda: not Path("/sys/class/net", device).exists(),
            timeout_seconds=15,
        )
    _remove_control_groups(folder)
    fixed_folders.remove_unused()


def _remove_control_groups(folder: Path) -> None:
    """The groups of containers whose runtime died before it could remove them."""
    tasks = folder.glob("node-*/state/io.containerd.runtime.v2.task/k8s.io/*")
    for container in [task.name for task in tasks]:
        for parent in fixed_folders.container_groups():
            # Depth first, as a group with children cannot be removed.
            for path, _, _ in os.walk(parent / container, topdown=False):
                _remove_control_group(Path(path))


def _remove_control_group(path: Path) -> None:
    def is_removed() -> bool:
        try:
            path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the kernel counts a killed process for a moment longer
        return True

    wait_until(f"the removal of {path}", is_removed, timeout_seconds=10)


def remove(folder: Path) -> None:
    """End the cluster and delete its folder; does nothing where there is none."""
    end_processes(folder)
    if folder.exists():
        shutil.rmtree(folder)
