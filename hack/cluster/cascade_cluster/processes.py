"""Long-running processes: started detached, known by id and start time, ended exactly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster.commands import wait_until
from cascade_cluster.errors import ClusterError


@dataclass(frozen=True)
class Process:
    """A started process. The start time tells it from a later one that got the same id."""

    name: str
    pid: int
    started: int
    log: str


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time (clock ticks since boot), or nothing if there is no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may hold blanks.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def observe(name: str, pid: int, log: Path) -> Process:
    """Describe a running process, so that it can be ended later."""
    stat = _stat(pid)
    if stat is None:
        raise ClusterError(f"{name} ended at once.", tail(log))
    return Process(name, pid, stat[1], str(log))


def start(name: str, argv: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> Process:
    """Start a program in a session of its own, its output in a file.

    `posix_spawn` rather than `subprocess`, whose objects warn when they are dropped while the
    process still runs, which is the very purpose here.
    """
    words = [str(word) for word in argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        words[0],
        words,
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return observe(name, pid, log)


def only_child(process: Process, timeout_seconds: float = 10) -> int:
    """The process id of the one child of a wrapper such as nsenter."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found: list[int] = []

    def seen() -> bool:
        found[:] = [int(word) for word in children.read_text().split()]
        return bool(found)

    def still_there() -> None:
        if not is_alive(process):
            raise ClusterError(f"{process.name} ended at once.", tail(Path(process.log)))

    wait_until(
        f"a child of {process.name}",
        seen,
        timeout_seconds=timeout_seconds,
        alive=still_there,
        poll_seconds=0.005,
    )
    return found[0]


def is_alive(process: Process) -> bool:
    """Whether it still runs; a dead child of ours is reaped on the way."""
    try:
        os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        pass  # started by an earlier run, or already reaped
    stat = _stat(process.pid)
    return stat is not None and stat[0] not in "ZX" and stat[1] == process.started


def send(process: Process, number: signal.Signals) -> None:
    """Signal the process if it is still the one that was started."""
    if is_alive(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            pass  # it ended in between, which is what a signal is for


def stop(processes: Iterable[Process], grace_seconds: float = 3) -> None:
    """End processes politely, then with force; returns when all are gone."""
    alive = [process for process in processes if is_alive(process)]
    for process in alive:
        send(process, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while any(is_alive(process) for process in alive) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in alive:
        send(process, signal.SIGKILL)
    wait_until(
        "the end of " + ", ".join(process.name for process in alive),
        lambda: not any(is_alive(process) for process in alive),
        timeout_seconds=10,
    )


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return f"(no log at {log})"
    return "\n".join([f"last lines of {log}:", *text.splitlines()[-lines:]])


def wait_for_program(pid: int, program: Path, timeout_seconds: float = 10) -> None:
    """Wait until a process has become the given program."""
    link = Path(f"/proc/{pid}/exe")

    def has_become() -> bool:
        try:
            # By identity, not by path: seen from a chroot, paths of other mount namespaces start
            # at the real root.
            return os.path.samestat(link.stat(), program.stat())
        except FileNotFoundError as error:
            raise ClusterError(f"The process that should become {program.name} ended.") from error

    wait_until(
        f"the start of {program}", has_become, timeout_seconds=timeout_seconds, poll_seconds=0.005
    )
