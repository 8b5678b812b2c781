"""Web: /healthz, /readyz and /metrics of the operator's process."""

from collections.abc import Callable

import prometheus_client
from aiohttp import web

HOST = "0.0.0.0"


async def start(port: int, is_ready: Callable[[], bool]) -> web.AppRunner:
    """Serves until the returned runner is cleaned up. An answer of /healthz shows that the event
    loop turns; a process that has lost its Lease ends by itself."""

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(request: web.Request) -> web.Response:
        if is_ready():
            return web.Response(text="ok")
        return web.Response(text="waiting for the Lease or for the caches", status=503)

    async def metrics(request: web.Request) -> web.Response:
        text = prometheus_client.generate_latest()
        return web.Response(
            body=text, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        )

    application = web.Application()
    application.router.add_get("/healthz", health)
    application.router.add_get("/readyz", ready)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    return runner
