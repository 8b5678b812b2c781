"""A scripted engine on a real socket: a fake, it answers with the bytes it is told to."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Script = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Exchange:
    """What a script works with: the request, and raw writes to the socket."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, status: int, body: bytes, *headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}",
                 *(headers or ("content-type: application/json",))]  # fmt: skip
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def start_stream(self) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"
        await self.raw(head.encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")


@dataclass
class ScriptedEngine:
    """Answers each path by its script; keeps what it received and when clients left."""

    scripts: dict[str, Script]
    received: list[Received] = field(default_factory=list)
    left: int = 0
    """Connections that the client closed while a script was running."""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._serve, host)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def paths(self) -> list[str]:
        return [r.path for r in self.received]

    def bodies(self, path: str) -> list[Any]:
        return [r.json for r in self.received if r.path == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {}
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Received(method, path, headers, body)
        self.received.append(request)
        if path == "/abort_request" and path not in self.scripts:
            await Exchange(request, reader, writer).reply(200, b"")
            return True
        script = self.scripts.get(path, not_found)
        work = asyncio.ensure_future(script(Exchange(request, reader, writer)))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not work.done():
                self.left += 1
                return False
            await work
            # Nobody pipelines: the next byte is either the next request's or the end.
            following = await gone
            if not following:
                return False
            reader._buffer[:0] = following  # type: ignore[attr-defined]
            return True
        finally:
            for part in (work, gone):
                part.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


async def not_found(exchange: Exchange) -> None:
    await exchange.reply(404, b'{"detail":"Not Found"}')


def completion(
    model: str,
    text: str = "four",
    *,
    finish: str = "stop",
    choices: int = 1,
    logprobs: Any = None,
    **more: Any,
) -> bytes:
    """A chat completion body with odd but legal JSON, so that re-serialising would show."""
    entries = [
        {"index": i, "message": {"role": "assistant", "content": text},
         "logprobs": logprobs,
         "finish_reason": finish, "matched_stop": 2}
        for i in range(choices)
    ]  # fmt: skip
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    document = {"id": "x1", "object": "chat.completion", "model": model, "choices": entries,
                "usage": usage, "metadata": {"weight": 1.50}, **more}  # fmt: skip
    return json.dumps(document, indent=1).encode()


def event(model: str, delta: dict[str, Any], finish: str | None = None, **choice: Any) -> bytes:
    """One frame of a streamed chat completion."""
    entry = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **choice}
    document = {"id": "x1", "object": "chat.completion.chunk", "model": model,
                "choices": [entry], "usage": None}  # fmt: skip
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def usage_event(model: str) -> bytes:
    """The last frame that ``include_usage`` adds."""
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    document = {"id": "x1", "object": "chat.completion.chunk", "model": model, "choices": [],
                "usage": usage}  # fmt: skip
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def logprobs(pairs: list[list[float]], top: int = 2) -> dict[str, Any]:
    """Log-probabilities of a chat answer: per token its own and its alternatives' values."""
    return {
        "content": [
            {"token": f"t{i}", "logprob": pair[0],
             "top_logprobs": [{"token": f"a{j}", "logprob": p} for j, p in enumerate(pair[:top])]}
            for i, pair in enumerate(pairs)
        ]
    }  # fmt: skip


DONE = b"data: [DONE]\n\n"


def frames(model: str, *words: str) -> list[bytes]:
    """A whole stream without the usage frame."""
    first = event(model, {"role": "assistant", "content": ""})
    middle = [event(model, {"content": word}) for word in words]
    return [first, *middle, event(model, {}, "stop"), DONE]


def answers(model: str, text: str = "four", **options: Any) -> Script:
    """Chat completions, plain or streamed as asked; a usage frame when asked for one."""

    async def script(exchange: Exchange) -> None:
        body = exchange.request.json
        if not body.get("stream"):
            await exchange.reply(200, completion(model, text, **options))
            return
        await exchange.start_stream()
        parts = frames(model, *text.split(" "))
        if (body.get("stream_options") or {}).get("include_usage"):
            parts.insert(-1, usage_event(model))
        for part in parts:
            await exchange.chunk(part)
        await exchange.end()

    return script


def decisions(*scores: float, mass: float = 0.9, delay: float = 0.0) -> Script:
    """``/v1/decisions``: each call the next score of 0 to 100, the last one for ever."""
    left = list(scores)

    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(delay)
        score = left.pop(0) if len(left) > 1 else left[0]
        level = min(3, int(score // 25))
        upper = score / 25 - level
        probabilities = {str(i): 0.0 for i in range(5)}
        probabilities[str(level)], probabilities[str(level + 1)] = 1 - upper, upper
        answer = {"type": "score", "probabilities": probabilities, "label_mass": mass,
                  "score": score / 25}  # fmt: skip
        reply = {"object": "decisions", "model": "m", "prompt_format_version": 1,
                 "answers": {"quality": answer}, "usage": {"prompt_tokens": 40}}  # fmt: skip
        await exchange.reply(200, json.dumps(reply).encode())

    return script


def fails(status: int, body: bytes = b'{"error":"no"}', *headers: str) -> Script:
    """Always the same refusal."""

    async def script(exchange: Exchange) -> None:
        await exchange.reply(status, body, "content-type: application/json", *headers)

    return script


async def hangs(exchange: Exchange) -> None:
    """Never answers."""
    await asyncio.sleep(3600)


async def resets(exchange: Exchange) -> None:
    """Closes the connection without an answer."""
    exchange.writer.transport.abort()
    raise ConnectionError
