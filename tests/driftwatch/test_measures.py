"""Each statistic against values worked out by other means."""

import math
import random

import pytest

from cascade_driftwatch import measures
from cascade_router.window import LENGTH_EDGES, ModelWindow
from tests.driftwatch import traffic

DECILES = tuple(float(100 * k) for k in range(1, 10))
"""Lengths uniform between 0 and 1000."""


def uniform(n: int, low: float = 0, high: float = 1000) -> tuple[int, ...]:
    step = (high - low) / n
    return traffic.histogram([round(low + step * (i + 0.5)) for i in range(n)])


def test_the_distance_of_a_histogram_to_its_own_deciles_is_zero() -> None:
    assert measures.ks_distance(uniform(1000), DECILES) == pytest.approx(0.0, abs=0.002)


def test_the_distance_of_a_shifted_histogram_is_a_lower_bound_of_the_true_one() -> None:
    """Uniform on [300, 1300]: the true distance to [0, 1000] is 0.3, known up to a decile."""
    found = measures.ks_distance(uniform(1000, 300, 1300), DECILES)
    assert 0.2 <= found <= 0.3


@pytest.mark.parametrize(
    ("live", "planned", "alpha", "expected"),
    [
        pytest.param(100, 100, 0.05, 1.358 * math.sqrt(2 / 100), id="two-samples"),
        pytest.param(50, 0, 0.01, 1.628 / math.sqrt(50), id="stated-distribution"),
    ],
)
def test_the_critical_distance_is_the_tabulated_one(
    live: float, planned: float, alpha: float, expected: float
) -> None:
    assert measures.ks_threshold(live, planned, alpha) == pytest.approx(expected, rel=1e-3)


def test_the_stability_index_is_small_for_the_same_and_large_for_a_shift() -> None:
    assert measures.stability_index(uniform(1000), DECILES) < 0.01
    assert measures.stability_index(uniform(1000, 300, 1300), DECILES) > 0.25


def test_the_stability_index_equals_its_formula_on_two_bins() -> None:
    """All planned mass at 400 tokens leaves one cut, at 512: 90 % at least are planned below."""
    counts = traffic.histogram([400] * 50 + [600] * 50)
    expected = (0.5 - 0.9) * math.log(0.5 / 0.9) + (0.5 - 0.1) * math.log(0.5 / 0.1)
    assert measures.stability_index(counts, (400.0,) * 9) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("length", "live", "share"),
    [
        pytest.param(50, 0.02, 0.02, id="below-the-first-decile"),
        pytest.param(50, 0.7, 0.1, id="too-much-below-it"),
        pytest.param(100, 0.7, 0.1, id="first-decile"),
        pytest.param(450, 0.7, 0.45, id="between-two"),
        pytest.param(900, 0.7, 0.9, id="too-little-below-the-last"),
        pytest.param(950, 0.97, 0.97, id="above-the-last"),
    ],
)
def test_planned_shares_run_straight_between_deciles_and_follow_the_live_ones_outside(
    length: float, live: float, share: float
) -> None:
    assert measures.planned_share(DECILES, length, live) == pytest.approx(share)


def test_quantiles_of_a_histogram_come_back_within_its_bins() -> None:
    rng = random.Random(2)
    lengths = sorted(round(1000 * rng.lognormvariate(0, 0.8)) for _ in range(5000))
    found = measures.quantiles(traffic.histogram(lengths))
    for k, quantile in enumerate(found, start=1):
        assert quantile == pytest.approx(lengths[k * 500], rel=0.08)


def test_quantiles_are_none_when_nothing_was_counted() -> None:
    assert measures.quantiles((0,) * (len(LENGTH_EDGES) + 1)) == ()


def test_quantiles_rise_and_reach_the_open_bin() -> None:
    counts = [0] * len(LENGTH_EDGES) + [10]
    found = measures.quantiles(counts)
    assert list(found) == sorted(found)
    assert found[0] > LENGTH_EDGES[-1]


def test_evidence_for_a_rate_is_the_log_likelihood_ratio() -> None:
    poisson = 13 * math.log(1.3) - 0.3 * 10
    assert measures.rate_evidence(13, 10, 1.0, upward=True) == pytest.approx(poisson)
    assert measures.rate_evidence(13, 10, 2.0, upward=True) == pytest.approx(poisson / 2)
    assert measures.rate_evidence(13, 10, 1.0, upward=False) < 0


def test_dispersion_sees_bursts_but_not_one_step() -> None:
    rng = random.Random(4)
    calm = [round(rng.gauss(400, 20)) for _ in range(12)]
    bursty = [round(rng.gauss(400, 60)) for _ in range(12)]
    stepped = [*calm[:6], *(n + 200 for n in calm[6:])]
    assert measures.dispersion(calm, 0.5) == pytest.approx(1.0, abs=0.7)
    assert measures.dispersion(bursty, 0.5) > 4
    assert measures.dispersion(stepped, 0.5) < 2.5
    assert measures.dispersion(bursty[:4], 2.0) == 2.0


def test_a_difference_inside_the_tolerance_is_no_difference() -> None:
    assert measures.excess(0.04, 0.01, 0.05) == 0.0
    assert measures.excess(0.08, 0.01, 0.05) == pytest.approx(3.0)
    assert measures.excess(-0.08, 0.01, 0.05) == pytest.approx(-3.0)


def test_moments_of_scores_come_from_sum_and_bins() -> None:
    model = ModelWindow(
        name="m", visits=4, score_counts=(2, 0, 0, 0, 0, 0, 0, 0, 0, 2), score_sum=200
    )
    n, mean, variance = measures.score_moments(model)
    assert (n, mean) == (4, 50.0)
    assert variance == pytest.approx(45.0**2 + 100 / 12)
