"""The project's images: described by content keys, built without a registry, kept as archives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster import base_image, cached, hashing, locks, wheelhouse
from cascade_cluster.base_image import PRIVATE_MOUNTS, Base
from cascade_cluster.commands import run, succeeds
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError
from cascade_cluster.settings import REPOSITORY, version
from cascade_cluster.wheelhouse import Sources, Wheelhouse

COMPONENTS = ("operator", "router", "enginesim")
BUILD_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Image:
    """One image; the key changes with everything that goes into it."""

    component: str
    reference: str
    key: str
    dockerfile: Path

    def archive(self, cache: Path) -> Path:
        return cache / "images" / f"{self.component}-{self.key}.tar"


def describe(
    base_key: str,
    components: Sequence[str] = COMPONENTS,
    repository: Path = REPOSITORY,
    sources: Sources | None = None,
) -> list[Image]:
    """The images of this checkout as it is now; quick, as nothing is built or asked."""
    sources = sources or wheelhouse.sources(repository)
    tag = version(repository)
    found = []
    for component in components:
        dockerfile = repository / component / "Dockerfile"
        if not dockerfile.exists():
            raise ClusterError(
                f"There is no {component}/Dockerfile.", "Each image is built from one."
            )
        key = hashing.of_parts(
            [
                dockerfile.read_bytes(), base_key, sources.project, sources.requirements,
                component, tag,
            ]
        )  # fmt: skip
        found.append(Image(component, f"cascade-operator/{component}:{tag}", key, dockerfile))
    return found


def build(cache: Path, base: Base, images: Sequence[Image], wheels: Wheelhouse) -> None:
    """Build the images that have no archive yet, side by side."""
    with locks.exclusive(cache / "images" / ".build.lock"):
        missing = [image for image in images if not image.archive(cache).exists()]
        if not missing:
            return
        buildah = Buildah(cache)
        try:
            name = buildah.import_base(base)

            def build_one(image: Image) -> None:
                folder = cache / "images" / f".context-{image.component}"
                shutil.rmtree(folder, ignore_errors=True)
                wheels.context(folder, image.component, base.python, image.dockerfile)
                _build_one(buildah, image, folder, name, image.archive(cache))
                shutil.rmtree(folder)

            with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
                list(pool.map(build_one, missing))
        finally:
            buildah.clean()


def _build_one(
    buildah: Buildah, image: Image, context: Path, base_name: str, archive: Path
) -> None:
    say(f"building {image.reference}")
    buildah.build(context, image.reference, base_name)
    scratch = archive.with_name(f".{image.component}.new")
    scratch.unlink(missing_ok=True)
    buildah.save(image.reference, scratch)
    os.replace(scratch, archive)
    cached.keep_newest(archive.parent, f"{image.component}-*.tar", 2)
    say(f"built {image.reference}")


class Buildah:
    """buildah with a storage of its own in the cache: the machine's own images stay untouched."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        folder = cache / "buildah"
        self._words: list[str | Path] = [
            *PRIVATE_MOUNTS, "buildah", "--root", folder / "storage", "--runroot", folder / "run",
        ]  # fmt: skip
        # Overlays are several times faster; a cache that lies on an overlay itself has none.
        driver = (
            "overlay" if succeeds([*self._words, "--storage-driver=overlay", "info"]) else "vfs"
        )
        self._words.append(f"--storage-driver={driver}")

    def _call(self, *words: str | Path) -> str:
        return run([*self._words, *words], timeout_seconds=BUILD_TIMEOUT_SECONDS)

    def import_base(self, base: Base) -> str:
        """Make an image of the base, unless an earlier build did."""
        name = f"localhost/cascade-base:{base.key}"
        if name not in self._call("images", "--format", "{{.Name}}:{{.Tag}}").split():
            container = self._call("from", "scratch").strip()
            self._call("add", container, base.archive, "/")
            self._call("commit", "--rm", container, name)
        return name

    def build(self, folder: Path, reference: str, base: str) -> None:
        self._call(
            "build", "--isolation=chroot", f"--build-arg=BASE={base}", "--pull-never",
            "--tag", reference, folder,
        )  # fmt: skip

    def save(self, reference: str, archive: Path) -> None:
        """Write an image archive that holds the one name under which pods ask for it."""
        number = self._call("images", "--quiet", "--no-trunc", reference).split()[0]
        self._call("push", "--quiet", number, f"docker-archive:{archive}:{reference}")

    def clean(self) -> None:
        """Leave nothing but the base: the archives are what is kept."""
        self._call("rm", "--all")
        names = self._call("images", "--format", "{{.Name}}:{{.Tag}}").split()
        built = [name for name in names if "/cascade-base:" not in name]
        if built:
            self._call("rmi", *built)
        self._call("rmi", "--prune")


def ensure(cache: Path) -> list[Image]:
    """The images of this checkout, built where their archives are missing."""
    described = describe(base_image.describe(cache).key)
    if all(image.archive(cache).exists() for image in described):
        return described
    base = base_image.ensure(cache)
    wheels = wheelhouse.freeze(cache)
    described = describe(base.key, sources=wheels.sources)
    build(cache, base, described, wheels)
    return described
