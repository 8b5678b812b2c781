"""Planning in a child process: limited in time and memory, killed when a newer spec arrives."""

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
from typing import Any

import pydantic

from cascade_solver import plan as plans
from cascade_solver import problem as problems

from . import errors

MODULE = "cascade_operator.planner_child"
OUT_OF_MEMORY = ("MemoryError", "emory allocation", "bad_alloc", "Cannot allocate memory")
"""How Python and its native libraries say that they ran into the limit."""
ERROR_BYTES = 4096
"""How much of the child's standard error is kept: its end says what went wrong."""


async def solve(
    problem: problems.Problem,
    timeout_seconds: float,
    memory_mib: int,
    cancel: asyncio.Event,
) -> plans.Plan:
    """The plan for ``problem``, computed by a child process.

    One child at a time is the caller's care. Raises ``errors.PlanningError``: ``InfeasibleError``,
    ``InsufficientGpusError``, ``UnknownModelError`` for problems that have no plan, and
    ``PlanningFailedError`` when the child failed, ran out of time or memory;
    ``asyncio.CancelledError`` when ``cancel`` was set. The child is gone when this returns.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        MODULE,
        str(memory_mib),
        str(math.ceil(timeout_seconds) + 1),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
    )
    work = asyncio.ensure_future(child.communicate(problem.model_dump_json(by_alias=True).encode()))
    stop = asyncio.ensure_future(cancel.wait())
    try:
        done, _ = await asyncio.wait(
            {work, stop}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if work in done:
            stdout, stderr = work.result()
            return _read(stdout, stderr, child.returncode)
        if stop in done:
            raise asyncio.CancelledError("a newer spec replaces this plan")
        raise errors.PlanningFailedError(
            f"planning took longer than {timeout_seconds:g} s and was stopped; raise the chart's "
            "planning.timeoutSeconds or lower spec.search"
        )
    finally:
        await _end(child, work, stop)


async def _end(child: asyncio.subprocess.Process, *tasks: "asyncio.Future[Any]") -> None:
    """Kills what still runs, and waits for it: no child outlives its caller."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _environment() -> dict[str, str]:
    """The caller's environment (numba's cache with it); one thread, as the pod has few CPUs."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _read(stdout: bytes, stderr: bytes, code: int | None) -> plans.Plan:
    try:
        answer = json.loads(stdout)
        if "plan" in answer:
            return plans.Plan.model_validate_json(json.dumps(answer["plan"]))
        described = answer["error"]
    except (ValueError, KeyError, TypeError, pydantic.ValidationError):
        raise errors.PlanningFailedError(_last_words(stderr, code)) from None
    raise _error(described)


def _last_words(stderr: bytes, code: int | None) -> str:
    lines = stderr[-ERROR_BYTES:].decode(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "nothing on standard error"
    if code is not None and code < 0:
        return f"the planner was ended by signal {signal.Signals(-code).name}: {last}"
    if any(words in last for words in OUT_OF_MEMORY):
        return f"the planner ran out of memory; raise the chart's planning.memoryMiB ({last})"
    return f"the planner failed with exit code {code}: {last}"


def _error(described: dict[str, Any]) -> errors.PlanningError:
    message = str(described.get("message", ""))
    match described.get("kind"):
        case "InfeasibleError":
            return errors.InfeasibleError(message)
        case "InsufficientGpusError":
            needed, available = int(described["needed"]), int(described["available"])
            return errors.InsufficientGpusError(message, needed, available)
        case "UnknownArchitectureError" | "UnknownGpuError":
            return errors.UnknownModelError(message)
    return errors.PlanningFailedError(message)
