"""Readiness of models and router, from current pods: conditions with the blocking pod named."""

from collections.abc import Sequence
from dataclasses import dataclass

from . import plan_record, reasons, status_fields
from .observation import Observation, PodView, SetView
from .spec import CascadeSpec

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
PULL_FAILURES = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True)
class Condition:
    """Status (True, False, Unknown), reason (see ``reasons``) and message for people."""

    status: str
    reason: str
    message: str


def models(
    spec: CascadeSpec | None, record: plan_record.PlanRecord | None, observation: Observation
) -> Condition:
    """True while every model keeps its floor of Ready replicas and none of them is in trouble.

    A replica that merely starts while others serve is no fault: moves are told by Reconciling.
    """
    if spec is None or record is None:
        return Condition(UNKNOWN, reasons.NO_PLAN, "no plan says which replicas to expect")
    short = []
    for model in record.plan.models:
        if model.name not in spec.model_names:
            continue
        views = [view for view in observation.sets if view.model == model.name]
        floor = spec.model(model.name).min_replicas
        ready = sum(1 for view in views for pod in view.ready_pods() if not pod.lost)
        trouble = status_fields.blocking(views)
        if ready < floor or (trouble is not None and ready < sum(s.replicas for s in model.sets)):
            short.append(_short_of(model.name, ready, floor, views, observation))
    if short:
        worst = next((c for c in short if c.reason != reasons.STARTING), short[0])
        return Condition(FALSE, worst.reason, "; ".join(c.message for c in short))
    return Condition(TRUE, reasons.MODELS_READY, "every model has Ready replicas")


def _short_of(
    name: str, ready: int, floor: int, views: Sequence[SetView], observation: Observation
) -> Condition:
    """Why one model lacks Ready replicas; the blocking pod is named."""
    words = f"model {name} has {ready} Ready replicas, needs {floor}"
    pod = status_fields.blocking(views)
    if pod is not None:
        why = status_fields.pod_words(pod) + _fragments(pod, observation)
        return Condition(FALSE, _trouble(pod.waiting_reason), f"{words}: {why}")
    held = [p for v in views for p in v.pods if p.terminating and not p.finished]
    if held:
        return Condition(
            FALSE, reasons.GPU_HELD, f"{words}: pod {held[0].name} still ends and holds its GPUs"
        )
    starting = sorted(p.name for v in views for p in v.pods if not p.ready)
    waits = f"waiting for pod {starting[0]}" if starting else "its pods do not exist yet"
    return Condition(FALSE, reasons.STARTING, f"{words}: {waits}")


def _fragments(pod: PodView, observation: Observation) -> str:
    """Free GPUs node by node, where they would do for the pod only if they were together."""
    rooms = {
        node.name: max(0, node.allocatable - node.foreign - node.ours)
        for node in observation.pool.nodes
        if node.ready
    }
    if pod.node is not None or not max(rooms.values(), default=0) < pod.gpus <= sum(rooms.values()):
        return ""
    listed = ", ".join(f"{name} {count}" for name, count in sorted(rooms.items()) if count)
    return f"; it needs {pod.gpus} GPUs on one node, free are {listed}"


def _trouble(waiting_reason: str) -> str:
    if not waiting_reason:
        return reasons.NODE_LOST
    if waiting_reason == "CrashLoopBackOff":
        return reasons.CRASH_LOOP
    if waiting_reason in PULL_FAILURES:
        return reasons.IMAGE_PULL
    return reasons.POD_BLOCKED


def router(observation: Observation) -> Condition:
    """True while a router pod is Ready and none refuses the published configuration."""
    router = observation.router
    if not router.exists:
        return Condition(FALSE, reasons.ROUTER_STARTING, "the router does not exist yet")
    refused = [ack for ack in router.acks if ack.error and ack.pod in router.ready_pods]
    if refused:
        told = f"router pod {refused[0].pod}: {refused[0].error}"
        return Condition(FALSE, reasons.CONFIG_REFUSED, told)
    if not router.ready_pods:
        why = f": {router.message}" if router.message else ""
        return Condition(FALSE, reasons.ROUTER_STARTING, f"no router pod is Ready{why}")
    count = f"{len(router.ready_pods)} of {router.desired} router pods are Ready"
    return Condition(TRUE, reasons.ROUTER_READY, count)
