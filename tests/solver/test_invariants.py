"""What must hold for any problem: random ones, small, some of them impossible."""

import random
from typing import Any

import numpy as np
import pytest

from cascade_solver import errors, nodes, reach
from cascade_solver.cost import cost
from cascade_solver.plan import Plan
from cascade_solver.problem import Problem
from cascade_solver.solve import solve

MODELS = (
    ("Qwen3-0.6B", "bf16"),
    ("Llama-3.1-8B", "bf16"),
    ("Qwen2.5-7B", "fp8"),
    ("Qwen3-32B", "bf16"),
    ("Llama-3.1-70B", "fp8"),
    ("Qwen3-30B-A3B", "bf16"),
)


def columns(draw: random.Random, seed: int, rows: int) -> dict[str, list[int]]:
    generator = np.random.default_rng(seed)
    flat = draw.random() < 0.2
    return {
        "score": [50] * rows if flat else generator.integers(0, 101, rows).tolist(),
        "inputTokens": generator.integers(1, 3000, rows).tolist(),
        "outputTokens": generator.integers(1, 600, rows).tolist(),
    }


def document(seed: int) -> dict[str, Any]:
    """A valid document; whether it can be solved is another matter."""
    draw = random.Random(seed)
    names = ("a", "b", "c")[: draw.randint(1, 3)]
    models = []
    for name in names:
        architecture, precision = draw.choice(MODELS)
        model: dict[str, Any] = {
            "name": name,
            "architecture": architecture,
            "precision": precision,
            "minReplicas": draw.choice([1, 1, 1, 2]),
        }
        if draw.random() < 0.2:
            model["pins"] = {"tensor": draw.choice([1, 2, 4])}
        if draw.random() < 0.2:
            model["maxGpus"] = draw.choice([4, 8])
        models.append(model)
    pool: dict[str, Any] = {
        "gpuType": draw.choice(["H100", "H200", "B200"]),
        "gpus": draw.choice([2, 8, 12, 16, 24]),
        "gpusPerNode": draw.choice([4, 8]),
    }
    if draw.random() < 0.4:
        pool["freePerNode"] = [draw.randint(0, pool["gpusPerNode"]) for _ in range(5)]
    given: dict[str, Any] = {
        "models": models,
        "qmin": draw.randint(0, 100),
        "pools": [pool],
        "workload": {
            "rate": draw.choice([1e-6, 0.1, 5, 50, 1e4]),
            "inputTokens": {"mean": draw.choice([1, 800]), "p95": 2000},
            "outputTokens": {"mean": draw.choice([1, 100]), "p95": 600},
        },
        "search": {"simulatedRequests": 100},
        "seed": draw.randint(0, 5),
    }
    if draw.random() < 0.7:
        rows = draw.choice([1, 30, 200])
        table = {name: columns(draw, seed + i, rows) for i, name in enumerate(names)}
        given["calibration"] = {"columns": table}
    if draw.random() < 0.3:
        given["judge"] = {"type": "LLM", "model": names[-1]}
    return given


def solved(given: dict[str, Any]) -> tuple[Problem, Plan] | None:
    problem = Problem.model_validate(given)
    try:
        return problem, solve(problem)
    except errors.SolverError as error:
        assert errors.lines(error)
        return None


def in_force(plan: Plan) -> dict[str, Any]:
    return {
        "thresholds": plan.thresholds(),
        "deployment": {
            name: [s.model_dump(by_alias=True) for s in sets]
            for name, sets in plan.deployment().items()
        },
    }


SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_fits_its_nodes_costs_what_it_says_and_can_be_reached(seed: int) -> None:
    given = document(seed)
    found = solved(given)
    if found is None:
        return
    problem, plan = found
    pool = nodes.of(problem.pools[0])
    replicas: dict[int, int] = {}
    for planned in (s for m in plan.models for s in m.sets):
        replicas[planned.tensor] = replicas.get(planned.tensor, 0) + planned.replicas
    assert pool.fits(replicas)
    priced = cost(problem, plan.thresholds(), plan.deployment())
    assert bool(priced.overloaded) is plan.overloaded
    if not plan.overloaded:
        assert priced.latency_p95_seconds == pytest.approx(plan.latency_p95_seconds)
        assert priced.objective == pytest.approx(plan.objective)
    changed = {**given, "qmin": (given["qmin"] + 40) % 101, "inForce": in_force(plan)}
    changed["workload"] = {**given["workload"], "rate": 20.0}
    following = solved(changed)
    assert following is not None
    steps = reach.moves(plan.deployment(), following[1].deployment(), pool.gpus)
    assert (steps is not None) is following[1].reachable


def test_enough_of_the_random_problems_can_be_solved() -> None:
    assert sum(solved(document(seed)) is not None for seed in range(20)) >= 8
