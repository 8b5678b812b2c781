"""One request to an engine and its response as it arrives; what can go wrong on the way."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

_HIGH_WATER = 256 * 2**10
_LOW_WATER = 64 * 2**10


class UpstreamError(Exception):
    """A call to an engine failed on the way; ``kind`` names how, for metrics."""

    kind = "error"


class ConnectError(UpstreamError):
    """No connection could be made: nothing reached the engine."""

    kind = "connect"


class ResetError(UpstreamError):
    """The engine closed the connection; ``had_head`` tells whether an answer had begun."""

    kind = "reset"

    def __init__(self, message: str, *, had_head: bool) -> None:
        super().__init__(message)
        self.had_head = had_head


class StaleError(ResetError):
    """A reused connection died before any byte of the answer: it was closed while idle."""

    kind = "stale"


class UpstreamTimeoutError(UpstreamError):
    """One of the four time-outs passed; ``kind`` is connect, first_byte, idle or total."""

    def __init__(self, phase: str, seconds: float) -> None:
        super().__init__(f"{phase} time-out after {seconds:g} s")
        self.kind = f"timeout_{phase}"


class ProtocolError(UpstreamError):
    """The engine's bytes are not HTTP/1.1 within our limits."""

    kind = "protocol"


class AnswerTooLargeError(UpstreamError):
    """The body exceeds the limit that the caller gave."""

    kind = "too_large"


class Source(Protocol):
    """The connection that an exchange is fed from."""

    def resume(self) -> None:
        """Read on after the reader has caught up."""

    def abort(self) -> None:
        """Close at once."""


class Exchange:
    """One request and its response. Close it always: an unfinished one drops its connection."""

    __slots__ = (
        "_chunks",
        "_complete",
        "_connection",
        "_error",
        "_size",
        "_waiter",
        "body_started",
        "has_head",
        "headers",
        "saw_bytes",
        "status",
    )

    def __init__(self, connection: Source) -> None:
        self._connection: Source | None = connection
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._complete = False
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.saw_bytes = False
        self.has_head = False
        self.body_started = False
        self.status = 0
        self.headers: list[tuple[str, str]] = []

    @property
    def is_complete(self) -> bool:
        """Whether the whole response has arrived."""
        return self._complete

    async def head(self) -> None:
        """Wait for status and headers; raises ``UpstreamError``."""
        while not self.has_head:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self, limit: int) -> bytes:
        """The whole body; raises ``AnswerTooLargeError`` over ``limit`` bytes."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                self.close()
                raise AnswerTooLargeError(f"the answer exceeds {limit} bytes")
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises ``UpstreamError`` when the body breaks off."""
        while True:
            while self._chunks:
                chunk = self._chunks.popleft()
                self._size -= len(chunk)
                if self._connection is not None and self._size < _LOW_WATER:
                    self._connection.resume()
                yield chunk
            if self._complete:
                return
            if self._error is not None:
                raise self._error
            await self._wait()

    def close(self) -> None:
        """Drop the connection unless the response is complete; safe to call again."""
        connection, self._connection = self._connection, None
        if connection is not None and not self._complete:
            self._error = self._error or ResetError("closed by us", had_head=self.has_head)
            connection.abort()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def on_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Status and headers arrived."""
        self.status, self.headers, self.has_head = status, headers, True
        self._wake()

    def on_body(self, chunk: bytes) -> bool:
        """Body bytes arrived; returns True when the reader falls behind."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        self.body_started = True
        self._wake()
        return self._size > _HIGH_WATER

    def on_complete(self) -> None:
        """The response ended as its framing says."""
        self._complete = True
        self._connection = None
        self._wake()

    def on_error(self, error: UpstreamError) -> None:
        """The response will not be completed."""
        if not self._complete and self._error is None:
            self._error = error
        self._connection = None
        self._wake()
