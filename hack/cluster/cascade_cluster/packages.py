"""The Debian packages that a level needs: checked by their programs, installed where allowed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError

# Package: a file or program that shows that it is there.
_PODS = {
    "openssl": "openssl",
    "util-linux": "unshare",
    "iproute2": "ip",
    "nftables": "nft",
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/ptp",
}
NEEDS: dict[str, Mapping[str, str]] = {
    "api": {"openssl": "openssl"},
    "kwok": {"openssl": "openssl"},
    "pods": _PODS,
    "images": {"buildah": "buildah", "debootstrap": "debootstrap"},
}
_SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def missing(purpose: str) -> list[str]:
    """The packages that are not installed, for a level or for building images."""

    def is_there(evidence: str) -> bool:
        if evidence.startswith("/"):
            return Path(evidence).exists()
        return shutil.which(evidence, path=_SEARCH_PATH) is not None

    return [package for package, evidence in NEEDS[purpose].items() if not is_there(evidence)]


def ensure(purpose: str, *, install: bool) -> None:
    """Install what is missing, or say in one message all that a person must install."""
    names = missing(purpose)
    if purpose in ("pods", "images") and os.geteuid() != 0:
        raise ClusterError(
            f"`{purpose}` needs root.",
            "It makes network devices, mounts and control groups, as a container engine does.",
            "Run it as root, or start a Docker engine and install kind, which are then used.",
        )
    if not names:
        return
    words = ["apt-get", "install", "--yes", "--no-install-recommends", *names]
    if not install or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(
            f"Debian packages are missing for `{purpose}`: {' '.join(names)}",
            "They are installed only as root, with apt-get, and without INSTALL=0.",
            f"Run: {' '.join(words)}",
        )
    say(f"installing Debian packages: {' '.join(names)}")
    environment = dict(os.environ) | {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], timeout_seconds=300, env=environment)
    run(words, timeout_seconds=900, env=environment)
