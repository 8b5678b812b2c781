"""Entry point of ``cascade-driftwatch``."""

import asyncio
import contextlib
import logging
import os
import signal
import sys

import aiohttp
import structlog
from aiohttp import web

from . import front, metrics, routers, settings
from .kube import Kube, KubeError
from .watch import Watch

log = structlog.get_logger()


def main() -> None:
    """Runs until SIGTERM or SIGINT. Exits with 1 on unusable settings or without credentials."""
    try:
        chosen = settings.load(os.environ)
        _configure_logs(chosen)
        asyncio.run(run(chosen))
    except (settings.SettingsError, KubeError) as error:
        sys.exit(f"cascade-driftwatch: {error}")


def _configure_logs(chosen: settings.Settings) -> None:
    is_json = chosen.log_format == "json"
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer() if is_json else structlog.dev.ConsoleRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping().get(chosen.log_level.upper(), logging.INFO)
        ),
    )


async def run(chosen: settings.Settings) -> None:
    """Watches and serves until it is told to stop. Raises ``KubeError`` without credentials."""
    kube = await Kube.connect(chosen.request_seconds)
    counted = metrics.Metrics()
    try:
        async with aiohttp.ClientSession() as session:
            reader = routers.HttpReader(session, chosen.request_seconds)
            watch = Watch(kube, reader, chosen, counted)
            runner = web.AppRunner(
                front.application(watch, chosen, counted.exposition), access_log=None
            )
            await runner.setup()
            await web.TCPSite(runner, port=chosen.http_port).start()
            log.info("drift-watch runs", namespaces=chosen.namespaces or "all")
            await _until_stopped(watch)
            await runner.cleanup()
    finally:
        await kube.close()


async def _until_stopped(watch: Watch) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    looking = asyncio.ensure_future(watch.run())
    stopping = asyncio.ensure_future(stop.wait())
    done, _ = await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for task in (looking, stopping):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
    if looking in done:
        raise RuntimeError("the watch ended by itself")


if __name__ == "__main__":
    main()
