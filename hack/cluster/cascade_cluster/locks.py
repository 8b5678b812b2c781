"""Locks between processes; the kernel frees the lock of a killed one."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file for the length of a block; the file is removed with the lock."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # The one before us may have removed the file that we waited for.
            if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return
