"""Entry point of ``sglang`` and ``cascade-enginesim``: parse, serve, drain, exit."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

import structlog
import uvloop
from aiohttp import web

from . import command, front, settings, simulation
from .errors import SettingsError

log = structlog.get_logger()

DRAIN_CHECK_SECONDS = 5.0
"""Modelled seconds between two looks at whether requests are left, as SGLang does."""

KEEP_ALIVE_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Exits with 2 on a bad command line, with 1 where the engine could not load."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        launch = command.parse(given)
        chosen = settings.load(os.environ)
        _configure_logs(launch.log_level)
        uvloop.run(serve(launch, chosen))
    except SettingsError as error:
        sys.exit(f"sglang (simulated): {error}")


def _configure_logs(level: str) -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        ),
    )


async def serve(launch: command.Launch, chosen: settings.Settings) -> None:
    """Serves until SIGTERM, then finishes what runs; new requests are still answered meanwhile."""
    simulated = simulation.build(launch, chosen)
    runner = web.AppRunner(
        front.application(simulated),
        access_log=None,
        # A handler whose client has gone is cancelled, which aborts its sequences.
        handler_cancellation=True,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
    )
    await runner.setup()
    await web.TCPSite(runner, launch.host, launch.port, backlog=2048).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    machine = simulated.machine
    log.info(
        "SIMULATED engine listening: no GPU is used, answers are made up",
        host=launch.host,
        port=launch.port,
        model=launch.served_model_name,
        architecture=machine.architecture_name,
        gpu=machine.gpu,
        tensor=launch.tensor,
        pipeline=launch.pipeline,
        max_total_num_tokens=machine.kv_tokens,
        time_scale=chosen.time_scale,
        quality_points=round(simulated.who.points),
    )
    await _start_up(simulated, stop)
    await stop.wait()
    await _drain(simulated)
    await runner.cleanup()


async def _start_up(simulated: simulation.Simulation, stop: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stop.wait(), simulated.settings.startup_seconds)
    except TimeoutError:
        simulated.phase = simulation.Phase.UP
        log.info("SIMULATED engine is up", startup_seconds=simulated.settings.startup_seconds)


async def _drain(simulated: simulation.Simulation) -> None:
    """Unbounded, like SGLang's: the caller's grace period is the limit."""
    simulated.phase = simulation.Phase.STOPPING
    log.info("SIGTERM received, draining requests and shutting down")
    pause = DRAIN_CHECK_SECONDS / simulated.settings.time_scale
    await asyncio.sleep(pause)
    while not simulated.engine.is_idle:
        await asyncio.sleep(pause)
    log.info("SIMULATED engine stopped")


if __name__ == "__main__":
    main()
