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
from cascade_cluster.settings import REPOSITORY

# What a current glibc accepts; pip wants each of them named when the version is not its own.
PLATFORMS = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
TIMEOUT_SECONDS = 900
TODO = "pip must reach an index: check `pip config list`."


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


def project_wheel(cache: Path, repository: Path = REPOSITORY) -> Path:
    """The project's wheel, built unless it is cached."""
    folder = cache / "wheels" / f"project-{sources(repository).project}"
    with locks.exclusive(cache / "wheels" / ".project.lock"):
        if not folder.exists():
            say("building the project's wheel")
            scratch = _scratch(folder)
            argv: list[str | Path] = [*_pip(), "wheel", "--no-deps", "--wheel-dir", scratch]
            run([*argv, repository], timeout_seconds=TIMEOUT_SECONDS, todo=TODO)
            scratch.rename(folder)
            cached.keep_newest(cache / "wheels", "project-*", 3)
    return next(folder.glob("*.whl"))


def extra_wheels(cache: Path, extra: str, python: str, repository: Path = REPOSITORY) -> Path:
    """A folder with the wheels that an extra needs on the given Python, fetched unless cached."""
    wheel = project_wheel(cache, repository)
    key = hashing.of_parts([sources(repository).requirements, python])
    folder = cache / "wheels" / f"{extra}-{key}"
    with locks.exclusive(cache / "wheels" / f".{extra}.lock"):
        if not folder.exists():
            say(f"fetching the wheels of the extra {extra}")
            scratch = _scratch(folder)
            argv: list[str | Path] = [
                *_pip(), "download", "--only-binary=:all:", "--dest", scratch,
                *_target(python), *_constraints(repository), f"{wheel}[{extra}]",
            ]  # fmt: skip
            run(argv, timeout_seconds=TIMEOUT_SECONDS, todo=TODO)
            # It changes with every line of code, the others do not: it is kept apart.
            (scratch / wheel.name).unlink()
            scratch.rename(folder)
            cached.keep_newest(cache / "wheels", f"{extra}-*", 2)
    return folder


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


def context(cache: Path, target: Path, extra: str, python: str, dockerfile: Path) -> None:
    """Fill a folder with what `docker build` and `buildah build` get to see."""
    repository = dockerfile.parent.parent
    wheels = target / "wheels"
    wheels.mkdir(parents=True)
    others = extra_wheels(cache, extra, python, repository)
    for wheel in [project_wheel(cache, repository), *others.glob("*.whl")]:
        os.link(wheel, wheels / wheel.name)
    shutil.copy(dockerfile, target / "Dockerfile")
    constraints = repository / "constraints.txt"
    if constraints.exists():
        shutil.copy(constraints, target)
