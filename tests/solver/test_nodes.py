"""Whole-node packing (latency-model.md section 10)."""

import itertools
import random

import pytest

from cascade_solver import nodes
from cascade_solver.problem import Pool


def of(gpus: int, free: tuple[int, ...] | None = None) -> nodes.Nodes:
    return nodes.of(Pool(gpu_type="H100", gpus=gpus, gpus_per_node=8, free_per_node=free))


@pytest.mark.parametrize(
    ("pool", "replicas", "fits"),
    [
        (of(16), {8: 2}, True),
        (of(12), {8: 1, 4: 1}, True),
        (of(12), {8: 1, 2: 2, 1: 1}, False),
        (of(16, (4, 4, 8)), {8: 2}, False),
        (of(16, (4, 4, 8)), {8: 1, 4: 2}, True),
        (of(16, (3, 3, 3, 3)), {2: 4, 1: 4}, True),
        (of(16, (3, 3, 3, 3)), {2: 5}, False),
        (of(6, (8, 8)), {4: 2}, False),
        (of(0), {1: 1}, False),
    ],
)
def test_fits(pool: nodes.Nodes, replicas: dict[int, int], fits: bool) -> None:
    assert pool.fits(replicas) is fits


def place(free: list[int], sizes: list[int]) -> bool:
    """Exhaustive search for a placement."""
    if not sizes:
        return True
    for i, room in enumerate(free):
        if room >= sizes[0] and place([*free[:i], room - sizes[0], *free[i + 1 :]], sizes[1:]):
            return True
    return False


def test_packing_is_exact_for_tensor_sizes() -> None:
    draw = random.Random(3)
    outcomes = set()
    for _ in range(300):
        free = [draw.randint(1, 8) for _ in range(draw.randint(1, 3))]
        sizes = sorted((draw.choice([1, 2, 4, 8]) for _ in range(draw.randint(1, 5))), reverse=True)
        counts = {s: len(list(group)) for s, group in itertools.groupby(sizes)}
        expected = place(free, sizes)
        assert of(sum(free), tuple(free)).fits(counts) is expected
        outcomes.add(expected)
    assert outcomes == {True, False}
