"""The calibration table re-weighted to live traffic by raking (science.md section 2 [c])."""

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import Field

from .arrays import Booleans, Floats, Ints
from .document import Document
from .histogram import SCORE_BINS, joint_bins, score_bins
from .problem import Calibration, ModelColumns, Score

ITERATIONS = 100
PRIOR_REQUESTS = 5.0
"""The table's own distribution counts as so many requests beside the window's: a bin that a small
window happens to miss is thinned out, not erased."""


class LiveWindow(Document):
    """What the routers saw: ``rate`` in requests per second, which becomes the problem's workload,
    and histograms of the ``n`` requests that were scored.

    ``input_edges``: the plan's 4 inner length edges in tokens; ``input_score_counts``: [5 x 10]
    at the first model; ``score_counts``: per visited model 10 bins of its visitors' scores;
    deciles: the 10 % .. 90 % quantiles of tokens at the first model, where known.
    """

    rate: float = Field(gt=0)
    n: int = Field(ge=1)
    input_edges: tuple[float, ...] = Field(min_length=4, max_length=4)
    input_score_counts: tuple[tuple[float, ...], ...]
    score_counts: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    input_deciles: tuple[float, ...] = ()
    output_deciles: tuple[float, ...] = ()


def rake(
    calibration: Calibration,
    thresholds: Mapping[str, Score],
    target: LiveWindow,
    names: Sequence[str],
) -> Calibration:
    """The same rows with weights that reproduce the window, and lengths mapped to its deciles.

    ``thresholds`` are those in force while the window was taken: the scores of a later model are
    known only for the requests that visited it. ``names``: the models in order.
    ``effective_size`` of the result is (sum w)^2 / sum w^2.
    """
    scores = np.array([calibration.columns[n].score for n in names], dtype=np.float64)
    inputs = np.array(calibration.columns[names[0]].input_tokens, dtype=np.float64)
    start = np.array(calibration.weights or (1.0,) * inputs.size, dtype=np.float64)
    start /= start.sum()
    margins = [_first_margin(inputs, scores[0], target)]
    visits = np.ones(inputs.size, dtype=np.bool_)
    for i, name in enumerate(names[1:], start=1):
        visits = visits & (scores[i - 1] < thresholds[names[i - 1]])
        if sum(target.score_counts.get(name, ())) > 0:
            margins.append(_visitor_margin(scores[i], visits, name, target))
    weights = _fit(
        start, [(bins, _with_prior(start, bins, share, target.n)) for bins, share in margins]
    )
    return calibration.model_copy(
        update={
            "columns": _mapped_columns(calibration, names[0], weights, target),
            "weights": tuple((weights * weights.size).tolist()),
            "effective_size": float(weights.sum() ** 2 / (weights**2).sum()),
        }
    )


Margin = tuple[Ints, Floats]
"""Bin of every row, and the share of traffic that belongs in each bin."""


def _first_margin(inputs: Floats, scores: Floats, target: LiveWindow) -> Margin:
    """Joint distribution of input length and score at the first model."""
    share = np.array(target.input_score_counts, dtype=np.float64).reshape(-1)
    return joint_bins(inputs, scores, target.input_edges), share / share.sum()


def _visitor_margin(scores: Floats, visits: Booleans, name: str, target: LiveWindow) -> Margin:
    """Scores of a later model among its visitors; the last bin holds those that never came."""
    total = sum(sum(row) for row in target.input_score_counts)
    counts = np.array(target.score_counts[name], dtype=np.float64)
    away = max(0.0, total - counts.sum())
    share = np.append(counts, away)
    return np.where(visits, score_bins(scores), SCORE_BINS), share / share.sum()


def _with_prior(weights: Floats, bins: Ints, share: Floats, n: int) -> Floats:
    """The target share, drawn towards the table's own; bins without rows cannot be met."""
    own = np.bincount(bins, weights, share.size)
    mixed = np.where(own > 0, (n * share + PRIOR_REQUESTS * own) / (n + PRIOR_REQUESTS), 0.0)
    return np.asarray(mixed / mixed.sum())


def _fit(start: Floats, margins: Sequence[Margin]) -> Floats:
    """Iterative proportional fitting: scales the bins of each margin in turn until all hold."""
    weights = start
    for _ in range(ITERATIONS):
        before = weights
        for bins, share in margins:
            own = np.bincount(bins, weights, share.size)
            factor = np.divide(share, own, out=np.zeros_like(share), where=own > 0)
            weights = weights * factor[bins]
            weights = weights / weights.sum()
        if np.abs(weights - before).max() < 1e-12:
            break
    return weights


def _mapped_columns(
    calibration: Calibration, first: str, weights: Floats, target: LiveWindow
) -> dict[str, ModelColumns]:
    """Every model's lengths, scaled row by row as the first model's are mapped to the window."""
    base = calibration.columns[first]
    input_factor = _length_factors(base.input_tokens, weights, target.input_deciles)
    output_factor = _length_factors(base.output_tokens, weights, target.output_deciles)
    return {
        name: column.model_copy(
            update={
                "input_tokens": _scaled(column.input_tokens, input_factor),
                "output_tokens": _scaled(column.output_tokens, output_factor),
            }
        )
        for name, column in calibration.columns.items()
    }


def _length_factors(tokens: Sequence[int], weights: Floats, deciles: Sequence[float]) -> Floats:
    """Quantile mapping: what each row's length is multiplied by, constant beyond the deciles."""
    lengths = np.array(tokens, dtype=np.float64)
    if not deciles:
        return np.ones_like(lengths)
    order = np.argsort(lengths, kind="stable")
    cumulated = np.cumsum(weights[order]) - 0.5 * weights[order]
    own = np.interp(np.arange(1, 10) / 10, cumulated / weights.sum(), lengths[order])
    ratio = np.asarray(deciles, dtype=np.float64) / own
    return np.interp(lengths, own, ratio)


def _scaled(tokens: Sequence[int], factor: Floats) -> tuple[int, ...]:
    scaled = np.maximum(1, np.rint(np.array(tokens, dtype=np.float64) * factor))
    return tuple(scaled.astype(int).tolist())
