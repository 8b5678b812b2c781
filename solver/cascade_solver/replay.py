"""Replay of the calibration table: what thresholds do to visits, lengths and quality (1.2)."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from .arrays import Booleans, Floats
from .problem import Calibration, Score

Thresholds = tuple[Score, ...]
"""h_1 .. h_{C-1}; a model accepts at score >= h. 0 accepts all, 101 accepts none."""
ACCEPT_NONE = 101


@dataclasses.dataclass(frozen=True)
class Table:
    """The calibration rows as arrays [C models x n requests], rows in canonical order.

    ``quality`` is the audit score where there is one, else the routing score; ``biased`` says
    that some are routing scores. ``weights`` sum to 1.
    """

    scores: Floats
    quality: Floats
    inputs: Floats
    outputs: Floats
    weights: Floats
    biased: bool


def table(calibration: Calibration, names: Sequence[str]) -> Table:
    """Arrays of the named models' columns. Rows are sorted, so their order has no influence."""
    columns = [calibration.columns[name] for name in names]
    scores = np.array([c.score for c in columns], dtype=np.float64)
    n = scores.shape[1]
    audit = np.array(
        [[math.nan if a is None else a for a in (c.audit or (None,) * n)] for c in columns],
        dtype=np.float64,
    )
    inputs = np.array([c.input_tokens for c in columns], dtype=np.float64)
    outputs = np.array([c.output_tokens for c in columns], dtype=np.float64)
    weights = np.array(calibration.weights or (1.0,) * n, dtype=np.float64)
    missing = np.isnan(audit)
    quality = np.where(missing, scores, audit)
    order = np.lexsort((weights, *quality[::-1], *outputs[::-1], *inputs[::-1], *scores[::-1]))
    return Table(
        scores[:, order],
        quality[:, order],
        inputs[:, order],
        outputs[:, order],
        (weights / weights.sum())[order],
        bool(missing.any()),
    )


@dataclasses.dataclass(frozen=True)
class Walk:
    """Outcome of a replay, per model: visit ratio p_i, mean lengths of the visitors in tokens,
    mean score of visitors, mean quality of the answers returned there, and rows that reach it."""

    visit_ratio: tuple[float, ...]
    mean_input: tuple[float, ...]
    mean_output: tuple[float, ...]
    mean_score: tuple[float | None, ...]
    mean_final: tuple[float | None, ...]
    rows: tuple[int, ...]
    quality: float
    """Q(theta) in points."""


def reached(data: Table, thresholds: Thresholds) -> Booleans:
    """[C x n]: whether a request visits a model: all earlier scores below their thresholds."""
    visits = np.ones(data.scores.shape, dtype=np.bool_)
    for i, h in enumerate(thresholds):
        visits[i + 1] = visits[i] & (data.scores[i] < h)
    return visits


def walk(data: Table, thresholds: Thresholds) -> Walk:
    """Replays every request under the thresholds (science.md 1.2)."""
    visits = reached(data, thresholds)
    last = np.zeros((1, visits.shape[1]), dtype=np.bool_)
    accepted = visits & ~np.concatenate([visits[1:], last])
    visiting = visits * data.weights
    returning = accepted * data.weights
    p = visiting.sum(axis=1)
    returned = returning.sum(axis=1)
    safe = np.where(p > 0, p, 1.0)
    final = (returning * data.quality).sum(axis=1)
    score = (visiting * data.scores).sum(axis=1) / safe
    return Walk(
        visit_ratio=tuple(p.tolist()),
        mean_input=tuple(((visiting * data.inputs).sum(axis=1) / safe).tolist()),
        mean_output=tuple(((visiting * data.outputs).sum(axis=1) / safe).tolist()),
        mean_score=tuple(float(s) if w > 0 else None for s, w in zip(score, p, strict=True)),
        mean_final=tuple(
            float(f / w) if w > 0 else None for f, w in zip(final, returned, strict=True)
        ),
        rows=tuple(int(r) for r in visits.sum(axis=1)),
        quality=float(final.sum()),
    )


def conditional_quantile(data: Table, visits: Booleans, model: int, q: float) -> Score:
    """The threshold below which a share ``q`` of the model's visitors scores, as an integer."""
    scores, weights = data.scores[model][visits], data.weights[visits]
    if scores.size == 0:
        return 0
    order = np.argsort(scores, kind="stable")
    cumulated = np.cumsum(weights[order])
    row = int(np.searchsorted(cumulated, q * cumulated[-1], side="right"))
    return int(scores[order[min(row, scores.size - 1)]])


def proportional(data: Table) -> Thresholds:
    """theta_0: h_i = the i/(i+1) quantile of the scores of those that reach model i (1.2)."""
    thresholds: list[Score] = []
    visits = np.ones(data.scores.shape[1], dtype=np.bool_)
    for i in range(data.scores.shape[0] - 1):
        h = conditional_quantile(data, visits, i, (i + 1) / (i + 2))
        thresholds.append(h)
        visits = visits & (data.scores[i] < h)
    return tuple(thresholds)
