"""Kubernetes, helm, kwok and pause, compiled from Go modules and cached by content."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster import cached, hashing, locks
from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError
from cascade_cluster.processes import tail
from cascade_cluster.settings import HARNESS
from cascade_cluster.toolchain import find_go

KUBERNETES_VERSION = "1.34.4"
REPORT_SECONDS = 10
BUILD_TIMEOUT_SECONDS = 3600


@dataclass(frozen=True)
class Target:
    """One `go build`: a module folder and the packages of it that become programs."""

    module: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]


# helm is linked together with kube: every level needs both, and the linkers run side by side.
KUBE = Target("kube", (".", "helm.sh/helm/v3/cmd/helm"), ("kube", "helm"))
KWOK = Target("kube", ("sigs.k8s.io/kwok/cmd/kwok",), ("kwok",))
PAUSE = Target("pause", (".",), ("pause",))


def _flags() -> str:
    """Linker flags: no debug information, and the version that the API server reports."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    package = "k8s.io/component-base/version"
    values = {
        "gitVersion": f"v{KUBERNETES_VERSION}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        # A fixed date: a date of the build would make every binary differ.
        "buildDate": "2026-01-01T00:00:00Z",
    }
    words = [f"-X {package}.{name}={value}" for name, value in values.items()]
    return " ".join(["-s", "-w", *words])


def _environment() -> dict[str, str]:
    """The caller's Go settings, such as a proxy, without those that would change the result."""
    return dict(os.environ) | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
    }


def build(target: Target, cache: Path) -> Path:
    """Return the folder that holds the target's programs, compiling them unless they are cached."""
    go = find_go(cache)
    source = HARNESS / target.module
    files = [source / "go.mod", *source.glob("go.sum"), *source.glob("*.go")]
    key = hashing.of_parts(
        [hashing.of_files(source, files), run([go, "env", "GOVERSION"]), _flags()]
    )
    folder = cache / "bin" / f"{target.module}-{key}"
    if all((folder / program).exists() for program in target.programs):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with locks.exclusive(cache / "bin" / f".{target.module}.lock"):
        if not all((folder / program).exists() for program in target.programs):
            _compile(go, source, target, folder)
    return folder


def _compile(go: Path, source: Path, target: Target, folder: Path) -> None:
    scratch = folder / ".new"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    log = folder / "build.log"
    names = " and ".join(target.programs)
    if target is not PAUSE:
        say(f"compiling {names} (once; minutes on two cores, the log is {log})")
    argv = [
        str(go), "build", "-p", str(min(os.cpu_count() or 1, 8)), "-trimpath", "-v",
        "-ldflags", _flags(), "-o", f"{scratch}/", *target.packages,
    ]  # fmt: skip
    _run_with_progress(argv, source, log, names, _count(go, source, target.packages))
    for program in target.programs:
        os.replace(scratch / program, folder / program)
    scratch.rmdir()
    cached.keep_newest(folder.parent, f"{target.module}-*", 3)


def _count(go: Path, source: Path, packages: Sequence[str]) -> int:
    """How many packages a build from nothing compiles; fetches the modules on the way."""
    words = [str(go), "list", "-deps", *packages]
    remedy = "Go modules must be reachable: check `go env GOPROXY`."
    return len(
        run(words, cwd=source, env=_environment(), timeout_seconds=900, remedy=remedy).splitlines()
    )


def _run_with_progress(
    argv: Sequence[str], source: Path, log: Path, names: str, total: int
) -> None:
    started = reported = time.monotonic()
    with log.open("w") as output:
        compiler = subprocess.Popen(
            argv, cwd=source, env=_environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        while compiler.poll() is None:
            now = time.monotonic()
            if now - started > BUILD_TIMEOUT_SECONDS:
                raise ClusterError(f"Compiling {names} took over an hour.", tail(log))
            if now - reported >= REPORT_SECONDS:
                reported = now
                done = len(log.read_text().splitlines())
                say(f"  {names}: {done} packages compiled, of at most {total}")
            time.sleep(0.2)
    finally:
        if compiler.poll() is None:
            compiler.terminate()
            compiler.wait(timeout=30)
    if compiler.returncode != 0:
        raise ClusterError(f"Compiling {names} failed.", tail(log))
