"""What a request will be answered with: length, token texts, log-probabilities, truth behind it."""

import dataclasses

from . import logprobs, protocol, quality, tokens
from .errors import RequestError
from .machine import Machine


@dataclasses.dataclass(frozen=True)
class Personality:
    """The model as the truth knows it. ``name`` is the model path, so replicas answer alike."""

    name: str
    points: float
    seed: int

    @property
    def ability(self) -> float:
        return quality.ability(self.points)


@dataclasses.dataclass(frozen=True)
class Answer:
    """One choice: token texts that join to the whole answer, and why it ends."""

    texts: list[str]
    finish_reason: str
    chosen: list[float]
    """Probability of each token; empty when the request wants no log-probabilities."""


def prompt_tokens(request: protocol.Generation, machine: Machine) -> int:
    """Tokens to prefill. Raises ``RequestError`` 400 when they do not fit the context."""
    count = tokens.count(request.full_text)
    count += tokens.TEMPLATE_TOKENS_PER_MESSAGE * request.messages
    if count >= machine.context_length:
        raise RequestError(
            400,
            f"The input ({count} tokens) is longer than the model's context length "
            f"({machine.context_length} tokens).",
        )
    if count >= machine.kv_tokens:
        raise RequestError(
            400,
            f"Input length ({count} tokens) exceeds the maximum allowed length "
            f"({machine.kv_tokens - 1} tokens): the KV pool holds no more.",
        )
    if request.max_tokens is not None and count + request.max_tokens > machine.context_length:
        raise RequestError(
            400,
            f"Requested token count exceeds the model's maximum context length of "
            f"{machine.context_length} tokens. You requested a total of "
            f"{count + request.max_tokens} tokens: {count} tokens from the input messages and "
            f"{request.max_tokens} tokens for the completion.",
        )
    return count


def answer(
    request: protocol.Generation,
    who: Personality,
    prompt_length: int,
    machine: Machine,
    choice: int,
) -> Answer:
    """The answer that this model gives to this prompt, the same every time."""
    room = request.max_tokens or machine.context_length - prompt_length
    natural = tokens.natural_length(who.seed, who.name, request.prompt, choice)
    natural = max(natural, request.min_tokens)
    length = room if request.ignore_eos else min(natural, room)
    worth = quality.answer_quality(who.seed, who.name, request.prompt, who.ability, choice)
    mark = quality.reference(who.seed, worth, who.name, request.prompt, choice)
    texts = tokens.answer(who.seed, f"{who.name}#{choice}", request.prompt, length, mark)
    if request.wants_json:
        texts = tokens.as_json(texts)
    chosen: list[float] = []
    if request.top_logprobs is not None:
        sure = logprobs.confidence(who.seed, who.name, request.prompt, who.ability, choice)
        chosen = logprobs.probabilities(who.seed, who.name, request.prompt, sure, length)
    ended = natural <= room and not request.ignore_eos
    return Answer(texts, "stop" if ended else "length", chosen)
