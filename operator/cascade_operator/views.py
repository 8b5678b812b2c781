"""Views: what the operator needs of a Kubernetes object, as plain values; pure."""

import base64
import binascii
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from . import names
from .observation import AckView, CalibrationView, NodeView, PodView, RouterView, SetView

Body = Mapping[str, Any]

TABLE_BYTES = 64 * 2**20
"""Bound on an unpacked calibration table: a packed one could unpack to anything."""


def labels(body: Body) -> Mapping[str, str]:
    found: Mapping[str, str] = body["metadata"].get("labels") or {}
    return found


def annotations(body: Body) -> Mapping[str, str]:
    found: Mapping[str, str] = body["metadata"].get("annotations") or {}
    return found


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """A condition of an object by its type; empty when it is not there."""
    for entry in body.get("status", {}).get("conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return {}


def extended_resources(pod: Body) -> dict[str, int]:
    """What a pod asks for: its containers together, or its largest init container."""
    spec = pod.get("spec", {})
    together: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, count in _extended(container).items():
            together[name] = together.get(name, 0) + count
    for container in spec.get("initContainers") or ():
        for name, count in _extended(container).items():
            together[name] = max(together.get(name, 0), count)
    return together


def _extended(container: Body) -> dict[str, int]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: int(count) for name, count in asked.items() if "/" in name}


def reduced_foreign_pod(pod: dict[str, Any]) -> dict[str, Any] | None:
    """Of a pod that is not ours only what holds GPUs: node and extended resources."""
    held = extended_resources(pod)
    if not held:
        return None
    metadata = pod["metadata"]
    kept = ("namespace", "name", "uid", "resourceVersion")
    return {
        "metadata": {key: metadata[key] for key in kept},
        "node": pod.get("spec", {}).get("nodeName"),
        "held": held,
        "finished": is_finished(pod),
    }


def is_finished(pod: Body) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def pod_view(pod: Body, resource: str, lost_nodes: frozenset[str]) -> PodView:
    """One pod of an engine set."""
    node = pod.get("spec", {}).get("nodeName")
    reason, message = _complaint(pod)
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return PodView(
        name=pod["metadata"]["name"],
        uid=pod["metadata"]["uid"],
        set_name=labels(pod).get(names.LABEL_SET, ""),
        node=node,
        gpus=extended_resources(pod).get(resource, 0),
        ready=condition(pod, "Ready").get("status") == "True",
        terminating="deletionTimestamp" in pod["metadata"],
        finished=is_finished(pod),
        restarts=sum(int(status.get("restartCount", 0)) for status in statuses),
        waiting_reason=reason,
        message=message,
        lost=node in lost_nodes,
    )


def _complaint(pod: Body) -> tuple[str, str]:
    """Why the pod does not start, in the words of the kubelet or of the scheduler."""
    for status in pod.get("status", {}).get("containerStatuses") or ():
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return str(waiting["reason"]), str(waiting.get("message", ""))
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Unschedulable")), str(scheduled.get("message", ""))
    return "", ""


def set_view(
    body: Body, pods: Iterable[PodView], resource: str, current_version: int = 0
) -> SetView:
    """One StatefulSet with its pods. ``current_version`` counts where it carries no version."""
    status = body.get("status", {})
    template = body["spec"]["template"]
    try:
        shape = json.loads(annotations(body).get(names.ANNOTATION_SHAPE, "{}"))
        version = int(annotations(body).get(names.ANNOTATION_RENDER_VERSION, current_version))
    except ValueError:
        # Somebody edited the annotations: the set then matches no plan and is replaced.
        shape, version = {}, -1
    return SetView(
        name=body["metadata"]["name"],
        uid=body["metadata"]["uid"],
        model=labels(body).get(names.LABEL_MODEL, ""),
        replicas=int(body["spec"].get("replicas", 1)),
        gpus_per_pod=extended_resources(template).get(resource, 0),
        shape=shape,
        render_version=version,
        pods=tuple(pods),
        deleting="deletionTimestamp" in body["metadata"],
        manifest=body,
        observed=int(status.get("observedGeneration", 0)) >= body["metadata"].get("generation", 0),
        status_replicas=int(status.get("replicas", 0)),
    )


def orphans(set_name: str, model: str, pods: Iterable[PodView]) -> SetView:
    """Pods whose set is gone: they hold their GPUs until they are gone too."""
    held = tuple(pods)
    return SetView(
        name=set_name,
        uid="",
        model=model,
        replicas=0,
        gpus_per_pod=max((pod.gpus for pod in held), default=0),
        shape={},
        render_version=-1,
        pods=held,
        deleting=True,
    )


def is_ready_node(node: Body) -> bool:
    return condition(node, "Ready").get("status") == "True"


def matches(node: Body, selector: Mapping[str, str]) -> bool:
    return selector.items() <= labels(node).items()


def node_view(node: Body, resource: str, foreign: int, ours: int) -> NodeView:
    """One node of the pool. A cordoned node offers only what is held there already."""
    allocatable = int((node.get("status", {}).get("allocatable") or {}).get(resource, 0))
    if node.get("spec", {}).get("unschedulable"):
        allocatable = min(allocatable, foreign + ours)
    return NodeView(
        name=node["metadata"]["name"],
        allocatable=allocatable,
        foreign=foreign,
        ours=ours,
        ready=is_ready_node(node),
    )


def ack_view(lease: Body) -> AckView:
    """What a router pod says that it runs."""
    found = annotations(lease)
    return AckView(
        pod=lease["metadata"]["name"],
        plan_id=found.get(names.ANNOTATION_ACK_PLAN, ""),
        config_digest=found.get(names.ANNOTATION_ACK_DIGEST, ""),
        drained_uids=frozenset(
            filter(None, found.get(names.ANNOTATION_ACK_DRAINED, "").split(","))
        ),
        error=found.get(names.ANNOTATION_ACK_ERROR, ""),
    )


def router_view(
    deployment: Body | None,
    pods: Iterable[Body],
    leases: Iterable[Body],
    config_text: str,
) -> RouterView:
    """The router: its Ready pods, and of their Leases those that the pods themselves own."""
    ready = {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if condition(pod, "Ready").get("status") == "True"
        and "deletionTimestamp" not in pod["metadata"]
    }
    owned = [
        lease
        for lease in leases
        if any(
            owner.get("uid") == ready.get(lease["metadata"]["name"])
            for owner in lease["metadata"].get("ownerReferences") or ()
        )
    ]
    return RouterView(
        exists=deployment is not None,
        desired=int((deployment or {}).get("spec", {}).get("replicas", 0)),
        ready_pods=tuple(sorted(ready)),
        acks=tuple(ack_view(lease) for lease in owned),
        config_text=config_text,
        message=_router_message(deployment, pods),
    )


def _router_message(deployment: Body | None, pods: Iterable[Body]) -> str:
    for pod in pods:
        reason, message = _complaint(pod)
        if reason:
            return f"pod {pod['metadata']['name']}: {reason}: {message}".rstrip(": ")
    available = condition(deployment or {}, "Available")
    return "" if available.get("status") == "True" else str(available.get("message", ""))


def calibration_view(config_map: Body | None, name: str, key: str) -> CalibrationView:
    """The calibration table: plain text, or gzip under ``binaryData``."""
    reference = f"{name}/{key}"
    if config_map is None:
        return CalibrationView(text=None, reference=reference)
    version = str(config_map["metadata"].get("resourceVersion", ""))
    text = (config_map.get("data") or {}).get(key)
    packed = (config_map.get("binaryData") or {}).get(key)
    if packed is not None:
        text = _unpacked(packed)
    return CalibrationView(text=text, resource_version=version, reference=reference)


def _unpacked(packed: str) -> str:
    """The table's text. What cannot be unpacked comes back as it is: the reader names the row."""
    try:
        raw = base64.b64decode(packed)
        if raw[:2] != b"\x1f\x8b":
            return raw.decode()
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
            return stream.read(TABLE_BYTES).decode()
    except (OSError, EOFError, ValueError, binascii.Error) as error:
        return f"not a gzip of UTF-8 text: {error}"
