"""Where things lie, from the environment, read once."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster.errors import ClusterError

HARNESS = Path(__file__).resolve().parent.parent
REPOSITORY = HARNESS.parent.parent


@dataclass(frozen=True)
class Settings:
    """Folders and switches of one run."""

    cache: Path
    """Things that are expensive to make and safe to delete: binaries, base image, archives."""
    data: Path
    """One folder per cluster; `down` removes it."""
    install: bool
    """Whether missing Debian packages may be installed (INSTALL=0 forbids it)."""
    kubeconfig: Path | None
    """A cluster that the user already has; then nothing is started and nothing is stopped."""

    @property
    def clusters(self) -> Path:
        return self.data / "clusters"


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; the folders follow the XDG rules unless they are named."""
    home = Path(environment.get("HOME") or Path.home())

    def folder(name: str, xdg: str, default: str) -> Path:
        named = environment.get(name)
        if named:
            return Path(named).expanduser().absolute()
        return Path(environment.get(xdg) or home / default).absolute() / "cascade-operator"

    kubeconfig = environment.get("CASCADE_KUBECONFIG")
    return Settings(
        cache=folder("CASCADE_CACHE", "XDG_CACHE_HOME", ".cache"),
        data=folder("CASCADE_DATA", "XDG_STATE_HOME", ".local/state"),
        install=environment.get("INSTALL", "1") != "0",
        kubeconfig=Path(kubeconfig).expanduser().absolute() if kubeconfig else None,
    )


def version(repository: Path = REPOSITORY) -> str:
    """The project's version: the tag of its images."""
    with (repository / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def checked_name(name: str) -> str:
    """Refuse a cluster name that cannot be part of a path, a cgroup and a network name."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", name):
        raise ClusterError(
            f"The cluster name {name!r} cannot be used.",
            "It becomes part of file, control group and network names.",
            "Use at most 40 lower-case letters, digits and hyphens, beginning and ending with a"
            " letter or digit.",
        )
    return name
