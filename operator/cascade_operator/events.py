"""Events: one Kubernetes Event per transition, with stable reasons that users may rely on."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from . import errors, names, views
from .kube import EVENT, Body, Kube

PLAN_CHANGED = "PlanChanged"
"""Another plan is in force; the message says which and why."""
PLAN_PROPOSED = "PlanProposed"
"""A plan waits for approval (planPolicy.mode Propose)."""
PLAN_INFEASIBLE = "PlanInfeasible"
"""No plan answers spec, pool and traffic; the condition PlanReady says why."""
MODEL_SCALED = "ModelScaled"
"""Replicas of an engine set were changed."""
ROUTER_CONFIG_UPDATED = "RouterConfigUpdated"
"""The router's configuration was published."""
READY = "CascadeReady"
NOT_READY = "CascadeNotReady"
STALLED = "CascadeStalled"
"""A step of a hand-over is past its deadline, or cannot be taken."""

MAX_MESSAGE = 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Happening:
    """One event before it is posted."""

    reason: str
    message: str
    is_warning: bool = False


def transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Happening]:
    """What changed between two statuses, in conditions that people wait for."""

    def turned(kind: str, value: str) -> str | None:
        old = views.condition({"status": before}, kind)
        new = views.condition({"status": after}, kind)
        if new.get("status") != value or old.get("status") == value:
            return None
        return f"{new.get('reason')}: {new.get('message')}"

    found = []
    for kind, value, reason, is_warning in (
        ("PlanReady", "False", PLAN_INFEASIBLE, True),
        ("Ready", "True", READY, False),
        ("Stalled", "True", STALLED, True),
    ):
        words = turned(kind, value)
        if words is not None:
            found.append(Happening(reason, words, is_warning))
    was_ready = views.condition({"status": before}, "Ready").get("status") == "True"
    lost = turned("Ready", "False")
    if was_ready and lost is not None:
        found.append(Happening(NOT_READY, lost, True))
    return found


class Recorder:
    """Posts events. A post that fails is logged and forgotten: events never stop a pass."""

    def __init__(self, api: Kube, instance: str, clock: Callable[[], float]) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock

    async def post(self, cascade: Body, happening: Happening) -> None:
        metadata = cascade["metadata"]
        body = event(cascade, happening, self._instance, self._clock())
        log.info(
            "event",
            cascade=f"{metadata['namespace']}/{metadata['name']}",
            reason=happening.reason,
            message=happening.message,
        )
        try:
            await self._api.create(EVENT.path(metadata["namespace"]), body)
        except errors.ClusterApiError as error:
            log.warning("event was not posted", error=str(error))


def event(cascade: Body, happening: Happening, instance: str, now: float) -> Body:
    """The core/v1 Event. Its name holds the time, so equal happenings are separate events."""
    metadata = cascade["metadata"]
    stamp = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    unique = names.digest([metadata["uid"], happening.reason, happening.message, now], 16)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{unique}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "reason": happening.reason,
        "message": happening.message[:MAX_MESSAGE],
        "type": "Warning" if happening.is_warning else "Normal",
        "source": {"component": names.FIELD_MANAGER, "host": instance},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": instance,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
