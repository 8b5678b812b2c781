"""Benchmarks of the router: requests per second of one hop on one core, memory when idle."""

import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import uvloop

RUNS = 7
RUN_SECONDS = 2.0
WARM_UP_SECONDS = 1.0
CONNECTIONS = 64
IDLE_MARK_MB = 60.0

ANSWER = (
    b'{"id":"c0ffee","object":"chat.completion","created":1700000000,"model":"only","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"The capital of France is Paris."},'
    b'"logprobs":null,"finish_reason":"stop","matched_stop":2}],"usage":{"prompt_tokens":14,'
    b'"total_tokens":22,"completion_tokens":8},"metadata":{"weight_version":"default"}}'
)
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(ANSWER),
    ANSWER,
)
BODY = json.dumps(
    {
        "model": "bench/only",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 32,
        "temperature": 0.0,
    }
).encode()


class Engine(asyncio.Protocol):
    """One constant answer per request: what is measured must be the router."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        self._kept += data
        head = self._kept.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._kept.lower().find(b"content-length: ")
        length = int(self._kept[at + 16 : self._kept.find(b"\r", at)])
        if len(self._kept) >= head + 4 + length:
            self._kept = self._kept[head + 4 + length :]
            self._transport.write(RESPONSE)  # type: ignore[attr-defined]


class Asker(asyncio.Protocol):
    """Sends the next request when the answer to the last has come; counts answers."""

    done = 0
    failed = 0

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if not self._kept.endswith(b"}"):
            return
        Asker.done += 1
        if not self._kept.startswith(b"HTTP/1.1 200"):
            Asker.failed += 1
        self._kept = b""
        self._transport.write(self._request)  # type: ignore[attr-defined]


@dataclass
class Served:
    """A router process tree on one core. ``worker``: process id of the process that serves."""

    process: subprocess.Popen[bytes]
    port: int
    admin_port: int
    worker: int


def serve(folder: Path, engine_url: str, core: int) -> Served:
    """Start the router as a user would, pinned to one core, and wait until it is ready."""
    plan = {"cascade": "bench", "planId": "bench",
            "models": [{"name": "only", "endpoints": [{"url": engine_url}]}]}  # fmt: skip
    path = folder / "router.json"
    path.write_text(json.dumps(plan))
    port, admin_port = free_port(), free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "cascade_router", "serve", "--config", str(path),
         "--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin_port),
         "--linger-seconds", "0", "--grace-seconds", "2", "--log-level", "warning", "--seed", "1"],
        env=os.environ | {"PYTHONPATH": "router"},
    )  # fmt: skip
    os.sched_setaffinity(process.pid, {core})
    deadline = time.monotonic() + 30
    while not is_ready(f"http://127.0.0.1:{admin_port}/ready"):
        if time.monotonic() > deadline:
            process.kill()
            raise SystemExit("the router did not get ready within 30 s")
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.sched_setaffinity(int(child), {core})
    return Served(process, port, admin_port, int(children[0]))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(x for x in status if x.startswith("VmRSS")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(port: int, worker: int) -> list[float]:
    """Requests per second of each run, from closed-loop connections."""
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer none\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
    )
    loop = asyncio.get_running_loop()
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: Asker(request), "127.0.0.1", port)
    await asyncio.sleep(WARM_UP_SECONDS)
    rates = []
    for run in range(RUNS):
        before, cpu, started = Asker.done, cpu_seconds(worker), time.perf_counter()
        await asyncio.sleep(RUN_SECONDS)
        seconds = time.perf_counter() - started
        count = Asker.done - before
        rates.append(count / seconds)
        spent = (cpu_seconds(worker) - cpu) / count * 1e6
        print(f"run {run + 1}: {rates[-1]:.0f} requests/s, {spent:.0f} us CPU", file=sys.stderr)
    if Asker.failed:
        raise SystemExit(f"{Asker.failed} requests failed")
    return rates


def emit(name: str, value: float, unit: str, reference: float | None, spread: float) -> None:
    """One result line."""
    ratio = None if reference is None else value / reference
    print(json.dumps({"name": name, "value": value, "unit": unit, "reference": reference,
                      "ratio": ratio, "spread": spread}))  # fmt: skip


async def run() -> None:
    """The router on the first core; engine and load on the last."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Engine, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        served = await asyncio.to_thread(serve, Path(folder), url, cores[0])
        try:
            idle = rss_mb(served.worker)
            rates = await load(served.port, served.worker)
        finally:
            served.process.send_signal(signal.SIGTERM)
            # In a thread: the engine that open requests wait for lives on this loop.
            await asyncio.to_thread(served.process.wait)
    median = statistics.median(rates)
    emit("hop_rps", median, "requests/s per core", None, (max(rates) - min(rates)) / median)
    emit("rss_idle_mb", idle, "MB", IDLE_MARK_MB, 0.0)


if __name__ == "__main__":
    uvloop.run(run())
