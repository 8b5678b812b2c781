"""Choice of a replica: two weighted draws, the one with less in flight per capacity serves."""

import bisect
import itertools
import random
from collections.abc import Sequence

from .breaker import Breaker

_DRAWS = 8


class Replica:
    """One engine at one address. ``in_flight`` counts our own open calls."""

    __slots__ = ("address", "breakers", "in_flight", "listed", "model", "pod", "uid", "weight")

    def __init__(self, model: str, pod: str, uid: str, address: str, weight: float = 1.0) -> None:
        self.model = model
        self.pod = pod
        self.uid = uid
        self.address = address
        """``http://host:port`` or ``https://host:port``."""
        self.weight = weight
        self.listed = True
        """Whether plan and endpoints still name it; one that is not only finishes."""
        self.in_flight = 0
        self.breakers = {"answer": Breaker(), "judge": Breaker()}
        """By kind of call: an engine that cannot judge may well answer."""


class Pool:
    """Replicas of a model that take new work, with their weights summed for drawing."""

    __slots__ = ("_cumulative", "replicas")

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = tuple(replicas)
        self._cumulative = list(itertools.accumulate(r.weight for r in self.replicas))

    def choose(
        self, rng: random.Random, now: float, exclude: Replica | None = None, kind: str = "answer"
    ) -> Replica | None:
        """A replica whose breaker admits a call, other than ``exclude``; ``None`` if there is none.

        Drawing by weight makes the split follow capacity at low load; comparing in-flight over
        weight makes it follow the queues at high load; ties go to the first, random draw.
        """
        if len(self.replicas) == 1:
            only = self.replicas[0]
            return only if only is not exclude and only.breakers[kind].admits(now) else None
        first = self._draw(rng, now, kind, (exclude,))
        if first is None:
            return None
        second = self._draw(rng, now, kind, (exclude, first))
        if second is None:
            return first
        if second.in_flight / second.weight < first.in_flight / first.weight:
            return second
        return first

    def _draw(
        self, rng: random.Random, now: float, kind: str, but: tuple[Replica | None, ...]
    ) -> Replica | None:
        if not self.replicas:
            return None
        total = self._cumulative[-1]
        for _ in range(_DRAWS):
            index = bisect.bisect_right(self._cumulative, rng.random() * total)
            candidate = self.replicas[min(index, len(self.replicas) - 1)]
            if candidate not in but and candidate.breakers[kind].admits(now):
                return candidate
        for candidate in self.replicas:
            if candidate not in but and candidate.breakers[kind].admits(now):
                return candidate
        return None
