"""What all rendered objects share: labels, owner, pod hardening."""

from collections.abc import Mapping, Sequence
from typing import Any

from .. import names

PART_OF = "cascade-operator"
APP_NAMES = {names.COMPONENT_ENGINE: "cascade-engine", names.COMPONENT_ROUTER: "cascade-router"}


def owner_reference(name: str, uid: str) -> dict[str, Any]:
    """The cascade as controller: its deletion takes the object along, no finalizer needed."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector(cascade: str, component: str, **more: str) -> dict[str, str]:
    """Labels that pick the pods of one part; they never change over a pod's life."""
    return {names.LABEL_CASCADE: cascade, names.LABEL_COMPONENT: component, **more}


def labels(cascade: str, component: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Labels of an object and of its pods."""
    return {
        names.LABEL_NAME: APP_NAMES.get(component, PART_OF),
        names.LABEL_PART_OF: PART_OF,
        names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
        **selector(cascade, component),
        **(more or {}),
    }


def version_label(image: str) -> dict[str, str]:
    """The image's tag as version label, for object metadata only (a pod label would roll pods)."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    return {names.LABEL_VERSION: tag[:63].rstrip("-_.")} if tag else {}


def metadata(
    name: str, namespace: str, object_labels: Mapping[str, str], owner: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(object_labels),
        "ownerReferences": [dict(owner)],
    }


def pod_security(run_as_user: int | None) -> dict[str, Any]:
    """Pod security context of the restricted profile; without a user id the platform assigns one
    (OpenShift)."""
    context: dict[str, Any] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if run_as_user is not None:
        context |= {"runAsUser": run_as_user, "runAsGroup": run_as_user, "fsGroup": run_as_user}
    return context


def container_security() -> dict[str, Any]:
    """Container security context of the restricted profile."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pull_secrets(secrets: Sequence[str]) -> dict[str, Any]:
    return {"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}
