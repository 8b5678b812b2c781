"""Images in the nodes: a prepared store that new nodes start from, and imports for running ones.

Unpacking the images takes half a minute per node on two cores. So it is done once, into a store in
the cache; a new node gets that store as hard links, which takes a second.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cascade_cluster import (
    base_image,
    cached,
    hashing,
    images,
    locks,
    packages,
    processes,
    teardown,
)
from cascade_cluster.base_image import PRIVATE_MOUNTS
from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError, CommandError
from cascade_cluster.images import Image
from cascade_cluster.instance import FOLDER_VARIABLE, Instance
from cascade_cluster.network import Network
from cascade_cluster.nodes import (
    Node,
    containerd_program,
    containerd_settings,
    import_image,
    wait_until_serving,
)

RECORD = "images.json"
# containerd writes to its databases; all else in its root is written once.
DATABASES = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)


def _store(cache: Path, pause: Path, present: Sequence[Image]) -> Path:
    release = run([containerd_program(), "--version"])
    keys = [image.key for image in present]
    return cache / "stores" / hashing.of_parts([release, pause.read_bytes(), *keys])


def find(cache: Path) -> list[Image]:
    """The images of the code as it is now, if they are built; else none."""
    if packages.missing("images"):
        return []
    try:
        present = images.describe(base_image.describe(cache).key)
    except ClusterError:
        return []  # a checkout without images still gets a cluster
    return present if all(image.archive(cache).exists() for image in present) else []


def prepare(cache: Path, pause: Path, present: Sequence[Image]) -> Path:
    """Unpack the images into a store, with a containerd of its own that ends afterwards."""
    store = _store(cache, pause, present)
    with locks.exclusive(cache / "stores" / ".lock"):
        if store.exists():
            return store
        say("unpacking the images for new nodes")
        scratch = store.with_name(".new")
        teardown.end_processes(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        node = _fill(scratch, [pause, *[image.archive(cache) for image in present]])
        (node.folder / "containerd").rename(store)
        shutil.rmtree(scratch)
        cached.keep_newest(cache / "stores", "*", 2)
    return store


def _fill(scratch: Path, archives: Sequence[Path]) -> Node:
    node = Node(0, Network(0), scratch)
    settings = scratch / "containerd.toml"
    settings.write_text(containerd_settings(node))
    unshare = shutil.which(PRIVATE_MOUNTS[0]) or PRIVATE_MOUNTS[0]
    log = scratch / "containerd.log"
    # The variable lets a later run find the process if this one is killed.
    environment = dict(os.environ) | {FOLDER_VARIABLE: str(scratch)}
    process = processes.start(
        "containerd",
        [unshare, *PRIVATE_MOUNTS[1:], containerd_program(), "--config", settings],
        log,
        environment,
    )
    try:
        wait_until_serving(node, lambda: None)
        for archive in archives:
            import_image(node.socket, archive)
    except ClusterError as error:
        raise ClusterError(error.what, processes.tail(log)) from error
    finally:
        # Politely: it has to close its databases.
        processes.stop([process], grace_seconds=20)
    return node


def seed(store: Path, node: Node) -> None:
    """Give a node that has not started yet the store, sharing all files that are never changed."""
    target = node.folder / "containerd"
    try:
        run(["cp", "--archive", "--link", store, target], timeout_seconds=120)
    except CommandError:
        # The cache lies on another file system: a true copy does as well, only slower.
        shutil.rmtree(target, ignore_errors=True)
        run(["cp", "--archive", "--reflink=auto", store, target], timeout_seconds=300)
    for name in DATABASES:
        (target / name).unlink()
        shutil.copy2(store / name, target / name)


def note(instance: Instance, present: Sequence[Image]) -> None:
    """Record what the nodes of a cluster hold."""
    keys = {image.reference: image.key for image in present}
    (instance.folder / RECORD).write_text(json.dumps(keys))


def load(cache: Path, instance: Instance, nodes: Sequence[Node], present: Sequence[Image]) -> None:
    """Import the images that the nodes of a running cluster do not hold in this state."""
    record = instance.folder / RECORD
    held = json.loads(record.read_text()) if record.exists() else {}
    changed = [image for image in present if held.get(image.reference) != image.key]
    if not changed:
        say("the nodes hold these images already")
        return
    say(f"importing into the nodes: {', '.join(image.reference for image in changed)}")

    def import_all(node: Node) -> None:
        for image in changed:
            import_image(node.socket, image.archive(cache))

    with ThreadPoolExecutor() as pool:
        list(pool.map(import_all, nodes))
    note(instance, present)
