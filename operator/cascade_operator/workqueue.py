"""Work queue: cascades that need a pass, each once, with pauses that grow after failures."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from . import errors, metrics

Key = tuple[str, str]

SPACING_SECONDS = 0.2
"""Least time between the beginnings of two passes of one cascade: events come in bursts."""
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 300.0

log = structlog.get_logger(__name__)


class WorkQueue:
    """At most one pass per cascade at a time; a cascade marked while its pass runs gets another.

    ``clock`` gives seconds that never go back (the event loop's time), ``draws`` the jitter.
    """

    def __init__(self, clock: Callable[[], float], draws: random.Random) -> None:
        self._clock = clock
        self._draws = draws
        self._due: dict[Key, float] = {}
        self._began: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._running: dict[Key, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, after: float = 0.0) -> None:
        """Marks a cascade for a pass in ``after`` seconds; an earlier mark stays."""
        due = self._clock() + after
        self._due[key] = min(due, self._due.get(key, due))
        metrics.QUEUE_DEPTH.set(len(self._due))
        self._changed.set()

    def forget(self, key: Key) -> None:
        """The cascade is gone."""
        for known in (self._due, self._began, self._failures):
            known.pop(key, None)

    def backoff(self, key: Key) -> float:
        """Seconds to wait after one more failure; half to full of an exponential pause."""
        self._failures[key] = self._failures.get(key, 0) + 1
        exponent = min(self._failures[key] - 1, 16)
        longest = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0**exponent)
        return longest * self._draws.uniform(0.5, 1.0)

    def succeeded(self, key: Key) -> None:
        self._failures.pop(key, None)

    async def run(self, handle: Callable[[Key], Coroutine[Any, Any, None]]) -> None:
        """Starts passes as they fall due, until cancelled. ``handle`` deals with its own errors;
        ``LeadershipLostError`` ends the queue."""
        try:
            while True:
                self._changed.clear()
                for key in self._ready():
                    del self._due[key]
                    self._began[key] = self._clock()
                    self._running[key] = asyncio.ensure_future(handle(key))
                metrics.QUEUE_DEPTH.set(len(self._due))
                self._raise_lost()
                await self._sleep()
        finally:
            running = list(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _earliest(self, key: Key) -> float:
        return max(self._due[key], self._began.get(key, float("-inf")) + SPACING_SECONDS)

    def _ready(self) -> list[Key]:
        now = self._clock()
        idle = (key for key in self._due if key not in self._running)
        return sorted(key for key in idle if self._earliest(key) <= now)

    def _raise_lost(self) -> None:
        for key, task in list(self._running.items()):
            if task.done():
                del self._running[key]
                error = task.exception()
                if isinstance(error, errors.LeadershipLostError):
                    raise error
                if error is not None:
                    log.error("pass ended badly", cascade="/".join(key), exc_info=error)
                self._changed.set()

    async def _sleep(self) -> None:
        waiting = [self._earliest(key) for key in self._due if key not in self._running]
        pause = max(0.0, min(waiting) - self._clock()) if waiting else None
        changed: asyncio.Future[Any] = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait(
                {changed, *self._running.values()},
                timeout=pause,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            changed.cancel()
