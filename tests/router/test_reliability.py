"""Retries, breakers, statuses, balance."""

import asyncio
import json
from collections import Counter

import pytest

from cascade_router.config import EngineSet, RoutedModel, RouterConfig, Timeouts
from cascade_router.endpoints import Endpoint
from tests.router import backend
from tests.router.conftest import QUESTION, config_for


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_refusal_of_an_engine_passes_unchanged_and_opens_no_breaker(engine, serve, status):
    body = b'{"object":"error","message":"no","code":1}'
    only = await engine(chat=backend.fails(status, body))
    router = await serve(config_for({"only": [only]}))
    for _ in range(12):
        got, _, raw = await router.chat()
        assert (got, raw) == (status, body)
    assert len(only.received) == 12
    only.scripts["/v1/chat/completions"] = backend.answers("only")
    assert (await router.chat())[0] == 200


async def test_refusal_below_the_top_is_not_escalated(engine, serve):
    small = await engine(chat=backend.fails(400))
    large = await engine(chat=backend.answers("large"))
    router = await serve(config_for({"small": [small], "large": [large]}))
    assert (await router.chat())[0] == 400
    assert large.received == []


@pytest.mark.parametrize(
    "first, retried",
    [
        (backend.fails(429, b"{}", "retry-after: 7"), True),
        (backend.fails(503), True),
        (backend.fails(500), True),
        (backend.fails(502), True),
        (backend.resets, True),
        (backend.fails(400), False),
        (backend.fails(501), False),
    ],
    ids=["429", "503", "500", "502", "reset", "400", "501"],
)
async def test_second_try_goes_once_to_another_replica(engine, serve, first, retried):
    bad, good = await engine(chat=first), await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [bad, good]}))
    statuses = [(await router.chat())[0] for _ in range(6)]
    assert len(bad.bodies("/v1/chat/completions")) >= 1
    assert (set(statuses) == {200}) == retried


async def test_back_pressure_of_the_only_replica_passes_with_its_retry_after(engine, serve):
    only = await engine(chat=backend.fails(429, b"{}", "retry-after: 7"))
    router = await serve(config_for({"only": [only]}))
    status, headers, _ = await router.chat()
    assert (status, headers["retry-after"], len(only.received)) == (429, "7", 1)


async def test_retries_stay_within_a_tenth_of_the_requests(engine, serve):
    bad = [await engine(chat=backend.fails(429)) for _ in range(2)]
    router = await serve(config_for({"only": bad}))
    for _ in range(100):
        await router.chat()
    assert 100 < sum(len(b.received) for b in bad) <= 121


async def test_breaker_opens_on_failures_and_heals_by_itself(engine, serve):
    only = await engine(chat=backend.fails(500))
    router = await serve(config_for({"only": [only]}))
    statuses = [(await router.chat())[0] for _ in range(8)]
    assert statuses == [500] * 5 + [503] * 3
    _, _, body = await router.chat()
    assert "paused" in json.loads(body)["error"]["message"]
    only.scripts["/v1/chat/completions"] = backend.answers("only")
    async with asyncio.timeout(5):
        while (await router.chat())[0] != 200:
            await asyncio.sleep(0.1)
    assert [(await router.chat())[0] for _ in range(5)] == [200] * 5


@pytest.mark.parametrize(
    "timeouts, script, status",
    [
        ({"first_byte": 0.1}, backend.hangs, 504),
        ({"total": 0.1}, backend.hangs, 504),
        ({"idle": 0.1}, "stalls", 504),
    ],
    ids=["first-byte", "total", "idle"],
)
async def test_time_outs_end_a_call_and_abort_it_at_the_engine(
    engine, serve, timeouts, script, status
):
    async def stalls(exchange: backend.Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
        await asyncio.sleep(3600)

    only = await engine(chat=stalls if script == "stalls" else script)
    router = await serve(config_for({"only": [only]}, timeouts=Timeouts(**timeouts)))
    got, _, body = await router.chat()
    assert (got, json.loads(body)["error"]["code"]) == (status, "engine_timeout")
    async with asyncio.timeout(5):
        while "/abort_request" not in only.paths():
            await asyncio.sleep(0.01)


async def test_stale_keep_alive_connection_costs_the_client_nothing(engine, serve):
    async def once(exchange: backend.Exchange) -> None:
        await exchange.reply(200, backend.completion("only"))
        # Closes after the answer without saying so, as an idle time-out of the engine does.
        exchange.writer.close()

    only = await engine(chat=once)
    router = await serve(config_for({"only": [only]}))
    assert [(await router.chat())[0] for _ in range(20)] == [200] * 20


async def test_split_follows_the_capacity_weights_within_five_percent(engine, serve):
    async def chat(exchange: backend.Exchange) -> None:
        await asyncio.sleep(0.005)
        await exchange.reply(200, backend.completion("only"))

    big, small = await engine(chat=chat), await engine(chat=chat)
    model = RoutedModel(
        name="only",
        service="chat-only",
        sets=(EngineSet(name="chat-only-big", weight=3.0), EngineSet(name="chat-only-s", weight=1)),
    )
    router = await serve(RouterConfig(cascade="chat", plan_id="p1", models=(model,)))
    router.worker.apply_services(
        {
            "chat-only": (
                Endpoint(pod="chat-only-big-0", address=big.url, ready=True),
                Endpoint(pod="chat-only-s-11", address=small.url, ready=True),
            )
        }
    )
    for _ in range(40):
        await asyncio.gather(*(router.chat() for _ in range(20)))
    share = len(big.received) / (len(big.received) + len(small.received))
    assert abs(share - 0.75) < 0.05


async def test_only_ready_endpoints_that_do_not_leave_get_new_work(engine, serve):
    engines = {name: await engine(chat=backend.answers(name)) for name in ("a", "b", "c")}
    model = RoutedModel(name="only", service="s", leaving_pods=("set-1",))
    router = await serve(RouterConfig(cascade="chat", plan_id="p1", models=(model,)))
    assert (await router.get("/ready"))[0] == 503
    router.worker.apply_services(
        {
            "s": tuple(
                Endpoint(pod=f"set-{i}", uid=f"u{i}", address=e.url, ready=i != 2)
                for i, e in enumerate(engines.values())
            )
        }
    )
    answers = [await router.chat() for _ in range(12)]
    assert Counter(status for status, _, _ in answers) == {200: 12}
    assert {name: len(e.received) for name, e in engines.items()} == {"a": 12, "b": 0, "c": 0}


async def test_admission_limit_sheds_with_429_and_retry_after(engine, serve):
    only = await engine(chat=backend.hangs)
    router = await serve(config_for({"only": [only]}, limits={"admitted_requests": 2}))
    waiting = [asyncio.ensure_future(router.chat()) for _ in range(2)]
    async with asyncio.timeout(5):
        while len(only.received) < 2:
            await asyncio.sleep(0.01)
    status, headers, body = await router.chat()
    assert (status, headers["retry-after"]) == (429, "1")
    assert "2 requests" in json.loads(body)["error"]["message"]
    for one in waiting:
        one.cancel()


async def test_headers_pass_but_for_hop_by_hop_and_engine_overrides(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    given = {"Authorization": "Bearer k", "traceparent": "00-1-2-01", "X-Override-Rid": "evil",
             "x-override-priority": "9", "TE": "trailers", "X-Request-Id": "abc"}  # fmt: skip
    body = {"model": "chat", "messages": QUESTION}
    _, headers, _ = await router.post(body, headers=given)
    sent = only.received[0].headers
    assert (sent["authorization"], sent["traceparent"]) == ("Bearer k", "00-1-2-01")
    assert sent["x-request-id"] == headers["x-request-id"] == "abc"
    assert len(sent["x-override-rid"]) == 32
    assert not {"te", "x-override-priority", "accept-encoding"} & set(sent)
    assert sent["host"] == only.url.removeprefix("http://")
