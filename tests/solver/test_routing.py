"""The threshold search (science.md 1.3, 1.6, sections 2 and 5)."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from cascade_solver import cost, pricing, replay, routing
from cascade_solver.pricing import Candidate
from cascade_solver.problem import Problem, Search
from tests.solver import builders


def priced(problem: Problem) -> tuple[pricing.Pricing, replay.Table]:
    assert problem.calibration is not None
    data = replay.table(problem.calibration, [m.name for m in problem.models])
    return pricing.Pricing(problem, data), data


def searched(problem: Problem, **pinned: int) -> tuple[routing.Outcome, pricing.Pricing, float]:
    p, data = priced(problem)
    mu = cost.mu(p)
    fixed = {p.names.index(name): value for name, value in pinned.items()}
    search = routing.ThresholdSearch(p, data, problem.search, mu, pinned=fixed, seed=problem.seed)
    starts = [replay.proportional(data), routing.best_reachable(data, fixed)]
    return search.run([*starts, *routing.extremes(len(p.names))]), p, mu


def all_settings(data: replay.Table) -> list[replay.Thresholds]:
    levels = [
        sorted({*row.astype(int).tolist(), 0, replay.ACCEPT_NONE}) for row in data.scores[:-1]
    ]
    return list(itertools.product(*levels))


NAMES_3 = ("small", "medium", "large")


@pytest.mark.parametrize("seed", range(12))
def test_the_search_is_within_1_percent_of_the_optimum_over_all_settings(seed: int) -> None:
    names = NAMES_3 if seed % 2 else ("small", "large")
    problem = builders.problem(
        names,
        calibration=builders.calibration(names, n=25 if seed % 2 else 60, seed=seed),
        qmin=(50, 60, 68, 73)[seed % 4],
        pools=builders.pool((12, 16, 24)[seed % 3]),
        search={"simulatedRequests": 200},
        workload={
            "rate": (2.0, 12.0, 40.0)[seed % 3],
            "inputTokens": {"mean": 1, "p95": 1},
            "outputTokens": {"mean": 1, "p95": 1},
        },
    )
    outcome, p, mu = searched(problem)
    assert p.data is not None
    best = math.inf
    walks = {t: replay.walk(p.data, t) for t in all_settings(p.data)}
    feasible = {t: w for t, w in walks.items() if p.meets_qmin(w)}
    for thresholds, walk in feasible.items():
        c = p.candidate(thresholds, walk)
        best = min(best, p.objective(c.latency, walk.quality, mu))
    found = outcome.finalists[0]
    if not feasible:
        top = max(w.quality for w in walks.values())
        assert found.walk.quality == pytest.approx(top)
        return
    assert p.meets_qmin(found.walk)
    assert p.objective(found.latency, found.walk.quality, mu) <= 1.01 * best


@pytest.mark.parametrize("seed", range(6))
def test_best_reachable_is_the_highest_quality_of_all_settings(seed: int) -> None:
    calibration = builders.calibration(NAMES_3, n=25, seed=seed)
    _, data = priced(builders.problem(NAMES_3, calibration=calibration))
    found = replay.walk(data, routing.best_reachable(data, {})).quality
    top = max(replay.walk(data, t).quality for t in all_settings(data))
    assert found == pytest.approx(top, abs=0.25)


@dataclasses.dataclass
class Priced:
    """Latency as a function of the share that escalates; counts what it was asked."""

    qmin: float
    asked: list[replay.Thresholds] = dataclasses.field(default_factory=list)

    def candidate(self, thresholds: replay.Thresholds, walk: replay.Walk) -> Candidate:
        self.asked.append(thresholds)
        latency = 1.0 + 10.0 * walk.visit_ratio[-1]
        return Candidate(thresholds, walk, latency, 0.1, latency)

    def meets_qmin(self, walk: replay.Walk) -> bool:
        return walk.quality >= self.qmin

    def objective(self, latency: float, quality: float, mu: float) -> float:
        return latency + mu * max(0.0, (self.qmin - quality) / 20.0)


def two_models(n: int = 101) -> replay.Table:
    """Scores 0..100 at the first model, 100 at the second: quality rises with the threshold."""
    return replay.table(
        builders.table({"a": [k % 101 for k in range(n)], "b": [100] * n}), ("a", "b")
    )


def run(fake: Priced, mu: float = 100.0, **settings: int) -> routing.Outcome:
    data = two_models()
    search = routing.ThresholdSearch(
        fake, data, Search.model_validate(settings), mu, pinned={}, seed=0, exhaustive=0
    )
    return search.run([replay.proportional(data), (0,)])


def test_feasible_first_even_where_a_small_miss_would_be_cheaper() -> None:
    outcome = run(Priced(qmin=70.0), mu=0.001)
    assert outcome.finalists[0].walk.quality >= 70.0


def test_the_lowest_threshold_that_meets_qmin_is_found() -> None:
    outcome = run(Priced(qmin=70.0))
    data = two_models()
    least = min(h for h in range(102) if replay.walk(data, (h,)).quality >= 70.0)
    assert outcome.finalists[0].thresholds == (least,)


def test_best_objective_never_rises() -> None:
    outcome = run(Priced(qmin=70.0), stable_rounds=5)
    assert list(outcome.best_objectives) == sorted(outcome.best_objectives, reverse=True)


def test_stops_after_k_unchanged_rounds() -> None:
    few, many = (run(Priced(qmin=70.0), stable_rounds=k) for k in (2, 6))
    assert few.converged
    assert many.rounds - few.rounds == 4
    assert len(set(many.best_objectives[-6:])) == 1


def test_the_round_limit_is_reported() -> None:
    outcome = run(Priced(qmin=70.0), max_rounds=1, stable_rounds=3)
    assert outcome.rounds == 1
    assert not outcome.converged


def test_candidates_that_miss_qmin_are_not_deployed_once_it_is_met() -> None:
    fake = Priced(qmin=70.0)
    run(fake)
    data = two_models()
    missed = [t for t in fake.asked if replay.walk(data, t).quality < 70.0]
    assert missed == []


def test_unreachable_qmin_gives_the_best_quality() -> None:
    data = replay.table(builders.table({"a": [90, 10, 50], "b": [20, 80, 60]}), ("a", "b"))
    search = routing.ThresholdSearch(Priced(qmin=99.0), data, Search(), 10.0, pinned={}, seed=0)
    outcome = search.run([(0,)])
    assert outcome.finalists[0].walk.quality == pytest.approx((90 + 80 + 60) / 3)


def test_few_settings_are_all_compared_and_prove_the_optimum() -> None:
    data, fake = two_models(), Priced(qmin=70.0)
    search = routing.ThresholdSearch(fake, data, Search(), 100.0, pinned={}, seed=0)
    outcome = search.run([(0,)])
    assert outcome.candidates == 102
    walks = [replay.walk(data, (h,)) for h in range(102)]
    met = [fake.candidate((0,), w).latency for w in walks if fake.meets_qmin(w)]
    assert outcome.bound == min(met)
    pinned = routing.ThresholdSearch(fake, data, Search(), 100.0, pinned={0: 90}, seed=0)
    assert pinned.run([(0,)]).finalists[0].thresholds == (90,)


def test_each_move_is_also_tried_with_another_threshold_fitted_to_qmin() -> None:
    """At a tight quality floor a single threshold can hardly move: two have to."""
    _, data = priced(builders.problem(NAMES_3))
    fake = Priced(qmin=75.0)
    start = routing.best_reachable(data, {})
    search = routing.ThresholdSearch(
        fake, data, Search(max_rounds=1), 100.0, pinned={}, seed=0, exhaustive=0
    )
    search.run([start])
    joint = [
        t
        for t in fake.asked
        if t[0] != start[0] and t[1] != start[1] and replay.walk(data, t).quality < 76.0
    ]
    assert len(joint) > routing.RESTART_DRAWS + 5


def test_pinned_thresholds_stay() -> None:
    outcome, _, _ = searched(builders.problem(NAMES_3, qmin=50), small=33)
    assert {c.thresholds[0] for c in outcome.finalists} == {33}


def test_conditional_quantiles_refine_around_the_incumbent() -> None:
    """With 1,001 distinct settings a grid of 3 quantiles must be refined to find the optimum."""
    outcome = run(Priced(qmin=70.0), quantiles=3, stable_rounds=8)
    data = two_models()
    least = min(h for h in range(102) if replay.walk(data, (h,)).quality >= 70.0)
    assert outcome.finalists[0].thresholds == (least,)


def test_worked_example_of_the_objective() -> None:
    """Science.md 1.6: 21.0 for the plan that misses the floor, 11.4 for the one that meets it."""
    n = 50
    table = builders.table({"small": [70] * n, "large": [90] * n})
    p, _ = priced(builders.problem(calibration=table.model_dump(by_alias=True), qmin=90))
    assert p.span() == pytest.approx(20.0)
    assert p.objective(11.0, 88.0, 100.0) == pytest.approx(21.0)
    assert p.objective(11.4, 91.0, 100.0) == pytest.approx(11.4)


def test_mu_is_ten_times_the_latency_of_the_start_point() -> None:
    p, data = priced(builders.problem())
    start = replay.proportional(data)
    latency = p.candidate(start, replay.walk(data, start)).latency
    assert np.isfinite(latency)
    assert cost.mu(p) == pytest.approx(10 * latency)
