"""The client for engines against raw bytes: framing, limits, reuse, time-outs, cancel."""

import asyncio

import pytest

from cascade_router import exchange, upstream
from cascade_router.config import Timeouts
from tests.router import backend

QUICK = Timeouts(connect=1.0, first_byte=0.3, idle=0.3, total=5.0)
BODY = b"hello world"


@pytest.fixture
async def client():
    made = upstream.Client()
    yield made
    made.close()


def sends(*parts: bytes, close: bool = False) -> backend.Script:
    async def script(exchange: backend.Exchange) -> None:
        for part in parts:
            await exchange.raw(part)
            await asyncio.sleep(0)
        if close:
            exchange.writer.close()

    return script


async def get(client, engine, limit: int = 10_000) -> tuple[int, bytes]:
    opened = await client.open(engine.url, "POST", "/v1/chat/completions", [], b"{}", QUICK)
    try:
        return opened.status, await opened.read(limit)
    finally:
        opened.close()


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: a\r\n\r\nhello world"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH


@pytest.mark.parametrize(
    "raw, close",
    [(LENGTH, False), (CHUNKED, False), (UNTIL_CLOSE, True), (INTERIM, False)],
    ids=["length", "chunked", "until-close", "interim"],
)
async def test_body_is_the_same_wherever_the_bytes_are_cut(client, engine, raw, close):
    one = await engine()
    for cut in range(1, len(raw), 3):
        one.scripts["/v1/chat/completions"] = sends(raw[:cut], raw[cut:], close=close)
        assert await get(client, one) == (200, BODY), f"cut at {cut}"


@pytest.mark.parametrize(
    "raw, error",
    [
        (b"SSH-2.0-x\r\n\r\n", exchange.ProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
         exchange.ProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
         exchange.ProtocolError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", exchange.ProtocolError),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
         exchange.UpstreamError),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", exchange.ProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", exchange.ResetError),
        (b"HTTP/1.1 200", exchange.ResetError),
    ],
    ids=["no-http", "two-lengths", "length-and-chunked", "bad-chunk", "upgrade", "huge-head",
         "cut-body", "cut-head"],
)  # fmt: skip
async def test_bytes_that_are_no_answer_fail_and_are_not_reused(client, engine, raw, error):
    one = await engine(chat=sends(raw, close=True))
    with pytest.raises(error):
        await get(client, one)
    one.scripts["/v1/chat/completions"] = sends(LENGTH)
    assert await get(client, one) == (200, BODY)


async def test_connections_are_reused_until_the_engine_closes_them(client, engine):
    ports: set[int] = set()

    async def script(exchange: backend.Exchange) -> None:
        ports.add(exchange.writer.get_extra_info("peername")[1])
        await exchange.raw(LENGTH)

    one = await engine(chat=script)
    for _ in range(10):
        await get(client, one)
    assert len(ports) == 1
    one.scripts["/v1/chat/completions"] = sends(
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    await get(client, one)
    one.scripts["/v1/chat/completions"] = script
    await get(client, one)
    assert len(ports) == 2


async def test_idle_connection_is_closed_before_the_engine_would(client, engine, monkeypatch):
    monkeypatch.setattr(upstream, "KEEP_ALIVE_SECONDS", 0.05)
    one = await engine(chat=sends(LENGTH))
    await get(client, one)
    assert client._idle
    await asyncio.sleep(0.2)
    assert not client._idle


async def test_bytes_on_an_idle_connection_end_it(client, engine):
    one = await engine(chat=sends(LENGTH + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"))
    assert await get(client, one) == (200, BODY)
    await asyncio.sleep(0.05)
    one.scripts["/v1/chat/completions"] = sends(LENGTH)
    assert await get(client, one) == (200, BODY)


async def test_body_over_the_limit_drops_the_connection(client, engine):
    one = await engine(chat=sends(LENGTH))
    with pytest.raises(exchange.AnswerTooLargeError):
        await get(client, one, limit=10)


@pytest.mark.parametrize(
    "script, kind",
    [
        (backend.hangs, "timeout_first_byte"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "timeout_idle"),
    ],
    ids=["first-byte", "idle"],
)
async def test_silence_ends_the_call(client, engine, script, kind):
    async def then_hangs(exchange: backend.Exchange) -> None:
        await script(exchange)
        await asyncio.sleep(3600)

    one = await engine(chat=then_hangs)
    with pytest.raises(exchange.UpstreamTimeoutError) as caught:
        await get(client, one)
    assert caught.value.kind == kind


async def test_trickle_ends_at_the_total_time(client, engine):
    async def script(exchange: backend.Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            await exchange.raw(b"x")
            await asyncio.sleep(0.05)

    one = await engine(chat=script)
    times = Timeouts(connect=1.0, first_byte=1.0, idle=1.0, total=0.4)
    opened = await client.open(one.url, "POST", "/v1/chat/completions", [], b"{}", times)
    with pytest.raises(exchange.UpstreamTimeoutError) as caught:
        await opened.read(10_000)
    assert caught.value.kind == "timeout_total"


async def test_refused_connection_is_told_apart(client, engine):
    one = await engine()
    url = one.url
    await one.stop()
    with pytest.raises(exchange.ConnectError):
        await client.open(url, "POST", "/x", [], b"", QUICK)


async def test_slow_reader_stops_the_engine_and_is_no_idle_time_out(client, engine):
    block, sent = b"x" * 65536, 0

    async def script(exchange: backend.Exchange) -> None:
        nonlocal sent
        await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 67108864\r\n\r\n")
        for _ in range(1024):
            await exchange.raw(block)
            sent += len(block)

    one = await engine(chat=script)
    opened = await client.open(one.url, "POST", "/v1/chat/completions", [], b"{}", QUICK)
    await asyncio.sleep(0.6)  # twice the idle time-out
    assert sent < 32 * 2**20
    assert len(await opened.read(2**27)) == 67108864


async def test_request_bytes_are_exact(client, engine):
    one = await engine(chat=sends(LENGTH))
    headers = [("x-a", "1"), ("x-b", "ü")]
    opened = await client.open(one.url, "POST", "/v1/chat/completions", headers, b"\x00\xff", QUICK)
    assert await opened.read(100) == BODY
    [got] = one.received
    assert (got.method, got.body) == ("POST", b"\x00\xff")
    assert got.headers["x-a"] == "1"
    assert got.headers["x-b"].encode("latin-1").decode() == "ü"
