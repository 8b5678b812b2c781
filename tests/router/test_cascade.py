"""The walk over real sockets: who answers, what the client sees of it, what engines receive."""

import json

import pytest

from tests.router import backend
from tests.router.conftest import config_for


async def test_answer_at_or_above_the_threshold_comes_from_the_first_model(engine, serve):
    small = await engine(chat=backend.answers("small", "four"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(60))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, body = await router.chat()
    assert (status, body) == (200, backend.completion("small", "four"))
    assert headers["x-cascade-model"] == "small"
    assert headers["x-cascade-path"] == "small"
    assert headers["x-cascade-scores"] == "small=60"
    assert headers["x-cascade-plan"] == "p1"
    assert large.paths() == ["/v1/decisions"]


async def test_answer_below_the_threshold_is_escalated_and_never_shown(engine, serve):
    small = await engine(chat=backend.answers("small", "rejected"))
    large = await engine(chat=backend.answers("large", "right"), decisions=backend.decisions(59))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, body = await router.chat()
    assert (status, body) == (200, backend.completion("large", "right"))
    assert headers["x-cascade-path"] == "small,large"
    assert headers["x-cascade-scores"] == "small=59"
    assert b"rejected" not in body
    assert [b["model"] for b in large.bodies("/v1/chat/completions")] == ["large"]


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


async def test_usage_frame_stays_when_the_client_asked_for_it(engine, serve):
    only = await engine(chat=backend.answers("only", "hi"))
    router = await serve(config_for({"only": [only]}))
    _, _, body = await router.chat(stream=True, stream_options={"include_usage": True})
    parts = backend.frames("only", "hi")
    assert body == b"".join([*parts[:-1], backend.usage_event("only"), parts[-1]])


async def test_judge_sees_conversation_and_answer_as_data(engine, serve):
    small = await engine(chat=backend.answers("small", "four"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    router = await serve(config_for({"small": [small], "large": [large]}))
    await router.chat()
    asked = large.bodies("/v1/decisions")[0]
    assert asked["input"]["conversation"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert asked["input"]["answer"] == "four"
    [question] = asked["questions"]
    assert (question["type"], len(question["levels"])) == ("score", 5)
    assert (asked["temperature"], asked["prompt_format_version"]) == (1.0, 1)


async def test_plain_requests_go_upstream_plain_and_unknown_fields_pass(engine, serve):
    only = await engine(chat=backend.answers("only"))
    router = await serve(config_for({"only": [only]}))
    await router.chat(top_k=3, my_field={"deep": [1, 2.5]})
    sent = only.bodies("/v1/chat/completions")[0]
    assert sent == {
        "model": "only",
        "messages": [{"role": "user", "content": "What is 2 + 2?"}],
        "top_k": 3,
        "my_field": {"deep": [1, 2.5]},
    }
    assert json.dumps(sent).count("stream") == 0
