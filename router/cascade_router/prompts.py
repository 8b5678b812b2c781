"""Prompts of a calibration run: JSON lines of ``{"id", "messages", "max_tokens"}``."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from . import openai
from .openai import Ask


class PromptError(ValueError):
    """The prompts file is wrong; the message names line and field."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of the prompts file. ``max_tokens`` ``None``: the engine's own limit."""

    id: str
    messages: list[dict[str, Any]]
    max_tokens: int | None


def read_prompts(lines: Iterable[str]) -> list[Prompt]:
    """Parse the prompts file; raises ``PromptError`` naming line and field."""
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompt = _prompt(line, number)
            if prompt.id in seen:
                raise PromptError(
                    f"line {number}: id {prompt.id!r} stands in line {seen[prompt.id]} already"
                )
            seen[prompt.id] = number
            prompts.append(prompt)
    if not prompts:
        raise PromptError("the prompts file has no prompt")
    return prompts


def ask(prompt: Prompt) -> Ask:
    """The prompt as a request of a client."""
    body: dict[str, Any] = {"messages": prompt.messages}
    if prompt.max_tokens is not None:
        body["max_tokens"] = prompt.max_tokens
    return Ask(
        path=openai.CHAT,
        body=body,
        headers=[("content-type", "application/json")],
        request_id=f"calibrate-{prompt.id}",
        forced=None,
        is_stream=False,
        wants_usage=False,
        client_top_logprobs=None,
        max_tokens=prompt.max_tokens,
    )


def _prompt(line: str, number: int) -> Prompt:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise PromptError(f"line {number}: not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not value["id"]:
        raise PromptError(f"line {number}: id: must be a text that is not empty")
    if not isinstance(value.get("messages"), list) or not value["messages"]:
        raise PromptError(f"line {number}: messages: must be a list of at least one message")
    max_tokens = value.get("max_tokens")
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        raise PromptError(f"line {number}: max_tokens: {max_tokens!r} is no whole number >= 1")
    return Prompt(value["id"], value["messages"], max_tokens)
