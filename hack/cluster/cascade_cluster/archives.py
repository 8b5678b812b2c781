"""Writes an image archive of one layer, without any container tool."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from cascade_cluster.nodes import PAUSE_IMAGE


def pack(archive: Path, reference: str, layer: Path, config: dict[str, Any]) -> None:
    """Write an archive in docker's format; the layer is a tar file of the image's files."""
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    scratch = archive.with_name(f".{archive.name}.{os.getpid()}")
    with tarfile.open(scratch, "w") as tar:
        tar.add(layer, "layer.tar")
        for name, document in (("config.json", settings), ("manifest.json", manifest)):
            data = json.dumps(document).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    os.replace(scratch, archive)


def pause_archive(program: Path) -> Path:
    """The image of a pod's sandbox, beside its one static program; made at first use."""
    archive = program.with_name("pause.tar")
    if not archive.exists():
        layer = program.with_name(f".layer.{os.getpid()}")
        with tarfile.open(layer, "w") as tar:
            tar.add(program, "pause")
        pack(archive, PAUSE_IMAGE, layer, {"Entrypoint": ["/pause"], "User": "65535:65535"})
        layer.unlink()
    return archive
