"""Real routers in front of scripted engines, each on its own socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import uvloop

from cascade_router.config import RoutedModel, RouterConfig, StaticEndpoint
from cascade_router.front import bind
from cascade_router.relay import PingTimes
from cascade_router.worker import Worker
from tests.router.backend import ScriptedEngine


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of production: its transports and timing differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}


NO_PINGS = PingTimes(60.0, 60.0)


def config_for(engines: dict[str, list[ScriptedEngine]], **changes: Any) -> RouterConfig:
    """The shortest plan over these engines; ``changes`` override any field.

    ``models={"small": {...}}`` overrides fields of one model.
    """
    models = changes.pop("models", {})
    names = list(engines)
    routed = tuple(
        RoutedModel(
            **{
                "name": name,
                "threshold": None if name == names[-1] else 60,
                "endpoints": tuple(StaticEndpoint(url=e.url) for e in engines[name]),
                **models.get(name, {}),
            }
        )
        for name in names
    )
    return RouterConfig(**{"cascade": "chat", "plan_id": "p1", "models": routed, **changes})


class Running:
    """A router that serves on a local port."""

    def __init__(self, worker: Worker, url: str, session: aiohttp.ClientSession) -> None:
        self.worker = worker
        self.url = url
        self.session = session

    def apply(self, config: RouterConfig) -> None:
        self.worker.apply_text(config.model_dump_json(by_alias=True))

    async def post(
        self, body: Any, path: str = "/v1/chat/completions", **options: Any
    ) -> tuple[int, dict[str, str], bytes]:
        async with self.session.post(self.url + path, json=body, **options) as response:
            raw = await response.read()
            return response.status, {k.lower(): v for k, v in response.headers.items()}, raw

    async def chat(self, **fields: Any) -> tuple[int, dict[str, str], bytes]:
        return await self.post({"model": "chat", "messages": QUESTION, **fields})

    async def get(self, path: str) -> tuple[int, bytes]:
        async with self.session.get(self.url + path) as response:
            return response.status, await response.read()

    def metric(self, name: str, **labels: str) -> float:
        return self.worker.metrics.registry.get_sample_value(name, labels) or 0.0


QUESTION = [{"role": "user", "content": "What is 2 + 2?"}]

Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def engine() -> AsyncIterator[Callable[..., Awaitable[ScriptedEngine]]]:
    """Starts scripted engines and stops them afterwards."""
    started: list[ScriptedEngine] = []

    async def start(host: str = "127.0.0.1", **scripts: Any) -> ScriptedEngine:
        paths = {"chat": "/v1/chat/completions", "completions": "/v1/completions",
                 "decisions": "/v1/decisions"}  # fmt: skip
        new = ScriptedEngine({paths[name]: script for name, script in scripts.items()})
        await new.start(host)
        started.append(new)
        return new

    yield start
    for one in started:
        await one.stop()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts routers from a config and stops them afterwards."""
    running: list[Running] = []

    async def start(config: RouterConfig | None, pings: PingTimes = NO_PINGS) -> Running:
        worker = Worker(seed=7, pings=pings)
        sock = bind("127.0.0.1", 0, shared=False)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        one = Running(worker, url, aiohttp.ClientSession())
        if config is not None:
            one.apply(config)
        await worker.serve(sock)
        running.append(one)
        return one

    yield start
    for one in running:
        await one.session.close()
        await one.worker.stop(0.2)
