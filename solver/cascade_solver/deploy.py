"""Which deployment to return: the best of the finalists that can be reached while serving."""

import dataclasses
import math
from collections.abc import Sequence

from . import allocation, reach, replay, routing
from .allocation import Chosen
from .errors import InsufficientGpusError
from .pricing import Pricing

CONFIDENCE_PRICE = 1.10
"""How much slower a strategy without flags may be and still be preferred."""

Finalist = tuple[replay.Thresholds, replay.Walk]


@dataclasses.dataclass(frozen=True)
class Decision:
    """``better``: a deployment that only downtime reaches; the chosen one itself where nothing at
    all can be reached while serving."""

    chosen: Chosen
    better: Chosen | None

    @property
    def is_reachable(self) -> bool:
        return self.better is not self.chosen


def deploy(pricing: Pricing, finalists: Sequence[Finalist], mu: float) -> Decision:
    """Runs the program on every finalist and keeps the best outcome.

    Raises ``InsufficientGpusError`` when no combination of shapes fits.
    """
    best = _best(pricing, [allocation.allocate(pricing, t, w, mu) for t, w in finalists])
    if best is None:
        raise InsufficientGpusError(
            sum(t.smallest for t in pricing.tables),
            pricing.nodes.gpus,
            "no combination of allowed shapes fits pool and nodes",
        )
    best = _keep_running(pricing, prefer_confident(pricing, best))
    if _is_reachable(pricing, best):
        return Decision(best, None)
    in_force = pricing.problem.in_force
    reachable = _best(
        pricing,
        [allocation.allocate(pricing, t, w, mu, reachable_from=in_force) for t, w in finalists],
    )
    if reachable is None:
        return Decision(best, best)
    return Decision(_keep_running(pricing, reachable), best)


Rank = tuple[bool, bool, float, float, float, replay.Thresholds]


def rank(pricing: Pricing, c: Chosen) -> Rank:
    """Feasible first, then J; below qmin the best quality first (science.md section 2)."""
    is_overloaded = not math.isfinite(c.latency)
    value = c.utilisation if is_overloaded else c.objective
    if pricing.data is None or pricing.meets_qmin(c.walk):
        return (False, is_overloaded, value, c.weighted, -c.walk.quality, c.thresholds)
    return (True, is_overloaded, -c.walk.quality, value, c.weighted, c.thresholds)


def _best(pricing: Pricing, found: Sequence[Chosen | None]) -> Chosen | None:
    """The best by rank. Among ties in J thresholds in force stay, then weighted latency decides."""
    solved = [c for c in found if c is not None]
    best = min(solved, key=lambda c: rank(pricing, c), default=None)
    if best is None or not math.isfinite(best.objective) or rank(pricing, best)[0]:
        return best
    limit = (1.0 + routing.TIE) * best.objective
    tied = [c for c in solved if not rank(pricing, c)[0] and c.objective <= limit]
    in_force = pricing.problem.in_force
    running = {} if in_force is None else in_force.thresholds
    return min(
        tied,
        key=lambda c: (
            dict(zip(pricing.names, c.thresholds, strict=False)) != running,
            c.weighted,
            c.thresholds,
        ),
    )


def prefer_confident(pricing: Pricing, chosen: Chosen) -> Chosen:
    """Replaces strategies that rest on an optimistic KV reserve by unflagged ones that are at
    most 10 % slower and do not raise L (latency-model.md section 4)."""
    strategies = list(chosen.strategies)
    for i, strategy in enumerate(strategies):
        if not strategy.shape.low_confidence:
            continue
        limit = min(strategy.latency * CONFIDENCE_PRICE, chosen.latency)
        firm = [
            s
            for s in chosen.cells[i].strategies
            if not s.shape.low_confidence and s.latency <= limit and s.gpus <= strategy.gpus
        ]
        if firm:
            strategies[i] = min(firm, key=lambda s: (s.latency, s.gpus))
    replaced = dataclasses.replace(chosen, strategies=tuple(strategies))
    return replaced if _fits(pricing, replaced) else chosen


def _keep_running(pricing: Pricing, chosen: Chosen) -> Chosen:
    """The deployment in force, where it ties with the chosen one for the same thresholds."""
    in_force = pricing.problem.in_force
    if in_force is None:
        return chosen
    strategies = []
    for name, cells in zip(pricing.names, chosen.cells, strict=True):
        running = in_force.deployment.get(name, ())
        same = [s for s in cells.strategies if (s.shape.deployed(s.replicas),) == running]
        if not same:
            return chosen
        strategies.append(same[0])
    latency = max(s.latency for s in strategies)
    objective = chosen.objective - chosen.latency + latency
    is_tie = latency <= (1.0 + routing.TIE) * chosen.latency and math.isfinite(latency)
    kept = dataclasses.replace(chosen, strategies=tuple(strategies), objective=objective)
    return kept if is_tie and _fits(pricing, kept) else chosen


def _fits(pricing: Pricing, chosen: Chosen) -> bool:
    """Whether all replicas find room on the nodes, inside pins and pool."""
    counts: dict[int, int] = {}
    for s in chosen.strategies:
        counts[s.shape.gpus] = counts.get(s.shape.gpus, 0) + s.replicas
    pins = pricing.problem.pinned_gpus
    allocated = [
        (s.gpus, pins.get(name, s.gpus))
        for name, s in zip(pricing.names, chosen.strategies, strict=True)
    ]
    return (
        all(used <= pin for used, pin in allocated)
        and sum(pin for _, pin in allocated) <= pricing.nodes.gpus
        and pricing.nodes.fits(counts)
    )


def _is_reachable(pricing: Pricing, chosen: Chosen) -> bool:
    in_force = pricing.problem.in_force
    if in_force is None or pricing.problem.allow_downtime:
        return True
    target = chosen.deployment(pricing.names)
    return reach.moves(in_force.deployment, target, pricing.nodes.gpus) is not None
