"""HTTP/1.1 client for engines: keep-alive pools per address, four time-outs, cancel by closing.

Written on ``asyncio.Protocol`` and httptools because a cascade makes two or three upstream calls
per request, so this half of the hop decides the cost.
"""

import asyncio
import ssl
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import httptools

from .config import Timeouts
from .exchange import (
    ConnectError,
    Exchange,
    ProtocolError,
    ResetError,
    StaleError,
    UpstreamError,
    UpstreamTimeoutError,
)

KEEP_ALIVE_SECONDS = 4.0
"""Below the 5 s after which SGLang closes an idle connection."""
HEAD_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens."""

    host: str
    port: int
    is_tls: bool
    authority: str

    @classmethod
    def parse(cls, url: str) -> "Address":
        """From ``http://host:port``; the port defaults to the scheme's."""
        parts = urllib.parse.urlsplit(url)
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
        return cls(parts.hostname or "", port, is_tls, parts.netloc)


class _Connection(asyncio.Protocol):
    """One TCP connection, carrying one exchange at a time; its single timer serves all limits."""

    def __init__(self, client: "Client", key: str) -> None:
        self._client = client
        self.key = key
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._timeouts = Timeouts()
        self._is_reused = False
        self._is_paused = False
        self._is_closed = False
        self._total_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline: float | None = None
        self._phase = ""
        self._headers: list[tuple[str, str]] = []
        self._head_size = 0
        self._is_delimited = False
        self._is_interim = False

    # -- use ---------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Whether a new exchange may start here."""
        return not self._is_closed and self._exchange is None

    def begin(self, data: bytes, timeouts: Timeouts, total_at: float) -> Exchange:
        """Send a request; its response arrives in the returned exchange."""
        assert self._transport is not None
        exchange = Exchange(self)
        self._exchange = exchange
        self._timeouts = timeouts
        self._total_at = total_at
        self._headers = []
        self._head_size = 0
        self._is_delimited = False
        self._arm(timeouts.first_byte, "first_byte")
        self._transport.write(data)
        return exchange

    def abort(self) -> None:
        """Close at once; what was unfinished is lost."""
        self._is_closed = True
        self._disarm()
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        """Read on after the reader has caught up."""
        if self._is_paused and self._transport is not None and not self._is_closed:
            self._is_paused = False
            self._transport.resume_reading()
            self._arm(self._timeouts.idle, "idle")

    # -- transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            # An idle connection has nothing to say; what it says belongs to no request.
            self.abort()
            return
        exchange.saw_bytes = True
        self._arm(self._timeouts.idle, "idle")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ProtocolError("the engine switched protocols"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._fail(
                cause
                if isinstance(cause, UpstreamError)
                else ProtocolError(f"not HTTP/1.1: {error}")
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._disarm()
        self._client.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        if exc is None and exchange.has_head and not self._is_delimited:
            exchange.on_complete()
            return
        reason = f"connection to {self.key} lost: {exc or 'closed by the engine'}"
        if self._is_reused and not exchange.saw_bytes:
            exchange.on_error(StaleError(reason, had_head=False))
        else:
            exchange.on_error(ResetError(reason, had_head=exchange.has_head))

    # -- parser ------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > HEAD_BYTES:
            raise ProtocolError(f"response headers exceed {HEAD_BYTES} bytes")
        key = name.decode("latin-1").lower()
        if key in ("content-length", "transfer-encoding"):
            self._is_delimited = True
        self._headers.append((key, value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status: int = self._parser.get_status_code()
        self._is_interim = status < 200
        if self._is_interim:
            self._headers = []
            self._is_delimited = False
            return
        if status in (204, 304):
            self._is_delimited = True
        if self._exchange is not None:
            self._exchange.on_head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self._exchange is not None and self._exchange.on_body(body) and not self._is_paused:
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()
            # The engine is not idle, our reader is slow: only the total limit runs on.
            self._arm(self._total_at - self._loop.time(), "total")

    def on_message_complete(self) -> None:
        if self._is_interim:
            return
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        keeps_alive = self._parser.should_keep_alive() and not self._is_closed
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        exchange.on_complete()
        if keeps_alive:
            self._is_reused = True
            self._arm(KEEP_ALIVE_SECONDS, "keep_alive")
            self._client.keep(self)
        else:
            self.abort()

    # -- timer -------------------------------------------------------------------------------

    def _arm(self, seconds: float, phase: str) -> None:
        deadline = self._loop.time() + seconds
        if phase != "keep_alive" and deadline > self._total_at:
            deadline, phase = self._total_at, "total"
        self._deadline, self._phase = deadline, phase
        # A later deadline lets the pending timer fire early and re-arm: cheaper than a new one.
        if self._timer is not None and self._timer_at > deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _disarm(self) -> None:
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._timer_at = self._deadline
            self._timer = self._loop.call_at(self._deadline, self._on_timer)
            return
        if self._exchange is None:
            self._client.forget(self)
            self.abort()
            return
        limit = float(getattr(self._timeouts, self._phase))
        self._fail(UpstreamTimeoutError(self._phase, limit))

    def _fail(self, error: UpstreamError) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.on_error(error)
        self.abort()


class Client:
    """Opens exchanges with engines; one per process."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Connection]] = {}
        self._addresses: dict[str, Address] = {}
        self._tls: ssl.SSLContext | None = None

    async def open(
        self,
        url: str,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeouts: Timeouts,
    ) -> Exchange:
        """Send a request and wait for the response's head; raises ``UpstreamError``.

        A reused connection that dies before any byte of the answer is replaced once.
        """
        total_at = asyncio.get_running_loop().time() + timeouts.total
        address = self._address(url)
        data = _encode(address, method, path, headers, body)
        connection = self._take(url)
        if connection is not None:
            exchange = connection.begin(data, timeouts, total_at)
            try:
                await exchange.head()
                return exchange
            except StaleError:
                pass
            except BaseException:
                exchange.close()
                raise
        connection = await self._connect(url, address, timeouts)
        exchange = connection.begin(data, timeouts, total_at)
        try:
            await exchange.head()
        except BaseException:
            exchange.close()
            raise
        return exchange

    def keep(self, connection: _Connection) -> None:
        """Take back a connection whose exchange is complete."""
        self._idle.setdefault(connection.key, []).append(connection)

    def forget(self, connection: _Connection) -> None:
        """Drop a connection that must not be used again."""
        kept = self._idle.get(connection.key)
        if kept is not None and connection in kept:
            kept.remove(connection)
            if not kept:
                del self._idle[connection.key]

    def drop(self, url: str) -> None:
        """Close the idle connections to an engine that is gone."""
        self._addresses.pop(url, None)
        for connection in self._idle.pop(url, []):
            connection.abort()

    def close(self) -> None:
        """Close all idle connections."""
        for url in list(self._idle):
            self.drop(url)

    def _address(self, url: str) -> Address:
        address = self._addresses.get(url)
        if address is None:
            address = self._addresses[url] = Address.parse(url)
        return address

    def _take(self, url: str) -> _Connection | None:
        kept = self._idle.get(url)
        while kept:
            # The newest is the least likely to be closed by the other side.
            connection = kept.pop()
            if connection.is_usable:
                return connection
        return None

    async def _connect(self, url: str, address: Address, timeouts: Timeouts) -> _Connection:
        loop = asyncio.get_running_loop()
        context = None
        if address.is_tls:
            self._tls = self._tls or ssl.create_default_context()
            context = self._tls
        try:
            async with asyncio.timeout(timeouts.connect):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self, url), address.host, address.port, ssl=context
                )
        except TimeoutError:
            raise UpstreamTimeoutError("connect", timeouts.connect) from None
        except OSError as error:
            raise ConnectError(f"cannot connect to {url}: {error}") from None
        return connection


def _encode(
    address: Address, method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1\r\nhost: {address.authority}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("utf-8", "surrogateescape") + body
