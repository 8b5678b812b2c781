"""The reasons of a plan, in words."""

import math

from .allocation import Chosen
from .latency.table import Cells, Strategy
from .pricing import Pricing


def describe(strategy: Strategy) -> str:
    """A strategy as the documents write it: replicas x shape."""
    shape = strategy.shape
    pipeline = f" PP{shape.pipeline}" if shape.pipeline > 1 else ""
    return f"{strategy.replicas} x TP{shape.tensor}{pipeline}"


def seconds(value: float) -> str:
    return f"p95 {value:.2f} s" if math.isfinite(value) else "overload"


def model_details(pricing: Pricing, chosen: Chosen, model: int) -> tuple[str, ...]:
    """Why this model has these GPUs and this shape."""
    strategy, cells = chosen.strategies[model], chosen.cells[model]
    name = pricing.names[model]
    lines = [_gpu_reason(chosen, model, name)]
    lines += _neighbours(strategy, cells, pricing.nodes.gpus)
    lines += _shape_reason(strategy, cells)
    excluded = pricing.tables[model].feasible.excluded
    if excluded:
        lines.append("not possible: " + "; ".join(excluded))
    rows = chosen.walk.rows[model]
    if pricing.data is not None and rows < pricing.problem.search.minimum_reaching:
        lines.append(
            f"only {rows} calibration rows reach this model; "
            f"{pricing.problem.search.minimum_reaching} are needed for firm figures"
        )
    return tuple(lines)


def _gpu_reason(chosen: Chosen, model: int, name: str) -> str:
    strategy = chosen.strategies[model]
    share = f"{100 * chosen.walk.visit_ratio[model]:.0f} % of all requests reach {name}"
    if chosen.walk.visit_ratio[model] == 0:
        return f"{share}; {describe(strategy)} keeps it ready"
    load = f"{share}; {describe(strategy)} runs at {100 * strategy.utilisation:.0f} % of saturation"
    if strategy.latency >= chosen.latency:
        return f"{load} and sets the plan's latency: {seconds(strategy.latency)}"
    return f"{load}: {seconds(strategy.latency)}, below the plan's {seconds(chosen.latency)}"


def _neighbours(strategy: Strategy, cells: Cells, pool: int) -> list[str]:
    """What one GPU less and the next useful number of GPUs would give."""
    lines = []
    fewer = strategy.gpus - 1
    if any(s.gpus <= fewer for s in cells.strategies):
        lines.append(f"with {fewer} GPU(s): {seconds(float(cells.latency[fewer]))}")
    else:
        lines.append(f"{strategy.gpus} GPU(s) are the fewest that hold it")
    for more in range(strategy.gpus + 1, pool + 1):
        if cells.latency[more] < strategy.latency:
            lines.append(f"with {more} GPUs: {seconds(float(cells.latency[more]))}")
            break
    return lines


def _shape_reason(strategy: Strategy, cells: Cells) -> list[str]:
    """The best other shape on the same GPUs."""
    others = [
        s
        for s in cells.strategies
        if s.gpus <= strategy.gpus and s.shape.gpus != strategy.shape.gpus
    ]
    if not others:
        return []
    best = min(others, key=lambda s: (s.latency, s.utilisation))
    return [f"{describe(best)} instead: {seconds(best.latency)}"]


def quality_shortfall(pricing: Pricing, chosen: Chosen, reachable: float) -> str:
    """What this plan gives, and the most that the models could."""
    return (
        f"qmin {pricing.problem.qmin} is not met: this plan is predicted to give "
        f"{chosen.walk.quality:.1f}; the models reach at most {reachable:.1f}"
    )


def deployment(pricing: Pricing, chosen: Chosen) -> str:
    return ", ".join(
        f"{name} {describe(s)}" for name, s in zip(pricing.names, chosen.strategies, strict=True)
    )


def better_with_downtime(pricing: Pricing, chosen: Chosen, better: Chosen) -> str:
    """Names the better deployment that no order of moves inside the pool can reach."""
    return (
        f"{deployment(pricing, better)} would give {seconds(better.latency)} instead of "
        f"{seconds(chosen.latency)}; only downtime reaches it from the running deployment"
    )


def unreachable(pricing: Pricing, chosen: Chosen) -> str:
    """No allowed deployment can be reached while every model keeps serving."""
    return (
        f"only downtime reaches {deployment(pricing, chosen)} from the running deployment: the "
        f"pool of {pricing.nodes.gpus} GPUs has no room for a new replica beside the old ones"
    )


def cost_per_hour(pricing: Pricing, chosen: Chosen) -> float | None:
    """Price of the GPUs in use for one hour; ``None`` when the pool states no price."""
    price = pricing.problem.pools[0].price_per_gpu_hour
    return None if price is None else chosen.gpus * price


def _cost_reason(pricing: Pricing, chosen: Chosen) -> list[str]:
    price, total = pricing.problem.pools[0].price_per_gpu_hour, cost_per_hour(pricing, chosen)
    if price is None or total is None:
        return []
    return [f"{chosen.gpus} GPUs at {_amount(price)} per GPU hour: {_amount(total)} per hour"]


def _amount(value: float) -> str:
    """Two decimals, or as many as it takes, up to the six that a price may have."""
    whole, _, decimals = f"{value:.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0'):0<2}"


def plan_details(pricing: Pricing, chosen: Chosen) -> tuple[str, ...]:
    """What concerns the plan as a whole."""
    lines = _cost_reason(pricing, chosen)
    idle = pricing.nodes.gpus - chosen.gpus
    if idle > 0:
        lines.append(f"{idle} of {pricing.nodes.gpus} GPUs stay idle: no shape uses them better")
    if not math.isfinite(chosen.latency):
        lines.append(
            f"the pool cannot carry {pricing.traffic.rate:g} requests/s: the busiest model is "
            f"offered {100 * chosen.utilisation:.0f} % of its saturation rate"
        )
    if pricing.data is not None:
        means = pricing.mean_quality
        top = means.index(max(means))
        if top != len(pricing.names) - 1:
            lines.append(
                f"the last model is not the best one: {pricing.names[top]} scores "
                f"{means[top]:.1f}, {pricing.names[-1]} {means[-1]:.1f}"
            )
        if pricing.data.biased:
            lines.append("quality is biased: the judge that routes also measured it")
    return tuple(lines)
