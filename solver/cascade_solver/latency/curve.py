"""p95 of one replica against its arrival rate: a grid of simulations, filled where asked."""

import dataclasses

import numpy as np

from ..arrays import Floats
from . import steps
from .engine import Replica, Run, simulate
from .samples import Sample

GRID_POINTS = 24
LOWEST_LOAD = 0.02
OVERLOAD = 0.98
"""Offered over saturation from which a replica counts as overloaded (section 7)."""
DROPPED_SHARE = 0.1
"""The first requests of a run see an emptier replica than the later ones."""
CLOSED_LOOP_LIMIT = 512

LOADS: Floats = 1.0 - np.geomspace(1.0 - LOWEST_LOAD, 1.0 - OVERLOAD, GRID_POINTS)
"""Offered over saturation at the grid points, geometric in the headroom: dense near saturation,
where the p95 bends."""


@dataclasses.dataclass(frozen=True)
class Percentiles:
    """95th percentiles in seconds: whole request, first token, time per further token."""

    latency: float
    ttft: float
    tpot: float


def percentiles(run: Run, sample: Sample) -> Percentiles:
    """Over the answers of a run, without its start."""
    dropped = int(DROPPED_SHARE * run.arrival.size)
    counted = sample.answers[dropped:]
    latency = (run.finish - run.arrival)[dropped:][counted]
    ttft = (run.first - run.arrival)[dropped:][counted]
    further = np.maximum(sample.outputs[dropped:][counted] - 1, 1)
    tpot = (run.finish - run.first)[dropped:][counted] / further
    front = steps.FRONT_END_SECONDS
    return Percentiles(_p95(latency) + front, _p95(ttft) + front, _p95(tpot))


def _p95(values: Floats) -> float:
    """Nearest-rank 95th percentile."""
    if values.size == 0:
        return 0.0
    rank = int(np.ceil(0.95 * values.size)) - 1
    return float(np.partition(values, rank)[rank])


def unit_gaps(n: int, seed: int) -> Floats:
    """Cumulated arrival times at rate 1: the one stream that serves every rate and shape."""
    return np.cumsum(np.random.default_rng(seed).exponential(size=n))


class Curve:
    """Latency of one replica under one sample at any rate; simulates a grid point once.

    Which points are filled depends on what was asked; the value at a rate does not.
    """

    def __init__(self, machine: Replica, sample: Sample, arrivals: Floats) -> None:
        self._machine = machine
        self._sample = sample
        self._arrivals = arrivals
        self.simulations = 1
        self.saturation, self.kv_limited = self._saturate()
        self._p95 = np.full(GRID_POINTS, np.nan)

    def latency(self, rates: Floats) -> Floats:
        """p95 in seconds at each rate (requests per second on this replica), linear between grid
        points, infinite from 98 % of saturation."""
        load = rates / self.saturation
        cell = np.clip(np.searchsorted(LOADS, load, side="right") - 1, 0, GRID_POINTS - 2)
        fits = load < OVERLOAD
        for point in np.unique(np.concatenate([cell[fits], cell[fits] + 1])):
            if np.isnan(self._p95[point]):
                self._p95[point] = self.exact(LOADS[point] * self.saturation).latency
        low, high = self._p95[cell], self._p95[cell + 1]
        weight = np.clip((load - LOADS[cell]) / (LOADS[cell + 1] - LOADS[cell]), 0.0, 1.0)
        with np.errstate(invalid="ignore"):
            value = low + weight * (high - low)
        return np.where(fits, value, np.inf)

    def stretched(self, rates: Floats, stretch: float) -> Floats:
        """``latency`` where each request is ``stretch`` times as much work: time itself is
        stretched, so arrivals are that much denser. Used within one 5 % step of lengths, so that
        latency changes smoothly with the thresholds."""
        return stretch * self.latency(rates * stretch)

    def p95(self, rate: float, stretch: float = 1.0) -> float:
        """``stretched`` at one rate."""
        return float(self.stretched(np.array([rate]), stretch)[0])

    def exact(self, rate: float) -> Percentiles:
        """One simulation at exactly this rate; below the grid nobody queues, so the lowest grid
        point serves there too."""
        self.simulations += 1
        rate = max(rate, LOWEST_LOAD * self.saturation)
        run = simulate(
            self._machine, self._arrivals / rate, self._sample.inputs, self._sample.outputs
        )
        return percentiles(run, self._sample)

    def _saturate(self) -> tuple[float, bool]:
        """Requests per second of a closed loop that keeps the KV pool full, between ramp-up and
        drain."""
        s = self._sample
        n = s.inputs.size
        held = s.inputs.mean() + s.outputs.mean() / 2
        fitting = 1.2 * self._machine.kv_tokens / held
        concurrency = int(max(1, min(CLOSED_LOOP_LIMIT, fitting, n // 3)))
        run = simulate(self._machine, np.zeros(n), s.inputs, s.outputs, concurrency=concurrency)
        finish = np.sort(run.finish)
        first, last = concurrency, n - concurrency
        return float((last - first) / (finish[last] - finish[first])), run.kv_blocked
