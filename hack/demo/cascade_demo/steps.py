"""Progress that a reader can follow: numbered steps, time of each, one line while waiting."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DemoError(Exception):
    """A step did not end as it must; the text says what was expected and what was seen."""


class Progress:
    """Prints steps with their durations; ``clock`` is a monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._durations: list[tuple[str, float]] = []

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announces a step, and its duration when it is over."""
        begun = self._clock()
        print(f"\n\033[1m[{begun - self._start:6.1f} s] {title}\033[0m", flush=True)
        yield
        took = self._clock() - begun
        self._durations.append((title, took))
        print(f"           done in {took:.1f} s", flush=True)

    def wait(
        self, what: str, look: Callable[[], tuple[bool, str]], seconds: float, every: float = 0.5
    ) -> None:
        """Polls ``look`` -> (done, state in words) and prints each new state.

        Raises DemoError with the last state when ``seconds`` pass without success.
        """
        deadline = self._clock() + seconds
        last = ""
        while True:
            done, state = look()
            if state != last:
                print(f"           {what}: {state}", flush=True)
                last = state
            if done:
                return
            if self._clock() > deadline:
                raise DemoError(f"{what}: not reached within {seconds:.0f} s; last seen: {last}")
            time.sleep(every)

    def summary(self) -> None:
        """Prints how long each step took."""
        print("\nTime per step")
        for title, took in self._durations:
            print(f"  {took:6.1f} s  {title}")
        print(f"  {self._clock() - self._start:6.1f} s  in all")


def say(text: str = "") -> None:
    """Prints a line of the demo's output at once."""
    print(text, flush=True)


def table(rows: list[list[str]], indent: str = "  ") -> None:
    """Prints rows as left-aligned columns; the first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(indent + cells.rstrip(), flush=True)
    sys.stdout.flush()
