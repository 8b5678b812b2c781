"""A new plan: one swap, old requests keep their plan, a bad document changes nothing."""

import asyncio
import json

import pytest

from cascade_router import reload
from tests.router import backend
from tests.router.conftest import config_for


async def test_requests_in_flight_keep_the_plan_they_began_with(engine, serve):
    released = asyncio.Event()

    async def held(exchange: backend.Exchange) -> None:
        await released.wait()
        await backend.answers("small", "old")(exchange)

    small = await engine(chat=held)
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(50))
    engines = {"small": [small], "large": [large]}
    router = await serve(config_for(engines, models={"small": {"threshold": 40}}))
    waiting = [asyncio.ensure_future(router.chat()) for _ in range(5)]
    async with asyncio.timeout(5):
        while len(small.received) < 5:
            await asyncio.sleep(0.01)
    router.apply(config_for(engines, plan_id="p2", models={"small": {"threshold": 60}}))
    released.set()
    for one in waiting:
        status, headers, _ = await one
        assert (status, headers["x-cascade-plan"], headers["x-cascade-path"]) == (
            200,
            "p1",
            "small",
        )
    _, headers, _ = await router.chat()
    assert (headers["x-cascade-plan"], headers["x-cascade-path"]) == ("p2", "small,large")
    old, new = router.worker.windows()
    assert (old.plan_id, old.closed, old.requests, old.models[0].accepted) == ("p1", True, 5, 5)
    assert (new.plan_id, new.closed, new.requests, new.models[0].escalated) == ("p2", False, 1, 1)


async def test_no_request_fails_while_plans_change(engine, serve):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(50))
    engines = {"small": [small], "large": [large]}
    router = await serve(config_for(engines))
    asked: list[int] = []

    async def ask() -> None:
        for _ in range(20):
            asked.append((await router.chat())[0])

    async def change() -> None:
        for number in range(40):
            threshold = {"threshold": 30 + number}
            router.apply(config_for(engines, plan_id=f"q{number}", models={"small": threshold}))
            await asyncio.sleep(0.002)

    await asyncio.gather(change(), *(ask() for _ in range(8)))
    assert asked == [200] * 160


GOOD = {"cascade": "chat", "planId": "p9", "models": [{"name": "a"}]}


@pytest.mark.parametrize(
    "text, told",
    [
        ("{", "not JSON"),
        ("[]", "schemaVersion"),
        (json.dumps(GOOD | {"schemaVersion": 2}), "schemaVersion: 2 is not supported"),
        (json.dumps(GOOD | {"judgee": {}}), "judgee: Extra inputs"),
        (json.dumps(GOOD | {"models": []}), "models: Tuple should have at least 1 item"),
        (json.dumps(GOOD | {"models": [{"name": "a"}, {"name": "b"}]}), "a is not the last model"),
        (
            json.dumps(GOOD | {"models": [{"name": "a", "threshold": 102}, {"name": "b"}]}),
            "models.0.threshold: Input should be less than or equal to 101 (got 102)",
        ),
        (json.dumps(GOOD | {"judge": {"model": "x"}}), "judge.model: 'x' is none of ['a']"),
    ],
    ids=["json", "list", "version", "unknown-key", "empty", "no-threshold", "range", "judge"],
)
async def test_bad_document_keeps_the_old_plan_and_names_the_field(engine, serve, text, told):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    digest = router.worker.digest
    router.worker.apply_text(text)
    assert told in router.worker.reload_error
    assert router.worker.digest == digest
    assert (await router.chat())[1]["x-cascade-plan"] == "p1"
    assert router.metric("cascade_router_plan_reloads_total", result="refused") == 1
    router.apply(config_for({"only": [only]}, plan_id="p2"))
    assert router.worker.reload_error == ""


def test_digest_is_the_start_of_the_sha256_of_the_text():
    assert reload.digest("abc") == "ba7816bf8f01cfea"


async def test_escalations_used_stay_used_when_the_plan_changes(engine, serve):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(0))
    engines = {"small": [small], "large": [large]}
    models = {"large": {"escalations_per_second": 0.0, "escalation_burst": 1.0}}
    router = await serve(config_for(engines, models=models))
    assert (await router.chat())[1]["x-cascade-model"] == "large"
    router.apply(config_for(engines, plan_id="p2", models=models))
    assert (await router.chat())[1]["x-cascade-model"] == "small"
