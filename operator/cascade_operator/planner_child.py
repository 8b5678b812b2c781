"""Child process that plans: problem on standard input, plan or error on standard output."""

import json
import os
import resource
import sys
from typing import Any

from cascade_solver import errors
from cascade_solver.problem import Problem


def main(arguments: list[str]) -> int:
    """``MEMORY_MIB CPU_SECONDS``: writes ``{"plan": ...}`` or ``{"error": {kind, message, ...}}``.

    A crash or a kill leaves the output empty; the reason is then on standard error.
    """
    memory_mib, cpu_seconds = (int(value) for value in arguments)
    _limit(memory_mib, cpu_seconds)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as out:
        # Native libraries that print would otherwise spoil the answer.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        json.dump(_answer(sys.stdin.read()), out)
    return 0


def _limit(memory_mib: int, cpu_seconds: int) -> None:
    """``memory_mib`` bounds private writable memory; a runaway plan fails here, not in the node.

    Address space is no measure: native libraries map gigabytes that they never touch.
    """
    data = memory_mib * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(text: str) -> dict[str, Any]:
    try:
        problem = errors.validated(Problem, json.loads(text))
        # Loads the event simulation, so only after the problem is known to be sound.
        from cascade_solver.solve import solve

        return {"plan": solve(problem).model_dump(mode="json", by_alias=True)}
    except errors.SolverError as error:
        return {"error": _described(error)}


def _described(error: errors.SolverError) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": "; ".join(errors.lines(error)),
    }
    if isinstance(error, errors.InsufficientGpusError):
        described |= {"needed": error.needed, "available": error.available}
    return described


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
