"""The loop: look at every cascade, write what was found, and let no cascade cost another."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from cascade_operator import names

from . import cascades, merge, metrics, planned, report, routers, verdict
from .cascades import Cascade
from .kube import Api, KubeError
from .settings import Settings

log = structlog.get_logger()

CASCADES = f"/apis/{names.GROUP}/{names.VERSION}"
SLICES = "/apis/discovery.k8s.io/v1"
CORE = "/api/v1"

AT_ONCE = 8
"""Cascades looked at side by side."""
BACKOFF_LIMIT_SECONDS = 60.0
LOOKS_PER_WINDOW = 2.0


@dataclasses.dataclass
class Memory:
    """What is remembered of a cascade between looks: its router pods, and since when they are
    these (Unix seconds; 0: since before the first look)."""

    pods: tuple[str, ...]
    steady_since: float = 0.0


class Watch:
    """Looks at all cascades. ``clock`` gives Unix seconds."""

    def __init__(
        self,
        api: Api,
        reader: routers.Reader,
        settings: Settings,
        counted: metrics.Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._reader = reader
        self._settings = settings
        self._metrics = counted
        self._clock = clock
        self._memory: dict[tuple[str, str], Memory] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.last_attempt: float | None = None
        self.last_round: float | None = None
        """Unix seconds at which the last round began, and ended whole; ``None`` before."""

    async def run(self) -> None:
        """Looks for ever; failures of the API lengthen the pause, up to a minute."""
        failures = 0
        while True:
            try:
                pause = await self.round()
                failures = 0
            except Exception as error:
                # Whatever a round meets, the next one starts from scratch: nothing is lost.
                failures += 1
                pause = min(
                    BACKOFF_LIMIT_SECONDS, self._settings.period_seconds * 2 ** min(failures, 8)
                )
                self._metrics.api_failed()
                is_expected = isinstance(error, KubeError)
                log.warning(
                    "round failed", error=str(error), retry_seconds=pause, exc_info=not is_expected
                )
            await asyncio.sleep(pause)

    async def round(self) -> float:
        """One look at every cascade; returns the seconds until the next one is due.

        Raises ``KubeError`` when the lists cannot be read: nothing was looked at then.
        """
        self.last_attempt = self._clock()
        bodies = await self._list(CASCADES, names.PLURAL)
        slices = await self._list(SLICES, "endpointslices", routers.SELECTOR)
        seen = [c for c in map(self._parsed, bodies) if c is not None]
        await asyncio.gather(*(self._guarded(cascade, slices) for cascade in seen))
        self._forget({cascade.key for cascade in seen})
        self.last_round = self._clock()
        windows = [cascade.window_seconds for cascade in seen if not cascade.is_off]
        return min([self._settings.period_seconds, *(w / LOOKS_PER_WINDOW for w in windows)])

    async def _list(self, group: str, plural: str, selector: str = "") -> list[dict[str, Any]]:
        namespaces = self._settings.namespaces
        paths = [f"{group}/namespaces/{name}/{plural}" for name in namespaces]
        found: list[dict[str, Any]] = []
        for path in paths or [f"{group}/{plural}"]:
            found += await self._api.collection(path, selector)
        return found

    def _parsed(self, body: Mapping[str, Any]) -> Cascade | None:
        try:
            return cascades.parse(body, self._settings.time_scale)
        except (KeyError, TypeError, ValueError) as error:
            name = (body.get("metadata") or {}).get("name")
            self._metrics.look_failed("parse")
            log.error("cascade cannot be read", cascade=name, error=repr(error))
            return None

    def _forget(self, present: set[tuple[str, str]]) -> None:
        for key in self._memory.keys() - present:
            del self._memory[key]
            self._metrics.forget(*key)

    async def _guarded(self, cascade: Cascade, slices: Sequence[Mapping[str, Any]]) -> None:
        """One cascade's look; whatever goes wrong stays with this cascade."""
        words = log.bind(namespace=cascade.namespace, cascade=cascade.name)
        async with self._slots:
            try:
                await self._look(cascade, slices)
            except routers.RouterError as error:
                self._metrics.look_failed("router")
                words.warning("windows incomplete, nothing concluded", error=str(error))
            except KubeError as error:
                self._metrics.look_failed("api")
                words.warning("look not finished", error=str(error), status=error.status)
            except Exception:
                self._metrics.look_failed("unexpected")
                words.exception("look failed")

    async def _look(self, cascade: Cascade, slices: Sequence[Mapping[str, Any]]) -> None:
        if cascade.is_off:
            if cascade.previous:
                await self._write(cascade, None)
            return
        finding = await self._find(cascade, slices)
        now = self._clock()
        body = report.entry(finding, now, self._settings.time_scale)
        self._metrics.found(cascade.namespace, cascade.name, finding.verdict)
        if not report.is_due(cascade.previous, body, now, cascade.window_seconds):
            return
        await self._write(cascade, body)
        if cascade.previous.get("verdict") != finding.verdict:
            log.info(
                "verdict changed",
                namespace=cascade.namespace,
                cascade=cascade.name,
                verdict=finding.verdict,
                plan=body.get("observedPlan"),
                message=body["message"],
            )

    async def _find(self, cascade: Cascade, slices: Sequence[Mapping[str, Any]]) -> verdict.Finding:
        now, previous = self._clock(), cascade.previous
        try:
            plan = await self._plan(cascade)
        except planned.PlanError as error:
            return verdict.unknown(previous, None, now, f"The plan cannot be read: {error}")
        if plan is None:
            return verdict.unknown(previous, None, now, "There is no plan yet.")
        begun = cascade.applied_since
        if begun is None and cascade.applied_plan == plan.revision:
            begun = 0.0
        if begun is None:
            why = f"Plan {plan.revision} is being put in place."
            return verdict.unknown(previous, plan, now, why)
        found = routers.addresses(slices, cascade.namespace, cascade.name)
        if not found:
            return verdict.unknown(previous, plan, now, "No router pod is ready.")
        reports = await routers.read_all(self._reader, found)
        steady = self._steady_since(cascade, (address.pod for address in found))
        windows = merge.usable(reports, plan.revision, max(begun, steady))
        return verdict.find(previous, plan, windows, cascade.limits, now)

    async def _plan(self, cascade: Cascade) -> planned.PlanInForce | None:
        name = names.plan(cascade.name)
        try:
            found = await self._api.get(f"{CORE}/namespaces/{cascade.namespace}/configmaps/{name}")
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return planned.parse(found)

    def _steady_since(self, cascade: Cascade, pods: Iterable[str]) -> float:
        """Since when these pods make up the router: what a pod counted is gone with it."""
        present = tuple(pods)
        known = self._memory.get(cascade.key)
        if known is None:
            known = self._memory[cascade.key] = Memory(present)
        elif known.pods != present:
            known = self._memory[cascade.key] = Memory(present, self._clock())
        return known.steady_since

    async def _write(self, cascade: Cascade, entry: Mapping[str, Any] | None) -> None:
        """Applies ``status.drift`` and nothing else; ``None`` takes the entry away."""
        base = f"{CASCADES}/namespaces/{cascade.namespace}/{names.PLURAL}/{cascade.name}"
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": cascade.name, "namespace": cascade.namespace},
            "status": {} if entry is None else {"drift": entry},
        }
        await self._api.apply(f"{base}/status", body)
        self._metrics.written()
