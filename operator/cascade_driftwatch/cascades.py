"""One CascadeService as drift-watch sees it: parsed out of the object, with its own limits."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from . import detect
from .verdict import parse_time

MINIMUM_WINDOW_SECONDS = 0.5
"""Shortest window of a router, however fast time runs."""


@dataclasses.dataclass(frozen=True)
class Cascade:
    """``window_seconds``: wall time; ``applied_since``: Unix seconds from which on the traffic
    ran under the applied plan, ``None`` while a hand-over is on its way."""

    namespace: str
    name: str
    generation: int
    is_off: bool
    window_seconds: float
    limits: detect.Limits
    applied_since: float | None
    applied_plan: str
    previous: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def parse(body: Mapping[str, Any], time_scale: float) -> Cascade:
    """Defaults are those of the schema. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for
    an object that the schema would have refused."""
    metadata, status = body["metadata"], body.get("status") or {}
    drift = body["spec"].get("drift") or {}
    plan = status.get("plan") or {}
    return Cascade(
        namespace=metadata["namespace"],
        name=metadata["name"],
        generation=int(metadata.get("generation", 0)),
        is_off=drift.get("mode") == "Off",
        window_seconds=max(
            MINIMUM_WINDOW_SECONDS, float(drift.get("windowSeconds", 300)) / time_scale
        ),
        limits=detect.Limits(
            alpha=float(drift.get("significancePermille", 10)) / 1000,
            stability=float(drift.get("lengthShiftPercent", 20)) / 100,
            time_scale=time_scale,
            sample_size=int(drift.get("sampleSize", 50)),
        ),
        applied_since=_applied_since(status),
        applied_plan=str(plan.get("applied") or ""),
        previous=status.get("drift") or {},
    )


def _applied_since(status: Mapping[str, Any]) -> float | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PlanApplied" and condition.get("status") == "True":
            return parse_time(condition.get("lastTransitionTime"))
    return None
