"""Launcher: takes the Lease, then runs the operator; without the Lease the process ends."""

import asyncio
import logging
import os
import random
import signal
import time
from collections.abc import Iterable
from typing import Any

import structlog

from . import errors, handlers, kube, lease, web
from .controller import Controller
from .settings import Settings

LOST = 3
"""Exit code after the Lease was lost: the kubelet starts the process anew."""

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> int:
    """The operator's process until SIGTERM (0) or until leadership is lost (3)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await kube.connect(settings.request_timeout_seconds)
    leadership = lease.Leadership(api, settings, time.monotonic, time.time)
    draws = random.Random(os.urandom(16))
    controller = Controller(api, settings, lambda: leadership.is_leading, time.time, draws)
    server = await web.start(
        settings.http_port, lambda: leadership.is_leading and controller.is_ready
    )
    try:
        return await _lead(settings, leadership, controller, stop)
    finally:
        await server.cleanup()
        await api.close()


async def _lead(
    settings: Settings, leadership: lease.Leadership, controller: Controller, stop: asyncio.Event
) -> int:
    stopped = asyncio.ensure_future(stop.wait())
    acquiring = asyncio.ensure_future(leadership.acquire())
    await asyncio.wait({stopped, acquiring}, return_when=asyncio.FIRST_COMPLETED)
    if not acquiring.done():
        acquiring.cancel()
        return 0
    work = [
        asyncio.ensure_future(leadership.keep()),
        asyncio.ensure_future(controller.run()),
        asyncio.ensure_future(handlers.run(controller, settings, stop)),
    ]
    try:
        done, _ = await asyncio.wait({*work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return _verdict(done - {stopped})
    finally:
        # Ends passes before the Lease is given up: nobody writes beside the next leader.
        stop.set()
        for task in (*work[:2], stopped):
            task.cancel()
        await asyncio.gather(*work, stopped, return_exceptions=True)
        await leadership.release()


def _verdict(ended: "Iterable[asyncio.Future[Any]]") -> int:
    """Exit code. kopf ends by itself after SIGTERM; whatever else ends has failed."""
    for task in ended:
        error = task.exception()
        if error is None:
            continue
        if _is_lost(error):
            log.error("leadership is lost", error=str(error))
            return LOST
        log.error("the operator stops", exc_info=error)
        return 1
    return 0


def _is_lost(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_lost(each) for each in error.exceptions)
    return isinstance(error, errors.LeadershipLostError)


def configure_logging(settings: Settings) -> None:
    """One line per record on standard error: JSON, or for people. kopf's records included."""
    level = logging.getLevelName(settings.log_level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for noisy in ("kopf", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
