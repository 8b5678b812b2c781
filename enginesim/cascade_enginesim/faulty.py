"""Faults acted out on one request, before or while it is answered."""

import asyncio
import dataclasses
import os

import structlog
from aiohttp import web

from .boundary import SIMULATION
from .errors import RequestError, SettingsError

log = structlog.get_logger()


@dataclasses.dataclass(frozen=True)
class Met:
    """What is left to do: answer with ``replacement``, or break off after so many tokens."""

    replacement: web.Response | None = None
    broken_after: int | None = None


async def act(request: web.Request) -> Met:
    """Lets the faults in force act on a generation request.

    Raises ``RequestError`` for 429, 500 and a header that cannot be read.
    """
    simulation = request.app[SIMULATION]
    header = request.headers.get("x-simulate-fault", "")

    def met(kind: str) -> float | None:
        try:
            return simulation.faults.meet(kind, header)
        except SettingsError as error:
            raise RequestError(400, f"x-simulate-fault: {error}") from error

    if met("crash") is not None and simulation.faults.is_crash_due():
        log.error("simulated crash")
        os._exit(1)
    if met("429") is not None:
        raise RequestError(429, "simulated: too many requests", "TooManyRequests")
    if met("500") is not None:
        raise RequestError(500, "simulated: internal server error", "InternalServerError")
    if met("hang") is not None:
        await asyncio.Event().wait()
    delay = met("slow")
    if delay is not None:
        await asyncio.sleep(delay / simulation.engine.time_scale)
    if met("garbage") is not None:
        half = web.Response(text='{"choices": [{"del', content_type="application/json")
        return Met(replacement=half)
    tokens = met("truncate")
    return Met(broken_after=None if tokens is None else int(tokens))
