"""JSON bodies and stream frames of the generation endpoints, in SGLang's shape."""

import dataclasses
from typing import Any

import orjson

from . import logprobs, protocol
from .generation import Answer

DONE = b"data: [DONE]\n\n"


@dataclasses.dataclass(frozen=True)
class Reply:
    """What all parts of one answer share. ``created`` in Unix seconds."""

    request: protocol.Generation
    rid: str
    created: int

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.rid,
            "object": kind,
            "created": self.created,
            "model": self.request.model,
        }


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def whole(
    reply: Reply,
    choices: list[tuple[Answer, int, bool]],
    used: dict[str, Any],
    metadata: dict[str, Any],
) -> dict[str, Any]:
    """A plain answer. ``choices``: answer, tokens made, whether it was aborted."""
    kind = "chat.completion" if reply.request.is_chat else "text_completion"
    build = _chat_choice if reply.request.is_chat else _text_choice
    return {
        **reply.head(kind),
        "choices": [
            build(reply.request, index, answer, made, aborted)
            for index, (answer, made, aborted) in enumerate(choices)
        ],
        "usage": used,
        "metadata": metadata,
    }


def _chat_choice(
    request: protocol.Generation, index: int, answer: Answer, made: int, aborted: bool
) -> dict[str, Any]:
    return {
        "index": index,
        "message": {
            "role": "assistant",
            "content": "".join(answer.texts[:made]),
            "reasoning_content": None,
        },
        "logprobs": _chat_logprobs(request, answer, 0, made),
        "finish_reason": "abort" if aborted else answer.finish_reason,
        "matched_stop": None,
    }


def _text_choice(
    request: protocol.Generation, index: int, answer: Answer, made: int, aborted: bool
) -> dict[str, Any]:
    return {
        "index": index,
        "text": "".join(answer.texts[:made]),
        "logprobs": _text_logprobs(request, answer, 0, made),
        "finish_reason": "abort" if aborted else answer.finish_reason,
        "matched_stop": None,
    }


def _chat_logprobs(
    request: protocol.Generation, answer: Answer, start: int, end: int
) -> dict[str, Any] | None:
    if request.top_logprobs is None:
        return None
    return {
        "content": [
            logprobs.chat_entry(answer.texts[i], answer.chosen[i], request.top_logprobs)
            for i in range(start, end)
        ]
    }


def _text_logprobs(
    request: protocol.Generation, answer: Answer, start: int, end: int
) -> dict[str, Any] | None:
    if request.top_logprobs is None:
        return None
    offset = sum(len(text) for text in answer.texts[:start])
    return logprobs.completion_block(
        answer.texts[start:end], answer.chosen[start:end], request.top_logprobs, offset
    )


def frame(body: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


def opening(reply: Reply, index: int) -> bytes:
    """The first chunk of a chat stream: the role, no text."""
    return _chunk(reply, index, {"role": "assistant", "content": ""})


def piece(reply: Reply, index: int, answer: Answer, start: int, end: int) -> bytes:
    """The chunk that carries tokens ``start`` to ``end`` of one choice."""
    text = "".join(answer.texts[start:end])
    if reply.request.is_chat:
        block = _chat_logprobs(reply.request, answer, start, end)
        return _chunk(reply, index, {"role": None, "content": text}, block)
    block = _text_logprobs(reply.request, answer, start, end)
    return _text_chunk(reply, index, text, block)


def closing(reply: Reply, index: int, reason: str) -> bytes:
    """The chunk that ends one choice."""
    if reply.request.is_chat:
        return _chunk(reply, index, {"role": None, "content": None}, None, reason)
    return _text_chunk(reply, index, "", None, reason)


def accounting(reply: Reply, used: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    """The last chunk before ``[DONE]`` when the client asked for usage."""
    kind = "chat.completion.chunk" if reply.request.is_chat else "text_completion"
    return frame({**reply.head(kind), "choices": [], "usage": used, "metadata": metadata})


def _chunk(
    reply: Reply,
    index: int,
    delta: dict[str, Any],
    block: dict[str, Any] | None = None,
    reason: str | None = None,
) -> bytes:
    choice = {
        "index": index,
        "delta": {**delta, "reasoning_content": None},
        "logprobs": block,
        "finish_reason": reason,
        "matched_stop": None,
    }
    return frame({**reply.head("chat.completion.chunk"), "choices": [choice], "usage": None})


def _text_chunk(
    reply: Reply, index: int, text: str, block: dict[str, Any] | None, reason: str | None = None
) -> bytes:
    choice = {
        "index": index,
        "text": text,
        "logprobs": block,
        "finish_reason": reason,
        "matched_stop": None,
    }
    return frame({**reply.head("text_completion"), "choices": [choice], "usage": None})
