"""Starts the components of one cluster, on the host or inside the cluster's namespaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from cascade_cluster import processes
from cascade_cluster.errors import ClusterError
from cascade_cluster.instance import FOLDER_VARIABLE, Instance
from cascade_cluster.processes import Process


class Launcher:
    """Starts processes for an instance and writes each into its record."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        # The caller's proxy settings would send calls to the API server elsewhere.
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin",
            "HOME": str(instance.folder),
            FOLDER_VARIABLE: str(instance.folder),
        }

    def start(self, name: str, argv: Sequence[str | Path]) -> Process:
        """Start a component; its log is named after it."""
        log = self.instance.logs / f"{name}.log"
        process = processes.start(name, [*self.inside(), *argv], log, self._environment)
        if self.instance.machine:
            # nsenter stays as the parent outside; signals must reach the component itself.
            process = processes.observe(name, processes.only_child(process), log)
        self.record(process)
        return process

    def record(self, process: Process) -> None:
        """Note a process, in place of an earlier one of the same name."""
        others = [each for each in self.instance.processes if each.name != process.name]
        self.instance.processes = [*others, process]
        self.instance.save()

    def inside(self) -> list[str]:
        """The words that put a command into the cluster's namespaces; none where it has none."""
        machine = self.instance.machine
        if machine is None:
            return []
        nsenter = shutil.which("nsenter") or "/usr/bin/nsenter"
        # --root: a mount namespace alone would lead to the real root, also out of a chroot.
        spaces = ["--mount", "--root", "--net", "--pid", "--ipc"]
        return [nsenter, "-t", str(machine.pid), *spaces, "--"]

    def check(self, *names: str) -> None:
        """Raise, with the end of its log, if one of the named processes is no longer there."""
        for name in names:
            process = self.instance.process(name)
            if not processes.is_alive(process):
                raise ClusterError(f"{name} ended unexpectedly.", processes.tail(Path(process.log)))

    def explain(self, *names: str) -> str:
        """The last log lines of the named components, for an error message."""
        return "\n".join(processes.tail(Path(self.instance.process(name).log)) for name in names)
