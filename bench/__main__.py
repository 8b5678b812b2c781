"""``python -m bench [NAME]``: benchmarks as JSON lines on standard output, all without a name."""

import subprocess
import sys

NAMES = ("solver", "router", "operator", "evaluate")


def main(argv: list[str]) -> int:
    """Runs the named benchmark, or all; each in a process of its own, so none warms another."""
    wanted = argv or list(NAMES)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    codes = [subprocess.call([sys.executable, "-m", f"bench.{name}"]) for name in wanted]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
