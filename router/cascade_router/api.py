"""The router's own API: paths to handlers, errors to statuses, one log line per request."""

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from . import openai
from .cascade import Cascade
from .config import RouterConfig
from .endpoints import Directory
from .errors import (
    ClientGoneError,
    MethodError,
    NotFoundError,
    OverloadedError,
    RouterError,
    UnavailableError,
)
from .messages import Client, Headers, Request, Response, header
from .metrics import Metrics
from .sampler import Recorder
from .visits import Trace

log = structlog.get_logger()

_JSON = ("content-type", "application/json")
_STARTING_RETRY_SECONDS = 5


@dataclass(slots=True)
class Api:
    """Answers requests of clients. ``config`` is the plan in force, ``None`` before the first."""

    cascade: Cascade
    directory: Directory
    recorder: Recorder
    metrics: Metrics
    clock: Callable[[], float]
    wall_clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    config: RouterConfig | None = None
    is_draining: bool = False
    """Not Ready any more, but still serving: endpoints take a moment to update."""
    is_closed: bool = False
    admitted: int = 0

    async def handle(self, request: Request, client: Client) -> Response | None:
        """Answer one request; ``None`` when the answer went out through ``client``."""
        if request.path in (openai.CHAT, openai.COMPLETIONS):
            return await self._complete(request, client)
        try:
            return self._simple(request)
        except RouterError as error:
            return error_response(error)

    def _simple(self, request: Request) -> Response:
        if request.path not in ("/health", "/ready", "/v1/models"):
            raise NotFoundError(
                f"{request.path}: no such path; this router serves {openai.CHAT}, "
                f"{openai.COMPLETIONS} and /v1/models"
            )
        if request.method not in ("GET", "HEAD"):
            raise MethodError(f"{request.path}: {request.method} is not allowed, use GET")
        if request.path == "/health":
            return Response(200, [_JSON], b'{"status":"ok"}')
        if request.path == "/ready":
            self.require_ready()
            return Response(200, [_JSON], b'{"status":"ready"}')
        config = self._require_config()
        return Response(200, [_JSON], openai.models_body(config, int(self.wall_clock())))

    async def _complete(self, request: Request, client: Client) -> Response | None:
        request_id = header(request.headers, "x-request-id") or self.new_id()
        trace: Trace | None = None
        status: int = 500
        started = self.clock()
        error_type = ""
        try:
            config, ask = self._admit(request, request_id)
            trace = Trace(config.plan_id, self.wall_clock(), started, ask.forced, request_id)
            self.recorder.arrive(ask.forced is not None)
            response = await self._walk(ask, config, client, trace)
            status = 200 if response is None else response.status
            return response
        except RouterError as error:
            status, error_type = error.status, error.code
            return await self._fail(error, client, trace, request_id)
        except (asyncio.CancelledError, ClientGoneError):
            status, error_type = 499, "client_gone"
            phase = "stream" if client.is_committed else "waiting"
            self.metrics.disconnects.labels(phase).inc()
            raise
        finally:
            seconds = self.clock() - started
            self._account(request.path, trace, status, error_type, seconds, request_id)

    def _admit(self, request: Request, request_id: str) -> tuple[RouterConfig, openai.Ask]:
        if request.method != "POST":
            raise MethodError(f"{request.path}: {request.method} is not allowed, use POST")
        config = self._serving_config()
        if self.admitted >= config.limits.admitted_requests:
            self.metrics.shed.labels("admission").inc()
            raise OverloadedError(
                f"{self.admitted} requests are under way in this process, its limit; "
                "try again later",
                retry_after=1,
            )
        return config, openai.parse(request, config, request_id)

    async def _walk(
        self, ask: openai.Ask, config: RouterConfig, client: Client, trace: Trace
    ) -> Response | None:
        self.admitted += 1
        try:
            return await self.cascade.respond(ask, config, client, trace)
        except (RouterError, asyncio.CancelledError, ClientGoneError):
            raise
        except Exception:
            log.exception("request failed by a fault of the router", request_id=ask.request_id)
            raise RouterError("the router failed; this is a fault of its own") from None
        finally:
            self.admitted -= 1

    async def _fail(
        self, error: RouterError, client: Client, trace: Trace | None, request_id: str
    ) -> Response | None:
        if client.is_committed:
            await client.write(openai.error_frame(error))
            return None
        extra = [("x-request-id", request_id)] if trace is None else trace.headers()
        return error_response(error, extra)

    def _account(
        self,
        path: str,
        trace: Trace | None,
        status: int,
        error_type: str,
        seconds: float,
        request_id: str,
    ) -> None:
        model = (trace.answered_by if trace else None) or "none"
        outcome = "ok" if status < 400 else str(status)
        self.metrics.requests.labels(model, outcome).inc()
        if trace is None:
            log.info("request refused", status=status, error=error_type, request_id=request_id)
            return
        if status >= 400:
            trace.answered_by = None
        self.recorder.finish(trace)
        asked = trace.forced or "cascade"
        operation = "chat" if path == openai.CHAT else "text_completion"
        self.metrics.request_seconds.labels(operation, asked, model, error_type).observe(seconds)
        log.info(
            "request",
            status=status,
            error=error_type or None,
            model=trace.answered_by,
            path=trace.path,
            scores=trace.scores or None,
            degraded=trace.degraded or None,
            plan=trace.plan_id,
            seconds=round(seconds, 4),
            request_id=request_id,
        )

    def require_ready(self) -> None:
        """Raises ``UnavailableError`` unless this process should get new work."""
        if self.is_draining:
            raise UnavailableError("draining: this router is shutting down", retry_after=1)
        self._serving_config()

    def _serving_config(self) -> RouterConfig:
        config = self._require_config()
        missing = self.directory.missing()
        if missing:
            raise UnavailableError(
                f"starting: no replica has been Ready yet of {', '.join(missing)}",
                retry_after=_STARTING_RETRY_SECONDS,
            )
        return config

    def _require_config(self) -> RouterConfig:
        if self.is_closed:
            raise UnavailableError("draining: this router is shutting down", retry_after=1)
        if self.config is None:
            raise UnavailableError("starting: no plan yet", retry_after=_STARTING_RETRY_SECONDS)
        return self.config


def error_response(error: RouterError, extra: Headers = ()) -> Response:
    """An error as a response of its own."""
    headers = [_JSON, *extra]
    if error.retry_after is not None:
        headers.append(("retry-after", str(error.retry_after)))
    return Response(error.status, headers, openai.error_body(error))
