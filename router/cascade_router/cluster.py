"""The supervisor's side of the cluster: follows ConfigMap and EndpointSlices, writes the Lease."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import structlog

from . import acknowledgement, slices
from .acknowledgement import Acknowledgement, Identity
from .config import CONFIG_KEY
from .endpoints import Endpoint
from .errors import KubeError
from .kube import Kube

log = structlog.get_logger()

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 15.0
REWRITE_SECONDS = 300.0
"""The Lease is written again after this time even if nothing changed: a deleted one comes back."""


class _Pause:
    """Waiting times between attempts: doubling, jittered, reset by success."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._seconds = FIRST_PAUSE_SECONDS

    def reset(self) -> None:
        self._seconds = FIRST_PAUSE_SECONDS

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds * (0.5 + self._rng.random()))
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE_SECONDS)


class ConfigFollower:
    """Follows one ConfigMap by name; the right to list is not needed."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, on_text: Callable[[str], None],
        rng: random.Random,
    ) -> None:  # fmt: skip
        self._kube = kube
        self._base = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = name
        self._on_text = on_text
        self._pause = _Pause(rng)

    async def run(self) -> None:
        """For ever: read, then watch; the last text stays in force whatever fails."""
        while True:
            try:
                selector = {"fieldSelector": f"metadata.name={self._name}"}
                found = await self._read()
                if found is not None:
                    self._take(found)
                    selector["resourceVersion"] = found["metadata"]["resourceVersion"]
                self._pause.reset()
                # Without a version the watch begins with what exists, so a ConfigMap that is not
                # there yet is seen when it comes.
                async for kind, changed in self._kube.watch(self._base, selector):
                    if kind in ("ADDED", "MODIFIED"):
                        self._take(changed)
            except KubeError as error:
                log.warning("cannot follow the plan", configmap=self._name, error=str(error))
                await self._pause.wait()

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._kube.get(f"{self._base}/{self._name}")
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def _take(self, configmap: dict[str, Any]) -> None:
        text = (configmap.get("data") or {}).get(CONFIG_KEY)
        if isinstance(text, str):
            self._on_text(text)
        else:
            log.error("the ConfigMap has no such key", configmap=self._name, key=CONFIG_KEY)


class EndpointFollower:
    """Follows the EndpointSlices of the plan's Services."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        on_services: Callable[[dict[str, tuple[Endpoint, ...]]], None],
        rng: random.Random,
    ) -> None:
        self._kube = kube
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._on_services = on_services
        self._pause = _Pause(rng)
        self._services: frozenset[str] = frozenset()
        self._renamed = asyncio.Event()

    def follow(self, services: frozenset[str]) -> None:
        """Which Services to follow from now on."""
        if services != self._services:
            self._services = services
            self._renamed.set()

    async def run(self) -> None:
        """For ever: list, then watch; the last endpoints stay known whatever fails."""
        while True:
            await self._renamed.wait()
            self._renamed.clear()
            watching = asyncio.ensure_future(self._watch(self._services))
            renamed = asyncio.ensure_future(self._renamed.wait())
            try:
                await asyncio.wait({watching, renamed}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
            finally:
                watching.cancel()
                renamed.cancel()
                await asyncio.wait({watching, renamed})

    async def _watch(self, services: frozenset[str]) -> None:
        selector = {"labelSelector": f"{slices.LABEL_SERVICE} in ({','.join(sorted(services))})"}
        while services:
            try:
                listed = await self._kube.get(self._path, selector)
                known = {item["metadata"]["name"]: item for item in listed["items"]}
                self._on_services(slices.endpoints(known.values()))
                self._pause.reset()
                since = {"resourceVersion": listed["metadata"]["resourceVersion"]}
                async for kind, changed in self._kube.watch(self._path, selector | since):
                    if kind == "DELETED":
                        known.pop(changed["metadata"]["name"], None)
                    elif kind in ("ADDED", "MODIFIED"):
                        known[changed["metadata"]["name"]] = changed
                    self._on_services(slices.endpoints(known.values()))
            except KubeError as error:
                log.warning("cannot follow the endpoints", error=str(error))
                await self._pause.wait()


class LeaseWriter:
    """Writes the pod's Lease when the acknowledgement changes."""

    def __init__(
        self,
        kube: Kube,
        identity: Identity,
        current: Callable[[], Acknowledgement | None],
        rng: random.Random,
    ) -> None:
        self._kube = kube
        self._identity = identity
        self._path = (
            f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases/{identity.pod}"
        )
        self._current = current
        self._pause = _Pause(rng)
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """The acknowledgement may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """For ever: write what is current and not yet written."""
        written: Acknowledgement | None = None
        while True:
            try:
                async with asyncio.timeout(REWRITE_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                written = None
            self._changed.clear()
            current = self._current()
            if current is None or current == written:
                continue
            try:
                body = acknowledgement.lease(self._identity, current)
                await self._kube.apply(self._path, body, acknowledgement.FIELD_MANAGER)
                written = current
                self._pause.reset()
                log.info(
                    "acknowledged",
                    plan=current.plan_id,
                    drained=len(current.drained),
                    error=current.reload_error or None,
                )
            except KubeError as error:
                log.warning("cannot write the Lease", error=str(error))
                await self._pause.wait()
                self._changed.set()
