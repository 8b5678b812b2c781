"""The joint histogram of input length and score that plan, windows and raking share."""

from collections.abc import Sequence

import numpy as np

from .arrays import Floats, Ints

SCORE_BINS = 10
POINTS_PER_BIN = 10


def score_bins(scores: Floats) -> Ints:
    """Bin 0..9 of each score in points; 100 falls into the last bin."""
    return np.minimum(scores // POINTS_PER_BIN, SCORE_BINS - 1).astype(np.int64)


def joint_bins(inputs: Floats, scores: Floats, edges: Sequence[float]) -> Ints:
    """Flat bin of each request: length bin x 10 + score bin. A length that equals an edge belongs
    to the bin above it."""
    lengths = np.searchsorted(np.asarray(edges, dtype=np.float64), inputs, side="right")
    return np.asarray(lengths * SCORE_BINS + score_bins(scores), dtype=np.int64)


def joint(
    inputs: Floats, scores: Floats, weights: Floats, edges: Sequence[float]
) -> tuple[tuple[float, ...], ...]:
    """[(edges + 1) x 10] weight in each bin."""
    flat = np.bincount(joint_bins(inputs, scores, edges), weights, (len(edges) + 1) * SCORE_BINS)
    return tuple(tuple(row) for row in flat.reshape(-1, SCORE_BINS).tolist())
