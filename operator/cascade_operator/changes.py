"""What made a plan necessary and what it changes, in words."""

from collections.abc import Mapping, Sequence

from cascade_solver import plan as plans

from . import live_load, plan_record

MAX_REASONS = 64
MAX_REASON_LENGTH = 1024
KEPT = "kept although the traffic drifted"


def cause(
    stored: plan_record.Stored,
    inputs: Mapping[str, str],
    drift: live_load.Drift | None,
    usable_gpus: int,
) -> tuple[plan_record.Reason, str] | None:
    """Why a plan is needed: reason and words; ``None`` when the one in force still answers."""
    record = stored.record
    if record is None:
        lost = f"; the stored one cannot be read: {stored.fault}" if stored.fault else ""
        return "FirstPlan", f"first plan of this cascade{lost}"
    changed = {kind for kind, value in inputs.items() if record.inputs.get(kind) != value}
    if changed & {"spec", "workload"}:
        return "SpecChanged", "the spec changed"
    if "calibration" in changed:
        return "CalibrationChanged", "the calibration table changed"
    if "pool" in changed:
        return "PoolChanged", f"the pool changed: {usable_gpus} GPUs are usable"
    if drift is not None and drift.fresh:
        return "Drift", f"the traffic drifted: {drift.message or drift.identity}"
    return None


def falls_short(reason: plan_record.Reason, plan: plans.Plan, gain_percent: int) -> bool:
    """Whether a drift plan gains too little over the plan in force to be worth a move.

    Never when the plan in force is overloaded, or when the new plan is the one in force.
    """
    before = plan.in_force_objective
    if reason != "Drift" or before is None or plan.keeps_in_force:
        return False
    return plan.objective > before * (1 - gain_percent / 100)


def kept_words(plan: plans.Plan, gain_percent: int) -> str:
    """Why the plan in force was kept, with the figures that decided."""
    return (
        f"{KEPT}: the best plan for it has an objective of {plan.objective:.2f} s against "
        f"{plan.in_force_objective or 0:.2f} s of the plan in force; a move must gain "
        f"{gain_percent} %"
    )


def without_kept(reasons: Sequence[str]) -> tuple[str, ...]:
    """Reasons without an earlier note of this kind: only the last one is of interest."""
    return tuple(line for line in reasons if not line.startswith(KEPT))


def reasons(before: plan_record.PlanRecord | None, plan: plans.Plan, why: str) -> tuple[str, ...]:
    """Why there is a new plan, what it changes for each model, and the planner's own reasons."""
    lines = [why]
    old = {m.name: m for m in before.plan.models} if before is not None else {}
    for model in plan.models:
        if model.name in old:
            lines += _model_changes(old[model.name], model)
        elif before is not None:
            lines.append(f"{model.name}: new, {shape(model)}")
    now = {m.name for m in plan.models}
    lines += [f"{name}: no longer part of the cascade" for name in old if name not in now]
    lines += [f"{m.name}: {detail}" for m in plan.models for detail in m.details]
    lines += plan.details
    return tuple(line[:MAX_REASON_LENGTH] for line in lines[:MAX_REASONS])


def _model_changes(before: plans.ModelPlan, after: plans.ModelPlan) -> list[str]:
    lines = []
    if shape(before) != shape(after):
        lines.append(f"{after.name}: {shape(before)} -> {shape(after)}")
    if before.threshold != after.threshold and after.threshold is not None:
        lines.append(f"{after.name}: accept at {before.threshold} -> {after.threshold} points")
    return lines


def shape(model: plans.ModelPlan) -> str:
    """Replicas and shape of a model in one line, such as ``2 x TP4 on H100``."""
    parts = [
        f"{s.replicas} x TP{s.tensor}"
        + (f" PP{s.pipeline}" if s.pipeline > 1 else "")
        + f" on {s.gpu_type}"
        for s in model.sets
    ]
    return " + ".join(parts) or "no replica"


def elder_words(elder: str, namespace: str) -> str:
    """Who else claims the GPUs; a cascade of another namespace is not named to its neighbours."""
    if not elder:
        return ""
    own, _, name = elder.partition("/")
    return f" (the older cascade {name})" if own == namespace else " (an older cascade)"
