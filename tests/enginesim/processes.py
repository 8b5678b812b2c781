"""Simulated engines as real processes on local ports, and the client that talks to them."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import orjson

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
START_LIMIT_SECONDS = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def arguments(*flags: str, model: str = MODEL) -> list[str]:
    """Interpreter and command line of an engine."""
    head = [sys.executable, "-m", "cascade_enginesim", "serve", "--model-path", model]
    return [*head, "--host", "127.0.0.1", *flags]


def environment(**settings: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ENGINESIM_")}
    return {**kept, "ENGINESIM_TIME_SCALE": "100", **settings}


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.raw)

    @property
    def events(self) -> list[Any]:
        """The JSON frames of a stream; the closing mark is checked, not returned."""
        frames = [part.removeprefix("data: ") for part in self.raw.decode().split("\n\n") if part]
        assert frames[-1] == "[DONE]"
        return [orjson.loads(frame) for frame in frames[:-1]]


@dataclasses.dataclass
class Process:
    """A running engine. ``log`` holds its standard output and error."""

    url: str
    popen: subprocess.Popen[bytes]
    log: pathlib.Path

    def request(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        data = None if body is None else orjson.dumps(body)
        asked = urllib.request.Request(self.url + path, data=data, headers=headers or {})
        if body is not None:
            asked.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(asked, timeout=30) as response:
                return Reply(response.status, _lower(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, _lower(error.headers), error.read())

    def chat(self, text: str, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
        body = {"model": "chat", "messages": [{"role": "user", "content": text}], **fields}
        return self.request("/v1/chat/completions", body, headers)

    def score(self, answer: str, levels: int = 5) -> Any:
        """The judge's answer to one score question about ``answer``."""
        reply = self.request("/v1/decisions", decision(answer, levels))
        assert reply.status == 200, reply.raw
        return reply.json["answers"]["quality"]

    def terminate(self) -> None:
        self.popen.send_signal(signal.SIGTERM)

    def events(self) -> list[str]:
        return [orjson.loads(line)["event"] for line in self.log.read_text().splitlines()]


def _lower(headers: Any) -> dict[str, str]:
    return {key.lower(): value for key, value in headers.items()}


def decision(answer: str, levels: int = 5) -> dict[str, Any]:
    """The shortest body of /v1/decisions with one score question."""
    question = {
        "id": "quality",
        "type": "score",
        "question": "How good is the answer?",
        "levels": [f"level {i}" for i in range(levels)],
    }
    return {"input": {"conversation": "hello", "answer": answer}, "questions": [question]}


@contextlib.contextmanager
def engine(
    log: pathlib.Path, *flags: str, model: str = MODEL, wait: str = "/ready", **settings: str
) -> Iterator[Process]:
    """Starts an engine, waits until ``wait`` answers 200 (empty: until it listens), stops it."""
    port = free_port()
    with log.open("wb") as sink:
        popen = subprocess.Popen(
            arguments("--port", str(port), *flags, model=model),
            env=environment(**settings),
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    process = Process(f"http://127.0.0.1:{port}", popen, log)
    try:
        _await_start(process, wait)
        yield process
    finally:
        popen.kill()
        popen.wait()


def _await_start(process: Process, path: str) -> None:
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while time.monotonic() < deadline:
        if process.popen.poll() is not None:
            raise AssertionError(f"the engine exited: {process.log.read_text()}")
        with contextlib.suppress(OSError):
            if process.request(path or "/ready").status == 200 or not path:
                return
        time.sleep(0.02)
    raise AssertionError(f"the engine did not start: {process.log.read_text()}")


def exit_of(*flags: str, model: str = MODEL, **settings: str) -> tuple[int, str]:
    """Exit status and messages of an engine that must not start."""
    done = subprocess.run(
        arguments(*flags, model=model),
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr
