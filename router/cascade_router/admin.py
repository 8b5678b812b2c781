"""The admin port: health and readiness of all processes, merged metrics and windows."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import metrics, sampler
from .api import error_response
from .errors import MethodError, NotFoundError, UnavailableError
from .messages import Client, Request, Response
from .window import Window, WindowReport
from .workers import Workers

_JSON = ("content-type", "application/json")
_TEXT = ("content-type", "text/plain; version=0.0.4; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Admin:
    """Answers probes, Prometheus and drift-watch. ``cascade``: name and namespace of the plan."""

    workers: Workers
    pod: str
    cascade: Callable[[], tuple[str, str]]
    rng: random.Random
    wall_clock: Callable[[], float] = time.time

    async def handle(self, request: Request, client: Client) -> Response | None:
        """Answer one request."""
        handlers = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics,
            "/internal/window": self._window,
        }
        handler = handlers.get(request.path)
        if handler is None:
            known = ", ".join(handlers)
            return error_response(NotFoundError(f"{request.path}: no such path; known: {known}"))
        if request.method not in ("GET", "HEAD"):
            return error_response(MethodError(f"{request.method} is not allowed, use GET"))
        return await handler()

    async def _health(self) -> Response:
        return Response(200, [_JSON], b'{"status":"ok"}')

    async def _ready(self) -> Response:
        states = self.workers.states
        for index, state in enumerate(states):
            if state is None or not state.is_ready:
                why = "it has not started yet" if state is None else "; ".join(state.waits_for)
                return error_response(UnavailableError(f"worker {index}: {why}", retry_after=1))
        return Response(200, [_JSON], b'{"status":"ready"}')

    async def _metrics(self) -> Response:
        reports = await self.workers.reports()
        return Response(200, [_TEXT], metrics.exposition(r["metrics"] for r in reports))

    async def _window(self) -> Response:
        reports = await self.workers.reports()
        parts = [tuple(Window.model_validate(w) for w in r["windows"]) for r in reports]
        name, namespace = self.cascade()
        report = WindowReport(
            pod=self.pod,
            cascade=name,
            namespace=namespace,
            now=self.wall_clock(),
            windows=sampler.merge(parts, self.rng),
        )
        return Response(200, [_JSON], report.model_dump_json(by_alias=True).encode())
