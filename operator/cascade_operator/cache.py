"""Cache: one kind of object as the API server last showed it, kept up to date by list and watch."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping

import structlog

from . import errors, metrics
from .kube import Body, Kube, Resource

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-wide kinds."""
OnChange = Callable[["Cache", Body | None, Body | None], None]
"""Called with the object before and after; ``None``: not there."""

PAGE = 500
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 20.0

log = structlog.get_logger(__name__)


def key_of(body: Mapping[str, object]) -> Key:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return metadata.get("namespace", ""), metadata["name"]


def version_of(body: Body) -> int:
    """resourceVersion as a number: within one kind it grows with every change."""
    return int(body["metadata"].get("resourceVersion", 0))


def without_bookkeeping(body: Body) -> Body:
    """The object without ``managedFields``, which are large and no fact about the cluster."""
    body.get("metadata", {}).pop("managedFields", None)
    return body


class Cache:
    """Objects of one kind that match ``selector``, in ``namespaces`` (``None``: everywhere).

    ``reduce`` makes an object smaller before it is kept, or drops it (``None``). What the operator
    itself wrote is remembered at once, so that the next pass never acts on an older state; of two
    versions the newer one always wins.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        on_change: OnChange,
        *,
        namespaces: tuple[str, ...] | None = None,
        selector: str = "",
        reduce: Callable[[Body], Body | None] = without_bookkeeping,
        draws: random.Random,
    ) -> None:
        self.resource = resource
        self.is_synced = False
        self._kube = kube
        self._on_change = on_change
        self._paths = (
            [resource.path()] if namespaces is None else [resource.path(n) for n in namespaces]
        )
        self._query = {"labelSelector": selector} if selector else {}
        self._reduce = reduce
        self._draws = draws
        self._objects: dict[Key, Body] = {}
        self._pending = set(self._paths)
        self._synced = asyncio.Event()

    def get(self, namespace: str, name: str) -> Body | None:
        return self._objects.get((namespace, name))

    def all(self) -> Iterable[Body]:
        return list(self._objects.values())

    def of(self, namespace: str) -> list[Body]:
        """Objects of one namespace, by name."""
        return [body for (space, _), body in sorted(self._objects.items()) if space == namespace]

    async def wait_synced(self) -> None:
        await self._synced.wait()

    async def run(self) -> None:
        """Lists and watches for ever; a broken watch is resumed, an expired one listed again."""
        await asyncio.gather(*(self._follow(path) for path in self._paths))

    def offer(self, body: Body) -> None:
        """Takes a version of a known object from elsewhere, if it is newer."""
        if key_of(body) in self._objects:
            self._keep(body)

    def remember(self, body: Body) -> None:
        """Takes the answer of an own write. It wakes nobody: the writer knows."""
        self._keep(body, wake=False)

    def forget(self, body: Body) -> None:
        """Drops an object that the operator has deleted, unless it was made anew."""
        known = self._objects.get(key_of(body))
        if known is not None and known["metadata"]["uid"] == body["metadata"]["uid"]:
            del self._objects[key_of(body)]

    def _keep(self, body: Body, wake: bool = True) -> None:
        key = key_of(body)
        before = self._objects.get(key)
        if before is not None and version_of(before) >= version_of(body):
            return
        reduced = self._reduce(body)
        if reduced is None:
            self._drop(body)
            return
        self._objects[key] = reduced
        if wake:
            self._on_change(self, before, reduced)

    def _drop(self, body: Body) -> None:
        before = self._objects.get(key_of(body))
        if before is not None and version_of(before) <= version_of(body):
            del self._objects[key_of(body)]
            self._on_change(self, before, None)

    async def _follow(self, path: str) -> None:
        version, failures = "", 0
        while True:
            try:
                if not version:
                    version = await self._list(path)
                async for event in self._kube.watch(
                    path, {**self._query, "resourceVersion": version}
                ):
                    version = self._take(event)
                    failures = 0
            except errors.ConflictError:
                version = ""  # the server no longer knows this version: list again
            except errors.ClusterApiError as error:
                metrics.WATCH_ERRORS.labels(self.resource.kind).inc()
                log.warning("watch broke", kind=self.resource.kind, error=str(error))
                version = "" if isinstance(error, errors.ApiRefusedError) else version
                failures += 1
            if failures:
                longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**failures)
                await asyncio.sleep(longest * self._draws.uniform(0.5, 1.0))

    async def _list(self, path: str) -> str:
        """Everything there is; what is known and not listed any more is gone."""
        listed: set[Key] = set()
        # Own writes that come while the list is on its way are newer than the list.
        known = {key: version_of(body) for key, body in self._objects.items()}
        query = {**self._query, "limit": str(PAGE)}
        while True:
            page = await self._kube.get(path, **query)
            version: str = page["metadata"]["resourceVersion"]
            for body in page["items"]:
                listed.add(key_of(body))
                self._keep(body)
            more = page["metadata"].get("continue")
            if not more:
                break
            query = {**query, "continue": more}
        for key, seen in known.items():
            body = self._objects.get(key)
            if key in listed or body is None or version_of(body) != seen:
                continue
            if self._covers(path, key):
                del self._objects[key]
                self._on_change(self, body, None)
        self._pending.discard(path)
        if not self._pending:
            self.is_synced = True
            self._synced.set()
        return version

    def _covers(self, path: str, key: Key) -> bool:
        """Whether a list of ``path`` would have shown the object."""
        return path in (self.resource.path(), self.resource.path(key[0] or None))

    def _take(self, event: Body) -> str:
        """Handles one watch event and returns the version to go on from."""
        body = event["object"]
        if event["type"] == "ERROR":
            status = int(body.get("code", 500))
            kind = errors.ConflictError if status == 410 else errors.UnavailableError
            raise kind(f"WATCH {self.resource.plural}", status, body.get("message", ""))
        if event["type"] == "DELETED":
            self._drop(body)
        elif event["type"] != "BOOKMARK":
            self._keep(body)
        version: str = body["metadata"]["resourceVersion"]
        return version
