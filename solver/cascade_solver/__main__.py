"""The command line: problem.json -> plan, readable or as JSON."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import errors, report
from .problem import Problem

EXIT_WRONG_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``cascade-solve``; the exit code is 0, or 2 with one line per fault."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["describe"]:
            return _describe(given[1:])
        return _solve(given)
    except errors.SolverError as error:
        for line in errors.lines(error):
            print(line, file=sys.stderr)
        return EXIT_WRONG_INPUT


def _solve(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="cascade-solve",
        description="Plan a cascade: thresholds, GPUs and parallelism for a problem document.",
        epilog="cascade-solve describe MODEL GPU shows step times, KV tokens and shapes.",
    )
    parser.add_argument("problem", type=Path, help="problem document (JSON); - reads it from stdin")
    parser.add_argument("-o", "--output", type=Path, help="write the plan document (JSON) here")
    parser.add_argument("--json", action="store_true", help="print the plan document, not a table")
    options = parser.parse_args(given)
    problem = read_problem(options.problem)
    # The event simulation and the program are loaded only now: wrong input fails at once.
    from .solve import solve

    started = time.monotonic()
    line = report.Line(sys.stderr) if sys.stderr.isatty() else None
    plan = solve(problem, line)
    if line is not None:
        line.clear()
    plan = plan.model_copy(update={"timings": {"solve": time.monotonic() - started}})
    document = plan.model_dump_json(by_alias=True, indent=2)
    if options.output is not None:
        _write(options.output, document + "\n")
    print(document if options.json else report.plan_text(plan))
    return 0


def _describe(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="cascade-solve describe")
    parser.add_argument("model", help="Hugging Face id or short name, or a config.json file")
    parser.add_argument("gpu", help="GPU type")
    parser.add_argument("--precision", choices=["bf16", "fp8", "int4"])
    options = parser.parse_args(given)
    print(report.describe_text(options.model, options.gpu, options.precision))
    return 0


def read_problem(path: Path) -> Problem:
    """Reads and checks a problem document. Raises ``ProblemError`` with every fault."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ProblemError([f"{path}: {error}"]) from error
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.ProblemError([f"{path}: not JSON: {error}"]) from error
    return errors.validated(Problem, document)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.ProblemError([f"{path}: {error}"]) from error


if __name__ == "__main__":
    sys.exit(main())
