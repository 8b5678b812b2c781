"""Paths, models, errors and states as a client meets them."""

import asyncio
import json

import pytest

from cascade_router.config import ENGINE_CONTROL_FIELDS
from tests.router import backend
from tests.router.conftest import QUESTION, config_for


def error_of(body: bytes) -> dict[str, object]:
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


@pytest.mark.parametrize(
    "body, status, param, told",
    [
        (b"{", 400, None, "not JSON"),
        (b"[1]", 400, None, "must be a JSON object, not an array"),
        (b'{"model": "chat"}', 400, "messages", "a list of at least one message"),
        (b'{"model": "chat", "messages": []}', 400, "messages", "at least one message"),
        (b'{"model": "other", "messages": [1]}', 404, "model", "'other' does not exist"),
        (b'{"model": "chat/none", "messages": [1]}', 404, "model", "'chat/none' does not exist"),
        (b'{"model": 5, "messages": [1]}', 400, "model", "must be a string, not a number"),
        (b'{"messages": [1]}', 404, "model", "no model was named"),
        (b'{"model": "chat", "messages": [1], "stream": "yes"}', 400, "stream", "a boolean"),
        (b'{"model": "chat", "messages": [1], "n": 0}', 400, "n", "0 is out of range"),
        (b'{"model": "chat", "messages": [1], "n": true}', 400, "n", "an integer"),
        (b'{"model": "chat", "messages": [1], "max_tokens": "9"}', 400, "max_tokens", "integer"),
        (
            b'{"model": "chat", "messages": [1], "stream_options": {"include_usage": true}}',
            400,
            "stream_options",
            "only allowed when stream is true",
        ),
    ],
    ids=lambda value: value.decode() if isinstance(value, bytes) else None,
)
async def test_wrong_request_is_refused_with_field_and_what_is_allowed(
    engine, serve, body, status, param, told
):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    async with router.session.post(router.url + "/v1/chat/completions", data=body) as response:
        error = error_of(await response.read())
        assert (response.status, error["param"]) == (status, param)
        assert told in str(error["message"])
        assert error["code"] == ("model_not_found" if status == 404 else "invalid_request")
        assert response.headers["x-request-id"]
    assert only.received == []


@pytest.mark.parametrize("field", ENGINE_CONTROL_FIELDS)
async def test_engine_control_field_is_refused_by_name_unless_allowed(engine, serve, field):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    status, _, body = await router.chat(**{field: 1})
    assert (status, error_of(body)["param"]) == (400, field)
    router.apply(config_for({"only": [only]}, plan_id="p2", allowed_engine_fields=(field,)))
    assert (await router.chat(**{field: 1}))[0] == 200
    assert only.bodies("/v1/chat/completions")[0][field] == 1


async def test_plain_requests_go_upstream_plain_and_unknown_fields_pass(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    await router.chat(top_k=3, my_field={"deep": [1, 2.5]})
    assert only.bodies("/v1/chat/completions") == [
        {"model": "only", "messages": QUESTION, "top_k": 3, "my_field": {"deep": [1, 2.5]}}
    ]


async def test_models_are_the_plans(engine, serve):
    small, large = await engine(), await engine()
    config = config_for({"small": [small], "large": [large]})
    router = await serve(config)
    _, body = await router.get("/v1/models")
    assert [m["id"] for m in json.loads(body)["data"]] == ["chat", "chat/small", "chat/large"]
    router.apply(config.model_copy(update={"allow_forced_model": False}))
    _, body = await router.get("/v1/models")
    assert [m["id"] for m in json.loads(body)["data"]] == ["chat"]
    status, _, body = await router.post({"model": "chat/small", "messages": QUESTION})
    assert (status, error_of(body)["param"]) == (400, "model")


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/v1/responses", 404),
        ("GET", "/metrics", 404),
    ],
)
async def test_other_paths_and_methods_are_refused_clearly(engine, serve, method, path, status):
    router = await serve(config_for({"only": [await engine()]}))
    async with router.session.request(method, router.url + path) as response:
        assert response.status == status
        assert path in str(error_of(await response.read())["message"])


async def test_starting_until_every_model_that_is_asked_had_a_ready_replica(engine, serve):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    router = await serve(None)
    assert (await router.get("/health"))[0] == 200
    assert (await router.get("/ready"))[0] == 503
    engines = {"small": [small], "off": [], "large": [large]}
    off = {"off": {"threshold": 101}}
    router.apply(config_for(engines | {"large": []}, models=off))
    status, headers, body = await router.chat()
    assert (status, headers["retry-after"]) == (503, "5")
    assert "starting" in str(error_of(body)["message"]) and "large" in str(error_of(body))
    assert "off" not in str(error_of(body)["message"])
    router.apply(config_for(engines, plan_id="p2", models=off, judge={"model": "large"}))
    assert (await router.get("/ready"))[0] == 200
    # Once started, a model that loses its replicas is an outage, not a start.
    router.apply(config_for(engines | {"large": []}, plan_id="p3", models=off))
    assert (await router.get("/ready"))[0] == 200


async def test_body_over_the_limit_is_413_and_ends_the_connection(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}, limits={"body_bytes": 4096}))
    long = [{"role": "user", "content": "x" * 5000}]
    status, headers, body = await router.chat(messages=long)
    assert (status, error_of(body)["code"]) == (413, "body_too_large")
    assert headers["connection"] == "close"


async def test_draining_router_is_not_ready_serves_on_and_closes_connections(engine, serve):
    released = asyncio.Event()

    async def slow(exchange: backend.Exchange) -> None:
        await released.wait()
        await exchange.reply(200, backend.completion("only"))

    only = await engine(chat=slow)
    router = await serve(config_for({"only": [only]}))
    asking = asyncio.ensure_future(router.chat())
    async with asyncio.timeout(5):
        while not only.received:
            await asyncio.sleep(0.01)
    router.worker.api.is_draining = True
    router.worker.front.close_connections()
    assert (await router.get("/ready"))[0] == 503
    stopping = asyncio.ensure_future(router.worker.stop(5.0))
    await asyncio.sleep(0.05)
    released.set()
    assert (await asking)[0] == 200
    await stopping
    with pytest.raises(OSError):
        await router.get("/health")


async def test_idle_connection_does_not_delay_the_stop(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    assert (await router.chat())[0] == 200
    async with asyncio.timeout(5):
        await router.worker.stop(60.0)


async def test_fault_of_the_router_is_a_500_that_says_so_and_frees_its_place(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))

    async def broken(*args: object) -> None:
        raise ZeroDivisionError

    router.worker.backend.open = broken
    status, _, body = await router.chat()
    assert (status, error_of(body)["code"]) == (500, "internal_error")
    assert router.worker.api.admitted == 0


@pytest.mark.parametrize(
    "url, passes",
    [
        ("data:image/png;base64,AAAA", True),
        ("https://images.example/a.png", True),
        ("http://169.254.169.254/latest", False),
        ("https://images.example.evil/a.png", False),
        ("file:///etc/passwd", False),
        ("/etc/passwd", False),
        ("http://[broken", False),
    ],
)
@pytest.mark.parametrize("kind", ["image_url", "video_url", "audio_url"])
async def test_engines_fetch_media_from_allowed_hosts_only(engine, serve, url, passes, kind):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}, allowed_image_hosts=("images.example",)))
    content = [{"type": "text", "text": "hi"}, {"type": kind, kind: {"url": url}}]
    status, _, body = await router.chat(messages=[{"role": "user", "content": content}])
    assert (status == 200) == passes
    if not passes:
        assert (status, error_of(body)["param"]) == (400, "messages.0")


async def test_client_that_expects_100_continue_is_told_to_go_on(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    body = {"model": "chat", "messages": QUESTION}
    request = router.session.post(router.url + "/v1/chat/completions", json=body, expect100=True)
    async with asyncio.timeout(5), request as response:
        assert response.status == 200
