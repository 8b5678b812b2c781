"""Streams and bytes: frames untouched, pings, breaks, clients that leave."""

import asyncio
import json

import aiohttp
import pytest

from cascade_router.relay import PingTimes
from tests.router import backend
from tests.router.conftest import config_for

QUICK_PINGS = PingTimes(first=0.05, every=0.05)


@pytest.mark.parametrize("score, model", [(60, "small"), (59, "large")], ids=["kept", "escalated"])
async def test_streamed_answer_is_the_models_frames_without_the_usage_we_asked_for(
    engine, serve, score, model
):
    small = await engine(chat=backend.answers("small", "one two three"))
    large = await engine(
        chat=backend.answers("large", "one two three"), decisions=backend.decisions(score)
    )
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, body = await router.chat(stream=True)
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["x-cascade-model"] == model
    assert body == b"".join(backend.frames(model, "one", "two", "three"))
    assert small.bodies("/v1/chat/completions")[0]["stream_options"] == {"include_usage": True}
    [window] = router.worker.windows()
    assert sum(window.input_counts) == sum(window.output_counts) == 1


async def test_usage_frame_stays_when_the_client_asked_for_it(engine, serve):
    only = await engine(chat=backend.answers("only", "hi"))
    router = await serve(config_for({"only": [only]}))
    _, _, body = await router.chat(stream=True, stream_options={"include_usage": True})
    parts = backend.frames("only", "hi")
    assert body == b"".join([*parts[:-1], backend.usage_event("only"), parts[-1]])


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_stream_passes_byte_for_byte_wherever_it_is_cut(engine, serve, line_end):
    frames = backend.frames("only", "größer", "end")
    odd = b': comment\n\nevent: x\nid: 7\ndata: {"choices": []}\n\n'
    whole = (odd + b"".join(frames)).replace(b"\n", line_end) + b"no blank line at the end"
    cut = 1

    async def chat(exchange: backend.Exchange) -> None:
        await exchange.start_stream()
        for at in (whole[:cut], whole[cut : cut + 3], whole[cut + 3 :]):
            if at:
                await exchange.chunk(at)
        await exchange.end()

    only = await engine(chat=chat)
    router = await serve(config_for({"only": [only]}))
    for cut in range(1, len(whole), 7):
        _, _, body = await router.chat(stream=True)
        assert body == whole, f"cut at {cut}"


async def test_plain_answer_passes_byte_for_byte_with_its_headers(engine, serve):
    raw = b'{ "choices" : [ {"index":0,"message":{"content":"\\u00e9 1.50"}} ],\t"x":1e2 }'

    async def chat(exchange: backend.Exchange) -> None:
        await exchange.reply(200, raw, "content-type: application/json", "x-engine: 7",
                             "connection: keep-alive")  # fmt: skip

    only = await engine(chat=chat)
    router = await serve(config_for({"only": [only]}))
    status, headers, body = await router.chat(metadata={"a": 1})
    assert (status, body, headers["x-engine"]) == (200, raw, "7")


async def test_waiting_stream_gets_pings_and_the_decision_in_a_last_comment(engine, serve):
    async def slow(exchange: backend.Exchange) -> None:
        await asyncio.sleep(0.2)
        await backend.answers("small", "kept")(exchange)

    small = await engine(chat=slow)
    large = await engine(
        chat=backend.answers("large", "native"), decisions=backend.decisions(100, 0)
    )
    router = await serve(config_for({"small": [small], "large": [large]}), pings=QUICK_PINGS)
    for model, word, note in (
        ("small", "kept", b"x-cascade-scores=small=100"),
        ("large", "native", b"x-cascade-path=small,large x-cascade-scores=small=0"),
    ):
        status, headers, body = await router.chat(stream=True)
        pings, *_ = body.partition(b"data:")
        assert status == 200
        assert "x-cascade-model" not in headers
        assert pings.count(b": ping\n\n") >= 2
        rest = [f + b"\n\n" for f in body[len(pings) :].split(b"\n\n")[:-1]]
        assert [f for f in rest if not f.startswith(b":")] == backend.frames(model, word)
        assert rest[-1] == backend.DONE
        assert rest[-2].startswith(b": x-cascade-model=" + model.encode())
        assert note in rest[-2]


async def test_refusal_after_a_ping_is_an_event_without_done(engine, serve):
    async def slow(exchange: backend.Exchange) -> None:
        await asyncio.sleep(0.1)
        await exchange.reply(400, b'{"error":{"message":"too\\nlong"}}')

    small = await engine(chat=slow)
    large = await engine(chat=backend.answers("large"))
    router = await serve(config_for({"small": [small], "large": [large]}), pings=QUICK_PINGS)
    status, _, body = await router.chat(stream=True)
    assert status == 200
    assert b'data: {"error":{"message":"too\\nlong"}}\n\n' in body
    assert b"[DONE]" not in body


async def test_engine_that_breaks_off_ends_the_stream_with_an_error_and_no_half_frame(
    engine, serve
):
    async def chat(exchange: backend.Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(backend.event("only", {"content": "whole"}))
        await exchange.chunk(b'data: {"choices": [{"delta": {"content": "half')
        await backend.resets(exchange)

    only = await engine(chat=chat)
    router = await serve(config_for({"only": [only]}))
    status, _, body = await router.chat(stream=True)
    assert status == 200
    assert body.startswith(backend.event("only", {"content": "whole"}))
    assert b"half" not in body and b"[DONE]" not in body
    error = json.loads(body.split(b"\n\n")[1].removeprefix(b"data: "))["error"]
    assert error["code"] == "engine_failed"
    [window] = router.worker.windows()
    assert (window.failed_requests, window.models[0].failed) == (1, 1)


async def test_collected_answer_that_breaks_off_shows_nothing_of_it(engine, serve):
    async def chat(exchange: backend.Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(backend.event("small", {"content": "secret"}))
        await backend.resets(exchange)

    small = await engine(chat=chat)
    large = await engine(chat=backend.answers("large"))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, _, body = await router.chat(stream=True)
    assert status == 502
    assert b"secret" not in body


async def wait_for(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("where", ["first-model", "judge", "last-model", "relayed-stream"])
async def test_client_that_leaves_frees_the_engine_at_once(engine, serve, where, stream):
    async def trickle(exchange: backend.Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(backend.event("large", {"content": "a"}))
        await asyncio.sleep(3600)

    slow = trickle if where == "relayed-stream" and stream else backend.hangs
    small = await engine(chat=slow if where == "first-model" else backend.answers("small"))
    judging = await engine(decisions=backend.decisions(0, delay=3600 if where == "judge" else 0))
    large = await engine(
        chat=slow if "stream" in where or "last" in where else backend.answers("l")
    )
    busy = {"first-model": small, "judge": judging}.get(where, large)
    plan = config_for(
        {"small": [small], "judge": [judging], "large": [large]},
        judge={"model": "judge", "deadline_milliseconds": 600_000},
        models={"judge": {"threshold": 101}},
    )
    router = await serve(plan)
    async with aiohttp.ClientSession() as leaving:
        body = {"model": "chat", "stream": stream, "messages": [{"role": "user", "content": "x"}]}
        asking = asyncio.ensure_future(leaving.post(router.url + "/v1/chat/completions", json=body))
        await wait_for(lambda: bool(busy.received))
        await asyncio.sleep(0.1)
        if asking.done():
            (await asking).close()
        asking.cancel()
    await wait_for(lambda: busy.left == 1)
    await wait_for(lambda: "/abort_request" in busy.paths())
    [abort] = busy.bodies("/abort_request")
    [original] = [r for r in busy.received if r.path != "/abort_request"]
    assert abort == {"rid": original.headers["x-override-rid"]}
    assert len(abort["rid"]) == 32
    await wait_for(lambda: all(r.in_flight == 0 for r in router.worker.directory.replicas))
    assert router.worker.api.admitted == 0
    phase = "stream" if where == "relayed-stream" and stream else "waiting"
    assert router.metric("cascade_router_client_disconnects_total", phase=phase) == 1
