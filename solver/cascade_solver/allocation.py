"""From latency tables to a deployment: options, constraints, and the program that chooses."""

import dataclasses
import math
from collections.abc import Sequence

from . import milp, reach, replay
from .latency.table import Cells, Strategy
from .pricing import Pricing
from .problem import DeployedSet, Deployment, InForce

MAX_SHAPE_CHANGES = 2
"""Models that may change their shape in one reachable plan, where there are more than four."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A deployment for given thresholds. ``latency`` is L in seconds, infinite when overloaded."""

    thresholds: replay.Thresholds
    walk: replay.Walk
    strategies: tuple[Strategy, ...]
    cells: tuple[Cells, ...]
    objective: float
    status: str

    @property
    def latency(self) -> float:
        return max(s.latency for s in self.strategies)

    @property
    def utilisation(self) -> float:
        return max(s.utilisation for s in self.strategies)

    @property
    def weighted(self) -> float:
        """sum_i p_i * l_i, which breaks ties."""
        pairs = zip(self.walk.visit_ratio, self.strategies, strict=True)
        return sum(p * s.latency for p, s in pairs if p > 0)

    @property
    def gpus(self) -> int:
        return sum(s.gpus for s in self.strategies)

    def deployment(self, names: Sequence[str]) -> Deployment:
        return {
            name: (s.shape.deployed(s.replicas),)
            for name, s in zip(names, self.strategies, strict=True)
        }


def allocate(
    pricing: Pricing,
    thresholds: replay.Thresholds,
    walk: replay.Walk,
    mu: float,
    *,
    reachable_from: InForce | None = None,
) -> Chosen | None:
    """The best deployment for these thresholds by the program of science.md 1.5.

    When every deployment overloads, the least overloaded one. ``reachable_from``: only
    deployments that a move order inside the pool can reach from there. ``None`` when no
    deployment meets the constraints.
    """
    loads = pricing.loads(walk, thresholds)
    cells = tuple(pricing.cells(i, load) for i, load in enumerate(loads))
    for is_overload in (False, True):
        options = [_options(pricing, i, c, is_overload) for i, c in enumerate(cells)]
        if reachable_from is None:
            options = [_undominated(row) for row in options]
            found = _solve(pricing, options, walk, is_overload, [])
        else:
            found = _solve_reachable(pricing, options, walk, is_overload, reachable_from)
        if found is not None:
            strategies = tuple(found[0])
            latency = max(s.latency for s in strategies)
            objective = pricing.objective(latency, walk.quality, mu)
            return Chosen(thresholds, walk, strategies, cells, objective, found[1])
    return None


def _options(pricing: Pricing, model: int, cells: Cells, is_overload: bool) -> list[Strategy]:
    """Strategies within the model's pin; finite latencies only, unless overload is unavoidable."""
    pin = pricing.problem.pinned_gpus.get(pricing.names[model])
    return [
        s
        for s in cells.strategies
        if (is_overload or math.isfinite(s.latency)) and (pin is None or s.gpus <= pin)
    ]


def _undominated(row: list[Strategy]) -> list[Strategy]:
    """Without strategies that another one beats in GPUs, in latency and in ease of placement."""
    kept: list[Strategy] = []
    for s in sorted(row, key=lambda s: (s.gpus, s.shape.gpus, s.latency, s.utilisation)):
        if not any(
            k.latency <= s.latency
            and k.utilisation <= s.utilisation
            and k.shape.gpus <= s.shape.gpus
            for k in kept
        ):
            kept.append(s)
    return kept


def _solve(
    pricing: Pricing,
    options: Sequence[Sequence[Strategy]],
    walk: replay.Walk,
    is_overload: bool,
    extra: Sequence[milp.Limit],
) -> tuple[list[Strategy], str] | None:
    values = [
        [milp.Option(s.gpus, s.utilisation if is_overload else s.latency) for s in row]
        for row in options
    ]
    limits = [_gpu_limit(pricing, values), *_node_limits(pricing, options), *extra]
    found = milp.allocate(values, limits, walk.visit_ratio)
    if found is None:
        return None
    return [row[o] for row, o in zip(options, found.chosen, strict=True)], found.status


def _gpu_limit(pricing: Pricing, values: Sequence[Sequence[milp.Option]]) -> milp.Limit:
    """A pinned model takes its whole pin, whatever its replicas use of it."""
    limit = milp.gpu_limit(values, pricing.nodes.gpus)
    coefficients = tuple(
        (float(pricing.problem.pinned_gpus[name]),) * len(row)
        if name in pricing.problem.pinned_gpus
        else row
        for name, row in zip(pricing.names, limit.coefficients, strict=True)
    )
    return dataclasses.replace(limit, coefficients=coefficients)


def _node_limits(pricing: Pricing, options: Sequence[Sequence[Strategy]]) -> list[milp.Limit]:
    """Whole-node packing: replicas of at least s GPUs fill at most all slots of size s. Exact for
    sizes that divide one another (see ``nodes.Nodes.fits``)."""
    sizes = {s.shape.gpus for row in options for s in row}
    return [
        milp.Limit(
            f"slots of {size}",
            tuple(
                tuple(float(s.gpus) if s.shape.gpus >= size else 0.0 for s in row)
                for row in options
            ),
            float(size * pricing.nodes.slots(size)),
        )
        for size in pricing.nodes.binding_sizes(sizes)
    ]


def _solve_reachable(
    pricing: Pricing,
    options: Sequence[Sequence[Strategy]],
    walk: replay.Walk,
    is_overload: bool,
    in_force: InForce,
) -> tuple[list[Strategy], str] | None:
    """The best deployment over all choices of which models change shape, and in which order.

    For a given order reachability is linear: see ``_move_limits``.
    """
    count = len(pricing.names)
    running = [in_force.deployment.get(name, ()) for name in pricing.names]
    most = count if count <= 4 else MAX_SHAPE_CHANGES
    movable = [i for i in range(count) if any(s.replicas for s in running[i])]
    best: tuple[float, float, list[Strategy], str] | None = None
    for order in reach.orders(movable, most):
        rows = [
            row
            if i not in movable
            else [s for s in row if _survives(s, running[i]) is (i not in order)]
            for i, row in enumerate(options)
        ]
        found = _solve(
            pricing, rows, walk, is_overload, _move_limits(pricing, rows, running, order)
        )
        if found is None:
            continue
        value = max(s.utilisation if is_overload else s.latency for s in found[0])
        weighted = sum(
            p * s.latency for p, s in zip(walk.visit_ratio, found[0], strict=True) if p > 0
        )
        if best is None or (value, weighted) < best[:2]:
            best = (value, weighted, *found)
    return None if best is None else (best[2], best[3])


def _survives(strategy: Strategy, running: Sequence[DeployedSet]) -> bool:
    """Whether some running replica is already as the strategy wants it."""
    wanted = reach.identity(strategy.shape.deployed(1))
    return any(s.replicas and reach.identity(s) == wanted for s in running)


def _move_limits(
    pricing: Pricing,
    rows: Sequence[Sequence[Strategy]],
    running: Sequence[Sequence[DeployedSet]],
    order: tuple[int, ...],
) -> list[milp.Limit]:
    """One constraint per shape change, in order: at its tightest moment the surviving sets have
    shrunk, earlier changers hold one new replica, later ones one old replica, and the changer
    itself one of each."""
    limits = []
    for step, changer in enumerate(order):
        coefficients = []
        for i, row in enumerate(rows):
            old = min((s.tensor * s.pipeline for s in running[i] if s.replicas), default=0)
            if i not in order:
                coefficients.append(tuple(float(_kept(s, running[i])) for s in row))
            elif i == changer:
                coefficients.append(tuple(float(old + s.shape.gpus) for s in row))
            elif order.index(i) < step:
                coefficients.append(tuple(float(s.shape.gpus) for s in row))
            else:
                coefficients.append((float(old),) * len(row))
        limits.append(
            milp.Limit(
                f"while {pricing.names[changer]} changes shape",
                tuple(coefficients),
                float(pricing.nodes.gpus),
            )
        )
    return limits


def _kept(strategy: Strategy, running: Sequence[DeployedSet]) -> int:
    """GPUs that neither shrinking nor growing touches."""
    wanted = reach.identity(strategy.shape.deployed(1))
    same = sum(s.replicas for s in running if reach.identity(s) == wanted)
    return min(same, strategy.replicas) * strategy.shape.gpus
