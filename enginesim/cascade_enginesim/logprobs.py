"""Log-probabilities of an answer's tokens, more confident where the answer is right.

The confidence of an answer is a normal number whose mean lies ``SEPARATION`` higher for correct
answers: one signal then tells right from wrong with AUROC = Phi(SEPARATION / sqrt 2), near 0.78.
"""

import functools
import math
from typing import Any

from . import quality, tokens

SEPARATION = 1.1
BASE_LOGIT = 1.6
"""Logit of the chosen token's probability for an answer of average confidence."""
CONFIDENCE_WEIGHT = 0.55
TOKEN_NOISE = 0.45
SMALLEST_SHARE = 1e-9
DECIMALS = 6
"""Of a log-probability on the wire."""

SPACED = tuple(" " + word for word in tokens.WORDS)
NOISE = tuple(quality.normal(0, "token noise", i) for i in range(256))


def confidence(seed: int, model: str, prompt: str, able: float, choice: int = 0) -> float:
    """How sure the model is of this answer, in standard deviations."""
    drawn = quality.normal(seed, "confidence", model, prompt, choice)
    right = quality.is_correct(seed, model, prompt, able, choice)
    return drawn + (SEPARATION / 2 if right else -SEPARATION / 2)


def probabilities(seed: int, model: str, prompt: str, sure: float, length: int) -> list[float]:
    """Probability of each chosen token, between 0 and 1."""
    start = int(quality.draw(seed, "noise", model, prompt) * len(NOISE))
    base = BASE_LOGIT + CONFIDENCE_WEIGHT * sure
    return [
        1 / (1 + math.exp(-(base + TOKEN_NOISE * NOISE[(start + i) % len(NOISE)])))
        for i in range(length)
    ]


def alternatives(chosen: str, probability: float, top: int) -> tuple[tuple[str, float], ...]:
    """(token, log-probability) of the ``top`` likeliest, the chosen one among them."""
    if top < 1:
        return ()
    rest = 1.0 - probability
    found = [(chosen, _logarithm(probability))]
    for rank, other in enumerate(_others(chosen, top - 1)):
        found.append((other, _logarithm(rest * 0.6 * 0.4**rank)))
    return tuple(sorted(found, key=lambda pair: -pair[1]))


@functools.lru_cache(maxsize=1024)
def _others(chosen: str, count: int) -> tuple[str, ...]:
    """Other words than the chosen one, in an order that belongs to it."""
    start, size = sum(chosen.encode()), len(SPACED)
    around = [SPACED[(start + i) % size] for i in range(count + 1)]
    return tuple(word for word in around if word != chosen)[:count]


@functools.lru_cache(maxsize=1024)
def _bytes(text: str) -> list[int]:
    """The bytes of a token; shared between answers, never to be changed."""
    return list(text.encode())


def _logarithm(probability: float) -> float:
    return round(math.log(max(probability, SMALLEST_SHARE)), DECIMALS)


def chat_entry(text: str, probability: float, top: int) -> dict[str, Any]:
    """One entry of ``logprobs.content``."""
    return {
        "token": text,
        "bytes": _bytes(text),
        "logprob": _logarithm(probability),
        "top_logprobs": [
            {"token": token, "bytes": _bytes(token), "logprob": logprob}
            for token, logprob in alternatives(text, probability, top)
        ],
    }


def completion_block(
    texts: list[str], chosen: list[float], top: int, offset: int
) -> dict[str, Any]:
    """``logprobs`` of /v1/completions for a run of tokens that begins at this text offset."""
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    pairs = list(zip(texts, chosen, strict=True))
    return {
        "text_offset": offsets,
        "token_logprobs": [_logarithm(p) for p in chosen],
        "tokens": texts,
        "top_logprobs": [dict(alternatives(t, p, top)) for t, p in pairs] if top else [],
    }
