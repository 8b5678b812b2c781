"""Statistics that tell live traffic from planned traffic; pure, on counts only."""

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence

from cascade_router.window import LENGTH_EDGES, SCORE_BINS, ModelWindow

DECILES = tuple(k / 10 for k in range(1, 10))

CHI_SQUARE_MEDIAN = 0.4549
"""Median of the chi-square distribution with one degree of freedom."""

RATE_SHIFT = 0.3
"""The CUSUM is built to notice a rate this share above or below the planned one."""

NORMAL = statistics.NormalDist()


def rate_evidence(requests: int, expected: float, dispersion: float, upward: bool) -> float:
    """Log-likelihood ratio of a shifted Poisson rate against the planned one, for one window.

    ``expected``: planned requests in the window. Divided by the dispersion (variance over mean),
    because real arrivals are burstier than Poisson's (quasi-likelihood).
    """
    ratio = 1.0 + RATE_SHIFT if upward else 1.0 - RATE_SHIFT
    return (requests * math.log(ratio) - (ratio - 1.0) * expected) / dispersion


def dispersion(counts: Sequence[int], floor: float, ceiling: float = 20.0) -> float:
    """Variance over mean of windows of equal length, from the median squared difference.

    The median keeps one step in the rate from passing for noise. Fewer than five: the floor.
    """
    if len(counts) < 5 or not sum(counts):
        return floor
    squares = [(b - a) ** 2 for a, b in itertools.pairwise(counts)]
    spread = statistics.median(squares) / (2 * CHI_SQUARE_MEDIAN)
    return min(ceiling, max(floor, spread / statistics.fmean(counts)))


def ks_distance(counts: Sequence[int], deciles: Sequence[float]) -> float:
    """Least Kolmogorov-Smirnov distance between a length histogram and planned deciles.

    The histogram is exact at its edges, the plan between two deciles only known to lie within
    ten points: the distance to that interval is what counts, so that binning raises no alarm.
    """
    total, seen, worst = sum(counts), 0, 0.0
    for edge, count in zip(LENGTH_EDGES, counts, strict=False):
        seen += count
        live = seen / total
        # Planned share at or below the edge: all deciles up to it are below, the next is not.
        passed = bisect.bisect_right(deciles, edge)
        low, high = passed / 10, (passed + 1) / 10
        worst = max(worst, low - live, live - high)
    return worst


def ks_threshold(live: float, planned: float, alpha: float) -> float:
    """Critical distance of the two-sample test; ``planned`` 0 stands for a stated distribution."""
    scale = math.sqrt(-math.log(alpha / 2) / 2)
    shares = 1 / live + (1 / planned if planned > 0 else 0.0)
    return scale * math.sqrt(shares)


def stability_index(counts: Sequence[int], deciles: Sequence[float]) -> float:
    """Population stability index of a length histogram against planned deciles.

    Bins are runs of histogram bins of which the plan expects a tenth or more, the last one a
    twentieth.
    """
    total = sum(counts)
    index, seen, last_planned, last_live = 0.0, 0, 0.0, 0.0
    for position, count in enumerate(counts):
        seen += count
        live = seen / total
        is_last = position == len(counts) - 1
        planned = 1.0 if is_last else planned_share(deciles, LENGTH_EDGES[position], live)
        if not is_last and (planned - last_planned < 0.1 or planned > 0.95):
            continue
        expected = planned - last_planned
        found = max(live - last_live, 0.5 / total)
        index += (found - expected) * math.log(found / expected)
        last_planned, last_live = planned, live
    return index


def planned_share(deciles: Sequence[float], length: float, live: float) -> float:
    """Share of planned lengths at or below ``length``: straight lines through the deciles.

    Outside them the plan says nothing but "a tenth": the live share counts as planned up to that.
    """
    if length < deciles[0]:
        return min(live, DECILES[0])
    passed = bisect.bisect_right(deciles, length)
    if passed == len(deciles):
        return max(live, DECILES[-1])
    low, high = deciles[passed - 1], deciles[passed]
    return DECILES[passed - 1] + 0.1 * (length - low) / (high - low)


def excess(difference: float, standard_error: float, tolerated: float) -> float:
    """z of a difference beyond what is tolerated, with its sign; 0 inside the tolerance."""
    beyond = max(0.0, abs(difference) - tolerated)
    return math.copysign(beyond / standard_error, difference) if beyond else 0.0


def normal_threshold(alpha: float) -> float:
    """Critical value of a two-sided z-test."""
    return NORMAL.inv_cdf(1 - alpha / 2)


def share_error(share: float, live: float, planned: float) -> float:
    """Standard error of a share seen in ``live`` requests against one planned from ``planned``.

    The share is kept a little inside (0, 1): no sample proves certainty.
    """
    inside = min(1 - 0.5 / (live + 1), max(0.5 / (live + 1), share))
    return math.sqrt(inside * (1 - inside) * (1 / live + (1 / planned if planned > 0 else 0.0)))


def score_moments(model: ModelWindow) -> tuple[int, float, float]:
    """Number, mean and variance of a model's scores; the variance from the bins' middles."""
    n = sum(model.score_counts)
    if not n:
        return 0, 0.0, 0.0
    width = 100 / SCORE_BINS
    middles = [width * (i + 0.5) for i in range(SCORE_BINS)]
    centre = sum(c * m for c, m in zip(model.score_counts, middles, strict=True)) / n
    squares = sum(c * (m - centre) ** 2 for c, m in zip(model.score_counts, middles, strict=True))
    return n, model.score_sum / n, squares / n + width**2 / 12


def quantiles(counts: Sequence[int]) -> tuple[int, ...]:
    """The deciles of a length histogram, in tokens, straight lines within a bin; () when empty."""
    total = sum(counts)
    if not total:
        return ()
    found: list[int] = []
    seen, low = 0, 0.0
    edges = [*LENGTH_EDGES, 2 * LENGTH_EDGES[-1]]
    for edge, count in zip(edges, counts, strict=True):
        while len(found) < 9 and count and DECILES[len(found)] * total <= seen + count:
            found.append(round(low + (edge - low) * (DECILES[len(found)] * total - seen) / count))
        seen, low = seen + count, float(edge)
    return tuple(found)
