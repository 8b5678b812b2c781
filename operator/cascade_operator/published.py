"""The routing in force: reading the router's configuration back, and editing it in a hand-over."""

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from cascade_router import config as router_config

from .observation import RouterView
from .step import Step


@dataclass(frozen=True)
class InForce:
    """The router's configuration as it stands in its ConfigMap. ``models`` is empty before the
    first plan was published, and when the text cannot be read."""

    plan_id: str = ""
    models: tuple[str, ...] = ()
    thresholds: Mapping[str, int] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()


def read(text: str) -> router_config.RouterConfig | None:
    """The published document; ``None`` when there is none or it cannot be read."""
    try:
        return router_config.RouterConfig.model_validate_json(text)
    except ValidationError:
        return None


def in_force(router: RouterView) -> InForce:
    """What routing follows now; an unreadable configuration counts as none."""
    config = read(router.config_text)
    if config is None:
        return InForce()
    return InForce(
        plan_id=config.plan_id,
        models=tuple(m.name for m in config.models),
        thresholds={m.name: m.threshold for m in config.models if m.threshold is not None},
        leaving=frozenset(pod for m in config.models for pod in m.leaving_pods),
    )


def digest(text: str) -> str:
    """How a router names the configuration that it runs: SHA-256, first 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def not_acknowledged(router: RouterView, text: str) -> tuple[str, ...]:
    """Ready router pods that do not run exactly this configuration yet."""
    running = {ack.pod for ack in router.acks if ack.config_digest == digest(text)}
    return tuple(sorted(set(router.ready_pods) - running))


def is_acknowledged(router: RouterView, text: str) -> bool:
    """True when every Ready router pod runs exactly this configuration."""
    return not not_acknowledged(router, text)


def drained(router: RouterView) -> frozenset[str]:
    """UIDs of pods that no Ready router pod has a request in flight at."""
    reports = [ack.drained_uids for ack in router.acks if ack.pod in router.ready_pods]
    return frozenset.intersection(*reports) if reports else frozenset()


def bypassing(thresholds: Mapping[str, int], order: tuple[str, ...], bypassed: tuple[str, ...]) -> (
    dict[str, int]
):  # fmt: skip
    """Thresholds under which the bypassed models are not reached: the model before accepts all.

    The first model is always asked; the router answers for it as ``whenUnavailable`` says.
    """
    changed = dict(thresholds)
    for before, model in itertools.pairwise(order):
        if model in bypassed and before in changed:
            changed[before] = 0
    return changed


def interim(
    config: router_config.RouterConfig, step: Step, weights: Mapping[str, float]
) -> router_config.RouterConfig:
    """The configuration in force with this step's sets and leaving pods; nothing else changes.

    ``weights``: requests per second of one replica, of sets that the document does not know yet.
    """
    order = tuple(m.name for m in config.models)
    known = {s.name: s.weight for m in config.models for s in m.sets}
    before = {m.name: m.threshold for m in config.models if m.threshold is not None}
    thresholds = bypassing(before, order, step.bypassed)
    models = tuple(
        model.model_copy(
            update={
                "threshold": thresholds.get(model.name),
                "sets": tuple(
                    router_config.EngineSet(name=name, weight=known.get(name) or weights[name])
                    for name in step.sets_in_service.get(model.name, ())
                    if name in known or name in weights
                ),
                "leaving_pods": step.leaving_pods.get(model.name, ()),
            }
        )
        for model in config.models
    )
    return config.model_copy(update={"models": models})
