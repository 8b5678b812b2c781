"""Calls of other programs: captured, bounded in time, with errors that show what they printed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cascade_cluster.errors import CommandError, WaitError


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    timeout_seconds: float = 120,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    remedy: str = "",
) -> str:
    """Run a program and return its standard output; raise with its error output if it fails."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            env=env,
            cwd=cwd,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{words[0]} was not found.", str(error), remedy) from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            f"`{' '.join(words)}` did not end within {timeout_seconds:g} seconds.", "", remedy
        ) from error
    if done.returncode != 0:
        raise CommandError(
            f"`{' '.join(words)}` ended with status {done.returncode}.",
            (done.stderr.strip() or done.stdout.strip())[-4000:],
            remedy,
        )
    return done.stdout


def succeeds(argv: Sequence[str | Path], timeout_seconds: float = 20) -> bool:
    """Whether the program is there and ends well; for questions, not for work."""
    try:
        run(argv, timeout_seconds=timeout_seconds)
    except CommandError:
        return False
    return True


def wait_until(
    what: str,
    condition: Callable[[], bool],
    *,
    timeout_seconds: float,
    alive: Callable[[], None] = lambda: None,
    poll_seconds: float = 0.05,
) -> None:
    """Poll a condition until it holds; `alive` raises when waiting longer is pointless."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        alive()
        if time.monotonic() > deadline:
            raise WaitError(f"Waited {timeout_seconds:g} seconds in vain: {what}.")
        time.sleep(poll_seconds)
