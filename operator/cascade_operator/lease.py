"""Leadership: one operator acts at a time, by a Lease of coordination.k8s.io."""

import asyncio
import datetime
from collections.abc import Callable

import structlog

from . import errors, metrics
from .kube import LEASE, Body, Kube
from .settings import Settings

log = structlog.get_logger(__name__)

STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


class Leadership:
    """Holds the Lease and answers whether writing is still safe.

    Time is measured by ``monotonic`` here and never compared with another machine's clock: a Lease
    of somebody else counts as lost once it has not changed for its duration as seen from here.
    ``wall`` only fills the Lease's fields for readers.
    """

    def __init__(
        self,
        api: Kube,
        settings: Settings,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._settings = settings
        self._monotonic = monotonic
        self._wall = wall
        self._renewed = float("-inf")
        self._seen: tuple[str, float] = ("", float("-inf"))

    @property
    def is_leading(self) -> bool:
        """True until the renew deadline: later another operator may hold the Lease."""
        age = self._monotonic() - self._renewed
        return age < self._settings.lease_renew_deadline_seconds

    async def acquire(self) -> None:
        """Waits until the Lease is held by this process."""
        while not await self._try():
            await asyncio.sleep(self._settings.lease_retry_seconds)
        metrics.LEADING.set(1)
        log.info("leading", lease=self._settings.lease_name, identity=self._settings.pod_name)

    async def keep(self) -> None:
        """Renews until it cannot. Raises ``LeadershipLostError``: the process must end then."""
        try:
            while True:
                await asyncio.sleep(self._settings.lease_retry_seconds)
                await self._try()
                if not self.is_leading:
                    raise errors.LeadershipLostError(
                        f"Lease {self._settings.lease_name} was not renewed for "
                        f"{self._settings.lease_renew_deadline_seconds:g} s"
                    )
        finally:
            metrics.LEADING.set(0)

    async def release(self) -> None:
        """Gives the Lease up, so that the next operator need not wait. Call only when no write is
        under way any more."""
        if not self.is_leading:
            return
        self._renewed = float("-inf")
        try:
            lease = await self._api.get(self._path)
            if lease["spec"].get("holderIdentity") == self._settings.pod_name:
                await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except errors.ClusterApiError as error:
            log.warning("the Lease was not released", error=str(error))

    @property
    def _path(self) -> str:
        return LEASE.path(self._settings.namespace, self._settings.lease_name)

    async def _try(self) -> bool:
        """One attempt to create, renew or take over the Lease."""
        # Counted from before the request: the answer may come late.
        began = self._monotonic()
        try:
            held = await self._claim()
        except errors.ClusterApiError as error:
            log.warning("the Lease was not renewed", error=str(error))
            return False
        if held:
            self._renewed = began
        elif self.is_leading:
            # Somebody else's name in it: stop at once, not at the deadline.
            self._renewed = float("-inf")
        return held

    async def _claim(self) -> bool:
        try:
            lease = await self._api.get(self._path)
        except errors.NotFoundError:
            return await self._create()
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._settings.pod_name) and not self._has_expired(lease):
            return False
        try:
            await self._write(lease, self._fields(spec, is_new=holder != self._settings.pod_name))
        except errors.ConflictError:
            return False
        return True

    async def _create(self) -> bool:
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self._settings.lease_name,
                "namespace": self._settings.namespace,
            },
            "spec": self._fields({}, is_new=True),
        }
        try:
            await self._api.create(LEASE.path(self._settings.namespace), body)
        except errors.ConflictError:
            return False
        return True

    async def _write(self, lease: Body, fields: Body) -> None:
        version = lease["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": fields}
        await self._api.merge(self._path, body, self._settings.pod_name[:128])

    def _has_expired(self, lease: Body) -> bool:
        version = lease["metadata"]["resourceVersion"]
        now = self._monotonic()
        if version != self._seen[0]:
            self._seen = (version, now)
        duration = lease["spec"].get("leaseDurationSeconds") or 0
        return now - self._seen[1] > duration

    def _fields(self, before: Body, is_new: bool) -> Body:
        now = datetime.datetime.fromtimestamp(self._wall(), datetime.UTC).strftime(STAMP)
        fields = {
            "holderIdentity": self._settings.pod_name,
            "leaseDurationSeconds": round(self._settings.lease_duration_seconds),
            "renewTime": now,
        }
        if is_new:
            fields |= {
                "acquireTime": now,
                "leaseTransitions": int(before.get("leaseTransitions") or 0) + 1,
            }
        return fields
