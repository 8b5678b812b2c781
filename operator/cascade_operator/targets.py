"""Targets: from a plan and the sets as they stand to the sets that the hand-over leads to; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from cascade_solver import plan as plans

from . import manifests
from .observation import Observation, SetView
from .plan_record import PlanRecord
from .situation import Rules, Target, TargetSet
from .spec import CascadeSpec


@dataclass(frozen=True)
class Rendering:
    """What a set of the target is rendered from."""

    model: str
    planned: plans.PlannedSet
    render_version: int


def of_plan(
    spec: CascadeSpec, observation: Observation, record: PlanRecord
) -> tuple[Target, dict[str, Rendering]]:
    """The plan's sets with their names. A set that runs keeps its render version as long as plan
    and spec want the same of it, so a new operator rolls no engine."""
    sets: list[TargetSet] = []
    renderings: dict[str, Rendering] = {}
    for planned_model in record.plan.models:
        running = [view for view in observation.sets if view.model == planned_model.name]
        if planned_model.name not in spec.model_names:
            # The spec has dropped it and the plan that answers this is not there yet.
            sets += [_as_it_stands(view) for view in running if not view.deleting]
            continue
        for planned in planned_model.sets:
            rendering = _rendering(spec, planned_model.name, planned, running)
            name = manifests.set_identity(
                spec, planned_model.name, planned, rendering.render_version
            )
            renderings[name] = rendering
            gpus = planned.tensor * planned.pipeline
            sets.append(TargetSet(name, planned_model.name, planned.replicas, gpus))
    order = tuple(m.name for m in record.plan.models)
    return Target(plan_id=record.revision, models=order, sets=tuple(sets)), renderings


def rules(spec: CascadeSpec) -> Rules:
    """What the user allows in a hand-over."""
    budget = max(model.startup_budget_seconds for model in spec.models)
    return Rules(
        floors={model.name: model.min_replicas for model in spec.models},
        allow_downtime=spec.rollout.allow_downtime,
        max_gpus_per_move=spec.rollout.max_gpus_per_move,
        step_deadline_seconds=float(spec.rollout.step_deadline_seconds or budget),
        is_paused=spec.plan_policy.paused,
    )


def weights(observation: Observation, renderings: Mapping[str, Rendering]) -> dict[str, float]:
    """Requests per second that one replica of each set can carry: from the plan, else from what
    the set was planned for."""
    found = {}
    for view in observation.sets:
        rate = view.shape.get("saturationRate")
        # A set whose annotation was lost still takes its share.
        found[view.name] = float(rate) if isinstance(rate, int | float) and rate > 0 else 1.0
    return found | {name: r.planned.saturation_rate for name, r in renderings.items()}


def _as_it_stands(view: SetView) -> TargetSet:
    return TargetSet(view.name, view.model, view.replicas, view.gpus_per_pod)


def _rendering(
    spec: CascadeSpec, model: str, planned: plans.PlannedSet, running: list[SetView]
) -> Rendering:
    for view in running:
        if view.render_version < 1 or view.deleting:
            continue
        if manifests.set_identity(spec, model, planned, view.render_version) == view.name:
            return Rendering(model, planned, view.render_version)
    return Rendering(model, planned, manifests.RENDER_VERSION)
