"""Accept or escalate: verdicts, the checks that cost nothing, thresholds. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from .answers import Answer
from .openai import Ask

LEVEL_COUNT = 5
NEVER_JUDGED = 0
NEVER_ACCEPTED = 101


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judges said of an answer.

    ``score``: points 0 to 100, ``None`` without a verdict; ``reason`` then says why. ``is_lost``:
    the judge could not be asked (error, deadline), so its planned ratio has to be kept otherwise.
    ``is_unfit``: a free check failed, the answer must not be returned while another can be had.
    """

    score: int | None
    judge: str
    reason: str = ""
    is_lost: bool = False
    is_unfit: bool = False
    label_mass: float | None = None
    signal: float | None = None


def is_accepted(score: int, threshold: int) -> bool:
    """Accept at score >= threshold: the solver's replay counts the same way."""
    return score >= threshold


def points(probabilities: Sequence[float]) -> int:
    """Expected level of five, in points: 25 x sum(i x p_i), rounded half up."""
    expected = sum(i * p for i, p in enumerate(probabilities))
    return min(100, max(0, math.floor(25.0 * expected + 0.5)))


def rounded(score: float) -> int:
    """A real score as points 0 to 100, rounded half up."""
    return min(100, max(0, math.floor(score + 0.5)))


def unfit(ask: Ask, answer: Answer) -> str | None:
    """Why the answer cannot be right whatever a judge says, or ``None``."""
    if not answer.is_readable or not answer.choices:
        return "unreadable"
    for choice in answer.choices:
        if not choice.judged_text.strip() and not choice.has_tool_calls:
            return "empty"
        if choice.finish_reason == "length" and ask.max_tokens is None:
            return "truncated"
        if _requires_tool(ask.body.get("tool_choice")) and not choice.has_tool_calls:
            return "tool_call_missing"
        if _requires_json(ask.body.get("response_format")) and not choice.has_tool_calls:
            if not _is_json(choice.text):
                return "invalid_json"
    return None


def fits(ask: Ask, context_length: int | None) -> bool:
    """Whether prompt and answer are likely to fit: four bytes of prompt count as one token.

    Only text counts. The engine has the last word: a prompt that it finds too long is a 400.
    """
    if context_length is None:
        return True
    size = _text_bytes(ask.body.get("messages") or ask.body.get("prompt"))
    return size / 4 + (ask.max_tokens or 0) <= context_length


def _requires_tool(tool_choice: Any) -> bool:
    return tool_choice == "required" or isinstance(tool_choice, dict)


def _requires_json(response_format: Any) -> bool:
    return isinstance(response_format, dict) and response_format.get("type") in (
        "json_object",
        "json_schema",
    )


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _text_bytes(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        # A prompt may be token ids: each is one token, so four of our bytes.
        return sum(4 if isinstance(v, int) else _text_bytes(v) for v in value)
    if isinstance(value, dict):
        return _text_bytes(value.get("content")) + _text_bytes(value.get("text"))
    return 0
