"""solve(problem) -> Plan: joins replay, latency tables, allocation and the threshold search."""

import json
import math
from collections.abc import Callable

from . import assemble, cost, deploy, explain, replay, routing, traffic
from .deploy import Decision
from .errors import ProblemError
from .plan import Plan, SearchReport, Verdict
from .pricing import Pricing
from .problem import Capabilities, Problem

MINIMUM_EFFECTIVE_SIZE = 100
"""Below so many effective rows a re-weighted table moves GPUs, not thresholds."""

Progress = Callable[[str], None]


def solve(problem: Problem, progress: Progress | None = None) -> Plan:
    """The plan for this problem; equal problems give equal plans.

    Raises ``ProblemError``, ``UnknownGpuError``, ``UnknownArchitectureError``,
    ``InfeasibleError`` or ``InsufficientGpusError``. An unreachable qmin raises nothing: the plan
    of the best quality comes back with the verdict ``QualityUnreachable``.
    """
    _require_supported(problem)
    names = [m.name for m in problem.models]
    data = None if problem.calibration is None else replay.table(problem.calibration, names)
    pricing = Pricing(problem, data)
    if data is None:
        kept = _in_force_thresholds(problem) if problem.keep_thresholds else None
        return _solve_fixed(
            pricing,
            kept or _uncalibrated_thresholds(problem),
            "Uncalibrated",
            "no calibration table: visit ratios 1, 1/2, 1/3, .. are assumed",
        )
    if problem.calibration is not None and problem.calibration.stale:
        kept = _in_force_thresholds(problem)
        return _solve_fixed(
            pricing,
            kept or _uncalibrated_thresholds(problem),
            "StaleCalibration",
            f"calibration table is stale: {problem.calibration.stale}; thresholds are kept",
        )
    if _keeps_thresholds(problem):
        kept = _in_force_thresholds(problem)
        return _solve_fixed(
            pricing, kept or replay.proportional(data), None, _reason_to_keep(problem)
        )
    return _solve_search(pricing, data, progress)


def _require_supported(problem: Problem) -> None:
    """Fields whose effect comes later are refused, never ignored; so are contradicting pins."""
    faults = []
    if problem.objective.type != "Bottleneck":
        faults.append(
            f"$.objective.type: {problem.objective.type} is not available; allowed: Bottleneck"
        )
    if problem.objective.latency_slo_seconds is not None:
        faults.append("$.objective.latencySloSeconds: not available; leave it out")
    if len(problem.pools) > 1:
        faults.append(f"$.pools: {len(problem.pools)} pools; allowed: 1")
    faults += _unsupported_capabilities(problem)
    if problem.judge.latency_seconds:
        faults.append(
            f"$.judge.latencySeconds: {problem.judge.latency_seconds:g}; allowed: 0, a fixed "
            "delay of the judge is not planned for"
        )
    last = problem.models[-1].name
    if last in problem.pinned_thresholds:
        faults.append(f"$.pinnedThresholds.{last}: the last model always answers; remove it")
    for i, model in enumerate(problem.models):
        if model.pins.replicas is not None and model.pins.replicas < model.min_replicas:
            faults.append(
                f"$.models[{i}].pins.replicas: {model.pins.replicas}; "
                f"allowed: minReplicas {model.min_replicas} or more"
            )
        pin = problem.pinned_gpus.get(model.name)
        if pin is not None and model.max_gpus is not None and pin > model.max_gpus:
            faults.append(
                f"$.pinnedGpus.{model.name}: {pin}; allowed: maxGpus {model.max_gpus} or fewer"
            )
    if faults:
        raise ProblemError(faults)


def _unsupported_capabilities(problem: Problem) -> list[str]:
    """Every replica is one engine of one shape per model, on one node, without pipeline."""
    allowed, asked = Capabilities().model_dump(by_alias=True), problem.capabilities
    return [
        f"$.capabilities.{name}: {json.dumps(value)}; allowed: {json.dumps(allowed[name])}"
        for name, value in asked.model_dump(by_alias=True).items()
        if value != allowed[name]
    ]


def _effective_size(problem: Problem) -> float | None:
    return None if problem.calibration is None else problem.calibration.effective_size


def _keeps_thresholds(problem: Problem) -> bool:
    size = _effective_size(problem)
    is_small = size is not None and size < MINIMUM_EFFECTIVE_SIZE
    return problem.keep_thresholds or (is_small and _in_force_thresholds(problem) is not None)


def _reason_to_keep(problem: Problem) -> str:
    size = _effective_size(problem)
    if size is not None and size < MINIMUM_EFFECTIVE_SIZE:
        return (
            f"thresholds are kept: the re-weighted table is worth {size:.0f} requests, "
            f"{MINIMUM_EFFECTIVE_SIZE} are needed to move them"
        )
    return "thresholds are kept, as asked"


def _in_force_thresholds(problem: Problem) -> replay.Thresholds | None:
    """Thresholds in force, pins first; ``None`` when some model has neither."""
    known = dict(problem.in_force.thresholds) if problem.in_force is not None else {}
    known |= problem.pinned_thresholds
    names = [m.name for m in problem.models[:-1]]
    return tuple(known[n] for n in names) if all(n in known for n in names) else None


def _uncalibrated_thresholds(problem: Problem) -> replay.Thresholds:
    """h_i = 100 i/(i+1): where the router starts before it steers by live scores (1.2)."""
    return tuple(
        problem.pinned_thresholds.get(m.name, round(100 * (i + 1) / (i + 2)))
        for i, m in enumerate(problem.models[:-1])
    )


def _pinned(pricing: Pricing) -> dict[int, int]:
    pins = pricing.problem.pinned_thresholds
    return {i: pins[name] for i, name in enumerate(pricing.names) if name in pins}


def _solve_fixed(
    pricing: Pricing, thresholds: replay.Thresholds, verdict: Verdict | None, reason: str
) -> Plan:
    """Allocation only: the thresholds are given."""
    if pricing.data is None:
        walk = traffic.synthetic_walk(pricing.traffic)
    else:
        walk = replay.walk(pricing.data, thresholds)
    mu = cost.mu(pricing)
    decision = deploy.deploy(pricing, [(thresholds, walk)], mu)
    report = SearchReport(
        rounds=0,
        candidates=1,
        simulations=pricing.simulations,
        converged=True,
        milp_status=decision.chosen.status,
    )
    return _finish(pricing, decision, mu, report, verdict, (reason,))


def _solve_search(pricing: Pricing, data: replay.Table, progress: Progress | None) -> Plan:
    """The bi-level loop (science.md 1.3), then the program on the finalists."""
    problem, pinned = pricing.problem, _pinned(pricing)
    mu = cost.mu(pricing)
    starts = [replay.proportional(data), routing.best_reachable(data, pinned)]
    starts += routing.extremes(len(problem.models))
    in_force = _in_force_thresholds(problem)
    if in_force is not None:
        starts.append(in_force)
    outcome = routing.ThresholdSearch(
        pricing, data, problem.search, mu, pinned=pinned, seed=problem.seed, progress=progress
    ).run(starts)
    finalists = [(c.thresholds, c.walk) for c in outcome.finalists]
    if in_force is not None and all(t != in_force for t, _ in finalists):
        finalists.append((in_force, replay.walk(data, in_force)))
    decision = deploy.deploy(pricing, finalists, mu)
    report = SearchReport(
        rounds=outcome.rounds,
        candidates=outcome.candidates,
        simulations=pricing.simulations,
        converged=outcome.converged,
        proven_gap_percent=_gap_percent(decision.chosen.objective, outcome.bound),
        truncated=not outcome.converged,
        milp_status=decision.chosen.status,
    )
    details = () if outcome.converged else ("the search stopped at its round limit",)
    return _finish(pricing, decision, mu, report, None, details)


def _gap_percent(objective: float, bound: float | None) -> float | None:
    """How far the plan can be from the optimum over all thresholds, on the cached curves."""
    if bound is None or not math.isfinite(objective):
        return None
    return max(0.0, 100.0 * (objective / bound - 1.0))


def _finish(
    pricing: Pricing,
    decision: Decision,
    mu: float,
    report: SearchReport,
    verdict: Verdict | None,
    details: tuple[str, ...],
) -> Plan:
    """Verdict, comparison with the plan in force, and the document."""
    data, chosen = pricing.data, decision.chosen
    reachable = None
    is_met = True
    if data is not None:
        best = routing.best_reachable(data, _pinned(pricing))
        reachable = max(replay.walk(data, best).quality, chosen.walk.quality)
        is_met = pricing.meets_qmin(chosen.walk)
        if not is_met:
            details = (*details, explain.quality_shortfall(pricing, chosen, reachable))
    header = assemble.Header(
        verdict=verdict or ("Feasible" if is_met else "QualityUnreachable"),
        mu=mu,
        search=report,
        best_reachable=reachable,
        in_force_objective=_in_force_objective(pricing),
        needs_downtime=_downtime(pricing, decision),
        is_reachable=decision.is_reachable,
        details=details,
    )
    return assemble.assemble(pricing, chosen, header)


def _in_force_objective(pricing: Pricing) -> float | None:
    in_force = pricing.problem.in_force
    if in_force is None or not in_force.deployment:
        return None
    if any(name not in in_force.thresholds for name in pricing.names[:-1]):
        return None
    return cost.price(pricing, in_force.thresholds, in_force.deployment).objective


def _downtime(pricing: Pricing, decision: Decision) -> str:
    """Names what only downtime reaches; empty when that is no better."""
    if decision.better is None:
        return ""
    if not decision.is_reachable:
        return explain.unreachable(pricing, decision.chosen)
    if deploy.rank(pricing, decision.better) >= deploy.rank(pricing, decision.chosen):
        return ""
    return explain.better_with_downtime(pricing, decision.chosen, decision.better)
