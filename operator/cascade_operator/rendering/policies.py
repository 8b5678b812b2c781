"""NetworkPolicies, ingress only: who may reach the router and the engines."""

from collections.abc import Mapping, Sequence
from typing import Any

from .. import names, spec
from . import metadata
from .settings import RenderSettings

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
WATCHERS = ("operator", "drift-watch")
"""Components of the operator's own pods that read a router's admin port."""


def objects(
    cascade: spec.CascadeSpec, settings: RenderSettings, owner: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One policy for the router, one for all engines of the cascade."""
    return [_router(cascade, settings, owner), _engines(cascade, settings, owner)]


def _router(
    cascade: spec.CascadeSpec, settings: RenderSettings, owner: Mapping[str, Any]
) -> dict[str, Any]:
    watchers = {
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: settings.namespace}},
        "podSelector": {
            "matchLabels": {names.LABEL_NAME: metadata.PART_OF},
            "matchExpressions": [
                {"key": names.LABEL_COMPONENT, "operator": "In", "values": list(WATCHERS)}
            ],
        },
    }
    calibration = {
        "podSelector": {"matchLabels": metadata.selector(cascade.name, names.COMPONENT_CALIBRATION)}
    }
    clients = settings.network_policy_clients
    return _policy(
        cascade,
        owner,
        names.COMPONENT_ROUTER,
        [
            _rule([*clients, calibration] if clients else (), names.ROUTER_PORT),
            _rule([watchers], names.ADMIN_PORT),
            _rule(settings.network_policy_metrics, names.ADMIN_PORT),
        ],
    )


def _engines(
    cascade: spec.CascadeSpec, settings: RenderSettings, owner: Mapping[str, Any]
) -> dict[str, Any]:
    """Router and calibration Job; scrapers only when they are named, because an engine serves its
    metrics on the port of its API: "everyone" would open that too."""
    own = [
        {"podSelector": {"matchLabels": metadata.selector(cascade.name, component)}}
        for component in (names.COMPONENT_ROUTER, names.COMPONENT_CALIBRATION)
    ]
    scrapers = settings.network_policy_metrics
    return _policy(
        cascade,
        owner,
        names.COMPONENT_ENGINE,
        [_rule([*own, *scrapers], names.ENGINE_PORT)],
    )


def _policy(
    cascade: spec.CascadeSpec,
    owner: Mapping[str, Any],
    component: str,
    ingress: list[dict[str, Any]],
) -> dict[str, Any]:
    name = f"{cascade.name}-{component}"
    object_labels = metadata.labels(cascade.name, component)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata.metadata(name, cascade.namespace, object_labels, owner),
        "spec": {
            "podSelector": {"matchLabels": metadata.selector(cascade.name, component)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _rule(peers: Sequence[Mapping[str, Any]], port: int) -> dict[str, Any]:
    """One ingress rule; no peers means everyone, which the field's absence says."""
    ports = [{"port": port, "protocol": "TCP"}]
    return {"from": [dict(p) for p in peers], "ports": ports} if peers else {"ports": ports}
