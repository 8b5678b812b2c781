"""The hidden truth: how hard a prompt is, whether a model answers it well, what a judge sees.

Every figure is a keyed hash of the seed and of what it belongs to, so that engines in different
processes agree without talking to each other and a run can be repeated.
"""

import functools
import hashlib
import math
import re
from collections.abc import Sequence

SLOPE = 0.12
"""Width of the step from solvable to unsolvable, in units of difficulty (0 to 1)."""

GOOD, POOR = (0.88, 1.0), (0.05, 0.65)
"""Ranges of an answer's quality (0 to 1) when it is correct and when it is not."""

DIFFICULTY = re.compile(r"\[difficulty=(\d*\.?\d+)\]")
REFERENCE = re.compile(r"ref:([0-9a-f]{6})([0-9a-f]{2})([0-9a-f]{4})")

JUDGE_NOISE_FLOOR = 0.04
JUDGE_NOISE_SLOPE = 0.30
LEVEL_WIDTH = 0.55
"""A judge's spread over the levels, in levels."""
BLIND_LABEL_MASS = 0.35
"""Label mass for an answer that carries no reference: below any sensible minimum."""


def draw(seed: int, *parts: object) -> float:
    """A uniform number in [0, 1) that belongs to these parts."""
    return int.from_bytes(_digest(seed, *parts)[:7], "big") / 2**56


def _digest(seed: int, *parts: object) -> bytes:
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode()).digest()


def normal(seed: int, *parts: object) -> float:
    """A standard normal number that belongs to these parts (Box-Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - draw(seed, "radius", *parts)))
    return radius * math.cos(2.0 * math.pi * draw(seed, "angle", *parts))


def difficulty(seed: int, prompt: str) -> float:
    """0 (easy) to 1 (hard): the last ``[difficulty=0.83]`` in the prompt, else a seeded draw."""
    marked = DIFFICULTY.findall(prompt)
    if marked:
        return min(1.0, float(marked[-1]))
    return draw(seed, "difficulty", prompt)


def _sigmoid(value: float) -> float:
    if value < -700:
        return 0.0
    return 1.0 / (1.0 + math.exp(-value))


@functools.cache
def ability(mean_points: float) -> float:
    """The ability whose answers have this mean quality over uniform difficulties, by bisection.

    ``mean_points`` (0-100) is held inside what good and poor answers can average to.
    """
    good, poor = sum(GOOD) / 2, sum(POOR) / 2
    wanted = min(0.995, max(0.005, (mean_points / 100 - poor) / (good - poor)))
    low, high = -2.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_correct(middle) < wanted else (low, middle)
    return (low + high) / 2


def _share_correct(able: float) -> float:
    """Mean of sigmoid((able - d) / SLOPE) over d uniform in [0, 1]."""
    return SLOPE * (math.log1p(math.exp(able / SLOPE)) - math.log1p(math.exp((able - 1.0) / SLOPE)))


def default_points(parameters: float) -> float:
    """Mean points of a model of this many parameters: 62 at 8B, 82 at 70B, 90 at 671B.

    Straight lines in the logarithm between these three, continued outside them, as far as answers
    can average to (see ``ability``).
    """
    known = ((8e9, 62.0), (70e9, 82.0), (671e9, 90.0))
    (x0, y0), (x1, y1) = known[:2] if parameters < known[1][0] else known[1:]
    weight = math.log(parameters / x0) / math.log(x1 / x0)
    return min(93.0, max(38.0, y0 + weight * (y1 - y0)))


def is_correct(seed: int, model: str, prompt: str, able: float, choice: int = 0) -> bool:
    """Whether this model's answer to this prompt is right; one draw per (model, prompt, choice)."""
    chance = _sigmoid((able - difficulty(seed, prompt)) / SLOPE)
    return draw(seed, "correct", model, prompt, choice) < chance


def answer_quality(seed: int, model: str, prompt: str, able: float, choice: int = 0) -> float:
    """Quality of this answer, 0 to 1."""
    low, high = GOOD if is_correct(seed, model, prompt, able, choice) else POOR
    return low + (high - low) * draw(seed, "quality", model, prompt, choice)


def reference(seed: int, quality: float, *parts: object) -> str:
    """A token that hides the quality from a reader and shows it to any judge with the seed."""
    name = _digest(seed, "reference", *parts)[:3].hex()
    mask = _digest(seed, "mask", name)[0]
    hidden = f"{round(quality * 255) ^ mask:02x}"
    return f"ref:{name}{hidden}{_seal(seed, name, hidden)}"


def _seal(seed: int, name: str, hidden: str) -> str:
    return _digest(seed, "seal", name, hidden)[:2].hex()


def read_reference(seed: int, text: str) -> tuple[str, float] | None:
    """Name and quality (0 to 1) of the last reference in the text; ``None`` without a valid one."""
    for name, hidden, seal in reversed(REFERENCE.findall(text)):
        if seal == _seal(seed, name, hidden):
            mask = _digest(seed, "mask", name)[0]
            return name, (int(hidden, 16) ^ mask) / 255
    return None


def judge(
    seed: int, judge_name: str, points: float, text: str, levels: int
) -> tuple[tuple[float, ...], float]:
    """Probabilities of the levels, worst first, and label mass, for the last answer in the text.

    ``points`` is the judge's own mean quality: an abler judge errs less. Without a reference the
    judge cannot tell: all levels alike, and little label mass.
    """
    found = read_reference(seed, text)
    if found is None:
        return (1.0 / levels,) * levels, BLIND_LABEL_MASS
    name, quality = found
    spread = JUDGE_NOISE_FLOOR + JUDGE_NOISE_SLOPE * (1.0 - points / 100)
    seen = quality + spread * normal(seed, "judge", judge_name, name)
    centre = min(1.0, max(0.0, seen)) * (levels - 1)
    weights = [math.exp(-(((i - centre) / LEVEL_WIDTH) ** 2) / 2) for i in range(levels)]
    total = sum(weights)
    mass = 0.93 + 0.06 * draw(seed, "mass", judge_name, name)
    return tuple(w / total for w in weights), mass


def sharpened(probabilities: Sequence[float], temperature: float) -> tuple[float, ...]:
    """The distribution at another temperature: p^(1/T), normalised."""
    top = max(probabilities)
    raised = [(p / top) ** (1.0 / temperature) for p in probabilities]
    total = sum(raised)
    return tuple(p / total for p in raised)
