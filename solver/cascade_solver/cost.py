"""What given thresholds and a given deployment do under the problem's load."""

import math
from collections.abc import Mapping, Sequence

from . import replay, traffic
from .errors import ProblemError
from .latency import catalogue, memory
from .latency.curve import OVERLOAD
from .latency.shapes import Shape
from .plan import Cost
from .pricing import Pricing
from .problem import DeployedSet, Deployment, Problem, Score


def cost(problem: Problem, thresholds: Mapping[str, Score], deployment: Deployment) -> Cost:
    """Latency, quality and load that this deployment would give (no search, no allocation).

    Without a calibration table the visit ratios are the planned 1, 1/2, 1/3, .. and the
    thresholds have no influence. Raises ``ProblemError`` for a missing threshold.
    """
    names = [m.name for m in problem.models]
    data = None if problem.calibration is None else replay.table(problem.calibration, names)
    return price(Pricing(problem, data), thresholds, deployment)


def price(pricing: Pricing, thresholds: Mapping[str, Score], deployment: Deployment) -> Cost:
    """``cost`` on prepared latency tables."""
    ordered = _ordered(pricing.names, thresholds)
    if pricing.data is None:
        walk = traffic.synthetic_walk(pricing.traffic)
    else:
        walk = replay.walk(pricing.data, ordered)
    latency, utilisation = 0.0, {}
    for i, (name, load) in enumerate(zip(pricing.names, pricing.loads(walk, ordered), strict=True)):
        sets = [s for s in deployment.get(name, ()) if s.replicas]
        p95, used = _price_model(pricing, i, load, sets)
        latency, utilisation[name] = max(latency, p95), min(used, 1e9)
    overloaded = tuple(name for name, used in utilisation.items() if used >= OVERLOAD)
    quality = None if pricing.data is None else walk.quality
    finite = None if overloaded else latency
    return Cost(
        latency_p95_seconds=finite,
        quality=quality,
        visit_ratio=dict(zip(pricing.names, walk.visit_ratio, strict=True)),
        utilisation=utilisation,
        overloaded=overloaded,
        objective=None if finite is None else pricing.objective(finite, walk.quality, mu(pricing)),
    )


def mu(pricing: Pricing) -> float:
    """The weight of the quality gap, fixed before the search (science.md section 2): 10 L(theta_0),
    or 10 times the largest finite cell where theta_0 overloads."""
    if pricing.data is None:
        return 0.0
    start = replay.proportional(pricing.data)
    walk = replay.walk(pricing.data, start)
    latency = pricing.candidate(start, walk).latency
    if math.isfinite(latency):
        return 10.0 * latency
    finite = [
        s.latency
        for i, load in enumerate(pricing.loads(walk, start))
        for s in pricing.cells(i, load).strategies
        if math.isfinite(s.latency)
    ]
    return 10.0 * max(finite, default=1.0)


def _ordered(names: Sequence[str], thresholds: Mapping[str, Score]) -> replay.Thresholds:
    missing = [name for name in names[:-1] if name not in thresholds]
    if missing:
        raise ProblemError([f"$.thresholds.{name}: missing; allowed: 0 to 101" for name in missing])
    return tuple(thresholds[name] for name in names[:-1])


def _price_model(
    pricing: Pricing, model: int, load: traffic.Load, sets: Sequence[DeployedSet]
) -> tuple[float, float]:
    """p95 in seconds and utilisation; traffic splits in proportion to saturation rates, and the
    slowest set counts."""
    if load.total == 0.0:
        return 0.0, 0.0
    if not sets:
        return math.inf, math.inf
    table = pricing.tables[model]
    curves = [
        table.curve(_shape(pricing, model, s), load.key, lambda: pricing.sample(model, load))
        for s in sets
    ]
    stretch = load.stretch
    capacity = sum(s.replicas * c.saturation / stretch for s, c in zip(sets, curves, strict=True))
    used = load.total / capacity
    if used >= OVERLOAD:
        return math.inf, used
    return max(c.p95(used * c.saturation / stretch, stretch) for c in curves), used


def _shape(pricing: Pricing, model: int, deployed: DeployedSet) -> Shape:
    """The shape of a running set, its KV tokens from the memory formula."""
    known = pricing.problem.models[model]
    for shape in pricing.tables[model].feasible.variants.get(
        (deployed.tensor, deployed.pipeline), ()
    ):
        if shape.deployed(deployed.replicas) == deployed:
            return shape
    tokens = known.kv_tokens or memory.kv_tokens(
        catalogue.resolve(known.architecture),
        pricing.gpu,
        deployed.tensor,
        deployed.pipeline,
        known.precision,
        deployed.mem_fraction_static,
    )
    return Shape(
        deployed.tensor,
        deployed.pipeline,
        deployed.mem_fraction_static,
        deployed.chunked_prefill_size,
        max(tokens, 1),
    )
