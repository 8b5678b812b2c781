"""The supervisor: feeds the workers plan and endpoints, acknowledges for them, answers probes."""

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from . import acknowledgement, reload
from .acknowledgement import Acknowledgement, Identity
from .admin import Admin
from .config import RouterConfig
from .endpoints import Endpoint
from .front import Front, bind
from .workers import WorkerOptions, Workers

log = structlog.get_logger()

FILE_POLL_SECONDS = 1.0
ADMIN_BODY_BYTES = 2**16
KEPT_UIDS = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. Without ``configmap`` the file alone gives the plan."""

    workers: WorkerOptions
    admin_port: int
    config_file: Path | None
    configmap: str | None
    identity: Identity | None
    linger_seconds: float
    grace_seconds: float


class Supervisor:
    """Holds the newest plan and endpoints, and what the workers say of them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rng = random.Random(options.workers.seed)
        self._workers = Workers(options.workers, self._changed)
        self._text = ""
        self._config: RouterConfig | None = None
        self._refusals: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._on_services: Callable[[frozenset[str]], None] = lambda services: None
        self._on_state: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain."""
        pod = self._options.identity.pod if self._options.identity else "standalone"
        admin = Admin(self._workers, pod, self._named, self._rng)
        front = Front(admin.handle, ADMIN_BODY_BYTES)
        host = self._options.workers.host
        await front.start(bind(host, self._options.admin_port, shared=False))
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        working = asyncio.ensure_future(self._workers.run())
        following = asyncio.ensure_future(self._follow())
        stop = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({working, following, stop}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            self._workers.drain(self._options.linger_seconds, self._options.grace_seconds)
            await working
        finally:
            for task in (working, following, stop):
                task.cancel()
            await asyncio.gather(working, following, stop, return_exceptions=True)
            await front.stop(1.0)

    def take_text(self, text: str) -> None:
        """A plan document: forward it; its own reading here only tells what to watch."""
        if text == self._text:
            return
        self._text = text
        digest = reload.digest(text)
        try:
            self._config = reload.parse(text)
            self._refusals = {}
        except reload.BadConfigError as error:
            self._refusals = {digest: str(error)}
        self._workers.tell_config(text)
        if self._config is not None:
            self._on_services(frozenset(m.service for m in self._config.models if m.service))

    def take_services(self, services: dict[str, tuple[Endpoint, ...]]) -> None:
        """New endpoints: forward them and remember who is who."""
        for found in services.values():
            for endpoint in found:
                if endpoint.uid:
                    self._uids[endpoint.pod] = endpoint.uid
        while len(self._uids) > KEPT_UIDS:
            del self._uids[next(iter(self._uids))]
        self._workers.tell_services(services)
        self._changed()

    def acknowledgement(self) -> Acknowledgement | None:
        """What this pod may acknowledge now."""
        name, _ = self._named()
        return acknowledgement.agreed(
            self._workers.states, name, self._uids, self._refusals, reload.digest(self._text)
        )

    async def _follow(self) -> None:
        """Follow the plan from where the options say."""
        file = self._options.config_file
        if file is not None:
            with contextlib.suppress(OSError):
                self.take_text(await asyncio.to_thread(file.read_text))
        if self._options.configmap is not None:
            await self._follow_cluster(self._options.configmap)
        elif file is not None:
            await self._follow_file(file)

    async def _follow_file(self, file: Path) -> None:
        while True:
            try:
                self.take_text(await asyncio.to_thread(file.read_text))
            except OSError as error:
                log.error("cannot read the plan", file=str(file), error=str(error))
            await asyncio.sleep(FILE_POLL_SECONDS)

    async def _follow_cluster(self, configmap: str) -> None:
        # Imported here: the client costs 20 MB, which standalone use does not need.
        from . import cluster, kube

        identity = self._options.identity
        assert identity is not None
        api = await kube.Kube.connect()
        rng = random.Random(self._rng.random())
        endpoints = cluster.EndpointFollower(api, identity.namespace, self.take_services, rng)
        writer = cluster.LeaseWriter(api, identity, self.acknowledgement, rng)
        self._on_services, self._on_state = endpoints.follow, writer.changed
        if self._config is not None:
            self._on_services(frozenset(m.service for m in self._config.models if m.service))
        config = cluster.ConfigFollower(api, identity.namespace, configmap, self.take_text, rng)
        try:
            await asyncio.gather(config.run(), endpoints.run(), writer.run())
        finally:
            await api.close()

    def _changed(self) -> None:
        self._on_state()

    def _named(self) -> tuple[str, str]:
        if self._config is None:
            return "", ""
        return self._config.cascade, self._config.namespace
