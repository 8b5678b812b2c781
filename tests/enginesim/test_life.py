"""Start, stop, abort, keys, limits and faults of a running engine."""

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import pytest

from cascade_enginesim.__main__ import DRAIN_CHECK_SECONDS
from tests.enginesim import processes
from tests.enginesim.processes import Process

LONG = "talk [tokens=20000]"
SLOW = {"ENGINESIM_TIME_SCALE": "1"}


async def eventually(look: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not await look():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


async def running(process: Process) -> int:
    reply = await asyncio.to_thread(process.request, "/v1/loads")
    load = reply.json["loads"][0]
    return int(load["num_running_reqs"] + load["num_waiting_reqs"])


def body(text: str = LONG, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


async def first_chunk(response: aiohttp.ClientResponse) -> bytes:
    return await response.content.readuntil(b"\n\n")


def test_until_it_is_up_everything_is_503(tmp_path: pathlib.Path) -> None:
    with processes.engine(tmp_path / "log", wait="", ENGINESIM_STARTUP_SECONDS="3") as engine:
        for path in ("/ready", "/health", "/ping"):
            assert engine.request(path).status == 503
        assert engine.chat("hello").status == 503
        started = time.monotonic()
        while engine.request("/ready").status != 200:
            assert time.monotonic() - started < 10
            time.sleep(0.05)
        assert engine.chat("hello [tokens=5]").status == 200


async def test_a_term_signal_lets_requests_finish_and_still_answers_new_ones(
    tmp_path: pathlib.Path,
) -> None:
    with processes.engine(tmp_path / "log", ENGINESIM_TIME_SCALE="10") as engine:
        async with aiohttp.ClientSession() as session:
            url = engine.url + "/v1/chat/completions"
            running_body = body("talk [tokens=5000]", stream=True)
            async with session.post(url, json=running_body) as response:
                await first_chunk(response)
                engine.terminate()

                async def unready() -> bool:
                    return (await asyncio.to_thread(engine.request, "/ready")).status == 503

                await eventually(unready)
                assert (await asyncio.to_thread(engine.request, "/health")).status == 503
                # Past the first look at whether requests are left.
                await asyncio.sleep(2 * DRAIN_CHECK_SECONDS / 10)
                late = await asyncio.to_thread(engine.chat, "hello [tokens=5]")
                assert late.status == 200
                rest = await response.read()
        assert b'"finish_reason":"stop"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        assert await asyncio.to_thread(engine.popen.wait, 10) == 0
        assert engine.events()[-1] == "SIMULATED engine stopped"


async def test_an_idle_engine_exits_soon_after_the_signal(tmp_path: pathlib.Path) -> None:
    with processes.engine(tmp_path / "log") as engine:
        engine.terminate()
        assert await asyncio.to_thread(engine.popen.wait, 5) == 0


@pytest.fixture
def slow(tmp_path: pathlib.Path) -> Any:
    """An engine at real speed, so that a long answer runs until it is stopped."""
    with processes.engine(tmp_path / "log", **SLOW) as process:
        yield process


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_a_client_that_leaves_aborts_its_request(slow: Process, stream: bool) -> None:
    async with aiohttp.ClientSession() as session:
        asked = asyncio.ensure_future(
            session.post(slow.url + "/v1/chat/completions", json=body(stream=stream))
        )
        await eventually(lambda: _is(slow, 1))
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        if not asked.cancelled():
            asked.result().close()
        await eventually(lambda: _is(slow, 0))


async def _is(process: Process, count: int) -> bool:
    return await running(process) == count


async def test_an_abort_by_prefix_of_the_header_id_ends_the_request(slow: Process) -> None:
    async with aiohttp.ClientSession() as session:
        rid = "5f" * 16
        async with session.post(
            slow.url + "/v1/chat/completions",
            json=body(stream=True),
            headers={"x-override-rid": rid},
        ) as response:
            first = await first_chunk(response)
            assert rid.encode() in first
            other = await asyncio.to_thread(slow.request, "/abort_request", {"rid": "77"})
            assert other.status == 200
            assert await _is(slow, 1)
            done = await asyncio.to_thread(slow.request, "/abort_request", {"rid": rid[:8]})
            assert done.status == 200
            rest = await asyncio.wait_for(response.read(), 5)
        assert b'"finish_reason":"abort"' in rest
        await eventually(lambda: _is(slow, 0))


async def test_an_empty_id_aborts_nothing_and_abort_all_everything(slow: Process) -> None:
    async with aiohttp.ClientSession() as session:
        url = slow.url + "/v1/chat/completions"
        async with (
            session.post(url, json=body(stream=True)) as one,
            session.post(url, json=body(stream=True)) as two,
        ):
            await asyncio.to_thread(slow.request, "/abort_request", {"rid": ""})
            assert await _is(slow, 2)
            await asyncio.to_thread(slow.request, "/abort_request", {"abort_all": True})
            rests = [await asyncio.wait_for(r.read(), 5) for r in (one, two)]
    assert all(b'"finish_reason":"abort"' in rest for rest in rests)


async def test_a_full_queue_is_503(tmp_path: pathlib.Path) -> None:
    flags = ("--max-running-requests", "1", "--max-queued-requests", "1")
    with processes.engine(tmp_path / "log", *flags, **SLOW) as engine:
        async with aiohttp.ClientSession() as session:
            url = engine.url + "/v1/chat/completions"
            async with session.post(url, json=body(stream=True)) as first:
                await first_chunk(first)
                queued = asyncio.ensure_future(session.post(url, json=body()))
                await eventually(lambda: _is(engine, 2))
                refused = await asyncio.to_thread(engine.chat, "hello")
                assert refused.status == 503
                assert "queue is full" in refused.json["message"]
                queued.cancel()
                await asyncio.gather(queued, return_exceptions=True)


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        pytest.param("/health", "", 200, id="health-is-open"),
        pytest.param("/ready", "", 200, id="ready-is-open"),
        pytest.param("/metrics", "", 200, id="metrics-are-open"),
        pytest.param("/v1/models", "", 401, id="no-key"),
        pytest.param("/v1/models", "wrong", 401, id="wrong-key"),
        pytest.param("/v1/models", "user", 200, id="key"),
        pytest.param("/flush_cache", "user", 401, id="user-key-on-admin-path"),
        pytest.param("/flush_cache", "root", 200, id="admin-key"),
        pytest.param("/v1/models", "root", 401, id="admin-key-on-user-path"),
    ],
)
def test_keys_guard_what_they_guard_in_the_real_engine(
    guarded: Process, path: str, key: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert guarded.request(path, headers=headers).status == status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    flags = ("--api-key", "user", "--admin-api-key", "root", "--enable-metrics")
    with processes.engine(tmp_path_factory.mktemp("guarded") / "log", *flags) as process:
        yield process


def test_pausing_makes_it_unready_but_keeps_it_healthy(tmp_path: pathlib.Path) -> None:
    with processes.engine(tmp_path / "log") as engine:
        engine.request("/pause_generation", {})
        assert engine.request("/ready").status == 503
        assert engine.request("/ping").status == 200
        engine.request("/continue_generation", {})
        assert engine.request("/ready").status == 200


def test_an_unknown_model_path_is_simulated_small_with_a_warning(tmp_path: pathlib.Path) -> None:
    with processes.engine(tmp_path / "log", model="/weights/unheard-of") as engine:
        info = engine.request("/model_info").json
        assert info["simulated_architecture"] == "Qwen/Qwen2.5-0.5B"
        assert any("unknown model path" in event for event in engine.events())
        assert engine.chat("hello [tokens=5]").status == 200


def test_a_config_file_at_the_model_path_is_used(tmp_path: pathlib.Path) -> None:
    config = {
        "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "vocab_size": 1000,
        "intermediate_size": 512, "max_position_embeddings": 2048,
    }  # fmt: skip
    (tmp_path / "config.json").write_bytes(orjson.dumps(config))
    with processes.engine(tmp_path / "log", model=str(tmp_path)) as engine:
        assert engine.request("/v1/models").json["data"][0]["max_model_len"] == 2048


def fault(text: str) -> dict[str, str]:
    return {"x-simulate-fault": text}


@pytest.mark.parametrize("status", [429, 500])
def test_a_status_fault_by_header(small: Process, status: int) -> None:
    reply = small.chat("hello", fault(str(status)))
    assert reply.status == status
    assert reply.json["code"] == status
    assert small.chat("hello [tokens=3]").status == 200


def test_an_unknown_fault_is_named(small: Process) -> None:
    reply = small.chat("hello", fault("sulk"))
    assert reply.status == 400
    assert "fault 'sulk'" in reply.json["message"]


def test_garbage_is_no_json(small: Process) -> None:
    reply = small.chat("hello", fault("garbage"))
    assert reply.status == 200
    with pytest.raises(ValueError, match="end of data"):
        orjson.loads(reply.raw)


async def test_a_truncated_stream_breaks_off_after_its_tokens(small: Process) -> None:
    seen = b""
    async with broken_off(small, "truncate=7", stream=True) as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            async for part in response.content.iter_any():
                seen += part
    assert b"[DONE]" not in seen
    words = [
        orjson.loads(frame.removeprefix(b"data: "))["choices"][0]["delta"]["content"]
        for frame in seen.split(b"\n\n")
        if frame
    ]
    assert len("".join(words).split()) == 7


async def test_a_truncated_answer_is_shorter_than_promised(small: Process) -> None:
    async with broken_off(small, "truncate") as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


@contextlib.asynccontextmanager
async def broken_off(
    process: Process, text: str, **fields: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to a 50-token request that meets this fault."""
    url, asked = process.url + "/v1/chat/completions", body("hello [tokens=50]", **fields)
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=asked, headers=fault(text)) as response,
    ):
        yield response


async def test_a_hanging_request_never_answers(small: Process) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(TimeoutError):
            await session.post(
                small.url + "/v1/chat/completions",
                json=body("hello [tokens=3]"),
                headers=fault("hang"),
                timeout=aiohttp.ClientTimeout(total=0.5),
            )


def test_a_slow_answer_takes_its_modelled_seconds_longer(small: Process) -> None:
    started = time.monotonic()
    assert small.chat("hello [tokens=3]", fault("slow=30")).status == 200
    assert time.monotonic() - started >= 0.3


def test_faults_set_at_run_time_meet_as_many_requests_as_said(small: Process) -> None:
    active = small.request("/simulate/faults", {"faults": "429*2"}).json
    assert active == {"429": {"value": 1.0, "left": 2}}
    assert [small.chat("hello [tokens=3]").status for _ in range(3)] == [429, 429, 200]
    assert small.request("/simulate/faults", {"faults": ""}).json == {}


def test_bad_faults_change_nothing(small: Process) -> None:
    assert small.request("/simulate/faults", {"faults": "429*1, what"}).status == 400
    assert small.request("/simulate/faults", {"fault": "429"}).status == 400
    assert small.request("/simulate/faults").json == {}


def test_a_crash_comes_after_the_answers_said(tmp_path: pathlib.Path) -> None:
    with processes.engine(tmp_path / "log", ENGINESIM_FAULTS="crash=3") as engine:
        assert [engine.chat("hello [tokens=3]").status for _ in range(2)] == [200, 200]
        with pytest.raises(OSError, match=r"closed|reset|without response"):
            engine.chat("hello [tokens=3]")
        assert engine.popen.wait(5) == 1


def test_an_engine_that_never_gets_ready_stays_503(tmp_path: pathlib.Path) -> None:
    with processes.engine(tmp_path / "log", wait="", ENGINESIM_FAULTS="never-ready") as engine:
        time.sleep(0.3)
        assert [engine.request(path).status for path in ("/ready", "/health")] == [503, 503]
        engine.request("/simulate/faults", {"faults": ""})
        assert engine.request("/ready").status == 200


def test_it_stays_small(small: Process) -> None:
    """What a node with many simulated engines has to spare for each."""
    for i in range(50):
        small.chat(f"hello {i} [tokens=500]", logprobs=True, top_logprobs=5)
    status = pathlib.Path(f"/proc/{small.popen.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 70 * 1024
