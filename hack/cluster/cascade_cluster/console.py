"""Progress for a person: one line per step, with the seconds since the start."""

from __future__ import annotations

import sys
import time

_started = time.monotonic()


def say(message: str) -> None:
    """Print a progress line; standard output stays free for results such as a path."""
    # One write: lines of steps that run side by side must not mix.
    sys.stderr.write(f"[{time.monotonic() - _started:6.1f}s] {message}\n")
    sys.stderr.flush()
