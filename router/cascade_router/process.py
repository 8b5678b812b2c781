"""A worker process: serves on its port and obeys its supervisor."""

import argparse
import asyncio
import signal
import socket
from collections.abc import Sequence

import structlog
import uvloop

from . import logs
from .control import Channel, WorkerState
from .endpoints import Endpoint
from .errors import UnavailableError
from .front import bind
from .worker import Worker

log = structlog.get_logger()

LOST_GRACE_SECONDS = 10.0
"""A worker whose supervisor died stops within this time: nobody updates its plan any more."""


class WorkerProcess:
    """Binds a ``Worker`` to its channel."""

    def __init__(self, channel: Channel, worker: Worker) -> None:
        self._channel = channel
        self._worker = worker
        self._told: WorkerState | None = None
        self._pending = False

    def changed(self) -> None:
        """Tell the supervisor soon; several changes in a row are told once."""
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._tell)

    async def obey(self) -> None:
        """Handle messages until told to drain or the supervisor is gone."""
        while (message := await self._channel.receive()) is not None:
            kind = message["type"]
            if kind == "config":
                self._worker.apply_text(message["text"])
            elif kind == "services":
                self._worker.apply_services(
                    {
                        name: tuple(Endpoint.model_validate(e) for e in found)
                        for name, found in message["services"].items()
                    }
                )
            elif kind == "report":
                self._channel.send("report", id=message["id"], **self._worker.report())
            elif kind == "drain":
                await self._drain(message["linger"], message["grace"])
                return
        log.error("the supervisor is gone, stopping")
        await self._drain(0.0, LOST_GRACE_SECONDS)

    async def _drain(self, linger: float, grace: float) -> None:
        """Unready first, serve on while endpoints update, then stop accepting and finish."""
        log.info("draining", linger=linger, grace=grace)
        self._worker.api.is_draining = True
        self.changed()
        if self._worker.front is not None:
            self._worker.front.close_connections()
        await asyncio.sleep(linger)
        self._worker.api.is_closed = True
        await self._worker.stop(grace)

    def _tell(self) -> None:
        self._pending = False
        state = self._state()
        if state != self._told:
            self._told = state
            self._channel.send("state", **state.model_dump(by_alias=True))

    def _state(self) -> WorkerState:
        worker = self._worker
        waits_for: tuple[str, ...] = ()
        try:
            worker.api.require_ready()
        except UnavailableError as error:
            waits_for = (error.message,)
        return WorkerState(
            digest=worker.digest,
            plan_id=worker.config.plan_id if worker.config else "",
            reload_error=worker.reload_error,
            idle_leaving=tuple(worker.directory.idle_leaving()),
            is_ready=not waits_for,
            waits_for=waits_for,
        )


async def serve(args: argparse.Namespace) -> None:
    """Serve until drained."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The supervisor decides when to stop; a terminal or kubelet signals the whole group.
        loop.add_signal_handler(number, lambda: None)
    channel = await Channel.over(socket.socket(fileno=args.channel))
    worker = Worker(seed=args.seed, processes=args.processes)
    process = WorkerProcess(channel, worker)
    worker.on_change = process.changed
    await worker.serve(bind(args.host, args.port, shared=args.processes > 1))
    process.changed()
    await process.obey()
    channel.close()


def main(argv: Sequence[str]) -> None:
    """Entry of a worker process; started by the supervisor only."""
    parser = argparse.ArgumentParser(prog="cascade-router worker")
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--log-level", required=True)
    args = parser.parse_args(argv)
    logs.configure(f"worker-{args.index}", args.log_level)
    uvloop.run(serve(args))
