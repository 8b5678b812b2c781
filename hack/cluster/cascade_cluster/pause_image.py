"""The image of a pod's sandbox: one static program, packed without any container tool."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

from cascade_cluster.nodes import PAUSE_IMAGE


def archive(program: Path) -> Path:
    """Return the image archive (docker-archive format) beside the program, made at first use."""
    path = program.with_name("pause.tar")
    if path.exists():
        return path
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    settings = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    content = _tar(
        {
            "layer.tar": layer,
            "config.json": settings,
            "manifest.json": json.dumps(manifest).encode(),
        },
        mode=0o644,
    )
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_bytes(content)
    os.replace(scratch, path)
    return path


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
