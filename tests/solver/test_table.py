"""Latency curves and l_i(f) (science.md 1.4, latency-model.md sections 7 and 11)."""

import numpy as np
import pytest

from cascade_solver import pricing, replay, scan
from cascade_solver.latency import curve
from cascade_solver.latency.table import Cells
from cascade_solver.problem import Problem
from tests.solver import builders


def priced(problem: Problem) -> pricing.Pricing:
    assert problem.calibration is not None
    names = [m.name for m in problem.models]
    return pricing.Pricing(problem, replay.table(problem.calibration, names))


def cells_of(p: pricing.Pricing, thresholds: replay.Thresholds) -> list[Cells]:
    assert p.data is not None
    loads = p.loads(replay.walk(p.data, thresholds), thresholds)
    return [p.cells(i, load) for i, load in enumerate(loads)]


@pytest.mark.parametrize("rate", [0.5, 8.0, 60.0, 400.0])
def test_latency_never_rises_with_gpus(rate: float) -> None:
    given = builders.problem(("small", "medium", "large"), pools=builders.pool(32))
    workload = given.workload.model_copy(update={"rate": rate})
    p = priced(given.model_copy(update={"workload": workload}))
    for cells in cells_of(p, (60, 60)):
        finite = cells.latency[np.isfinite(cells.latency)]
        assert np.all(np.diff(finite) <= 0)
        assert np.all(np.isinf(cells.latency[: np.isinf(cells.latency).sum()]))
        used = [cells.strategies[k].gpus for k in cells.chosen if k >= 0]
        assert used == sorted(used)


def test_each_cell_is_the_best_strategy_that_fits() -> None:
    p = priced(builders.problem(pools=builders.pool(16)))
    for cells in cells_of(p, (70,)):
        for f in range(17):
            fitting = [s.latency for s in cells.strategies if s.gpus <= f]
            assert cells.latency[f] == min(fitting, default=np.inf)


def test_floor_cap_and_pins_limit_the_strategies() -> None:
    models = [
        {"name": "small", "architecture": "Llama-3.1-8B", "minReplicas": 2, "maxGpus": 6},
        {"name": "large", "architecture": "Llama-3.1-70B", "pins": {"tensor": 4, "replicas": 2}},
    ]
    small, large = cells_of(priced(builders.problem(models=models)), (70,))
    assert {s.replicas for s in small.strategies} == {2, 3, 4, 5, 6}
    assert max(s.gpus for s in small.strategies) == 6
    assert [(s.shape.tensor, s.replicas) for s in large.strategies] == [(4, 2)]


def test_the_curve_is_independent_of_what_was_asked_before() -> None:
    rates = np.array([0.4, 2.0, 5.0])
    answers = []
    for order in (rates, rates[::-1]):
        p = priced(builders.problem())
        assert p.data is not None
        load = p.loads(replay.walk(p.data, (70,)), (70,))[0]
        shape = p.tables[0].variant((1, 1), load.key, lambda: p.sample(0, load))  # noqa: B023
        one = p.tables[0].curve(shape, load.key, lambda: p.sample(0, load))  # noqa: B023
        answers.append({float(r): one.p95(float(r)) for r in order})
    assert answers[0] == answers[1]


def test_interpolated_latency_stays_close_to_the_exact_simulation() -> None:
    p = priced(builders.problem(search={"simulatedRequests": 2000}))
    assert p.data is not None
    load = p.loads(replay.walk(p.data, (70,)), (70,))[0]
    shape = p.tables[0].variant((1, 1), load.key, lambda: p.sample(0, load))
    one = p.tables[0].curve(shape, load.key, lambda: p.sample(0, load))
    errors = [
        abs(one.p95(load * one.saturation) / one.exact(load * one.saturation).latency - 1)
        for load in np.linspace(0.05, 0.95, 13)
    ]
    assert np.mean(errors) <= 0.02


def test_a_replica_near_saturation_counts_as_overloaded() -> None:
    p = priced(builders.problem())
    assert p.data is not None
    load = p.loads(replay.walk(p.data, (70,)), (70,))[0]
    shape = p.tables[0].variant((1, 1), load.key, lambda: p.sample(0, load))
    one = p.tables[0].curve(shape, load.key, lambda: p.sample(0, load))
    assert np.isfinite(one.p95(0.97 * one.saturation))
    assert np.isinf(one.p95(curve.OVERLOAD * one.saturation))


def test_strategies_chosen_with_one_seed_are_good_under_another() -> None:
    """Mean regret of section 11: the chosen strategy's p95 against the best, both re-simulated
    with other arrivals and another order of requests."""
    size = {"simulatedRequests": 2000}
    chosen, judged = (priced(builders.problem(search=size, seed=seed)) for seed in (0, 1))
    regrets = []
    for rate in (2.0, 20.0):
        for p in (chosen, judged):
            object.__setattr__(p.traffic, "rate", rate)
        for first, second in zip(cells_of(chosen, (70,)), cells_of(judged, (70,)), strict=True):
            for f in range(1, 17):
                if np.isfinite(first.latency[f]) and np.isfinite(second.latency[f]):
                    pick = first.strategies[first.chosen[f]]
                    same = [
                        s.latency
                        for s in second.strategies
                        if (s.shape.tensor, s.replicas) == (pick.shape.tensor, pick.replicas)
                    ]
                    regrets.append(same[0] / second.latency[f] - 1)
    assert len(regrets) > 20
    assert np.mean(regrets) <= 0.01


def test_pinned_gpus_leave_exactly_one_allocation() -> None:
    p = priced(builders.problem(pinnedGpus={"large": 6}))
    small, large = cells_of(p, (70,))
    assert p.restricted(0, small.latency) is small.latency
    pinned = p.restricted(1, large.latency)
    assert np.all(np.isinf(pinned[:6]))
    assert set(pinned[6:].tolist()) == {large.latency[6]}


def test_memory_knobs_change_only_where_kv_tokens_limit() -> None:
    models = [
        {"name": "small", "architecture": "Llama-3.1-8B"},
        {"name": "large", "architecture": "Llama-3.1-70B", "pins": {"tensor": 2}},
    ]
    small, large = cells_of(priced(builders.problem(models=models)), (70,))
    assert {s.shape.chunk for s in small.strategies} == {8192}
    # 26,000 KV tokens limit this shape; 37,000 carry clearly more.
    assert {s.shape.mem_fraction_static for s in large.strategies} == {0.90}


def test_the_scan_finds_the_least_bottleneck() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        gpus = int(random.integers(2, 14))
        tables = [
            np.concatenate([[np.inf], -np.sort(-random.integers(1, 9, gpus).astype(float))])
            for _ in range(2)
        ]
        for t in tables:
            t[: random.integers(1, 4)] = np.inf
        best = min(
            max(tables[0][f], tables[1][g]) for f in range(gpus + 1) for g in range(gpus + 1 - f)
        )
        found = scan.bottleneck(tables, gpus)
        if np.isinf(best):
            assert found is None
        else:
            assert found is not None
            assert found[0] == best
            assert sum(found[1]) <= gpus
            assert max(t[f] for t, f in zip(tables, found[1], strict=True)) == best
