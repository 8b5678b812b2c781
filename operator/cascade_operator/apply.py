"""The writes: server-side apply with one field manager, scaling, pruning, status; nothing else.

Every write asks first whether this process may still lead, and every answer goes into the caches,
so that the next pass sees it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from . import errors, kube, metrics, names, views
from .cache import Cache, version_of
from .kube import Body, Kube
from .observation import SetView
from .observe import Caches

PRUNED = (kube.SERVICE.kind, kube.DISRUPTION_BUDGET.kind, kube.NETWORK_POLICY.kind)

log = structlog.get_logger(__name__)


class Writer:
    """Writes the objects of all cascades. ``may_write`` is false once the Lease may be lost."""

    def __init__(self, api: Kube, caches: Caches, may_write: Callable[[], bool]) -> None:
        self._api = api
        self._caches = caches
        self._may_write = may_write
        self._equal: dict[str, tuple[int, str]] = {}
        self.requests = 0
        """Requests sent since the start; a pass that changes nothing leaves it as it is."""

    async def apply(self, manifest: Body) -> bool:
        """Applies one child, unless the cluster has it already. Returns whether it was written."""
        cache = self._caches.children()[manifest["kind"]]
        metadata = manifest["metadata"]
        marked = stamped(manifest)
        live = cache.get(metadata["namespace"], metadata["name"])
        if is_applied(marked, live) or self._is_known_equal(marked, live):
            return False
        path = cache.resource.path(metadata["namespace"], metadata["name"])
        answer = await self._write(
            cache.resource.kind, lambda: self._api.apply(path, marked, names.FIELD_MANAGER)
        )
        cache.remember(answer)
        if live is not None and version_of(live) == version_of(answer):
            self._equal[live["metadata"]["uid"]] = (version_of(answer), digest_of(marked))
            return False
        return True

    def _is_known_equal(self, marked: Body, live: Body | None) -> bool:
        """Whether the server has answered before that this changes nothing: it may write a value
        in another way than we do, and is then not asked again in every pass."""
        return live is not None and self._equal.get(live["metadata"]["uid"]) == (
            version_of(live),
            digest_of(marked),
        )

    async def scale(self, namespace: str, view: SetView, replicas: int) -> bool:
        """Changes replicas and nothing else: a set's template never changes."""
        if view.replicas == replicas:
            return False
        cache = self._caches.sets
        path = cache.resource.path(namespace, view.name)
        body = {"spec": {"replicas": replicas}}
        answer = await self._write(
            cache.resource.kind, lambda: self._api.merge(path, body, names.FIELD_MANAGER)
        )
        cache.remember(answer)
        return True

    async def delete(self, cache: Cache, body: Body) -> None:
        """Deletes one object; that it is gone already is fine."""
        metadata = body["metadata"]
        path = cache.resource.path(metadata["namespace"], metadata["name"])
        try:
            await self._write(cache.resource.kind, lambda: self._api.delete(path, metadata["uid"]))
        except (errors.NotFoundError, errors.ConflictError):
            log.info("already gone", kind=cache.resource.kind, name=metadata["name"])
        cache.forget(body)

    async def delete_set(self, view: SetView) -> None:
        """Deletes an empty set."""
        await self.delete(self._caches.sets, dict(view.manifest))

    async def prune(self, owner_uid: str, namespace: str, name: str, kept: Iterable[Body]) -> int:
        """Deletes children that are no longer rendered, of the kinds that come and go with the
        spec; the sets follow the hand-over instead."""
        wanted = {(m["kind"], m["metadata"]["name"]) for m in kept}
        pruned = 0
        for kind in PRUNED:
            cache = self._caches.children()[kind]
            for body in self._caches.of_cascade(cache, namespace, name):
                is_wanted = (kind, body["metadata"]["name"]) in wanted
                if not is_wanted and is_owned(body, owner_uid):
                    await self.delete(cache, body)
                    pruned += 1
        return pruned

    async def status(self, body: Body, status: Mapping[str, Any]) -> bool:
        """Applies the operator's part of the status, unless it is there already."""
        live = body.get("status") or {}
        if all(live.get(field) == value for field, value in status.items()) and not (
            set(live) - {"drift"} - set(status)
        ):
            return False
        metadata = body["metadata"]
        cache = self._caches.cascades
        path = cache.resource.path(metadata["namespace"], metadata["name"]) + "/status"
        document = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "status": dict(status),
        }
        answer = await self._write(
            "status", lambda: self._api.apply(path, document, names.FIELD_MANAGER)
        )
        cache.remember(answer)
        return True

    async def _write(self, kind: str, request: Callable[[], Any]) -> Body:
        if not self._may_write():
            raise errors.LeadershipLostError("the Lease was not renewed in time; nothing written")
        try:
            answer: Body = await request()
        except errors.ClusterApiError as error:
            metrics.WRITE_ERRORS.labels(kind, str(error.status)).inc()
            log.warning("write failed", kind=kind, error=str(error))
            raise
        metrics.WRITES.labels(kind).inc()
        self.requests += 1
        return answer


def stamped(manifest: Body) -> Body:
    """The manifest with a digest of itself as annotation."""
    metadata = manifest["metadata"]
    digest = names.digest(manifest, 16)
    marked = {**(metadata.get("annotations") or {}), names.ANNOTATION_APPLIED: digest}
    return {**manifest, "metadata": {**metadata, "annotations": marked}}


def is_applied(manifest: Body, live: Body | None) -> bool:
    """Whether applying would change nothing: the same manifest was applied before, and nobody has
    changed a field of it since."""
    if live is None:
        return False
    is_same = views.annotations(live).get(names.ANNOTATION_APPLIED) == digest_of(manifest)
    return is_same and contains(live, manifest)


def digest_of(marked: Body) -> str:
    """The digest that ``stamped`` has put on a manifest."""
    return str(marked["metadata"]["annotations"][names.ANNOTATION_APPLIED])


def contains(live: Any, wanted: Any) -> bool:
    """Whether every field of ``wanted`` is in ``live``; the server adds defaults of its own.

    Lists must have the same length: an item too many is a change.
    """
    if live is None and not wanted:
        return True  # the server leaves out what is empty
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            contains(live.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(contains(a, b) for a, b in zip(live, wanted, strict=True))
        )
    return bool(live == wanted)


def is_owned(body: Body, owner_uid: str) -> bool:
    return any(o.get("uid") == owner_uid for o in body["metadata"].get("ownerReferences") or ())
