"""A running cluster as its users see it: a kubeconfig, kubectl, helm, and simulated nodes."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cascade_cluster import binaries, kwok
from cascade_cluster.commands import run
from cascade_cluster.errors import ClusterError

COMMAND_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Programs:
    """How to call kubectl and helm."""

    kubectl: tuple[str, ...]
    helm: tuple[str, ...]


def compiled(cache: Path) -> Programs:
    """Our own programs; compiled when they are not there yet."""
    folder = binaries.build(binaries.KUBE, cache)
    return Programs((str(folder / "kube"), "kubectl"), (str(folder / "helm"),))


def installed_or_compiled(cache: Path) -> Programs:
    """The user's programs where both are on PATH: they fit the user's cluster best."""
    kubectl, helm = shutil.which("kubectl"), shutil.which("helm")
    if kubectl and helm:
        return Programs((kubectl,), (helm,))
    return compiled(cache)


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers."""

    name: str
    level: str
    kubeconfig: Path
    programs: Programs
    folder: Path
    """Ours, for files that are derived from the kubeconfig."""

    def kubectl(
        self, *args: str | Path, input: str | None = None, timeout_seconds: float | None = None
    ) -> str:
        """Run kubectl against this cluster and return what it prints."""
        return run(
            [*self.programs.kubectl, *args],
            stdin=input,
            env=self.environment(),
            timeout_seconds=timeout_seconds or COMMAND_TIMEOUT_SECONDS,
        )

    def helm(self, *args: str | Path, input: str | None = None) -> str:
        """Run helm against this cluster and return what it prints."""
        return run(
            [*self.programs.helm, *args],
            stdin=input,
            env=self.environment(),
            timeout_seconds=COMMAND_TIMEOUT_SECONDS,
        )

    def environment(self) -> dict[str, str]:
        """The environment in which kubectl, helm and client libraries find this cluster."""
        return dict(os.environ) | {"KUBECONFIG": str(self.kubeconfig)}

    def get(self, *args: str) -> Any:
        """`kubectl get ... -o json`, parsed."""
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    @cached_property
    def _view(self) -> dict[str, Any]:
        """The kubeconfig's current cluster and user, with files and references resolved."""
        text = self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
        view: dict[str, Any] = json.loads(text)
        return view

    @property
    def url(self) -> str:
        return str(self._view["clusters"][0]["cluster"]["server"])

    @property
    def admin_token(self) -> str:
        """The administrator's bearer token."""
        token = self._view["users"][0]["user"].get("token")
        if not token:
            raise ClusterError(
                f"The kubeconfig {self.kubeconfig} holds no bearer token.",
                "Its user is known by a certificate or by a plugin.",
                "Use a kubeconfig of a service account, or a cluster that `up` starts.",
            )
        return str(token)

    @cached_property
    def ca(self) -> Path:
        """A file with the authority that signed the API server's certificate."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / "ca.crt"
        data = self._view["clusters"][0]["cluster"]["certificate-authority-data"]
        path.write_bytes(base64.b64decode(data))
        return path

    def add_gpu_nodes(
        self, n: int, gpus_per_node: int = 8, labels: Mapping[str, str] | None = None
    ) -> list[str]:
        """Add simulated GPU nodes (level kwok); returns their names once they are Ready."""
        if self.level != "kwok":
            raise ClusterError(
                f"The cluster {self.name} has the level {self.level}.",
                "Nobody there plays the kubelet of a simulated node.",
                "Use the level kwok.",
            )
        return kwok.add_gpu_nodes(self.kubectl, n, gpus_per_node, labels)
