"""The router of one cascade: identity and rights, Deployment, Service, disruption budget."""

from collections.abc import Mapping
from typing import Any

from cascade_router import config as router_config

from .. import names, spec, spec_fields
from . import metadata
from .settings import RenderSettings

LINGER_SECONDS = 5
"""After SIGTERM the router serves on for this long, while endpoints update."""
MARGIN_SECONDS = 15
"""From the end of the drain to the kill: goodbyes and aborts."""
CONFIG_MOUNT = "/etc/cascade-router"


def objects(
    cascade: spec.CascadeSpec, settings: RenderSettings, owner: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Everything of the router but its ConfigMap, which carries the plan."""
    budget = [_disruption_budget(cascade, owner)] if cascade.router.replicas > 1 else []
    return [
        _account(cascade, owner),
        _role(cascade, owner),
        _binding(cascade, owner),
        _service(cascade, owner),
        _deployment(cascade, settings, owner),
        *budget,
    ]


def selector(cascade: spec.CascadeSpec) -> dict[str, str]:
    return metadata.selector(cascade.name, names.COMPONENT_ROUTER)


def _object(
    cascade: spec.CascadeSpec,
    owner: Mapping[str, Any],
    api_version: str,
    kind: str,
    more: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    object_labels = metadata.labels(cascade.name, names.COMPONENT_ROUTER, more)
    name = names.router(cascade.name)
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata.metadata(name, cascade.namespace, object_labels, owner),
    }


def _account(cascade: spec.CascadeSpec, owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_object(cascade, owner, "v1", "ServiceAccount"),
        "automountServiceAccountToken": False,
    }


def _role(cascade: spec.CascadeSpec, owner: Mapping[str, Any]) -> dict[str, Any]:
    """Least rights: its own ConfigMap by name, endpoints, and the Leases that acknowledge plans."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [names.router(cascade.name)],
            "verbs": ["get", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["create", "get", "patch"],
        },
    ]
    return {**_object(cascade, owner, "rbac.authorization.k8s.io/v1", "Role"), "rules": rules}


def _binding(cascade: spec.CascadeSpec, owner: Mapping[str, Any]) -> dict[str, Any]:
    name = names.router(cascade.name)
    return {
        **_object(cascade, owner, "rbac.authorization.k8s.io/v1", "RoleBinding"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": cascade.namespace}],
    }


def _service(cascade: spec.CascadeSpec, owner: Mapping[str, Any]) -> dict[str, Any]:
    def port(name: str, number: int) -> dict[str, Any]:
        return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}

    return {
        **_object(cascade, owner, "v1", "Service"),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(cascade),
            "ports": [port("api", names.ROUTER_PORT), port("admin", names.ADMIN_PORT)],
        },
    }


def _disruption_budget(cascade: spec.CascadeSpec, owner: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_object(cascade, owner, "policy/v1", "PodDisruptionBudget"),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector(cascade)}},
    }


def _deployment(
    cascade: spec.CascadeSpec, settings: RenderSettings, owner: Mapping[str, Any]
) -> dict[str, Any]:
    version = metadata.version_label(settings.router_image)
    return {
        **_object(cascade, owner, "apps/v1", "Deployment", version),
        "spec": {
            "replicas": cascade.router.replicas,
            "revisionHistoryLimit": 2,
            "strategy": {
                "type": "RollingUpdate",
                # A router holds no GPU: one more for a moment costs nobody anything.
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "selector": {"matchLabels": selector(cascade)},
            "template": {
                "metadata": {"labels": metadata.labels(cascade.name, names.COMPONENT_ROUTER)},
                "spec": _pod(cascade, settings),
            },
        },
    }


def _pod(cascade: spec.CascadeSpec, settings: RenderSettings) -> dict[str, Any]:
    name = names.router(cascade.name)
    resources = cascade.router.resources or spec_fields.Resources()
    container = {
        "name": "router",
        "image": settings.router_image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [
            "serve",
            "--configmap", name,
            "--config", f"{CONFIG_MOUNT}/{router_config.CONFIG_KEY}",
            "--processes", str(cascade.router.processes),
            "--linger-seconds", str(LINGER_SECONDS),
            # The longest answer that was accepted before SIGTERM is still given.
            "--grace-seconds", str(cascade.router.timeouts.total_seconds),
        ],
        "env": [
            _from_field("POD_NAME", "metadata.name"),
            _from_field("POD_NAMESPACE", "metadata.namespace"),
            _from_field("POD_UID", "metadata.uid"),
        ],
        "ports": [
            {"name": "api", "containerPort": names.ROUTER_PORT, "protocol": "TCP"},
            {"name": "admin", "containerPort": names.ADMIN_PORT, "protocol": "TCP"},
        ],
        "resources": {
            "requests": dict(resources.requests or {}),
            "limits": dict(resources.limits or {}),
        },
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "admin"},
            "periodSeconds": 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "admin"},
            "initialDelaySeconds": 10,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "securityContext": metadata.container_security(),
        "volumeMounts": [
            {"name": "plan", "mountPath": CONFIG_MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }  # fmt: skip
    return {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": (
            cascade.router.timeouts.total_seconds + LINGER_SECONDS + MARGIN_SECONDS
        ),
        "securityContext": metadata.pod_security(settings.run_as_user),
        **metadata.pull_secrets(settings.image_pull_secrets),
        "containers": [container],
        "volumes": [
            # Start-up copy only: a mounted ConfigMap lags up to a minute, the router watches it.
            {"name": "plan", "configMap": {"name": name, "optional": True}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
