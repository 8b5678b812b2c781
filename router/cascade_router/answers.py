"""A collected answer: its text, how it ended, its log-probabilities, and its bytes for replay."""

import math
from dataclasses import dataclass, field
from typing import Any

import orjson

from . import sse
from .openai import Ask

SIGNAL_QUANTILE = 0.2
"""The self signal is this quantile of the token margins: unlike the mean it has no length bias
(arXiv 2404.10136)."""


@dataclass(slots=True)
class Choice:
    """One of the ``n`` choices of an answer."""

    text: str = ""
    reasoning: str = ""
    has_tool_calls: bool = False
    finish_reason: str | None = None
    margins: list[float] = field(default_factory=list)

    @property
    def judged_text(self) -> str:
        """What a judge reads: the content, else the reasoning (a parser may leave only that)."""
        return self.text or self.reasoning

    @property
    def signal(self) -> float | None:
        """The raw self signal in 0 to 1, ``None`` without log-probabilities."""
        return quantile(self.margins, SIGNAL_QUANTILE) if self.margins else None


@dataclass(slots=True)
class Answer:
    """What one model answered. ``payload`` holds the exact body, or the frames of its stream."""

    model: str
    status: int
    headers: list[tuple[str, str]]
    payload: list[bytes]
    is_stream: bool
    has_added_logprobs: bool
    choices: list[Choice] = field(default_factory=list)
    is_readable: bool = True
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def signal(self) -> float | None:
        """The least certain choice counts."""
        signals = [c.signal for c in self.choices]
        known = [s for s in signals if s is not None]
        return min(known) if known and len(known) == len(signals) else None

    def read_usage(self, usage: Any) -> None:
        """Take token counts from a ``usage`` object, wherever it stands."""
        if isinstance(usage, dict):
            prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
            if isinstance(prompt, int):
                self.prompt_tokens = prompt
            if isinstance(completion, int):
                self.completion_tokens = completion


def from_body(model: str, status: int, headers: list[tuple[str, str]], body: bytes,
              ask: Ask, *, has_added_logprobs: bool) -> Answer:  # fmt: skip
    """Read a plain answer."""
    answer = Answer(model, status, headers, [body], False, has_added_logprobs)
    document = _loads(body)
    if document is None or not isinstance(document.get("choices"), list):
        answer.is_readable = False
        return answer
    answer.read_usage(document.get("usage"))
    for entry in document["choices"]:
        choice = Choice()
        _read_choice(choice, entry, "message" if ask.is_chat else None)
        answer.choices.append(choice)
    return answer


def add_frame(answer: Answer, frame: bytes, ask: Ask) -> None:
    """Read one frame of a streamed answer and keep it for replay."""
    data = sse.data_of(frame)
    document = _loads(data) if data is not None and data != b"[DONE]" else None
    if document is None:
        answer.is_readable = answer.is_readable and data in (None, b"[DONE]")
        answer.payload.append(frame)
        return
    answer.read_usage(document.get("usage"))
    choices = document.get("choices")
    if not choices and isinstance(document.get("usage"), dict) and not ask.wants_usage:
        return
    answer.payload.append(frame)
    if not isinstance(choices, list):
        answer.is_readable = False
        return
    for entry in choices:
        index = entry.get("index", 0) if isinstance(entry, dict) else 0
        if not isinstance(index, int) or not 0 <= index < 1024:
            answer.is_readable = False
            return
        while len(answer.choices) <= index:
            answer.choices.append(Choice())
        _read_choice(answer.choices[index], entry, "delta" if ask.is_chat else None)


def client_payload(answer: Answer, ask: Ask) -> list[bytes]:
    """The bytes for the client: untouched, unless we added log-probabilities it did not ask for."""
    if not answer.has_added_logprobs:
        return answer.payload
    if not answer.is_stream:
        return [_strip_logprobs(answer.payload[0], ask)]
    stripped = []
    for frame in answer.payload:
        data = sse.data_of(frame)
        if data is None or data == b"[DONE]" or b'"logprobs"' not in data:
            stripped.append(frame)
        else:
            stripped.append(b"data: " + _strip_logprobs(data, ask) + b"\n\n")
    return stripped


def quantile(values: list[float], q: float) -> float:
    """The ``q`` quantile by linear interpolation; ``values`` must not be empty."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _loads(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _read_choice(choice: Choice, entry: Any, part: str | None) -> None:
    if not isinstance(entry, dict):
        return
    source = entry.get(part) if part else entry
    if isinstance(source, dict):
        text = source.get("content" if part else "text")
        if isinstance(text, str):
            choice.text += text
        reasoning = source.get("reasoning_content")
        if isinstance(reasoning, str):
            choice.reasoning += reasoning
        if source.get("tool_calls"):
            choice.has_tool_calls = True
    if isinstance(entry.get("finish_reason"), str):
        choice.finish_reason = entry["finish_reason"]
    logprobs = entry.get("logprobs")
    if isinstance(logprobs, dict):
        choice.margins += _chat_margins(logprobs) if part else _completion_margins(logprobs)


def _chat_margins(logprobs: dict[str, Any]) -> list[float]:
    margins = []
    for token in logprobs.get("content") or ():
        top = [t["logprob"] for t in token.get("top_logprobs") or () if "logprob" in t]
        if len(top) >= 2:
            margins.append(_margin(top))
    return margins


def _completion_margins(logprobs: dict[str, Any]) -> list[float]:
    tops = logprobs.get("top_logprobs") or ()
    return [_margin(list(top.values())) for top in tops if isinstance(top, dict) and len(top) >= 2]


def _margin(logprobs: list[float]) -> float:
    first, second = sorted(logprobs, reverse=True)[:2]
    return math.exp(first) - math.exp(second)


def _strip_logprobs(data: bytes, ask: Ask) -> bytes:
    document = orjson.loads(data)
    for entry in document.get("choices") or ():
        if not isinstance(entry, dict) or not isinstance(entry.get("logprobs"), dict):
            continue
        if ask.client_top_logprobs is None:
            entry["logprobs"] = None
        elif ask.is_chat:
            for token in entry["logprobs"].get("content") or ():
                token["top_logprobs"] = token["top_logprobs"][: ask.client_top_logprobs]
        else:
            tops = entry["logprobs"].get("top_logprobs") or []
            entry["logprobs"]["top_logprobs"] = [
                dict(list(top.items())[: ask.client_top_logprobs]) if top else top for top in tops
            ]
    return orjson.dumps(document)
