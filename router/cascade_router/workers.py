"""The worker processes as their supervisor sees them: started, told, asked, started again."""

import asyncio
import itertools
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from .control import Channel, WorkerState
from .endpoints import Endpoint

log = structlog.get_logger()

REPORT_SECONDS = 3.0
RESTART_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How worker processes are started."""

    host: str
    port: int
    processes: int
    seed: int
    log_level: str


@dataclass(slots=True)
class _Handle:
    channel: Channel
    state: WorkerState | None = None
    reports: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)


class Workers:
    """Keeps ``processes`` workers running; one that dies is started anew with the same plan."""

    def __init__(self, options: WorkerOptions, on_change: Callable[[], None]) -> None:
        self._options = options
        self._on_change = on_change
        self._handles: list[_Handle | None] = [None] * options.processes
        self._text: str | None = None
        self._services: dict[str, Any] | None = None
        self._ids = itertools.count()
        self._is_stopping = False

    @property
    def states(self) -> list[WorkerState | None]:
        """What each worker last said, ``None`` for one that has said nothing yet."""
        return [h.state if h is not None else None for h in self._handles]

    def tell_config(self, text: str) -> None:
        """Give all workers a plan document."""
        self._text = text
        self._tell("config", text=text)

    def tell_services(self, services: dict[str, tuple[Endpoint, ...]]) -> None:
        """Give all workers the endpoints by Service."""
        self._services = {
            name: [e.model_dump(by_alias=True) for e in found] for name, found in services.items()
        }
        self._tell("services", services=self._services)

    def drain(self, linger: float, grace: float) -> None:
        """Tell all workers to finish and exit; none is started again."""
        self._is_stopping = True
        self._tell("drain", linger=linger, grace=grace)

    async def reports(self) -> list[dict[str, Any]]:
        """Metrics and windows of all workers that answer in time."""
        waiting = []
        for handle in filter(None, self._handles):
            number = next(self._ids)
            future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            handle.reports[number] = future
            handle.channel.send("report", id=number)
            waiting.append(future)
        if not waiting:
            return []
        done, late = await asyncio.wait(waiting, timeout=REPORT_SECONDS)
        for future in late:
            future.cancel()
        return [future.result() for future in done if not future.cancelled()]

    async def run(self) -> None:
        """Keep all workers running; returns when they have exited after ``drain``."""
        await asyncio.gather(*(self._keep(i) for i in range(self._options.processes)))

    async def _keep(self, index: int) -> None:
        while True:
            status = await self._run_one(index)
            if self._is_stopping:
                return
            log.error("a worker exited and is started again", worker=index, status=status)
            await asyncio.sleep(RESTART_SECONDS)

    async def _run_one(self, index: int) -> int:
        ours, theirs = socket.socketpair()
        options = self._options
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cascade_router", "worker",
            "--channel", str(theirs.fileno()),
            "--host", options.host, "--port", str(options.port),
            "--processes", str(options.processes), "--index", str(index),
            "--seed", str(options.seed + index), "--log-level", options.log_level,
            pass_fds=[theirs.fileno()],
            stdin=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        handle = _Handle(await Channel.over(ours))
        self._handles[index] = handle
        if self._text is not None:
            handle.channel.send("config", text=self._text)
        if self._services is not None:
            handle.channel.send("services", services=self._services)
        try:
            await self._listen(handle)
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._handles[index] = None
            for future in handle.reports.values():
                future.cancel()
            handle.channel.close()
            self._on_change()

    async def _listen(self, handle: _Handle) -> None:
        while (message := await handle.channel.receive()) is not None:
            kind = message.pop("type")
            if kind == "state":
                handle.state = WorkerState.model_validate(message)
                self._on_change()
            elif kind == "report":
                future = handle.reports.pop(message["id"], None)
                if future is not None and not future.done():
                    future.set_result(message)

    def _tell(self, kind: str, **fields: Any) -> None:
        for handle in filter(None, self._handles):
            handle.channel.send(kind, **fields)
