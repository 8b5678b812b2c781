"""The base of the project's images: a small Debian with Python, made without a registry."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster import hashing, locks
from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError

INCLUDE = ("python3", "python3-venv", "ca-certificates")
# What containers never read; half of the size.
SURPLUS = (
    "var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/info",
    "usr/share/locale", "usr/share/man", "usr/lib/x86_64-linux-gnu/gconv",
)  # fmt: skip
# Mounts that an interrupted tool leaves behind vanish with the namespace.
PRIVATE_MOUNTS = ("unshare", "--mount", "--propagation", "private", "--")


@dataclass(frozen=True)
class Mirror:
    """Where this machine gets its own packages from, and the release that it runs."""

    uri: str
    release: str


@dataclass(frozen=True)
class Base:
    """The base as an archive of its files."""

    key: str
    archive: Path

    @property
    def python(self) -> str:
        """The version of its Python, such as 3.11: the wheels must fit it."""
        about = json.loads(self.archive.with_suffix(".json").read_text())
        return str(about["python"])


def parse_mirror(targets: str, release: str) -> Mirror:
    """The mirror of the release's main component in the output of `apt-get indextargets`."""
    for line in targets.splitlines():
        uri, _, rest = line.partition(" ")
        if rest.split() == [release, "main"]:
            return Mirror(uri, release)
    raise ClusterError(
        f"No package source for {release} main in this machine's apt configuration.",
        "The base of the images is made from the same source as the machine.",
        "Add the distribution's main component to the apt sources.",
    )


def find_mirror() -> Mirror:
    """Ask apt, which knows both formats of its source lists."""
    lines = Path("/etc/os-release").read_text().splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    release = fields.get("VERSION_CODENAME", "").strip('"')
    targets = run(
        [
            "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
            "Created-By: Packages",
        ],
        remedy="The base of the images is made with apt and debootstrap: use Debian or Ubuntu.",
    )  # fmt: skip
    return parse_mirror(targets, release)


def describe(cache: Path) -> Base:
    """The base that belongs to this machine's sources, whether it was made yet or not."""
    mirror = find_mirror()
    key = hashing.of_parts([mirror.uri, mirror.release, *INCLUDE, "|", *SURPLUS])
    return Base(key, cache / "images" / f"base-{key}.tar")


def ensure(cache: Path) -> Base:
    """Make the base unless it is cached."""
    base = describe(cache)
    with locks.exclusive(base.archive.parent / ".base.lock"):
        if not base.archive.exists():
            _make(base, find_mirror())
    return base


def _make(base: Base, mirror: Mirror) -> None:
    say(f"making the base image: {mirror.release} from {mirror.uri} (once, about a minute)")
    root = base.archive.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    run(
        [
            *PRIVATE_MOUNTS, "debootstrap", "--variant=minbase", f"--include={','.join(INCLUDE)}",
            mirror.release, root, mirror.uri,
        ],
        timeout_seconds=900,
        env=dict(os.environ) | _proxy(),
        remedy=f"The log is {root / 'debootstrap/debootstrap.log'}.",
    )  # fmt: skip
    python = run(
        ["chroot", root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    )
    for name in SURPLUS:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    scratch = base.archive.with_suffix(".new")
    # Sorted and without times: the same packages give the same archive.
    run(
        ["tar", "--sort=name", "--mtime=@0", "--numeric-owner", "-C", root, "-cf", scratch, "."],
        timeout_seconds=300,
    )
    base.archive.with_suffix(".json").write_text(json.dumps({"python": python.strip()}))
    os.replace(scratch, base.archive)
    shutil.rmtree(root)


def _proxy() -> dict[str, str]:
    """apt's proxy, which debootstrap does not read by itself."""
    for line in run(["apt-config", "dump", "Acquire::http::Proxy"]).splitlines():
        name, _, value = line.partition(" ")
        proxy = value.strip('";')
        if name == "Acquire::http::Proxy" and proxy:
            return {"http_proxy": proxy}
    return {}
