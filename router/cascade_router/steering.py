"""Thresholds that follow the live scores while a cascade has no calibration table."""

from collections import deque

KEPT_SCORES = 400
MIN_SCORES = 20
"""Below this many scores a quantile is noise, and the starting threshold holds."""


class Steering:
    """Keeps the share of scores below the threshold at ``quantile`` (science.md 1.2)."""

    def __init__(self, quantile: float, start: int) -> None:
        self.quantile = quantile
        self.threshold = start
        self._recent: deque[int] = deque()
        self._counts = [0] * 101

    def observe(self, score: int) -> None:
        """Count a score of 0 to 100 and move the threshold."""
        self._recent.append(score)
        self._counts[score] += 1
        if len(self._recent) > KEPT_SCORES:
            self._counts[self._recent.popleft()] -= 1
        if len(self._recent) >= MIN_SCORES:
            self.threshold = self._nearest()

    def _nearest(self) -> int:
        """The threshold in 1 to 101 whose share of scores below it is nearest to the quantile.

        Ties go to the lower one: with many equal scores it escalates less.
        """
        total = len(self._recent)
        below, best, best_gap = 0, 1, float("inf")
        for threshold in range(1, 102):
            below += self._counts[threshold - 1]
            gap = abs(below / total - self.quantile)
            if gap < best_gap - 1e-12:
                best, best_gap = threshold, gap
        return best
