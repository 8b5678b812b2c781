"""Open-loop traffic: requests leave at the trace's times, whatever the answers do."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp

from . import trace


@dataclass
class Tally:
    """What came back: visits per model from the path header, failures, latencies (wall s)."""

    sent: int = 0
    answered: int = 0
    degraded: int = 0
    visits: Counter[str] = field(default_factory=Counter)
    accepted_by: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def in_flight(self) -> int:
        """Requests that are neither answered nor failed yet."""
        return self.sent - self.answered - len(self.failures)

    def visit_ratio(self, model: str) -> float:
        """Share of answered requests that this model was asked for, 0 to 1."""
        return self.visits[model] / self.answered if self.answered else 0.0

    def p95(self) -> float:
        """95th percentile of the latency as the client saw it, wall-clock seconds."""
        ordered = sorted(self.latencies)
        return ordered[int(0.95 * (len(ordered) - 1))] if ordered else 0.0


@dataclass(frozen=True)
class Answer:
    """One answer with what the router says about it."""

    status: int
    path: tuple[str, ...]
    scores: str
    model: str
    plan: str
    text: str
    seconds: float
    degraded: bool


class Client:
    """Sends requests to the router at ``url``."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def ask(self, request: trace.Request) -> Answer:
        """One plain chat request; raises aiohttp.ClientError when the connection fails."""
        begun = time.monotonic()
        url = f"{self._url}/v1/chat/completions"
        async with self._session.post(url, json=request.body) as response:
            text = await response.text()
            headers = response.headers
            return Answer(
                status=response.status,
                path=tuple(p for p in headers.get("x-cascade-path", "").split(",") if p),
                scores=headers.get("x-cascade-scores", ""),
                model=headers.get("x-cascade-model", ""),
                plan=headers.get("x-cascade-plan", ""),
                text=text,
                seconds=time.monotonic() - begun,
                degraded="x-cascade-degraded" in headers,
            )


def record(tally: Tally, answer: Answer) -> None:
    """Counts one answer."""
    if answer.status != 200:
        tally.failures.append(f"HTTP {answer.status}: {answer.text[:200]}")
        return
    tally.answered += 1
    tally.degraded += answer.degraded
    tally.visits.update(answer.path)
    tally.accepted_by[answer.model] += 1
    tally.latencies.append(answer.seconds)


async def replay(
    url: str,
    requests: Iterable[trace.Request],
    time_scale: float,
    tallies: Sequence[Tally],
    stop: asyncio.Event,
) -> None:
    """Sends each request at ``request.at / time_scale`` wall seconds until ``stop`` is set.

    Answers are counted in the tally of the phase that their request was sent in.

    Requests already sent are awaited at the end, so that a lost one would be seen.
    """
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        client = Client(url, session)
        begun = time.monotonic()
        running: set[asyncio.Task[None]] = set()

        async def one(request: trace.Request) -> None:
            tally = tallies[request.phase]
            tally.sent += 1
            try:
                record(tally, await client.ask(request))
            except (TimeoutError, aiohttp.ClientError) as error:
                tally.failures.append(f"{type(error).__name__}: {error}")

        for request in requests:
            delay = begun + request.at / time_scale - time.monotonic()
            if delay > 0:
                try:
                    await asyncio.wait_for(stop.wait(), delay)
                except TimeoutError:
                    pass
            if stop.is_set():
                break
            task = asyncio.create_task(one(request))
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.gather(*running)


@contextmanager
def background(
    url: str, requests: Iterable[trace.Request], time_scale: float, tallies: Sequence[Tally]
) -> Iterator[None]:
    """Sends requests in a thread of its own for as long as the block runs."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    work = replay(url, requests, time_scale, tallies, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(work,))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=150)
        loop.close()
