"""Manifests of one cascade: what does not depend on replicas, and the engine sets that do."""

from collections.abc import Mapping
from typing import Any

from cascade_solver import plan as plans

from . import names
from .rendering import engine, metadata, policies, router
from .rendering.settings import RenderSettings
from .spec import CascadeSpec

RENDER_VERSION = 1
"""Version of the engine template. A set keeps the version it was rendered with until its plan or
spec changes, so that a new operator rolls no engine."""

owner_reference = metadata.owner_reference
labels = metadata.labels


def render_cascade(
    spec: CascadeSpec,
    settings: RenderSettings,
    owner: Mapping[str, Any],
    replicas: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Objects that stand as long as the cascade does, in the order of applying.

    ``owner``: the cascade as owner reference. ``replicas``: planned replicas of each model; only
    more than one get a disruption budget, since a budget of one would block every drain. Missing
    are the two ConfigMaps (plan and router config) and the engine sets, which follow the plan.
    """
    services = [
        service for model in spec.models for service in engine.services(spec, model.name, owner)
    ]
    guards = policies.objects(spec, settings, owner) if settings.network_policies else []
    budgets = [
        engine.disruption_budget(spec, model, owner)
        for model, count in (replicas or {}).items()
        if count > 1
    ]
    return [*guards, *services, *router.objects(spec, settings, owner), *budgets]


def set_identity(
    spec: CascadeSpec,
    model: str,
    planned: plans.PlannedSet,
    render_version: int = RENDER_VERSION,
) -> str:
    """Name of the StatefulSet that runs this shape: equal inputs, equal name.

    Replicas, chart settings and predictions are no inputs. To find out whether an existing set
    still is the planned one, pass the ``render_version`` it carries.
    """
    return names.engine_set(spec.name, model, engine.identity(spec, model, planned, render_version))


def render_set(
    spec: CascadeSpec,
    settings: RenderSettings,
    model: str,
    planned: plans.PlannedSet,
    replicas: int,
    owner: Mapping[str, Any],
    render_version: int = RENDER_VERSION,
) -> dict[str, Any]:
    """StatefulSet of one (model, shape, GPU type) with ``replicas`` single-node replicas."""
    return engine.stateful_set(spec, settings, model, planned, replicas, owner, render_version)
