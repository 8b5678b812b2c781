"""From the chosen thresholds and deployment to the plan document."""

import dataclasses
import math

import numpy as np

from . import explain, histogram, replay, traffic
from .allocation import Chosen
from .latency import samples
from .latency.curve import Curve, Percentiles
from .plan import (
    ModelPlan,
    Plan,
    PlannedSet,
    PlannedWorkload,
    QualityForecast,
    SearchReport,
    Verdict,
)
from .pricing import Pricing

NOTED_DIFFERENCE = 0.10
"""Difference between cached curve and exact simulation that a plan mentions."""
DECILES = np.arange(1, 10) / 10
INNER_EDGES = np.arange(1, 5) / 5


@dataclasses.dataclass(frozen=True)
class Header:
    """What the solver knows beyond thresholds and deployment."""

    verdict: Verdict
    mu: float
    search: SearchReport
    best_reachable: float | None = None
    in_force_objective: float | None = None
    needs_downtime: str = ""
    is_reachable: bool = True
    details: tuple[str, ...] = ()


def assemble(pricing: Pricing, chosen: Chosen, header: Header) -> Plan:
    """The whole plan, with its predictions and reasons."""
    loads = pricing.loads(chosen.walk, chosen.thresholds)
    models = tuple(
        _model_plan(pricing, chosen, i, load, header.verdict) for i, load in enumerate(loads)
    )
    is_overloaded = not math.isfinite(chosen.latency)
    latency = max(m.latency_p95_seconds for m in models)
    objective = (
        pricing.objective(latency, chosen.walk.quality, header.mu)
        if is_overloaded
        else chosen.objective
    )
    in_force = pricing.problem.in_force
    plan = Plan(
        verdict=header.verdict,
        models=models,
        latency_p95_seconds=latency,
        objective=objective,
        mu_seconds=header.mu,
        quality=_quality(pricing, chosen, header.best_reachable),
        qmin=pricing.problem.qmin,
        meets_qmin=None if pricing.data is None else pricing.meets_qmin(chosen.walk),
        workload=_workload(pricing, chosen),
        search=header.search,
        overloaded=is_overloaded,
        needs_downtime=header.needs_downtime,
        reachable=header.is_reachable,
        in_force_objective=header.in_force_objective,
        cost_per_hour=explain.cost_per_hour(pricing, chosen),
        details=(*header.details, *explain.plan_details(pricing, chosen)),
    )
    keeps = in_force is not None and (
        plan.deployment() == in_force.deployment and plan.thresholds() == in_force.thresholds
    )
    return plan.model_copy(update={"keeps_in_force": keeps})


def _model_plan(
    pricing: Pricing, chosen: Chosen, i: int, load: traffic.Load, verdict: Verdict
) -> ModelPlan:
    strategy = chosen.strategies[i]
    name = pricing.names[i]
    exact = _exact(pricing, chosen, i, load)
    latency = strategy.latency if math.isfinite(strategy.latency) else exact.latency
    details = explain.model_details(pricing, chosen, i)
    if abs(exact.latency - latency) > NOTED_DIFFERENCE * latency:
        details += (f"simulated with the exact lengths: {explain.seconds(exact.latency)}",)
    is_last = i == len(pricing.names) - 1
    is_steered = verdict == "Uncalibrated" and not is_last
    is_steered = is_steered and name not in pricing.problem.pinned_thresholds
    return ModelPlan(
        name=name,
        gpus_allocated=pricing.problem.pinned_gpus.get(name, strategy.gpus),
        gpus_used=strategy.gpus,
        sets=(_planned_set(pricing, chosen, i),),
        threshold=None if is_last else chosen.thresholds[i],
        steer_quantile=(i + 1) / (i + 2) if is_steered else None,
        visit_ratio=chosen.walk.visit_ratio[i],
        arrival_rate=load.rate,
        latency_p95_seconds=latency,
        ttft_p95_seconds=exact.ttft,
        tpot_p95_seconds=exact.tpot,
        utilisation=strategy.utilisation,
        mean_score=chosen.walk.mean_score[i],
        mean_final_score=chosen.walk.mean_final[i],
        details=details,
    )


def _planned_set(pricing: Pricing, chosen: Chosen, i: int) -> PlannedSet:
    strategy = chosen.strategies[i]
    shape = strategy.shape
    return PlannedSet(
        tensor=shape.tensor,
        pipeline=shape.pipeline,
        replicas=strategy.replicas,
        gpu_type=pricing.problem.pools[0].gpu_type,
        mem_fraction_static=shape.mem_fraction_static,
        chunked_prefill_size=shape.chunk,
        kv_tokens=shape.kv_tokens,
        saturation_rate=strategy.saturation,
        low_confidence=pricing.tables[i].low_confidence(shape),
    )


def _exact(pricing: Pricing, chosen: Chosen, i: int, load: traffic.Load) -> Percentiles:
    """One simulation with the exact lengths of the requests that reach the model."""
    if load.total == 0.0:
        return Percentiles(0.0, 0.0, 0.0)
    strategy = chosen.strategies[i]
    curve = _exact_curve(pricing, chosen, i, load)
    return curve.exact(load.total / strategy.replicas)


def _exact_curve(pricing: Pricing, chosen: Chosen, i: int, load: traffic.Load) -> Curve:
    table = pricing.tables[i]
    shape = chosen.strategies[i].shape
    data = pricing.data
    if data is None or i == 0 or load.rate == 0.0:
        return table.curve(shape, load.key, lambda: pricing.sample(i, load))
    visits = replay.reached(data, chosen.thresholds)[i]
    problem = pricing.problem
    sample = samples.resample(
        data.inputs[i][visits],
        data.outputs[i][visits],
        data.weights[visits],
        problem.search.simulated_requests,
        problem.seed,
    )
    if load.judge_share:
        share = load.judge_rate / load.total
        sample = samples.with_judging(sample, pricing.traffic.judged, share, problem.seed)
    return table.curve(shape, ("exact", chosen.thresholds, load), lambda: sample)


def _quality(pricing: Pricing, chosen: Chosen, reachable: float | None) -> QualityForecast:
    if pricing.data is None:
        return QualityForecast(predicted=None, all_last=None, all_first=None, best_reachable=None)
    return QualityForecast(
        predicted=chosen.walk.quality,
        all_last=pricing.all_last(),
        all_first=pricing.all_first(),
        best_reachable=reachable,
        biased=pricing.data.biased,
    )


def _workload(pricing: Pricing, chosen: Chosen) -> PlannedWorkload:
    """The load at the first model, as drift-watch compares it with live windows."""
    sample = pricing.traffic.lengths[0]
    names, walk = pricing.names, chosen.walk
    edges = tuple(np.quantile(sample.inputs, INNER_EDGES).tolist())
    data = pricing.data
    calibration = pricing.problem.calibration
    return PlannedWorkload(
        rate=pricing.traffic.rate,
        n=0 if data is None else data.weights.size,
        effective_size=None if calibration is None else calibration.effective_size,
        input_deciles=tuple(np.quantile(sample.inputs, DECILES).tolist()),
        output_deciles=tuple(np.quantile(sample.outputs, DECILES).tolist()),
        escalation_ratio={
            name: walk.visit_ratio[i + 1] / walk.visit_ratio[i] if walk.visit_ratio[i] else 0.0
            for i, name in enumerate(names[:-1])
        },
        mean_score=dict(zip(names, walk.mean_score, strict=True)),
        input_edges=edges,
        input_score_counts=()
        if data is None
        else histogram.joint(
            data.inputs[0], data.scores[0], data.weights * data.weights.size, edges
        ),
    )
