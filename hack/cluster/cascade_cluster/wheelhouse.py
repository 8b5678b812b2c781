"""The wheels that an image installs: the project's own and those of one of its extras."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster import cached, hashing, locks
from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError
from cascade_cluster.settings import REPOSITORY

# What a current glibc accepts; pip wants each of them named when the version is not its own.
PLATFORMS = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
TIMEOUT_SECONDS = 900
ATTEMPTS = 5
REMEDY = "pip must reach an index: check `pip config list`."


@dataclass(frozen=True)
class Sources:
    """Keys of what goes into an image from this checkout."""

    project: str
    """All files of the project's wheel."""
    requirements: str
    """What decides on the versions of the other wheels."""


def sources(repository: Path = REPOSITORY) -> Sources:
    """Hash the checkout; no tool is called, so that an unchanged one costs next to nothing."""
    settings = repository / "pyproject.toml"
    constraints = repository / "constraints.txt"
    with settings.open("rb") as file:
        document = tomllib.load(file)
    folders = document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = [settings, repository / str(document["project"]["readme"])]
    for folder in folders:
        files += [
            path
            for path in (repository / folder).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        ]
    pins = [settings, *([constraints] if constraints.exists() else [])]
    return Sources(hashing.of_files(repository, files), hashing.of_files(repository, pins))


@dataclass(frozen=True)
class Wheelhouse:
    """The project's wheel at one moment, and the wheels that go with it."""

    cache: Path
    repository: Path
    sources: Sources
    wheel: Path

    def extra(self, extra: str, python: str) -> Path:
        """A folder with the wheels that an extra needs on a Python, fetched unless cached."""
        folders = self.cache / "wheels"
        folder = folders / f"{extra}-{hashing.of_parts([self.sources.requirements, python])}"
        with locks.exclusive(folders / f".{extra}.lock"):
            if not folder.exists():
                say(f"fetching the wheels of the extra {extra}")
                scratch = _scratch(folder)
                argv: list[str | Path] = [
                    *_pip(), "download", "--only-binary=:all:", "--dest", scratch,
                    *_target(python), *_constraints(self.repository), f"{self.wheel}[{extra}]",
                ]  # fmt: skip
                run(argv, timeout_seconds=TIMEOUT_SECONDS, remedy=REMEDY)
                # It changes with every line of code, the others do not: it is kept apart.
                (scratch / self.wheel.name).unlink()
                scratch.rename(folder)
                cached.keep_newest(folders, f"{extra}-*", 2)
        return folder

    def context(self, target: Path, extra: str, python: str, dockerfile: Path) -> None:
        """Fill a folder with what `docker build` and `buildah build` get to see."""
        wheels = target / "wheels"
        wheels.mkdir(parents=True)
        for wheel in [self.wheel, *self.extra(extra, python).glob("*.whl")]:
            os.link(wheel, wheels / wheel.name)
        shutil.copy(dockerfile, target / "Dockerfile")
        constraints = self.repository / "constraints.txt"
        if constraints.exists():
            shutil.copy(constraints, target)


def freeze(cache: Path, repository: Path = REPOSITORY) -> Wheelhouse:
    """Build the project's wheel, unless it is cached, from files that hold still meanwhile."""
    with locks.exclusive(cache / "wheels" / ".project.lock"):
        for _ in range(ATTEMPTS):
            before = sources(repository)
            folder = cache / "wheels" / f"project-{before.project}"
            if folder.exists():
                return Wheelhouse(cache, repository, before, next(folder.glob("*.whl")))
            say("building the project's wheel")
            scratch = _scratch(folder)
            argv: list[str | Path] = [*_pip(), "wheel", "--no-deps", "--wheel-dir", scratch]
            run([*argv, repository], timeout_seconds=TIMEOUT_SECONDS, remedy=REMEDY)
            if sources(repository) == before:
                scratch.rename(folder)
                cached.keep_newest(cache / "wheels", "project-*", 3)
            else:
                shutil.rmtree(scratch)
    raise ClusterError(
        "The project's files changed each time while its wheel was built.",
        "An image is named by a hash of the files: it must hold exactly these.",
        "Run it again when nobody edits the checkout.",
    )


def _pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


def _target(python: str) -> list[str]:
    """Nothing for the running Python's own version, which pip knows best."""
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return []
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    return ["--python-version", python, "--implementation", "cp", *platforms]


def _constraints(repository: Path) -> list[str]:
    path = repository / "constraints.txt"
    return ["--constraint", str(path)] if path.exists() else []


def _scratch(folder: Path) -> Path:
    scratch = folder.with_name(folder.name + ".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch
