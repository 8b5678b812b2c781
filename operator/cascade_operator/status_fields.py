"""Status beside the conditions: plan, models, thresholds, quality, GPU ledger, summary lines."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_solver import plan as plans

from . import changes, ledger, manifests, plan_record, published
from .observation import Observation, PodView, SetView
from .spec import CascadeSpec
from .step import Step

MEASURED_STEP = 0.05
"""Measured figures change status only by at least this share."""
MAX_LINE = 1024


def timestamp(seconds: float) -> str:
    """RFC 3339 with whole seconds, UTC."""
    moment = datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
    return moment.isoformat().replace("+00:00", "Z")


def seconds(text: str) -> float:
    """Unix seconds of an RFC 3339 time; 0 for text that is none."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def points(value: float) -> str:
    """Points as status shows them: one digit."""
    return f"{value:.1f}"


def summary(
    spec: CascadeSpec, observation: Observation, record: plan_record.PlanRecord | None
) -> dict[str, Any]:
    """One line for each printer column."""
    in_force = published.in_force(observation.router)
    pairs = [f"{name}={score}" for name, score in in_force.thresholds.items()]
    return {
        "quality": _quality_line(spec, record),
        "gpus": _gpus_line(observation),
        "thresholds": " ".join(pairs)[:256],
        "drift": str(observation.drift.get("verdict", "Unknown")),
    }


def _quality_line(spec: CascadeSpec, record: plan_record.PlanRecord | None) -> str:
    if record is None:
        return f"?/{spec.qmin}"
    predicted = record.plan.quality.predicted
    if predicted is None:
        return f"?/{spec.qmin} uncalibrated"
    return f"{points(predicted)}/{spec.qmin} predicted"


def _gpus_line(observation: Observation) -> str:
    return f"{ledger.committed(observation.sets)}/{observation.pool.usable}"


def plan(
    record: plan_record.PlanRecord | None,
    proposal: plan_record.Proposal | None,
    observation: Observation,
    step: Step | None,
) -> dict[str, Any]:
    """The newest plan, what is applied of it, and what waits for approval."""
    fields: dict[str, Any] = {}
    if record is not None:
        fields = _plan(record)
    applied = observation.status.get("plan", {}).get("applied")
    if record is not None and step is not None and step.settled:
        applied = record.revision
    if applied is not None:
        fields["applied"] = applied
    if step is not None and not step.settled:
        fields["move"] = step.message[:MAX_LINE]
    if proposal is not None:
        fields["proposed"] = {
            "revision": proposal.revision,
            "summary": plan_line(proposal.plan),
            "reasons": list(proposal.reasons),
        }
    return fields


def _plan(record: plan_record.PlanRecord) -> dict[str, Any]:
    plan = record.plan
    fields: dict[str, Any] = {
        "revision": record.revision,
        "verdict": plan.verdict,
        "cause": (record.reasons[0] if record.reasons else record.reason)[:256],
        "plannedAt": timestamp(record.adopted_at),
        "latencyP95Milliseconds": round(1000 * plan.latency_p95_seconds),
        "gpusAllocated": sum(m.gpus_allocated for m in plan.models),
        "gpusUsed": sum(m.gpus_used for m in plan.models),
        "requestsPerMinute": f"{60 * plan.workload.rate:.1f}",
        "search": _search(plan.search),
        "reasons": list(record.reasons),
        "summary": plan_line(plan),
    }
    if plan.workload.effective_size is not None:
        fields["effectiveSampleSize"] = f"{plan.workload.effective_size:.1f}"
    if plan.needs_downtime:
        fields["needsDowntime"] = plan.needs_downtime[:MAX_LINE]
    return fields


def _search(report: plans.SearchReport) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "rounds": report.rounds,
        "candidates": report.candidates,
        "simulations": report.simulations,
        "converged": report.converged,
    }
    if report.proven_gap_percent is not None:
        fields["provenGapPercent"] = f"{max(0.0, report.proven_gap_percent):.2f}"
    return fields


def plan_line(plan: plans.Plan) -> str:
    """The plan in one line."""
    shapes = ", ".join(f"{m.name} {changes.shape(m)}" for m in plan.models)
    load = "overloaded" if plan.overloaded else f"p95 {plan.latency_p95_seconds:.2f} s"
    return f"{shapes}; {load}"[:MAX_LINE]


def models(
    spec: CascadeSpec, record: plan_record.PlanRecord | None, observation: Observation
) -> list[dict[str, Any]]:
    """One entry for each model of the spec: what the plan gives it and what of it is there."""
    planned = {m.name: m for m in record.plan.models} if record is not None else {}
    return [_model(spec, name, planned.get(name), observation) for name in spec.model_names]


def _model(
    spec: CascadeSpec, name: str, planned: plans.ModelPlan | None, observation: Observation
) -> dict[str, Any]:
    views = [view for view in observation.sets if view.model == name]
    entry: dict[str, Any] = {
        "name": name,
        "sets": sorted(view.name for view in views),
        "readyReplicas": 0,
    }
    if planned is not None:
        entry |= _planned(planned)
        entry["readyReplicas"] = ready_as_planned(spec, planned, views)
    blocked = blocking(views)
    if blocked is not None:
        entry["blockedBy"] = pod_words(blocked)[:2048]
    return entry


def _planned(planned: plans.ModelPlan) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "gpus": planned.gpus_allocated,
        "gpusUsed": planned.gpus_used,
        "shape": changes.shape(planned)[:256],
        "replicas": sum(s.replicas for s in planned.sets),
        "visitRatioPercent": round(100 * min(1.0, planned.visit_ratio)),
        "utilisationPercent": round(100 * planned.utilisation),
        "latencyP95Milliseconds": round(1000 * planned.latency_p95_seconds),
        "ttftP95Milliseconds": round(1000 * planned.ttft_p95_seconds),
    }
    if planned.sets:
        first = planned.sets[0]
        fields |= {
            "gpuType": first.gpu_type,
            "tensor": first.tensor,
            "pipeline": first.pipeline,
        }
    if planned.threshold is not None:
        fields["threshold"] = planned.threshold
    return fields


def ready_as_planned(spec: CascadeSpec, planned: plans.ModelPlan, views: Sequence[SetView]) -> int:
    """Ready replicas in the sets that the plan asks for, whatever version rendered them."""
    return sum(
        len(view.ready_pods())
        for view in views
        for wanted in planned.sets
        if view.name == manifests.set_identity(spec, planned.name, wanted, view.render_version)
    )


def blocking(views: Sequence[SetView]) -> PodView | None:
    """The pod that something is wrong with: the kubelet's complaints first, then lost nodes."""
    pods = [p for view in views for p in view.pods if not p.finished]
    waiting = [p for p in pods if p.waiting_reason and not p.ready]
    complaints = waiting or [p for p in pods if p.lost]
    return min(complaints, key=lambda p: p.name, default=None)


def pod_words(pod: PodView) -> str:
    """A pod and its trouble, such as ``pod chat-small-0: ImagePullBackOff: no such image``."""
    trouble = pod.waiting_reason or ("its node is not Ready" if pod.lost else "not Ready")
    return f"pod {pod.name}: {trouble}" + (f": {pod.message}" if pod.message else "")


def thresholds(observation: Observation) -> list[dict[str, Any]]:
    """What the router's configuration says now; the last model has no threshold."""
    config = published.read(observation.router.config_text)
    entries = []
    for model in config.models if config is not None else ():
        if model.threshold is not None:
            entry: dict[str, Any] = {"model": model.name, "score": model.threshold}
            if model.steer_quantile is not None:
                entry["steerPercentile"] = round(100 * model.steer_quantile)
            entries.append(entry)
    return entries


def quality(record: plan_record.PlanRecord | None, observation: Observation) -> dict[str, Any]:
    """Predicted quality, what is reachable, and what the router's own scores say."""
    if record is None:
        return {}
    fields: dict[str, Any] = {}
    forecast = record.plan.quality
    if forecast.predicted is not None:
        fields["predicted"] = points(forecast.predicted)
    if forecast.best_reachable is not None:
        fields["bestReachable"] = points(forecast.best_reachable)
    score = routed_score(record, observation.drift.get("window", {}))
    if score is not None:
        before = observation.status.get("quality", {}).get("routed", {}).get("score")
        fields["routed"] = {"score": points(_damped(score, before)), "biased": True}
    return fields


def routed_score(record: plan_record.PlanRecord, window: Mapping[str, Any]) -> float | None:
    """Mean score of the answers that live traffic got, in points; ``None`` if it is not known.

    Accepted scores are counted from bins of ten points at their mean; the last model, which is
    not judged, counts with the mean that the table gives its answers.
    """
    seen = {m["name"]: m for m in window.get("models", ())}
    total = returned = 0.0
    for model in record.plan.models[:-1]:
        counts = seen.get(model.name, {}).get("scoreCounts", ())
        for place, count in enumerate(counts):
            scores = range(10 * place, 101 if place == 9 else 10 * place + 10)
            accepted = [s for s in scores if s >= (model.threshold or 0)]
            share = count * len(accepted) / len(scores)
            if share:
                total += share * sum(accepted) / len(accepted)
                returned += share
    last = record.plan.models[-1]
    visits = seen.get(last.name, {}).get("visits", 0)
    if not returned or (visits and last.mean_final_score is None):
        return None
    total += visits * (last.mean_final_score or 0.0)
    return float(total / (returned + visits))


def _damped(value: float, before: str | None) -> float:
    """The earlier figure, unless the new one differs by at least ``MEASURED_STEP``."""
    if before is None:
        return value
    old = float(before)
    return old if abs(value - old) < MEASURED_STEP * max(old, 1.0) else value


def gpus(observation: Observation) -> dict[str, Any]:
    """The ledger: who holds and who has been promised how many GPUs."""
    pool = observation.pool
    committed = ledger.committed(observation.sets)
    pods = [p for view in observation.sets for p in view.pods if p.node is not None]
    held = sum(ledger.held(p) for p in pods)
    entry: dict[str, Any] = {
        "name": pool.name,
        "gpuType": pool.gpu_type,
        "limit": pool.limit,
        "foreign": pool.foreign,
        "others": pool.others,
        "held": held,
        "promised": max(0, committed - held),
        "committed": committed,
    }
    if pool.nodes:
        entry["allocatable"] = sum(n.allocatable for n in pool.nodes if n.ready)
    message = _pool_words(observation)
    if message:
        entry["message"] = message
    return {
        "basis": "Nodes" if pool.nodes else "Declared",
        "pools": [entry],
        "summary": _gpus_line(observation),
    }


def _pool_words(observation: Observation) -> str:
    """What limits the pool, when something other than its size does."""
    pool = observation.pool
    lost = [n.name for n in pool.nodes if not n.ready]
    words = [f"node {', '.join(lost)} is not Ready"] if lost else []
    if pool.nodes and pool.usable < pool.limit and (pool.foreign or pool.others):
        other = changes.elder_words(pool.elder, observation.namespace)
        words.append(f"{pool.foreign} GPUs held by other pods, {pool.others} by others{other}")
    if not pool.nodes:
        words.append("nodes cannot be read; the limit is trusted")
    return "; ".join(words)[:MAX_LINE]
