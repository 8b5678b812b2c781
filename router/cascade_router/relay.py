"""Bytes between engine and client: collect an answer, relay a stream, send a response, ping."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from . import answers, openai, sse
from .answers import Answer
from .errors import AnswerTooLargeError, ClientGoneError
from .messages import Client, Headers, Response, header
from .openai import Ask

STREAM_HEADERS = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
]


class Opened(Protocol):
    """An engine's response whose head has arrived."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Header fields, names in lower case."""

    async def read(self, limit: int) -> bytes:
        """The whole body; raises ``RouterError``."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Body bytes as they arrive; raises ``RouterError``."""

    def close(self, reason: str = "unfinished") -> None:
        """Settle the call; aborts what is unfinished."""


@dataclass(frozen=True, slots=True)
class PingTimes:
    """Seconds until a waiting stream gets its first ping, and between the next ones."""

    first: float = 5.0
    every: float = 15.0


class Pinger:
    """Keeps a waiting stream alive with comments, until it is stopped.

    The first ping commits status 200 and ``headers``: load balancers cut silent connections.
    """

    def __init__(self, client: Client, times: PingTimes, headers: Headers) -> None:
        self._client = client
        self._times = times
        self._headers = headers
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to wait for the first ping; a second start changes nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """No ping is under way or will follow; safe to call again or without a start."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await asyncio.sleep(self._times.first)
            await self._client.start(200, [*STREAM_HEADERS, *self._headers])
            while True:
                await self._client.write(sse.PING)
                await asyncio.sleep(self._times.every)
        except ClientGoneError:
            # The server cancels the whole request when its client leaves.
            return


def is_event_stream(headers: Headers) -> bool:
    """Whether a response is a stream of events."""
    return (header(headers, "content-type") or "").startswith("text/event-stream")


async def collect(
    opened: Opened, model: str, ask: Ask, limit: int, *, has_added_logprobs: bool
) -> Answer:
    """The whole answer, kept as it came in; raises ``RouterError``."""
    if not (ask.is_stream and opened.status == 200 and is_event_stream(opened.headers)):
        body = await opened.read(limit)
        return answers.from_body(model, opened.status, opened.headers, body, ask,
                                 has_added_logprobs=has_added_logprobs)  # fmt: skip
    answer = Answer(model, opened.status, opened.headers, [], True, has_added_logprobs)
    buffer = sse.FrameBuffer(limit)
    size = 0
    async for chunk in opened.chunks():
        size += len(chunk)
        if size > limit:
            raise AnswerTooLargeError(f"{model}: the answer exceeds {limit} bytes")
        for frame in buffer.feed(chunk):
            answers.add_frame(answer, frame, ask)
    if buffer.rest:
        answer.payload.append(buffer.rest)
        answer.is_readable = False
    return answer


async def relay_frames(
    opened: Opened,
    client: Client,
    ask: Ask,
    limit: int,
    note: str | None,
    on_usage: Callable[[dict[str, Any]], None],
) -> None:
    """Pass a stream through, whole frames only, without the usage chunk that only we asked for.

    ``note`` goes out as a comment before ``[DONE]``, else at the end. Raises ``RouterError`` when
    the engine breaks off: what it had not ended with a blank line is not sent.
    """
    buffer = sse.FrameBuffer(limit)
    async for chunk in opened.chunks():
        try:
            frames = buffer.feed(chunk)
        except sse.FrameTooLargeError as error:
            raise AnswerTooLargeError(str(error)) from None
        frames = [f for f in frames if not _takes_usage(f, ask, on_usage)]
        if note is not None and frames and sse.data_of(frames[-1]) == b"[DONE]":
            frames.insert(-1, sse.comment(note))
            note = None
        if frames:
            await client.write(b"".join(frames))
    tail = buffer.rest + (sse.comment(note) if note is not None else b"")
    if tail:
        await client.write(tail)


async def send(
    client: Client, answer: Answer, payload: list[bytes], given: Headers, note: str
) -> Response | None:
    """A whole answer to the client: as a response, or into the stream that waits for it.

    Returns ``None`` when it went out as a stream. A plain body for a client that has had pings
    (an engine's refusal) is sent as one event.
    """
    headers = openai.relayed_headers(answer.headers)
    if not client.is_committed:
        if not answer.is_stream:
            return Response(answer.status, [*headers, *given], b"".join(payload))
        await client.start(answer.status, [*headers, *given])
        await client.write(b"".join(payload))
        return None
    if not answer.is_stream:
        await client.write(b"data: " + b"".join(payload[0].splitlines()) + b"\n\n")
        await client.write(sse.comment(note))
        return None
    at = len(payload) - (1 if payload and sse.data_of(payload[-1]) == b"[DONE]" else 0)
    await client.write(b"".join([*payload[:at], sse.comment(note), *payload[at:]]))
    return None


def usage_of(body: bytes) -> dict[str, Any]:
    """The ``usage`` object of a plain answer, empty if it has none."""
    document = _loads(body)
    usage = document.get("usage") if document is not None else None
    return usage if isinstance(usage, dict) else {}


def _takes_usage(frame: bytes, ask: Ask, on_usage: Callable[[dict[str, Any]], None]) -> bool:
    if b'"prompt_tokens"' not in frame:
        return False
    document = _loads(sse.data_of(frame))
    if document is None or not isinstance(document.get("usage"), dict):
        return False
    on_usage(document["usage"])
    return not document.get("choices") and not ask.wants_usage


def _loads(data: bytes | None) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data) if data is not None else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
