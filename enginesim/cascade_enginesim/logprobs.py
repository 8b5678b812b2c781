"""Log-probabilities of an answer's tokens, more confident where the answer is right.

The confidence of an answer is a normal number whose mean lies ``SEPARATION`` higher for correct
answers: one signal then tells right from wrong with AUROC = Phi(SEPARATION / sqrt 2), near 0.78.
"""

import functools
import itertools
import math
from typing import Any

from . import quality, tokens

SEPARATION = 1.1
BASE_LOGIT = 1.6
"""Logit of the chosen token's probability for an answer of average confidence."""
CONFIDENCE_WEIGHT = 0.55
TOKEN_NOISE = 0.45
LEVELS = 32
"""Probabilities are rounded to this many steps, so that equal tokens share one object."""

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
    found = []
    for i in range(length):
        logit = base + TOKEN_NOISE * NOISE[(start + i) % len(NOISE)]
        found.append((1 + round((LEVELS - 2) / (1 + math.exp(-logit)))) / LEVELS)
    return found


@functools.lru_cache(maxsize=4_096)
def alternatives(chosen: str, probability: float, top: int) -> tuple[tuple[str, float], ...]:
    """(token, log-probability) of the ``top`` likeliest, the chosen one among them."""
    if top < 1:
        return ()
    size, start = len(tokens.WORDS), sum(chosen.encode())
    others = (" " + tokens.WORDS[(start + i) % size] for i in range(size))
    found = [(chosen, math.log(probability))]
    for rank, other in enumerate(itertools.islice((o for o in others if o != chosen), top - 1)):
        share = (1.0 - probability) * 0.6 * 0.4**rank
        found.append((other, math.log(max(share, 1e-9))))
    return tuple(sorted(found, key=lambda pair: -pair[1]))


@functools.lru_cache(maxsize=4_096)
def chat_entry(text: str, probability: float, top: int) -> dict[str, Any]:
    """One entry of ``logprobs.content``; shared between answers, never to be changed."""
    return {
        "token": text,
        "bytes": list(text.encode()),
        "logprob": math.log(probability),
        "top_logprobs": [
            {"token": token, "bytes": list(token.encode()), "logprob": logprob}
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
        "token_logprobs": [math.log(p) for p in chosen],
        "tokens": texts,
        "top_logprobs": [dict(alternatives(t, p, top)) for t, p in pairs] if top else [],
    }
