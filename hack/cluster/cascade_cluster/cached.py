"""Keeps the cache from growing with every change of the code."""

from __future__ import annotations

import shutil
from pathlib import Path


def keep_newest(folder: Path, pattern: str, count: int) -> None:
    """Drop all but the newest entries that match."""
    by_age = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[count:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
