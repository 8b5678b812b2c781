"""A stand-in for a tokenizer: counts tokens of a prompt and makes the tokens of an answer."""

import math
import re

from . import quality

TOKEN = re.compile(r"[A-Za-z0-9_]{1,8}|[^\sA-Za-z0-9_]")
"""A word of up to 8 characters is one token, a longer one more, a sign one of its own."""

TEMPLATE_TOKENS_PER_MESSAGE = 4
"""What a chat template adds around a message."""

STAND_IN = re.compile(r"\[input=(\d{1,6})\]")
FORCED_LENGTH = re.compile(r"\[tokens=(\d{1,6})\]")
MEDIAN_TOKENS = 180.0
LENGTH_SPREAD = 0.7
"""Answer lengths are log-normal around the median unless the prompt sets one."""

WORDS = (
    "amber basin cedar delta ember fjord grove harbor island jasper kernel lumen meadow north "
    "orchid pebble quartz river summit timber upland valley willow yarrow zephyr anchor birch "
    "canyon dune estuary field glacier heath inlet juniper knoll lagoon marsh nectar opal "
    "prairie quarry ridge spruce tundra umber vista walnut xylem yonder zenith arbor bay creek"
).split()


def count(text: str) -> int:
    """Number of tokens of a text, at least 1; each ``[input=N]`` stands for N more of them.

    So a short prompt can stand for a long one, and a replayed trace keeps its lengths.
    """
    stand_in = sum(int(n) for n in STAND_IN.findall(text))
    return max(1, stand_in + sum(1 for _ in TOKEN.finditer(STAND_IN.sub("", text))))


def natural_length(seed: int, model: str, prompt: str, choice: int = 0) -> int:
    """Length of the whole answer in tokens: the last ``[tokens=N]`` in the prompt, else drawn."""
    forced = FORCED_LENGTH.findall(prompt)
    if forced:
        return max(1, int(forced[-1]))
    drawn = quality.normal(seed, "length", model, prompt, choice) * LENGTH_SPREAD
    return max(8, round(MEDIAN_TOKENS * math.exp(drawn)))


def answer(seed: int, model: str, prompt: str, length: int, reference: str) -> list[str]:
    """``length`` token texts that join to the answer; the last one is the reference."""
    start = int(quality.draw(seed, "words", model, prompt) * len(WORDS))
    stride = 1 + 2 * int(quality.draw(seed, "stride", model, prompt) * 8)
    size = len(WORDS)
    words = [WORDS[(start + stride * i) % size] for i in range(length - 1)]
    texts = [" " + word for word in words]
    texts.append(" " + reference)
    texts[0] = texts[0].lstrip()
    return texts


def as_json(texts: list[str]) -> list[str]:
    """The same answer as a JSON object with one member, for requests that demand JSON."""
    wrapped = list(texts)
    wrapped[0] = '{"answer": "' + wrapped[0]
    wrapped[-1] += '"}'
    return wrapped
