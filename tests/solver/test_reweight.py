"""Raking of the table to a live window (science.md section 2 [c])."""

from typing import Any

import numpy as np
import pytest

from cascade_solver import histogram, replay, reweight
from cascade_solver.problem import Calibration
from tests.solver import builders

NAMES = ("small", "medium", "large")
THRESHOLDS = {"small": 70, "medium": 60}


def calibration(seed: int = 1, n: int = 2000) -> Calibration:
    return Calibration.model_validate(builders.calibration(NAMES, n, seed))


def window(
    live: Calibration, rows: Any, edges: tuple[float, ...], **fields: Any
) -> reweight.LiveWindow:
    """What a router would report for these rows of a table."""
    scores = np.array([live.columns[n].score for n in NAMES], dtype=float)[:, rows]
    inputs = np.array(live.columns["small"].input_tokens, dtype=float)[rows]
    counts, visits = {}, np.ones(scores.shape[1], dtype=bool)
    for i, name in enumerate(NAMES):
        bins = histogram.score_bins(scores[i][visits])
        counts[name] = tuple(np.bincount(bins, minlength=10).astype(float).tolist())
        if name in THRESHOLDS:
            visits = visits & (scores[i] < THRESHOLDS[name])
    return reweight.LiveWindow(
        rate=5.0,
        n=scores.shape[1],
        input_edges=edges,
        input_score_counts=histogram.joint(inputs, scores[0], np.ones(inputs.size), edges),
        score_counts=counts,
        **fields,
    )


def edges_of(table: Calibration) -> tuple[float, ...]:
    inputs = table.columns["small"].input_tokens
    return tuple(np.quantile(inputs, [0.2, 0.4, 0.6, 0.8]).tolist())


def harder(table: Calibration, n: int) -> Any:
    """Row numbers of traffic that is harder than the table: low scores drawn more often."""
    scores = np.array(table.columns["small"].score, dtype=float)
    weights = np.exp(-scores / 20)
    return np.random.default_rng(9).choice(scores.size, n, p=weights / weights.sum())


def visits(table: Calibration) -> tuple[float, ...]:
    data = replay.table(table, NAMES)
    return replay.walk(data, (THRESHOLDS["small"], THRESHOLDS["medium"])).visit_ratio


def test_raked_table_reproduces_the_visit_ratios_of_harder_traffic() -> None:
    table, live = calibration(1), calibration(2)
    rows = harder(live, 3000)
    raked = reweight.rake(table, THRESHOLDS, window(live, rows, edges_of(table)), NAMES)
    scores = np.array([live.columns[n].score for n in NAMES])[:, rows]
    second = scores[0] < THRESHOLDS["small"]
    third = second & (scores[1] < THRESHOLDS["medium"])
    expected = (1.0, second.mean(), third.mean())
    before = visits(table)
    assert expected[2] > before[2] + 0.1
    assert visits(raked) == pytest.approx(expected, abs=0.02)


def test_equal_traffic_changes_nothing_much() -> None:
    table = calibration()
    raked = reweight.rake(table, THRESHOLDS, window(table, np.arange(2000), edges_of(table)), NAMES)
    assert visits(raked) == pytest.approx(visits(table), abs=1e-6)
    assert raked.effective_size == pytest.approx(2000, rel=1e-3)


def test_effective_size_shrinks_as_traffic_moves_away() -> None:
    table = calibration()
    raked = reweight.rake(
        table, THRESHOLDS, window(table, harder(table, 3000), edges_of(table)), NAMES
    )
    weights = np.array(raked.weights)
    assert raked.effective_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert raked.effective_size is not None
    assert 100 < raked.effective_size < 1500


def test_a_small_window_thins_rows_out_but_erases_none() -> None:
    table = calibration()
    raked = reweight.rake(
        table, THRESHOLDS, window(table, harder(table, 50), edges_of(table)), NAMES
    )
    assert min(raked.weights) > 0


def test_lengths_follow_the_deciles_of_the_window() -> None:
    table = calibration()
    base = np.array(table.columns["small"].input_tokens, dtype=float)
    deciles = tuple((3.0 * np.quantile(base, np.arange(1, 10) / 10)).tolist())
    raked = reweight.rake(
        table,
        THRESHOLDS,
        window(table, np.arange(2000), edges_of(table), input_deciles=deciles),
        NAMES,
    )
    for name in NAMES:
        before = np.array(table.columns[name].input_tokens)
        after = np.array(raked.columns[name].input_tokens)
        assert after.mean() == pytest.approx(3 * before.mean(), rel=0.02)
        assert raked.columns[name].output_tokens == table.columns[name].output_tokens


def test_a_length_equal_to_an_edge_belongs_to_the_bin_above() -> None:
    bins = histogram.joint_bins(np.array([99.0, 100.0, 400.0]), np.zeros(3), (100, 200, 300, 400))
    assert bins.tolist() == [0, 10, 40]


def test_score_100_falls_into_the_last_bin() -> None:
    assert histogram.score_bins(np.array([0.0, 9.0, 10.0, 99.0, 100.0])).tolist() == [0, 0, 1, 9, 9]
