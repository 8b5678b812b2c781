"""l_i(f): the lowest p95 of a model on at most f GPUs, and the replicas that give it (1.4)."""

import dataclasses
import math
from collections.abc import Callable, Hashable

import numpy as np

from ..arrays import Floats, Ints
from ..problem import ArchitectureConfig, Model
from . import engine, gpus, steps
from .curve import Curve
from .samples import Sample
from .shapes import Feasible, Shape

VARIANT_GAIN = 1.05
"""Other memory knobs than the first variant's must raise the saturation rate by this factor."""


@dataclasses.dataclass(frozen=True)
class Strategy:
    """``replicas`` equal replicas, and what they do under the load that was asked about."""

    shape: Shape
    replicas: int
    latency: float
    """p95 in seconds; infinite when overloaded."""
    utilisation: float
    saturation: float
    """Requests per second of one replica at saturation."""

    @property
    def gpus(self) -> int:
        return self.shape.gpus * self.replicas


@dataclasses.dataclass(frozen=True)
class Cells:
    """All strategies of one model under one load, and the best on at most f GPUs.

    ``latency`` and ``utilisation`` are indexed by f = 0..N; infinite where no replica fits.
    ``chosen[f]`` is the strategy of ``latency[f]``, -1 where there is none.
    """

    strategies: tuple[Strategy, ...]
    latency: Floats
    utilisation: Floats
    chosen: Ints


class ModelTable:
    """Latency curves of one model, simulated once per shape and length bucket.

    ``sample_of`` gives the requests that stand for a bucket. Everything it returns is a function
    of its arguments; only the time it takes depends on what was asked before.
    """

    def __init__(
        self,
        model: Model,
        architecture: ArchitectureConfig,
        gpu: gpus.Gpu,
        feasible: Feasible,
        *,
        gpu_count: int,
        arrivals: Floats,
    ) -> None:
        self.model = model
        self.feasible = feasible
        self._architecture = architecture
        self._gpu = gpu
        self._gpu_count = gpu_count
        self._arrivals = arrivals
        self._steps: dict[tuple[int, int], steps.StepModel] = {}
        self._curves: dict[tuple[Shape, Hashable], Curve] = {}
        self._cells: dict[tuple[float, float, Hashable], Cells] = {}

    @property
    def simulations(self) -> int:
        return sum(curve.simulations for curve in self._curves.values())

    @property
    def smallest(self) -> int:
        """GPUs of the smallest deployment that pins and floors allow."""
        counts = self.model.pins.replicas or self.model.min_replicas
        return min(t * p * counts for t, p in self.feasible.variants)

    def cells(
        self, total_rate: float, stretch: float, bucket: Hashable, sample_of: Callable[[], Sample]
    ) -> Cells:
        """Strategies for ``total_rate`` requests per second (judge calls included), each
        ``stretch`` times as much work as the bucket's: see ``stretched``."""
        key = (total_rate, stretch, bucket)
        if key not in self._cells:
            self._cells[key] = self._evaluate(total_rate, stretch, bucket, sample_of)
        return self._cells[key]

    def curve(self, shape: Shape, bucket: Hashable, sample_of: Callable[[], Sample]) -> Curve:
        """The latency curve of one replica of this shape."""
        key = (shape, bucket)
        if key not in self._curves:
            machine = engine.replica(self._step_model(shape), shape.kv_tokens, shape.chunk)
            self._curves[key] = Curve(machine, sample_of(), self._arrivals)
        return self._curves[key]

    def variant(
        self, size: tuple[int, int], bucket: Hashable, sample_of: Callable[[], Sample]
    ) -> Shape:
        """Memory knobs for a shape: the first variant, unless KV tokens limit it and another one
        carries clearly more."""
        first, *others = self.feasible.variants[size]
        curve = self.curve(first, bucket, sample_of)
        if not curve.kv_limited:
            return first
        best, mark = first, curve.saturation * VARIANT_GAIN
        for shape in others:
            saturation = self.curve(shape, bucket, sample_of).saturation
            if saturation > mark:
                best, mark = shape, saturation
        return best

    def low_confidence(self, shape: Shape) -> tuple[str, ...]:
        """What a plan with this shape rests on without measurement."""
        return self._step_model(shape).low_confidence + shape.low_confidence

    def _step_model(self, shape: Shape) -> steps.StepModel:
        key = (shape.tensor, shape.pipeline)
        if key not in self._steps:
            built = steps.build(
                self._architecture, self._gpu, shape.tensor, shape.pipeline, self.model.precision
            )
            self._steps[key] = built.scaled(self.model.step_time_factor)
        return self._steps[key]

    def _replica_counts(self, size: int) -> Ints:
        """Replica counts that pins, floor, cap and pool allow for replicas of this many GPUs."""
        most = min(self._gpu_count, self.model.max_gpus or self._gpu_count) // size
        least = self.model.min_replicas
        if self.model.pins.replicas is not None:
            pinned = self.model.pins.replicas
            least, most = max(least, pinned), min(most, pinned)
        return np.arange(least, most + 1, dtype=np.int64)

    def _evaluate(
        self, total_rate: float, stretch: float, bucket: Hashable, sample_of: Callable[[], Sample]
    ) -> Cells:
        strategies: list[Strategy] = []
        for size in self.feasible.variants:
            counts = self._replica_counts(size[0] * size[1])
            if not counts.size:
                continue
            shape = self.variant(size, bucket, sample_of)
            curve = self.curve(shape, bucket, sample_of)
            rates = total_rate / counts
            # Nobody waits at a model that nobody visits.
            p95 = curve.stretched(rates, stretch) if total_rate > 0 else np.zeros(counts.size)
            saturation = curve.saturation / stretch
            load = rates / saturation
            strategies += [
                Strategy(shape, int(c), float(p), float(u), saturation)
                for c, p, u in zip(counts, p95, load, strict=True)
            ]
        return _best_by_gpus(tuple(strategies), self._gpu_count)


def _best_by_gpus(strategies: tuple[Strategy, ...], gpu_count: int) -> Cells:
    """Best strategy on at most f GPUs; at equal latency the one with fewer GPUs stays."""
    latency = np.full(gpu_count + 1, math.inf)
    utilisation = np.full(gpu_count + 1, math.inf)
    chosen = np.full(gpu_count + 1, -1, dtype=np.int64)
    ordered = sorted(
        range(len(strategies)), key=lambda k: (strategies[k].gpus, strategies[k].shape)
    )
    for k in ordered:
        f = strategies[k].gpus
        if strategies[k].latency < latency[f]:
            latency[f:] = strategies[k].latency
            chosen[f:] = k
        if strategies[k].utilisation < utilisation[f]:
            utilisation[f:] = strategies[k].utilisation
    return Cells(strategies, latency, utilisation, chosen)
