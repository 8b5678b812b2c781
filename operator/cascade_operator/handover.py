"""Taking one step of a hand-over: rendered objects in their order, written one after the other."""

from collections.abc import Mapping
from typing import Any, Protocol

from cascade_router import config as router_documents

from . import (
    errors,
    events,
    ledger,
    manifests,
    metrics,
    names,
    plan_record,
    published,
    router_config,
    targets,
    transition,
)
from .apply import Writer
from .kube import Body
from .observation import Observation
from .settings import Settings
from .spec import CascadeSpec
from .step import Step


class Pass(Protocol):
    """What a step needs of the pass, and where it leaves what came of it."""

    observation: Observation
    spec: CascadeSpec | None
    step: Step | None
    errors: list[Exception]
    happenings: list[events.Happening]


async def take(
    writer: Writer, outcome: Pass, stored: plan_record.Stored, settings: Settings
) -> None:
    """Derives the next step and writes what it wants: plan, routing, standing objects, sets.

    The plan and the routing come first: when they cannot be written, nothing is scaled. Other
    objects are independent of each other: one that is refused does not hold up the rest.
    """
    spec, observation = outcome.spec, outcome.observation
    assert spec is not None
    owner = manifests.owner_reference(spec.name, spec.uid)
    record = stored.record
    if record is None:
        if stored.proposal is not None:
            await writer.apply(plan_object(spec, stored, {}, owner))
        return
    target, renderings = targets.of_plan(spec, observation, record)
    rules = targets.rules(spec)
    step = transition.next_step(observation, target, rules)
    text = routing(spec, observation, record, step, settings, renderings)
    step = transition.confirmed(step, observation, text, rules.step_deadline_seconds)
    outcome.step = step
    _measure(observation, step)

    marker = {names.ANNOTATION_STEP: step.marker()}
    await writer.apply(plan_object(spec, stored, marker, owner))
    if await writer.apply(router_object(spec, text, owner)) and step.publish == "final":
        words = f"plan {record.revision} is published: {step.message}"
        outcome.happenings.append(events.Happening(events.ROUTER_CONFIG_UPDATED, words))
    replicas = {m.name: sum(s.replicas for s in m.sets) for m in record.plan.models}
    standing = manifests.render_cascade(spec, settings, owner, replicas)
    for manifest in standing:
        await _attempt(outcome, writer.apply(manifest))
    await _scale(writer, outcome, step, settings, renderings, owner)
    if step.settled:
        await _attempt(outcome, writer.prune(spec.uid, spec.namespace, spec.name, standing))


def routing(
    spec: CascadeSpec,
    observation: Observation,
    record: plan_record.PlanRecord,
    step: Step,
    settings: Settings,
    renderings: Mapping[str, targets.Rendering],
) -> str:
    """Text of the router's configuration for this step."""
    weights = targets.weights(observation, renderings)
    in_force = published.read(observation.router.config_text)
    if step.publish == "in force" and in_force is not None:
        return router_config.text(published.interim(in_force, step, weights))
    order = tuple(m.name for m in record.plan.models)
    planned = record.plan.thresholds()
    changed = published.bypassing(planned, order, step.bypassed)
    return router_config.text(
        router_config.build(
            spec,
            record,
            {
                model: [(name, weights[name]) for name in sets if name in weights]
                for model, sets in step.sets_in_service.items()
            },
            step.leaving_pods,
            settings,
            {model: score for model, score in changed.items() if score != planned[model]},
        )
    )


def plan_object(
    spec: CascadeSpec,
    stored: plan_record.Stored,
    marker: Mapping[str, str],
    owner: Mapping[str, Any],
) -> Body:
    """The ConfigMap with the plan, its problem and its history."""
    found = _config_map(spec, names.plan(spec.name), names.COMPONENT_PLAN, owner)
    found["metadata"]["annotations"] = {
        **plan_record.annotations(stored),
        **marker,
        names.ANNOTATION_GPUS: str(planned_gpus(stored)),
    }
    found["data"] = plan_record.to_data(stored)
    return found


def planned_gpus(stored: plan_record.Stored) -> int:
    """What the plan in force or the proposal wants, the larger: others leave this much."""
    plans = [adopted.plan for adopted in (stored.record, stored.proposal) if adopted is not None]
    return max((sum(m.gpus_used for m in plan.models) for plan in plans), default=0)


def router_object(spec: CascadeSpec, text: str, owner: Mapping[str, Any]) -> Body:
    """The ConfigMap that the router watches."""
    found = _config_map(spec, names.router(spec.name), names.COMPONENT_ROUTER, owner)
    found["data"] = {router_documents.CONFIG_KEY: text}
    return found


def _config_map(spec: CascadeSpec, name: str, component: str, owner: Mapping[str, Any]) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": spec.namespace,
            "labels": {
                names.LABEL_CASCADE: spec.name,
                names.LABEL_COMPONENT: component,
                names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
            },
            "ownerReferences": [dict(owner)],
        },
    }


async def _scale(
    writer: Writer,
    outcome: Pass,
    step: Step,
    settings: Settings,
    renderings: Mapping[str, targets.Rendering],
    owner: Mapping[str, Any],
) -> None:
    """Shrinks before it grows, although no step does both."""
    spec, observation = outcome.spec, outcome.observation
    assert spec is not None
    views = {view.name: view for view in observation.sets if not view.deleting}
    for name in sorted(step.replicas, key=lambda n: (step.replicas[n] > _now(views, n), n)):
        replicas = step.replicas[name]
        if name in views:
            before = views[name].replicas
            written = await _attempt(outcome, writer.scale(spec.namespace, views[name], replicas))
        else:
            before = 0
            rendering = renderings[name]
            manifest = manifests.render_set(
                spec, settings, rendering.model, rendering.planned, replicas, owner,
                rendering.render_version,
            )  # fmt: skip
            written = await _attempt(outcome, writer.apply(manifest))
        if written:
            words = f"set {name}: {before} to {replicas} replicas ({step.message})"
            outcome.happenings.append(events.Happening(events.MODEL_SCALED, words))
    for name in step.delete:
        await _attempt(outcome, writer.delete_set(views[name]))


def _now(views: Mapping[str, Any], name: str) -> int:
    return views[name].replicas if name in views else 0


async def _attempt(outcome: Pass, write: Any) -> Any:
    """A write whose failure does not stop the others."""
    try:
        return await write
    except errors.ClusterApiError as error:
        outcome.errors.append(error)
        return None


def _measure(observation: Observation, step: Step) -> None:
    labels = (observation.namespace, observation.name)
    metrics.COMMITTED_GPUS.labels(*labels).set(ledger.committed(observation.sets))
    metrics.STEP_STALLED.labels(*labels).set(float(step.deadline_passed))
