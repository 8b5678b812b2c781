"""Calls to engines: choose a replica, retry once where nothing was relayed, abort what is left."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import orjson
import structlog

from . import exchange as exchanges
from . import openai, upstream
from .balance import Replica
from .budgets import RetryBudget
from .config import Timeouts
from .endpoints import Directory
from .errors import (
    AnswerTooLargeError,
    BadGatewayError,
    GatewayTimeoutError,
    RouterError,
    UnavailableError,
)
from .metrics import Metrics

log = structlog.get_logger()

ABORT_TIMEOUTS = Timeouts(connect=2.0, first_byte=5.0, idle=5.0, total=5.0)
_BACK_PRESSURE = frozenset({429, 503})
_RETRIED_STATUSES = frozenset({429, 500, 502, 503})


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make. ``kind`` is ``answer`` or ``judge``; the deadline is in ``timeouts``."""

    model: str
    path: str
    body: bytes
    headers: list[tuple[str, str]]
    timeouts: Timeouts
    kind: str = "answer"


class OpenCall:
    """An engine's response whose head has arrived. ``close`` always, in a ``finally``."""

    def __init__(
        self,
        backend: "EngineBackend",
        call: Call,
        replica: Replica,
        rid: str,
        exchange: exchanges.Exchange,
        started: float,
    ) -> None:
        self._backend = backend
        self._call = call
        self._rid = rid
        self._exchange = exchange
        self._started = started
        self._is_closed = False
        self.replica = replica
        self.status = exchange.status
        self.headers = exchange.headers

    async def read(self, limit: int) -> bytes:
        """The whole body; raises ``RouterError``."""
        try:
            return await self._exchange.read(limit)
        except exchanges.UpstreamError as error:
            raise self._backend.failed(self._call, self.replica, error) from None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises ``RouterError`` when the body breaks off."""
        try:
            async for chunk in self._exchange.chunks():
                yield chunk
        except exchanges.UpstreamError as error:
            raise self._backend.failed(self._call, self.replica, error) from None

    def close(self, reason: str = "unfinished") -> None:
        """Settle the accounts; a response that is not complete is aborted at the engine."""
        if self._is_closed:
            return
        self._is_closed = True
        is_complete = self._exchange.is_complete
        self._exchange.close()
        self._backend.settle(self._call, self.replica, self._started)
        if not is_complete:
            self._backend.abort(self.replica, self._rid, self._call.headers, reason)


class EngineBackend:
    """Engines of all models, as the directory lists them."""

    def __init__(
        self,
        client: upstream.Client,
        directory: Directory,
        metrics: Metrics,
        rng: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._directory = directory
        self._metrics = metrics
        self._rng = rng
        self._clock = clock
        self._retries = RetryBudget()
        self._aborts: set[asyncio.Task[None]] = set()
        self.on_idle: Callable[[Replica], None] = lambda replica: None
        """Called when the last call to a replica has ended."""

    async def open(self, call: Call) -> OpenCall:
        """Send the call; raises ``RouterError`` when no replica gave a response's head."""
        self._retries.earn()
        started = self._clock()
        replica = self._choose(call, None)
        opened = await self._try(call, replica, may_retry=True)
        if opened is not None:
            return opened
        # A second attempt gets what is left of the first one's time, not more.
        left = max(0.001, call.timeouts.total - (self._clock() - started))
        call = dataclasses.replace(call, timeouts=call.timeouts.model_copy(update={"total": left}))
        second = await self._try(call, self._choose(call, replica), may_retry=False)
        assert second is not None
        return second

    def settle(self, call: Call, replica: Replica, started: float) -> None:
        """A call has ended: give back its place."""
        replica.in_flight -= 1
        seconds = self._clock() - started
        self._metrics.call_seconds.labels(call.model, call.kind).observe(seconds)
        if replica.in_flight == 0:
            self.on_idle(replica)

    def failed(self, call: Call, replica: Replica, error: exchanges.UpstreamError) -> RouterError:
        """Count a transport failure and name it for the client."""
        if isinstance(error, exchanges.AnswerTooLargeError | exchanges.StaleError):
            replica.breakers[call.kind].release()
        else:
            replica.breakers[call.kind].fail(self._clock())
        self._metrics.attempts.labels(call.model, call.kind, error.kind).inc()
        log.warning("engine call failed", model=call.model, pod=replica.pod, kind=call.kind,
                    error=str(error))  # fmt: skip
        if isinstance(error, exchanges.AnswerTooLargeError):
            return AnswerTooLargeError(f"{call.model}: {error}")
        if isinstance(error, exchanges.UpstreamTimeoutError):
            return GatewayTimeoutError(f"{call.model}: the engine did not answer: {error}")
        return BadGatewayError(f"{call.model}: the engine failed: {error}")

    def abort(
        self, replica: Replica, rid: str, headers: list[tuple[str, str]], reason: str
    ) -> None:
        """Tell the engine to stop a request; runs on by itself, with its own limits."""
        self._metrics.aborts.labels(reason).inc()
        task = asyncio.get_running_loop().create_task(self._send_abort(replica, rid, headers))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def finish_aborts(self) -> None:
        """Wait for aborts under way; each is bounded by its own time-outs."""
        while self._aborts:
            await asyncio.wait(self._aborts)

    def _choose(self, call: Call, exclude: Replica | None) -> Replica:
        pool = self._directory.pool(call.model)
        replica = pool.choose(self._rng, self._clock(), exclude, call.kind)
        if replica is not None:
            return replica
        if exclude is not None:
            return exclude
        if pool.replicas:
            raise UnavailableError(
                f"{call.model}: all {len(pool.replicas)} replicas failed lately and are paused",
                retry_after=1,
            )
        raise UnavailableError(f"{call.model}: no replica is Ready", retry_after=5)

    async def _try(self, call: Call, replica: Replica, *, may_retry: bool) -> OpenCall | None:
        """One attempt; ``None`` when another one may follow."""
        # Engines match ids by prefix: fixed length, a new one for each attempt.
        rid = f"{self._rng.getrandbits(128):032x}"
        headers = [*call.headers, ("x-override-rid", rid)]
        started = self._clock()
        replica.in_flight += 1
        replica.breakers[call.kind].begin(started)
        try:
            exchange = await self._client.open(
                replica.address, "POST", call.path, headers, call.body, call.timeouts
            )
        except exchanges.UpstreamError as error:
            self.settle(call, replica, started)
            outcome = self.failed(call, replica, error)
            if not isinstance(error, exchanges.ConnectError):
                self.abort(replica, rid, call.headers, error.kind)
            if may_retry and _may_repeat(error) and self._take_retry(call, replica, error.kind):
                return None
            raise outcome from None
        except BaseException:
            replica.breakers[call.kind].release()
            self.settle(call, replica, started)
            self.abort(replica, rid, call.headers, "cancelled")
            raise
        opened = OpenCall(self, call, replica, rid, exchange, started)
        self._judge_status(call, replica, exchange.status)
        if may_retry and exchange.status in _RETRIED_STATUSES:
            if self._has_other(call, replica) and self._take_retry(
                call, replica, str(exchange.status)
            ):
                opened.close("retried")
                return None
        return opened

    def _judge_status(self, call: Call, replica: Replica, status: int) -> None:
        if status >= 500 and status not in _BACK_PRESSURE:
            replica.breakers[call.kind].fail(self._clock())
        elif status < 400:
            replica.breakers[call.kind].succeed()
        else:
            replica.breakers[call.kind].release()
        outcome = "ok" if status < 400 else str(status)
        self._metrics.attempts.labels(call.model, call.kind, outcome).inc()

    def _has_other(self, call: Call, replica: Replica) -> bool:
        pool = self._directory.pool(call.model)
        return pool.choose(self._rng, self._clock(), replica, call.kind) is not None

    def _take_retry(self, call: Call, replica: Replica, reason: str) -> bool:
        if not self._retries.take():
            return False
        self._metrics.retries.labels(call.model, reason).inc()
        return True

    async def _send_abort(self, replica: Replica, rid: str, headers: list[tuple[str, str]]) -> None:
        kept = [(k, v) for k, v in headers if k.lower() == "authorization"]
        kept.append(("content-type", "application/json"))
        body = orjson.dumps({"rid": rid})
        try:
            exchange = await self._client.open(
                replica.address, "POST", "/abort_request", kept, body, ABORT_TIMEOUTS
            )
            try:
                await exchange.read(openai.ERROR_BYTES)
            finally:
                exchange.close()
        except exchanges.UpstreamError as error:
            # The engine finds the closed connection by itself; this only makes it faster.
            log.info("abort not delivered", pod=replica.pod, rid=rid, error=str(error))


def _may_repeat(error: exchanges.UpstreamError) -> bool:
    """Whether a second attempt is allowed: the engine has given nothing of an answer."""
    if isinstance(error, exchanges.ConnectError):
        return True
    if isinstance(error, exchanges.ResetError):
        return not error.had_head
    return error.kind in ("timeout_connect", "timeout_first_byte")
