"""Controller: watch caches mark cascades, the work queue runs their passes."""

import asyncio
import random
from collections.abc import Callable

import structlog

from . import apply, errors, events, metrics, names, observe, wake
from .cache import Cache
from .kube import Body, Kube
from .reconcile import Key, Reconciler
from .settings import Settings
from .workqueue import WorkQueue

log = structlog.get_logger(__name__)


class Controller:
    """One operator at work: caches, queue, reconciler. ``may_write`` is the Lease's answer."""

    def __init__(
        self,
        api: Kube,
        settings: Settings,
        may_write: Callable[[], bool],
        clock: Callable[[], float],
        draws: random.Random,
    ) -> None:
        self._settings = settings
        self._draws = draws
        self._queue = WorkQueue(asyncio.get_running_loop().time, draws)
        self.caches = observe.Caches(api, settings, self._changed, draws)
        self.writer = apply.Writer(api, self.caches, may_write)
        recorder = events.Recorder(api, settings.pod_name, clock)
        self._reconciler = Reconciler(api, self.caches, self.writer, recorder, settings, clock)
        self.is_ready = False

    async def run(self) -> None:
        """Fills the caches, then reconciles until cancelled. Raises ``LeadershipLostError``."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self.caches.every():
                tasks.create_task(cache.run())
            for cache in self.caches.every():
                await cache.wait_synced()
            self.is_ready = True
            log.info("caches are filled", cascades=len(list(self.caches.cascades.all())))
            self.mark_all()
            tasks.create_task(self._queue.run(self._handle))

    def offer(self, kind: str, body: Body) -> None:
        """Takes an object that another watch has shown; the newer version counts."""
        for cache in self.caches.every():
            if cache.resource.kind == kind and cache is not self.caches.foreign_pods:
                cache.offer(body)

    def mark(self, key: Key, after: float = 0.0) -> None:
        """Marks a cascade for a pass."""
        self._queue.add(key, after)

    def mark_all(self, spread: float = 0.0) -> None:
        """A pass for every cascade, spread at random over so many seconds."""
        for body in self.caches.cascades.all():
            metadata = body["metadata"]
            self.mark((metadata["namespace"], metadata["name"]), self._draws.uniform(0, spread))

    async def resync(self) -> None:
        """The periodic full pass: what no event told is found within ten minutes."""
        while True:
            period = self._settings.resync_seconds
            await asyncio.sleep(period * self._draws.uniform(0.9, 1.1))
            self.mark_all(spread=period / 10)

    async def _handle(self, key: Key) -> None:
        """One pass with its consequences: a bad cascade costs no other one anything."""
        try:
            result = await self._reconciler.reconcile(key)
        except errors.LeadershipLostError:
            raise
        except errors.ClusterApiError as error:
            log.warning("pass failed", cascade="/".join(key), error=str(error))
            metrics.PASSES.labels("error").inc()
            self._queue.add(key, self._queue.backoff(key))
        except Exception:
            # A defect met by one cascade's data must not stop the others.
            log.exception("pass met a defect", cascade="/".join(key))
            metrics.PASSES.labels("error").inc()
            self._queue.add(key, self._queue.backoff(key))
        else:
            metrics.PASSES.labels("error" if result.has_failed else "ok").inc()
            if result.has_failed:
                self._queue.add(key, self._queue.backoff(key))
            else:
                self._queue.succeeded(key)
            if result.again_after is not None:
                self._queue.add(key, result.again_after)

    def _changed(self, cache: Cache, before: Body | None, after: Body | None) -> None:
        """A cache has changed: mark whom it concerns."""
        if cache is self.caches.cascades:
            self._cascade_changed(before, after)
        elif cache is self.caches.nodes:
            if wake.is_node_news(before, after):
                self.mark_all()
        elif cache is self.caches.foreign_pods or cache is self.caches.quotas:
            if before is None or after is None or wake.is_news(before, after):
                self.mark_all()
        elif wake.is_news(before, after):
            key = wake.cascade_of(after or before or {})
            if key is not None:
                self._child_changed(cache, key, before, after)

    def _cascade_changed(self, before: Body | None, after: Body | None) -> None:
        body = after or before
        assert body is not None
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if after is None:
            self._queue.forget(key)
            self.mark_all()
        if wake.is_news(before, after):
            if after is not None:
                self._reconciler.newer_spec(key, after["metadata"].get("generation", 0))
            self.mark(key)

    def _child_changed(
        self, cache: Cache, key: Key, before: Body | None, after: Body | None
    ) -> None:
        self.mark(key)
        # What a cascade plans to hold and which pods it has decide what is left for others.
        is_plan = cache is self.caches.config_maps and (after or before or {})["metadata"][
            "name"
        ] == names.plan(key[1])
        if is_plan or (cache is self.caches.pods and (before is None or after is None)):
            for other in wake.sharing(key, self.caches.cascades.all()):
                self.mark(other)
