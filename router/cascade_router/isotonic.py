"""Isotonic regression: from a raw signal to a score in points, and back into use."""

import bisect
from collections.abc import Sequence

from .config import SelfTable

MAX_POINTS = 200


def apply(table: SelfTable, signal: float) -> float:
    """Score in points: linear between the table's points, constant outside them."""
    xs, ys = table.signal, table.score
    if signal <= xs[0]:
        return ys[0]
    if signal >= xs[-1]:
        return ys[-1]
    right = bisect.bisect_right(xs, signal)
    x0, x1, y0, y1 = xs[right - 1], xs[right], ys[right - 1], ys[right]
    return y0 + (y1 - y0) * (signal - x0) / (x1 - x0)


def fit(signals: Sequence[float], targets: Sequence[float]) -> SelfTable:
    """Least-squares fit of a rising map by pool-adjacent-violators.

    ``signals`` and ``targets`` (points, 0 to 100) are paired, at least two pairs. Equal signals are
    one point. Each pooled block becomes one point at its mean signal and mean target, and at most
    ``MAX_POINTS`` are kept, evenly. Raises ``ValueError`` on unpaired or too few values.
    """
    if len(signals) != len(targets):
        raise ValueError(f"{len(signals)} signals but {len(targets)} targets: they must be paired")
    if len(signals) < 2:
        raise ValueError(f"{len(signals)} pairs are too few: at least 2")
    blocks: list[list[float]] = []  # [sum of signals, sum of targets, count]
    previous: float | None = None
    for signal, target in sorted(zip(signals, targets, strict=True)):
        if blocks and signal == previous:
            _add(blocks[-1], signal, target)
        else:
            blocks.append([signal, target, 1.0])
        previous = signal
    pooled: list[list[float]] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and _mean(pooled[-2]) >= _mean(pooled[-1]):
            last = pooled.pop()
            pooled[-1] = [a + b for a, b in zip(pooled[-1], last, strict=True)]
    points = [(b[0] / b[2], min(100.0, max(0.0, b[1] / b[2]))) for b in pooled]
    if len(points) == 1:
        points = [(min(signals), points[0][1]), (max(signals), points[0][1])]
    points = _thin(points)
    return SelfTable(signal=tuple(p[0] for p in points), score=tuple(p[1] for p in points))


def _add(block: list[float], signal: float, target: float) -> None:
    block[0] += signal
    block[1] += target
    block[2] += 1.0


def _mean(block: list[float]) -> float:
    return block[1] / block[2]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MAX_POINTS:
        return points
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return [points[round(i * step)] for i in range(MAX_POINTS)]
