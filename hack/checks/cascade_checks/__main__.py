"""Command line: `generated` compares derived files, `write` makes them, `charts` lints charts."""

import sys
from collections.abc import Callable
from pathlib import Path

from cascade_checks import charts, generated

REPOSITORY = Path(__file__).resolve().parents[3]

COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "generated": generated.differences,
    "write": generated.write,
    "charts": charts.problems,
}


def main(arguments: list[str]) -> int:
    """Prints one line for each finding; 0 when there is none, 2 for a wrong command."""
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(f"usage: python -m cascade_checks {'|'.join(COMMANDS)}", file=sys.stderr)
        return 2
    findings = COMMANDS[arguments[0]](REPOSITORY)
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
