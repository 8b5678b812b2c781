"""One serving process: the parts put together, following plans and endpoints as they come."""

import random
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from . import reload
from .api import Api
from .backends import EngineBackend
from .balance import Replica
from .cascade import Cascade
from .config import RouterConfig
from .controls import Controls
from .endpoints import Directory, Endpoint
from .front import Front
from .judges import LiveJudge
from .metrics import Metrics
from .relay import PingTimes
from .sampler import Recorder
from .upstream import Client
from .window import Window

log = structlog.get_logger()


class Worker:
    """Everything that one process needs to serve.

    ``on_change`` is called when what the supervisor acknowledges may have changed: the plan in
    force or the pods with nothing in flight.
    """

    def __init__(
        self,
        *,
        seed: int,
        processes: int = 1,
        pings: PingTimes = PingTimes(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        rng = random.Random(seed)
        self.on_change = on_change
        self._clock = clock
        self.metrics = Metrics()
        self.client = Client()
        self.directory = Directory()
        self.controls = Controls(random.Random(rng.random()), clock, processes)
        self.backend = EngineBackend(
            self.client, self.directory, self.metrics, random.Random(rng.random()), clock
        )
        self.backend.on_idle = self._idle
        judge = LiveJudge(self.backend, self.metrics, clock)
        cascade = Cascade(self.backend, judge, self.controls, self.metrics, clock, pings)
        self.recorder = Recorder(random.Random(rng.random()), wall_clock, self._threshold)
        self.api = Api(cascade, self.directory, self.recorder, self.metrics, clock, wall_clock)
        self.front: Front | None = None
        self.digest = ""
        self.reload_error = ""

    @property
    def config(self) -> RouterConfig | None:
        """The plan in force."""
        return self.api.config

    def apply_text(self, text: str) -> None:
        """Follow a plan document; a bad one changes nothing and is kept as ``reload_error``."""
        try:
            config = reload.parse(text)
        except reload.BadConfigError as error:
            self.reload_error = str(error)
            self.metrics.reloads.labels("refused").inc()
            log.error("plan refused, the old one stays in force", reason=self.reload_error)
        else:
            self._apply(config)
            self.digest, self.reload_error = reload.digest(text), ""
            self.metrics.reloads.labels("applied").inc()
            log.info("plan in force", plan=config.plan_id)
        self.on_change()

    def apply_services(self, services: Mapping[str, tuple[Endpoint, ...]]) -> None:
        """Follow the endpoints of all Services."""
        self._drop(self.directory.apply_services(services))
        self.on_change()

    async def serve(self, sock: socket.socket) -> None:
        """Accept requests on a bound socket."""
        body_bytes = self.config.limits.body_bytes if self.config else 2**16
        self.front = Front(self.api.handle, body_bytes)
        await self.front.start(sock)

    async def stop(self, grace_seconds: float) -> None:
        """Stop accepting, finish, close everything."""
        if self.front is not None:
            await self.front.stop(grace_seconds)
        await self.backend.finish_aborts()
        self.client.close()

    def report(self) -> dict[str, Any]:
        """Metrics and windows, for the supervisor."""
        self._set_gauges()
        return {
            "metrics": self.metrics.dump(),
            "windows": [w.model_dump(by_alias=True, mode="json") for w in self.windows()],
        }

    def windows(self) -> tuple[Window, ...]:
        """Windows of this process; none before the first plan."""
        return self.recorder.windows() if self.config is not None else ()

    def _apply(self, config: RouterConfig) -> None:
        self.controls.apply(config)
        self._drop(self.directory.apply_config(config))
        self.recorder.apply(config)
        self.api.config = config
        if self.front is not None:
            self.front.body_bytes = config.limits.body_bytes

    def _drop(self, addresses: set[str]) -> None:
        for address in addresses:
            self.client.drop(address)

    def _idle(self, replica: Replica) -> None:
        if not replica.listed:
            self.directory.prune()
        if self.directory.is_leaving(replica.pod):
            self.on_change()

    def _threshold(self, model: str) -> int | None:
        config = self.config
        for candidate in config.models if config else ():
            if candidate.name == model and candidate.threshold is not None:
                return self.controls.threshold(candidate)
        return None

    def _set_gauges(self) -> None:
        metrics, config, now = self.metrics, self.config, self._clock()
        for gauge in (metrics.plan, metrics.in_flight, metrics.breaker, metrics.endpoints,
                      metrics.threshold):  # fmt: skip
            gauge.clear()
        if config is None:
            return
        metrics.plan.labels(config.plan_id).set(1)
        for replica in self.directory.replicas:
            metrics.in_flight.labels(replica.model, replica.pod).set(replica.in_flight)
            state = replica.breakers["answer"].state(now)
            metrics.breaker.labels(replica.model, replica.pod).set(state)
        for model in config.models:
            known = sum(r.model == model.name and r.listed for r in self.directory.replicas)
            ready = len(self.directory.pool(model.name).replicas)
            metrics.endpoints.labels(model.name, "open").set(ready)
            metrics.endpoints.labels(model.name, "closed").set(known - ready)
            threshold = self._threshold(model.name)
            if threshold is not None:
                metrics.threshold.labels(model.name).set(threshold)
