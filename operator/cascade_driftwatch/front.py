"""Health, readiness and metrics of drift-watch over HTTP."""

import time
from collections.abc import Callable

from aiohttp import web

from .settings import Settings
from .watch import BACKOFF_LIMIT_SECONDS, Watch

STALE_ROUNDS = 10
"""Rounds without an end after which the process counts as stuck."""


def application(
    watch: Watch,
    settings: Settings,
    exposition: Callable[[], bytes],
    clock: Callable[[], float] = time.time,
) -> web.Application:
    """``/healthz``: the loop moves; ``/readyz``: a first round has ended; ``/metrics``."""
    started = clock()
    patience = STALE_ROUNDS * settings.period_seconds + 2 * BACKOFF_LIMIT_SECONDS

    async def healthz(request: web.Request) -> web.Response:
        quiet = clock() - (watch.last_attempt or started)
        if quiet > patience:
            return web.Response(status=503, text=f"no round for {quiet:.0f} s\n")
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        if watch.last_round is None:
            return web.Response(status=503, text="no round has ended yet\n")
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=exposition(), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app
