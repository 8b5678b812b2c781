"""The record of one cluster: its folder, its level and the processes that were started for it."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from cascade_cluster import locks
from cascade_cluster.errors import ClusterError
from cascade_cluster.processes import Process

LEVELS = ("api", "kwok", "pods")

FOLDER_VARIABLE = "CASCADE_CLUSTER_FOLDER"
"""Set in the environment of every process of a cluster: one that was started by a run that died
before it could write the record is still found."""


@dataclass
class Instance:
    """What is known of one cluster; written to disk after every change."""

    folder: Path
    level: str
    provider: str = "local"
    """`local` (this package's processes) or `kind`."""
    url: str = ""
    programs: str = ""
    """Folder of the binaries that it was started from: later changes to them do not touch it."""
    network: int | None = None
    """Second byte of the cluster's 10.x.0.0/16, for the level that has a network."""
    machine: Process | None = None
    """First process of the namespaces that the cluster runs in, for the same level."""
    nodes: int = 0
    processes: list[Process] = field(default_factory=list)
    is_ready: bool = False

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def process(self, name: str) -> Process:
        for process in self.processes:
            if process.name == name:
                return process
        raise ClusterError(f"The cluster {self.name} runs no {name}.", "", f"Level: {self.level}.")

    def save(self) -> None:
        """Write the record by rename: a reader sees the old or the new one, never half of it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps(dataclasses.asdict(self), default=str, indent=1)
        scratch = self.folder / "instance.json.new"
        scratch.write_text(text)
        os.replace(scratch, self.folder / "instance.json")


def load(folder: Path) -> Instance | None:
    """Read the record of a cluster; nothing if there is none or a dead run left it unreadable."""
    try:
        fields = json.loads((folder / "instance.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    fields["folder"] = folder
    fields["machine"] = Process(**fields["machine"]) if fields["machine"] else None
    fields["processes"] = [Process(**each) for each in fields["processes"]]
    # A cluster may have been started by another version of this package.
    known = {each.name for each in dataclasses.fields(Instance)}
    return Instance(**{name: value for name, value in fields.items() if name in known})


def lock(folder: Path) -> AbstractContextManager[None]:
    """Serialises `up` and `down` of one cluster."""
    return locks.exclusive(folder.parent / f".{folder.name}.lock")
