"""Wake: which cascades a change concerns; pure. Own writes and bookkeeping wake nobody."""

from collections.abc import Iterable, Mapping
from typing import Any

from . import names, views

Body = Mapping[str, Any]
Key = tuple[str, str]

BOOKKEEPING = ("resourceVersion", "managedFields", "generation")


def is_news(before: Body | None, after: Body | None) -> bool:
    """Whether a pass could come to another result: a cascade's spec, approval, drift verdict or
    deletion; anything but bookkeeping of every other object."""
    if before is None or after is None:
        return True
    if after.get("kind") == names.KIND or "gpuPool" in after.get("spec", {}):
        return _relevant(before) != _relevant(after)
    return _content(before) != _content(after)


def _relevant(cascade: Body) -> tuple[Any, ...]:
    metadata = cascade["metadata"]
    return (
        metadata["uid"],
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        views.annotations(cascade).get(names.ANNOTATION_APPROVE),
        (cascade.get("status") or {}).get("drift"),
    )


def _content(body: Body) -> dict[str, Any]:
    metadata = {k: v for k, v in body["metadata"].items() if k not in BOOKKEEPING}
    spec_changed = body["metadata"].get("generation")
    rest = {k: v for k, v in body.items() if k != "metadata"}
    return {**rest, "metadata": metadata, "generation": spec_changed}


def is_node_news(before: Body | None, after: Body | None) -> bool:
    """Nodes report every few seconds; what counts is GPUs, readiness, cordon and labels."""
    if before is None or after is None:
        return True
    return _node(before) != _node(after)


def _node(node: Body) -> tuple[Any, ...]:
    allocatable = node.get("status", {}).get("allocatable") or {}
    return (
        {name: count for name, count in allocatable.items() if "/" in name},
        views.is_ready_node(node),
        node.get("spec", {}).get("unschedulable", False),
        views.labels(node),
    )


def cascade_of(body: Body) -> Key | None:
    """The cascade that a labelled object belongs to."""
    name = views.labels(body).get(names.LABEL_CASCADE)
    return (body["metadata"].get("namespace", ""), name) if name else None


def sharing(key: Key, cascades: Iterable[Body]) -> list[Key]:
    """Other cascades that plan with the same GPU resource as this one."""
    by_key = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in cascades}
    own = _resource(by_key[key]) if key in by_key else None
    return [
        other
        for other, body in by_key.items()
        if other != key and (own is None or _resource(body) == own)
    ]


def _resource(cascade: Body) -> Any:
    pools = cascade.get("spec", {}).get("gpuPool") or [{}]
    return pools[0].get("resourceName")
