"""The official client works against the router."""

import openai
import pytest

from tests.router import backend
from tests.router.conftest import QUESTION, config_for


@pytest.fixture
async def client(engine, serve):
    small = await engine(chat=backend.answers("small", "one two"))
    large = await engine(
        chat=backend.answers("large", "three four"), decisions=backend.decisions(90, 10)
    )
    router = await serve(config_for({"small": [small], "large": [large]}))
    async with openai.AsyncOpenAI(
        api_key="none", base_url=router.url + "/v1", max_retries=0
    ) as made:
        yield made


async def test_plain_accepted_then_escalated(client):
    first = await client.chat.completions.create(model="chat", messages=QUESTION)
    assert (first.model, first.choices[0].message.content) == ("small", "one two")
    second = await client.chat.completions.create(model="chat", messages=QUESTION)
    assert (second.model, second.choices[0].message.content) == ("large", "three four")
    assert second.usage.prompt_tokens == 11


async def test_stream_with_usage_accepted_then_escalated(client):
    for model, text in (("small", "onetwo"), ("large", "threefour")):
        stream = await client.chat.completions.create(
            model="chat",
            messages=QUESTION,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
        assert {c.model for c in chunks} == {model}
        assert chunks[-1].usage.completion_tokens == 5


async def test_errors_and_models_are_understood(client):
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="nobody", messages=QUESTION)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="chat", messages=QUESTION,
                                             extra_body={"rid": "x"})  # fmt: skip
    assert refused.value.param == "rid"
    assert [m.id async for m in client.models.list()] == ["chat", "chat/small", "chat/large"]
