"""Requests of the generation endpoints, read from JSON bodies with SGLang's error texts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from .errors import RequestError


@dataclasses.dataclass(frozen=True)
class Generation:
    """One chat or completion request.

    ``prompt`` is what seeds the answer (chat: the last user message), ``full_text`` and
    ``messages`` what is prefilled. ``top_logprobs`` is ``None`` without log-probabilities.
    """

    is_chat: bool
    model: str
    prompt: str
    full_text: str
    messages: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    n: int
    stream: bool
    include_usage: bool
    top_logprobs: int | None
    wants_json: bool
    rid: str | None


def chat(body: Any, default_model: str) -> Generation:
    """Raises ``RequestError`` 400 with the field and what is allowed."""
    fields = _fields(body)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "messages: must be a list with at least one message")
    texts = [_content(message, index) for index, message in enumerate(messages)]
    asked = [t for t, m in zip(texts, messages, strict=True) if m.get("role") == "user"]
    wants = bool(fields.get("logprobs"))
    top = _integer(fields, "top_logprobs", 0, low=0, high=20) or 0
    if top and not wants:
        raise RequestError(400, "top_logprobs: needs logprobs=true")
    return Generation(
        is_chat=True,
        prompt=asked[-1] if asked else texts[-1],
        full_text="\n".join(texts),
        messages=len(messages),
        top_logprobs=top if wants else None,
        **_common(fields, default_model, ("max_completion_tokens", "max_tokens")),
    )


def completions(body: Any, default_model: str) -> list[Generation]:
    """One generation per prompt. Raises ``RequestError`` 400."""
    fields = _fields(body)
    prompts = _prompts(fields.get("prompt"))
    top = _integer(fields, "logprobs", None, low=0, high=20)
    common = _common(fields, default_model, ("max_tokens",))
    if common["max_tokens"] is None:
        common["max_tokens"] = 16
    return [
        Generation(
            is_chat=False, prompt=text, full_text=text, messages=0, top_logprobs=top, **common
        )
        for text in prompts
    ]


def _fields(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise RequestError(400, "body: must be a JSON object", "Bad Request")
    return body


def _common(
    fields: Mapping[str, Any], default_model: str, limits: tuple[str, ...]
) -> dict[str, Any]:
    given = [_integer(fields, name, None, low=1, high=2**31) for name in limits]
    options = fields.get("stream_options") or {}
    form = fields.get("response_format") or {}
    return {
        "model": str(fields.get("model") or default_model),
        "max_tokens": next((value for value in given if value is not None), None),
        "min_tokens": _integer(fields, "min_tokens", 0, low=0, high=2**31),
        "ignore_eos": bool(fields.get("ignore_eos")),
        "n": _integer(fields, "n", 1, low=1, high=128),
        "stream": bool(fields.get("stream")),
        "include_usage": isinstance(options, dict) and bool(options.get("include_usage")),
        "wants_json": isinstance(form, dict) and form.get("type") in ("json_object", "json_schema"),
        "rid": fields["rid"] if isinstance(fields.get("rid"), str) else None,
    }


def _integer(
    fields: Mapping[str, Any], name: str, default: int | None, *, low: int, high: int
) -> int | None:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(400, f"{name}: {value!r} must be an integer from {low} to {high}")
    return value


def _content(message: Any, index: int) -> str:
    """Text of one message: a string, or the text parts of a list."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(400, f"messages[{index}].role: must be a string")
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        return " ".join(part for part in parts if isinstance(part, str))
    if content is None or isinstance(content, str):
        return content or ""
    raise RequestError(400, f"messages[{index}].content: must be a string or a list of parts")


def _prompts(prompt: Any) -> list[str]:
    """Text, token ids, or a list of either."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return prompt
        if all(isinstance(item, int) for item in prompt):
            return [" ".join(map(str, prompt))]
        if all(isinstance(item, list) and item for item in prompt):
            return [" ".join(map(str, item)) for item in prompt]
    raise RequestError(400, "prompt: must be text, token ids, or a list of either")
