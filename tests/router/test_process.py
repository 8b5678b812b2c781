"""The command as a user runs it: two processes from a file, followed, drained, measured."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from cascade_router.window import WindowReport
from tests.router import backend
from tests.router.conftest import QUESTION, config_for
from tests.router.ports import free_port

IDLE_MB = 60
"""What one idle worker process may hold."""


class Command:
    def __init__(self, process, port: int, admin_port: int) -> None:
        self.process = process
        self.api = f"http://127.0.0.1:{port}"
        self.admin = f"http://127.0.0.1:{admin_port}"

    async def get(self, url: str) -> tuple[int, str]:
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until(self, url: str, wanted) -> str:
        async with asyncio.timeout(20):
            while True:
                status, text = await self.get(url)
                if wanted(status, text):
                    return text
                await asyncio.sleep(0.05)

    async def ask(self, **more) -> tuple[int, dict[str, str]]:
        body = {"model": "chat", "messages": QUESTION, **more}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.api + "/v1/chat/completions", json=body) as response,
        ):
            await response.read()
            return response.status, dict(response.headers)

    def workers(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@pytest.fixture
async def command(engine, tmp_path):
    only = await engine(chat=backend.answers("only"))
    path = tmp_path / "router.json"
    port, admin_port = free_port(), free_port()
    process = None

    def write(plan_id: str, **more) -> None:
        fresh = path.with_suffix(".new")
        plan = config_for({"only": [only]}, plan_id=plan_id, **more)
        fresh.write_text(plan.model_dump_json(by_alias=True))
        fresh.rename(path)

    write("p1")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cascade_router", "serve", "--config", str(path),
        "--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin_port),
        "--processes", "2", "--linger-seconds", "0.5", "--grace-seconds", "5", "--seed", "1",
        env=os.environ | {"PYTHONPATH": "router"}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    made = Command(process, port, admin_port)
    made.write, made.engine = write, only
    try:
        await made.until(made.admin + "/ready", lambda status, _: status == 200)
        yield made
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def test_two_processes_serve_reload_report_and_drain(command):
    for _ in range(20):
        assert (await command.ask())[0] == 200
    text = await command.until(command.admin + "/internal/window", lambda status, _: status == 200)
    report = WindowReport.model_validate_json(text)
    assert (report.cascade, sum(w.requests for w in report.windows)) == ("chat", 20)
    _, text = await command.get(command.admin + "/metrics")
    assert 'cascade_router_requests_total{model="only",outcome="ok"} 20.0' in text
    for pid in command.workers():
        status = Path(f"/proc/{pid}/status").read_text()
        [line] = [x for x in status.splitlines() if x.startswith("VmRSS")]
        assert int(line.split()[1]) / 1024 <= IDLE_MB

    command.write("p2")
    async with asyncio.timeout(5):
        while {(await command.ask())[1]["x-cascade-plan"] for _ in range(8)} != {"p2"}:
            await asyncio.sleep(0.1)

    async def slow(exchange: backend.Exchange) -> None:
        await asyncio.sleep(1.5)
        await exchange.reply(200, backend.completion("only"))

    command.engine.scripts["/v1/chat/completions"] = slow
    asking = asyncio.ensure_future(command.ask())
    await asyncio.sleep(0.3)
    command.process.send_signal(signal.SIGTERM)
    await command.until(command.admin + "/ready", lambda status, _: status == 503)
    assert (await command.get(command.api + "/health"))[0] == 200, "it serves on for a while"
    assert (await asking)[0] == 200
    assert await command.process.wait() == 0


async def test_worker_that_dies_is_started_again_with_the_plan(command):
    before = command.workers()
    os.kill(before[0], signal.SIGKILL)
    deadline = time.monotonic() + 15
    while len(now := command.workers()) < 2 or before[0] in now:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    await command.until(command.admin + "/ready", lambda status, _: status == 200)
    for _ in range(20):
        status, headers = await command.ask()
        assert (status, headers["x-cascade-plan"]) == (200, "p1")


async def test_logs_are_json_and_hold_no_prompt(command):
    await command.ask(messages=[{"role": "user", "content": "my secret"}])
    command.process.send_signal(signal.SIGTERM)
    _, logged = await command.process.communicate()
    lines = [json.loads(line) for line in logged.splitlines()]
    [access] = [line for line in lines if line["event"] == "request"]
    assert (access["status"], access["path"], access["plan"]) == (200, "only", "p1")
    assert b"secret" not in logged
