"""What thresholds cost on this pool: loads, latency tables, allocation, objective J."""

import dataclasses
import math

import numpy as np

from . import nodes, replay, scan, traffic
from .arrays import Floats
from .errors import InfeasibleError, InsufficientGpusError, ProblemError
from .latency import catalogue, gpus
from .latency.curve import unit_gaps
from .latency.samples import Sample
from .latency.shapes import Feasible, feasible
from .latency.table import Cells, ModelTable
from .problem import Problem

QUALITY_TOLERANCE = 1e-9
"""Rounding of weighted means must not turn a met floor into a missed one."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Thresholds with the best deployment found for them by the scan.

    ``latency`` is L, infinite when some model overloads; then ``utilisation`` (least possible
    largest offered over saturation) ranks it. ``weighted`` is sum_i p_i * l_i.
    """

    thresholds: replay.Thresholds
    walk: replay.Walk
    latency: float
    utilisation: float
    weighted: float


class Pricing:
    """One problem's fixed facts: nodes, shapes, samples and latency tables.

    Raises the errors of ``errors.py`` when some model cannot run or the pool is too small.
    """

    def __init__(self, problem: Problem, data: replay.Table | None) -> None:
        self.problem = problem
        self.data = data
        self.names = [m.name for m in problem.models]
        self.nodes = nodes.of(problem.pools[0])
        self.gpu = gpus.gpu(problem.pools[0].gpu_type)
        self.traffic = (
            traffic.uncalibrated(problem) if data is None else traffic.calibrated(problem, data)
        )
        means = [0.0] if data is None else (data.quality * data.weights).sum(axis=1).tolist()
        self.mean_quality: tuple[float, ...] = tuple(means)
        self.tables = self._build_tables()
        self._require_gpus()

    def loads(self, walk: replay.Walk, thresholds: replay.Thresholds) -> tuple[traffic.Load, ...]:
        """Each model's workload under these thresholds."""
        return self.traffic.loads(walk, thresholds)

    def cells(self, model: int, load: traffic.Load) -> Cells:
        """The model's strategies under its load."""
        return self.tables[model].cells(
            load.total, load.stretch, load.key, lambda: self.sample(model, load)
        )

    def sample(self, model: int, load: traffic.Load) -> Sample:
        return self.traffic.sample(model, load, self.problem.seed)

    def candidate(self, thresholds: replay.Thresholds, walk: replay.Walk) -> Candidate:
        """Prices thresholds with a fresh deployment (science.md 1.3 b)."""
        cells = [self.cells(i, load) for i, load in enumerate(self.loads(walk, thresholds))]
        tables = [self.restricted(i, c.latency) for i, c in enumerate(cells)]
        found = scan.bottleneck(tables, self.nodes.gpus)
        used = [self.restricted(i, c.utilisation) for i, c in enumerate(cells)]
        least = scan.bottleneck(used, self.nodes.gpus)
        if found is None:
            return Candidate(
                thresholds, walk, math.inf, math.inf if least is None else least[0], math.inf
            )
        latency, split = found
        weighted = sum(
            p * float(t[f]) for p, t, f in zip(walk.visit_ratio, tables, split, strict=True)
        )
        return Candidate(thresholds, walk, latency, 0.0 if least is None else least[0], weighted)

    def restricted(self, model: int, table: Floats) -> Floats:
        """The table when the user pinned the model's GPUs: exactly so many, no fewer."""
        pin = self.problem.pinned_gpus.get(self.names[model])
        if pin is None:
            return table
        pinned = np.full_like(table, math.inf)
        pinned[pin:] = table[pin]
        return pinned

    @property
    def simulations(self) -> int:
        return sum(table.simulations for table in self.tables)

    def span(self) -> float:
        """z1* - z2*, the normaliser of the quality gap: at least one point (science.md 2)."""
        if self.data is None:
            return 1.0
        return max(1.0, self.all_last() - self.all_first())

    def all_last(self) -> float:
        """Quality with every request answered by the last model."""
        return self.mean_quality[-1]

    def all_first(self) -> float:
        """Quality with every request answered by the first model."""
        return self.mean_quality[0]

    def objective(self, latency: float, quality: float, mu: float) -> float:
        """J = L + mu * max(0, (qmin - Q) / (z1* - z2*)) in seconds (science.md 1.6)."""
        if self.data is None:
            return latency
        return latency + mu * max(0.0, (self.problem.qmin - quality) / self.span())

    def meets_qmin(self, walk: replay.Walk) -> bool:
        return walk.quality >= self.problem.qmin - QUALITY_TOLERANCE

    def _build_tables(self) -> tuple[ModelTable, ...]:
        problem = self.problem
        arrivals = unit_gaps(problem.search.simulated_requests, problem.seed)
        tables, reasons = [], {}
        for index, model in enumerate(problem.models):
            architecture = catalogue.resolve(model.architecture)
            shapes = feasible(
                model,
                architecture,
                self.gpu,
                largest_node=problem.pools[0].gpus_per_node,
                longest_request=min(self.traffic.longest[index], architecture.context_length),
                running=problem.in_force.deployment.get(model.name, ()) if problem.in_force else (),
            )
            if not shapes.variants:
                reasons[model.name] = shapes.excluded
            shapes = _on_free_nodes(shapes, self.nodes.largest)
            tables.append(
                ModelTable(
                    model,
                    architecture,
                    self.gpu,
                    shapes,
                    gpu_count=self.nodes.gpus,
                    arrivals=arrivals,
                )
            )
        if reasons:
            raise InfeasibleError(reasons)
        return tuple(tables)

    def _require_gpus(self) -> None:
        """Every model needs its smallest deployment at once, on these nodes."""
        for name, pin in self.problem.pinned_gpus.items():
            least = self.tables[self.names.index(name)].smallest
            if pin < least:
                raise ProblemError(
                    [f"$.pinnedGpus.{name}: {pin} is too few; allowed: {least} or more"]
                )
        needs = {
            t.model.name: self.problem.pinned_gpus.get(t.model.name, t.smallest)
            for t in self.tables
        }
        total = sum(needs.values())
        listed = ", ".join(f"{name} {count}" for name, count in needs.items())
        if total > self.nodes.gpus:
            raise InsufficientGpusError(total, self.nodes.gpus, f"at least {listed}")
        for table in self.tables:
            if table.model.max_gpus is not None and table.smallest > table.model.max_gpus:
                path = f"$.models[{self.names.index(table.model.name)}].maxGpus"
                raise ProblemError(
                    [f"{path}: {table.model.max_gpus}; allowed: {table.smallest} or more"]
                )
        if not self.nodes.fits(self._smallest_replicas()):
            free = ", ".join(str(f) for f in self.nodes.free)
            raise InsufficientGpusError(
                total,
                self.nodes.gpus,
                f"a replica must fit one node; free GPUs per node: {free}; at least {listed}",
            )

    def _smallest_replicas(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for table in self.tables:
            size = min(t * p for t, p in table.feasible.variants)
            counts[size] = counts.get(size, 0) + table.smallest // size
        return counts


def _on_free_nodes(shapes: Feasible, largest: int) -> Feasible:
    """Without the shapes that no node has room for now, unless none would be left: then the pool
    is too small, which is another error than a model that runs nowhere."""
    now = {size: v for size, v in shapes.variants.items() if size[0] <= largest}
    return dataclasses.replace(shapes, variants=now) if now else shapes
