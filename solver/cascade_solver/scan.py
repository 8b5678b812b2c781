"""The allocation without extra constraints, by a plain scan (science.md section 5, third check)."""

from collections.abc import Sequence

import numpy as np

from .arrays import Floats


def bottleneck(tables: Sequence[Floats], gpus: int) -> tuple[float, tuple[int, ...]] | None:
    """The least L = max_i l_i(f_i) with sum f_i <= gpus, and the fewest GPUs that reach it.

    ``tables[i][f]`` is l_i(f), non-increasing in f = 0..N, infinite where nothing fits. L is
    reachable iff sum_i min{f : l_i(f) <= L} <= gpus, so the distinct cells are bisected.
    ``None`` when no finite L is reachable.
    """
    values = np.unique(np.concatenate(tables))
    values = values[np.isfinite(values)]
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        if sum(_fewest(tables, values[middle])) <= gpus:
            high = middle
        else:
            low = middle + 1
    if low == values.size:
        return None
    return float(values[low]), tuple(_fewest(tables, values[low]))


def _fewest(tables: Sequence[Floats], limit: float) -> list[int]:
    """min{f : l_i(f) <= limit} for each table; one beyond its end when there is none."""
    return [int(np.searchsorted(-table, -limit, side="left")) for table in tables]
