"""The allocation program against exhaustive enumeration (science.md 1.5, section 5)."""

import itertools
import random

import pytest

from cascade_solver import milp


def enumerate_best(
    options: list[list[milp.Option]], limits: list[milp.Limit], weights: list[float]
) -> tuple[float, float, int] | None:
    """L, then sum of weighted latencies, then GPUs: the lexicographic optimum by brute force."""
    best: tuple[float, float, int] | None = None
    for chosen in itertools.product(*(range(len(row)) for row in options)):
        if any(
            sum(c[o] for c, o in zip(limit.coefficients, chosen, strict=True)) > limit.bound + 1e-9
            for limit in limits
        ):
            continue
        taken = [row[o] for row, o in zip(options, chosen, strict=True)]
        weighted = sum(w * t.latency for w, t in zip(weights, taken, strict=True))
        value = (max(t.latency for t in taken), round(weighted, 9), sum(t.gpus for t in taken))
        if best is None or value < best:
            best = value
    return best


def instance(seed: int) -> tuple[list[list[milp.Option]], list[milp.Limit], list[float]]:
    """A random problem: ties on purpose, gaps where nothing fits, sometimes more constraints than
    can be met."""
    draw = random.Random(seed)
    models = draw.choice([2, 2, 3, 3, 4])
    gpus = draw.randint(models, {2: 24, 3: 14, 4: 9}[models])
    options = []
    for _ in range(models):
        least = draw.choice([1, 1, 2, 4])
        levels = draw.choice([3, 50])
        latencies = sorted((draw.randint(1, levels) / 4 for _ in range(gpus)), reverse=True)
        row = [milp.Option(f, latency) for f, latency in enumerate(latencies, 1) if f >= least]
        options.append(row or [milp.Option(least, 1.0)])
    limits = [milp.gpu_limit(options, gpus)]
    for name in range(draw.choice([0, 0, 1, 2])):
        coefficients = tuple(tuple(float(draw.randint(0, 4)) for _ in row) for row in options)
        limits.append(milp.Limit(str(name), coefficients, float(draw.randint(0, 9))))
    return options, limits, [1.0, *(draw.randint(1, 4) / 4 for _ in options[1:])]


BLOCKS = 10
PER_BLOCK = 36


@pytest.mark.parametrize("block", range(BLOCKS))
def test_program_equals_enumeration(block: int) -> None:
    infeasible = 0
    for seed in range(block * PER_BLOCK, (block + 1) * PER_BLOCK):
        options, limits, weights = instance(seed)
        expected = enumerate_best(options, limits, weights)
        found = milp.allocate(options, limits, weights)
        if expected is None:
            assert found is None, seed
            infeasible += 1
            continue
        assert found is not None, seed
        taken = [row[o] for row, o in zip(options, found.chosen, strict=True)]
        weighted = sum(w * t.latency for w, t in zip(weights, taken, strict=True))
        assert (found.latency, round(weighted, 9), sum(t.gpus for t in taken)) == expected, seed
    assert infeasible < PER_BLOCK


def test_instances_contain_ties_and_infeasible_cases() -> None:
    solved = [enumerate_best(*instance(seed)) for seed in range(120)]
    assert any(best is None for best in solved)
    assert any(
        len({o.latency for o in row}) < len(row) for seed in range(9) for row in instance(seed)[0]
    )


def test_no_option_for_a_model_is_infeasible() -> None:
    assert milp.allocate([[milp.Option(1, 1.0)], []], [], [1.0, 1.0]) is None


def test_nothing_is_printed_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    options = [[milp.Option(1, 2.0), milp.Option(2, 1.0)]]
    assert milp.allocate(options, [milp.gpu_limit(options, 2)], [1.0]) is not None
    assert capfd.readouterr().out == ""
