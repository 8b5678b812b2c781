"""Drafting a problem: from spec and observation to the planner's numbers, or why there are none."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cascade_solver import problem as problems

from . import calibration, changes, judge, live_load, names, plan_record, reasons
from .observation import Observation
from .spec import CascadeSpec
from .spec_fields import Model

INPUT_DIGITS = 10

PRICE = {"pools": {"__all__": {"price_per_gpu_hour"}}}
"""The only part of a problem that no plan depends on."""


@dataclasses.dataclass(frozen=True)
class Refuse:
    """No plan can be asked for; the plan in force stays. ``reason`` in CamelCase, ``message`` for
    the user."""

    reason: str
    message: str


class RefusedError(Exception):
    """The problem cannot be stated; carries the decision that says why."""

    def __init__(self, decision: Refuse) -> None:
        self.decision = decision
        super().__init__(f"{decision.reason}: {decision.message}")


@dataclasses.dataclass(frozen=True)
class Draft:
    """Facts behind a problem that outlive it in the record of the plan.

    ``inputs``: hash per kind of input; ``drift``: the drift that the problem answers, if any.
    """

    inputs: Mapping[str, str]
    judge: judge.Judge
    drift: live_load.Drift | None


def draft(spec: CascadeSpec, observation: Observation, stored: plan_record.Stored) -> Draft:
    fitted = _table(spec, observation)
    stale = judge.stale_reason(spec, fitted.table) if fitted is not None else ""
    table_text = observation.calibration.text
    # Without defaults: a field that a later operator adds is no change of the user's.
    # Without the price: it is told with a plan and decides none.
    bare = _bare_problem(spec, observation).model_dump(
        mode="json", exclude_defaults=True, exclude=PRICE
    )
    pools, workload = bare.pop("pools"), bare.pop("workload")
    parts = {
        "spec": [bare, spec.judge.type, spec.judge.model_ref],
        "workload": workload,
        "calibration": [table_text or "", stale],
        "pool": pools,
    }
    inputs = {kind: names.digest(part, INPUT_DIGITS) for kind, part in parts.items()}
    record = stored.record
    chosen = judge.choose(spec, fitted)
    if stale and record is not None:
        # Thresholds of a stale table are kept, so the judge that gave them is kept as well.
        chosen = judge.Judge(record.judge_type, record.self_tables)
    return Draft(inputs, chosen, live_load.select(spec, observation, stored, inputs))


def _table(spec: CascadeSpec, observation: Observation) -> judge.Fitted | None:
    view = observation.calibration
    if view.text is None:
        return None
    try:
        return judge.read(view.text, spec.model_names, view.reference)
    except calibration.CalibrationError as error:
        raise RefusedError(Refuse(reasons.INVALID_CALIBRATION, str(error))) from error


def _bare_problem(spec: CascadeSpec, observation: Observation) -> problems.Problem:
    """The problem as the spec states it: no table, no plan in force, no live load."""
    pins = spec.plan_policy.pins
    search = spec.search.model_dump(
        exclude={"time_limit_seconds", "quality_penalty_factor", "length_step_percent"}
    )
    lengths = {
        field: getattr(spec.workload, field).model_dump()
        for field in ("input_tokens", "output_tokens")
    }
    return problems.Problem(
        models=tuple(_model(model) for model in spec.models),
        qmin=spec.qmin,
        pools=(_pool(spec, observation),),
        workload=problems.Workload(rate=spec.workload.requests_per_minute / 60, **lengths),
        objective=problems.Objective(type=spec.objective.type),
        search=problems.Search(**search),
        capabilities=problems.Capabilities(),
        pinned_thresholds={pin.model: pin.score for pin in pins.thresholds},
        pinned_gpus={pin.model: pin.count for pin in pins.gpus},
        allow_downtime=spec.rollout.allow_downtime,
    )


def problem(
    spec: CascadeSpec, observation: Observation, stored: plan_record.Stored, facts: Draft
) -> problems.Problem:
    if observation.pool.usable == 0:
        raise RefusedError(Refuse(reasons.INSUFFICIENT_GPUS, _empty_pool(observation)))
    bare = _bare_problem(spec, observation)
    fitted = _table(spec, observation)
    in_force = _in_force(spec, stored.record)
    update: dict[str, Any] = {
        "judge": judge.planned(spec, facts.judge.type),
        "in_force": in_force,
    }
    if fitted is not None:
        stale = judge.stale_reason(spec, fitted.table)
        update["calibration"] = problems.Calibration(
            columns=judge.columns(spec, fitted.table, facts.judge),
            judge=fitted.table.header.judge,
            stale=stale,
        )
        update["keep_thresholds"] = bool(stale) and in_force is not None
    stated = bare.model_copy(update=update)
    return live_load.apply(stated, facts.drift) if facts.drift is not None else stated


def _model(model: Model) -> problems.Model:
    return problems.Model(
        name=model.name,
        architecture=model.architecture_name or model.name,
        precision=model.served_precision,
        pins=problems.Pins(**model.pins.model_dump(exclude_defaults=True)),
        min_replicas=model.min_replicas,
        max_gpus=model.max_gpus,
        kv_tokens=model.kv_tokens,
    )


def _pool(spec: CascadeSpec, observation: Observation) -> problems.Pool:
    """Usable GPUs, counted without our own pods, so that our moves never change the problem."""
    view = observation.pool
    rooms = sorted((max(0, n.allocatable - n.foreign) for n in view.nodes if n.ready), reverse=True)
    price = spec.pool.price_per_hour
    return problems.Pool(
        name=spec.pool.name,
        gpu_type=spec.pool.gpu_type,
        gpus=view.usable,
        gpus_per_node=spec.pool.gpus_per_node or max(1, view.gpus_per_node),
        free_per_node=tuple(room for room in rooms if room) if view.nodes else None,
        price_per_gpu_hour=float(price) if price is not None else None,
    )


def _empty_pool(observation: Observation) -> str:
    """Why there is no usable GPU, with the number that decides."""
    view = observation.pool
    ready = sum(n.allocatable for n in view.nodes if n.ready)
    if view.limit == 0:
        return (
            f"pool {view.name}: limit and quotas allow 0 GPUs; raise gpuPool[].limit or the quota"
        )
    if view.nodes and ready == 0:
        return f"pool {view.name}: no ready node offers GPUs; check nodeSelector and the nodes"
    if not view.nodes and not view.others:
        return f"pool {view.name}: no node matches; check gpuPool[].nodeSelector and resourceName"
    other = changes.elder_words(view.elder, observation.namespace)
    return (
        f"pool {view.name}: of {ready or view.limit} GPUs {view.foreign} are held by other pods "
        f"and {view.others} by other cascades{other}; none is left"
    )


def _in_force(spec: CascadeSpec, record: plan_record.PlanRecord | None) -> problems.InForce | None:
    """The plan that serves now, if it speaks of exactly these models in this order."""
    if record is None or tuple(m.name for m in record.plan.models) != spec.model_names:
        return None
    return problems.InForce(
        thresholds=record.plan.thresholds(), deployment=record.plan.deployment()
    )
