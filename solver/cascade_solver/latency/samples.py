"""Request samples: the token lengths that the event simulation replays, always the same ones."""

import dataclasses
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Ints
from ..problem import LengthSummary

Z95 = 1.6448536269514722
"""95 % quantile of the standard normal distribution."""

LENGTH_STEP = math.log(1.05)
"""Mean lengths are bucketed in steps of 5 % (science.md section 2)."""
SHARE_STEPS = 20


@dataclasses.dataclass(frozen=True)
class Sample:
    """Lengths in tokens in order of arrival; ``answers`` marks what counts in the percentiles
    (judge calls load the replica but are nobody's answer)."""

    inputs: Ints
    outputs: Ints
    answers: npt.NDArray[np.bool_]


def resample(inputs: Floats, outputs: Floats, weights: Floats, n: int, seed: int) -> Sample:
    """``n`` rows drawn in proportion to their weights: systematic, so the mixture is exact, then
    shuffled by the seed. Rows must come in canonical order."""
    edges = np.cumsum(weights) / np.sum(weights)
    points = (np.arange(n) + 0.5) / n
    rows = np.minimum(np.searchsorted(edges, points, side="right"), inputs.size - 1)
    rows = rows[np.random.default_rng(seed).permutation(n)]
    return Sample(_tokens(inputs[rows]), _tokens(outputs[rows]), np.ones(n, dtype=np.bool_))


def log_normal(summary: LengthSummary, n: int) -> Floats:
    """``n`` quantiles of the log-normal distribution with this mean and 95th percentile.

    No log-normal has p95 above 3.87 times its mean; beyond, the widest one is used.
    """
    spread = max(0.0, Z95**2 - 2.0 * math.log(summary.p95 / summary.mean))
    sigma = Z95 - math.sqrt(spread)
    if sigma == 0.0:
        return np.full(n, summary.mean)
    quantiles = _normal_quantiles(n)
    lengths = np.exp(sigma * quantiles)
    return np.asarray(np.maximum(1.0, lengths * summary.mean / lengths.mean()))


def _normal_quantiles(n: int) -> Floats:
    """Mid-point quantiles of the standard normal distribution."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((k + 0.5) / n) for k in range(n)])


def scaled(sample: Sample, input_factor: float, output_factor: float) -> Sample:
    """The same requests, longer or shorter."""
    if input_factor == 1.0 and output_factor == 1.0:
        return sample
    return Sample(
        _tokens(sample.inputs * input_factor),
        _tokens(sample.outputs * output_factor),
        sample.answers,
    )


def with_judging(sample: Sample, judged: Ints, share: float, seed: int) -> Sample:
    """Replaces ``share`` of the requests by judge calls: they prefill the judged text."""
    n = sample.inputs.size
    calls = round(share * n)
    if calls == 0:
        return sample
    rows = np.random.default_rng(seed).permutation(n)[:calls]
    inputs, outputs, answers = sample.inputs.copy(), sample.outputs.copy(), sample.answers.copy()
    inputs[rows] = judged[rows % judged.size]
    outputs[rows] = 1
    answers[rows] = calls == n
    return Sample(inputs, outputs, answers)


def length_bucket(ratio: float) -> int:
    """Number of the 5 % step that a mean length lies in, relative to the table's mean."""
    return round(math.log(ratio) / LENGTH_STEP) if ratio > 0 else 0


def bucket_factor(bucket: int) -> float:
    return math.exp(bucket * LENGTH_STEP)


def share_bucket(share: float) -> int:
    """Judge calls as twentieths of all requests, never rounded down to none."""
    return max(1, round(share * SHARE_STEPS)) if share > 0 else 0


def _tokens(lengths: npt.NDArray[np.floating[Any]]) -> Ints:
    return np.asarray(np.maximum(1, np.rint(lengths)), dtype=np.int64)
