"""Search over thresholds, guided by the Chebyshev objective (science.md 1.3, 1.6, section 2)."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np

from . import replay
from .pricing import Candidate
from .problem import Score, Search

FINALISTS = 3
TIE = 0.005
"""Objectives that differ by less than 0.5 % are ties: far below the noise of a p95, and inside the
1 % that a plan may lose against the optimum."""
RESTART_DRAWS = 3
EXHAUSTIVE_SETTINGS = 128
"""Up to so many distinct settings all are compared, which proves the optimum: two models always."""


class Priced(Protocol):
    """What the search needs to know about a problem; ``pricing.Pricing`` is one."""

    def candidate(self, thresholds: replay.Thresholds, walk: replay.Walk) -> Candidate: ...

    def meets_qmin(self, walk: replay.Walk) -> bool: ...

    def objective(self, latency: float, quality: float, mu: float) -> float: ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The best candidates, best first, and how the search went.

    ``best_objectives``: best J after each round; it never rises once qmin is met.
    """

    finalists: tuple[Candidate, ...]
    rounds: int
    candidates: int
    converged: bool
    best_objectives: tuple[float, ...]
    bound: float | None = None
    """A lower bound on J over all settings that meet qmin; ``None`` where none was proved."""


Rank = tuple[bool, bool, float, float, float, replay.Thresholds]


class ThresholdSearch:
    """Coordinate moves over conditional quantiles, each candidate freshly deployed."""

    def __init__(
        self,
        priced: Priced,
        data: replay.Table,
        settings: Search,
        mu: float,
        *,
        pinned: Mapping[int, Score],
        seed: int,
        progress: Callable[[str], None] | None = None,
        exhaustive: int = EXHAUSTIVE_SETTINGS,
    ) -> None:
        self._priced = priced
        self._data = data
        self._settings = settings
        self._mu = mu
        self._pinned = pinned
        self._random = np.random.default_rng(seed)
        self._progress = progress
        self._exhaustive = exhaustive
        self._walks: dict[replay.Thresholds, replay.Walk] = {}
        self._ranked: dict[replay.Thresholds, tuple[Rank, Candidate]] = {}
        self._free = [i for i in range(data.scores.shape[0] - 1) if i not in pinned]
        self._levels = [
            sorted({*np.unique(row).astype(int).tolist(), 0, replay.ACCEPT_NONE})
            for row in data.scores[:-1]
        ]

    def run(self, starts: Iterable[replay.Thresholds]) -> Outcome:
        """Rounds until the best J is unchanged for K of them, or the limit is reached; where the
        settings are few, all of them instead."""
        self._visit([self._pin(s) for s in starts])
        choices = [
            levels if i in self._free else [self._pinned[i]]
            for i, levels in enumerate(self._levels)
        ]
        if math.prod(map(len, choices)) <= self._exhaustive:
            return self._compare_all(choices)
        resolution = self._settings.quantiles
        history = [self._best_objective()]
        unchanged, rounds = 0, 0
        while unchanged < self._settings.stable_rounds and rounds < self._settings.max_rounds:
            before = self._incumbent()
            self._visit(self._round(before, resolution))
            rounds += 1
            history.append(self._best_objective())
            is_changed = _is_better(
                history[-1], history[-2], self._settings.stable_change_percent
            ) or self._gains_quality(before)
            unchanged = 0 if is_changed else unchanged + 1
            if self._incumbent() == before:
                resolution *= 2
            if self._progress is not None:
                self._progress(f"round {rounds}: J {history[-1]:.3f} s")
        return Outcome(
            finalists=self._finalists(),
            rounds=rounds,
            candidates=len(self._walks),
            converged=unchanged >= self._settings.stable_rounds,
            best_objectives=tuple(history[1:]),
        )

    def _compare_all(self, choices: list[list[Score]]) -> Outcome:
        self._visit(itertools.product(*choices))
        best = self._best_objective()
        if self._progress is not None:
            self._progress(f"all {len(self._walks)} settings: J {best:.3f} s")
        is_proven = self._meets_somewhere() and math.isfinite(best)
        return Outcome(
            finalists=self._finalists(),
            rounds=1,
            candidates=len(self._walks),
            converged=True,
            best_objectives=(best,),
            bound=best if is_proven else None,
        )

    def _finalists(self) -> tuple[Candidate, ...]:
        """The best candidates; among ties the one with the least weighted latency is first."""
        ranked = [c for _, c in sorted(self._ranked.values(), key=lambda entry: entry[0])]
        best = ranked[0]
        if not self._priced.meets_qmin(best.walk) or not math.isfinite(best.latency):
            return tuple(ranked[:FINALISTS])
        limit = (1.0 + TIE) * self._objective(best)
        tied = [
            c for c in ranked if self._priced.meets_qmin(c.walk) and self._objective(c) <= limit
        ]
        tied.sort(key=lambda c: (c.weighted, self._objective(c), c.thresholds))
        return tuple(dict.fromkeys([*tied[: FINALISTS - 1], best]))

    def _round(self, incumbent: replay.Thresholds, resolution: int) -> list[replay.Thresholds]:
        """Moves of each threshold alone, the same with another one re-fitted to qmin, and seeded
        restarts far away."""
        moved: list[replay.Thresholds] = []
        for i in self._free:
            for value in self._values(incumbent, i, resolution):
                changed = _replace(incumbent, i, value)
                moved.append(changed)
                moved += [self._refit(changed, j) for j in self._free if j != i]
        for _ in range(RESTART_DRAWS):
            drawn = list(incumbent)
            for i in self._free:
                drawn[i] = int(self._random.choice(self._levels[i]))
            moved.append(self._refit(tuple(drawn), self._free[-1]))
        return moved

    def _values(self, incumbent: replay.Thresholds, i: int, resolution: int) -> list[Score]:
        """Conditional quantiles of the scores given at model i: over the whole range at first,
        around the incumbent at finer resolutions."""
        visits = replay.reached(self._data, incumbent)[i]
        start = self._settings.quantiles
        centre, span = 0.5, 0.5
        if resolution > start:
            below = visits & (self._data.scores[i] < incumbent[i])
            total = float(self._data.weights[visits].sum())
            centre = float(self._data.weights[below].sum()) / total if total > 0 else 0.5
            span = 0.5 * start / resolution
        points = [centre - span + 2 * span * k / start for k in range(start + 1)]
        found = {
            replay.conditional_quantile(self._data, visits, i, min(max(q, 0.0), 1.0))
            for q in points
        }
        return sorted(found | {0, replay.ACCEPT_NONE})

    def _refit(self, thresholds: replay.Thresholds, j: int) -> replay.Thresholds:
        """The smallest h_j that still meets qmin: more requests accepted earlier, less load on.

        Bisects as if quality rose with h_j; where it does not, the result is one more candidate.
        """
        levels = self._levels[j]
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self._priced.meets_qmin(self._walk(_replace(thresholds, j, levels[middle]))):
                high = middle
            else:
                low = middle + 1
        return _replace(thresholds, j, levels[low])

    def _visit(self, candidates: Iterable[replay.Thresholds]) -> None:
        """Prices candidates. Once qmin is met somewhere, those that miss it cannot win and are
        not deployed."""
        pending = [t for t in dict.fromkeys(candidates) if t not in self._ranked]
        walks = {t: self._walk(t) for t in pending}
        is_met = self._meets_somewhere() or any(map(self._priced.meets_qmin, walks.values()))
        for thresholds, walk in walks.items():
            if is_met and not self._priced.meets_qmin(walk):
                continue
            candidate = self._priced.candidate(thresholds, walk)
            self._ranked[thresholds] = (self._rank(candidate), candidate)

    def _rank(self, c: Candidate) -> Rank:
        """Feasible first; then J, overloaded ones by their overload. Below qmin the best quality
        wins before J does."""
        meets = self._priced.meets_qmin(c.walk)
        is_overloaded = not math.isfinite(c.latency)
        value = c.utilisation if is_overloaded else self._objective(c)
        if meets:
            return (False, is_overloaded, value, c.weighted, -c.walk.quality, c.thresholds)
        return (True, is_overloaded, -c.walk.quality, value, c.weighted, c.thresholds)

    def _objective(self, c: Candidate) -> float:
        return self._priced.objective(c.latency, c.walk.quality, self._mu)

    def _walk(self, thresholds: replay.Thresholds) -> replay.Walk:
        if thresholds not in self._walks:
            self._walks[thresholds] = replay.walk(self._data, thresholds)
        return self._walks[thresholds]

    def _pin(self, thresholds: replay.Thresholds) -> replay.Thresholds:
        return tuple(self._pinned.get(i, h) for i, h in enumerate(thresholds))

    def _incumbent(self) -> replay.Thresholds:
        return min(self._ranked.values(), key=lambda entry: entry[0])[1].thresholds

    def _best_objective(self) -> float:
        return self._objective(self._ranked[self._incumbent()][1])

    def _meets_somewhere(self) -> bool:
        return any(not rank[0] for rank, _ in self._ranked.values())

    def _gains_quality(self, before: replay.Thresholds) -> bool:
        """Below qmin, progress is quality."""
        after = self._walk(self._incumbent())
        return not self._priced.meets_qmin(self._walk(before)) and (
            after.quality > self._walk(before).quality
        )


def _is_better(after: float, before: float, percent: float) -> bool:
    if not math.isfinite(after):
        return False
    return not math.isfinite(before) or after < before * (1.0 - percent / 100.0)


def _replace(thresholds: replay.Thresholds, i: int, value: Score) -> replay.Thresholds:
    return (*thresholds[:i], value, *thresholds[i + 1 :])


def extremes(models: int) -> list[replay.Thresholds]:
    """Every way to send all requests to one model: among them the best single model."""
    return [tuple([replay.ACCEPT_NONE] * k + [0] * (models - 1 - k)) for k in range(models)]


def best_reachable(data: replay.Table, pinned: Mapping[int, Score]) -> replay.Thresholds:
    """Thresholds of the highest quality found by coordinate ascent from every single model.

    Exact for two models; beyond, each threshold is the best one given the others.
    """
    best: tuple[float, replay.Thresholds] | None = None
    for start in extremes(data.scores.shape[0]):
        current = tuple(pinned.get(i, h) for i, h in enumerate(start))
        quality = replay.walk(data, current).quality
        while True:
            for i in range(len(current)):
                if i not in pinned:
                    current = _replace(current, i, _best_threshold(data, current, i))
            risen = replay.walk(data, current).quality
            if risen <= quality + 1e-12:
                break
            quality = risen
        if best is None or quality > best[0]:
            best = (quality, current)
    return best[1] if best is not None else ()


def _best_threshold(data: replay.Table, thresholds: replay.Thresholds, i: int) -> Score:
    """h_i of the highest quality with the other thresholds fixed; the lowest one of several."""
    passed_on = data.quality[-1]
    for k in range(len(thresholds) - 1, i, -1):
        passed_on = np.where(data.scores[k] >= thresholds[k], data.quality[k], passed_on)
    visits = replay.reached(data, thresholds)[i]
    gain = (data.weights * (passed_on - data.quality[i]))[visits]
    by_score = np.bincount(data.scores[i][visits].astype(int), gain, replay.ACCEPT_NONE)
    # Position h holds the gain of passing on every score below h.
    passed = np.concatenate([[0.0], np.cumsum(by_score)])
    return int(np.argmax(passed > passed.max() - 1e-12))
