"""Content hashes: the keys of everything that is cached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def of_parts(parts: Iterable[str | bytes]) -> str:
    """A short hash of parts; each is preceded by its length, so that no two lists look alike."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()[:16]


def of_files(root: Path, files: Iterable[Path]) -> str:
    """A hash of names (relative to a root) and contents, in the order of the names."""
    parts: list[str | bytes] = []
    for file in sorted(files):
        parts += [str(file.relative_to(root)), file.read_bytes()]
    return of_parts(parts)
