"""Builders of the solver's tests: the shortest valid documents, and tables with known structure."""

from typing import Any

import numpy as np

from cascade_solver.problem import Calibration, Problem

ARCHITECTURES = {"small": "Llama-3.1-8B", "medium": "Qwen3-32B", "large": "Llama-3.1-70B"}
SKILL = {"small": 0.45, "medium": 0.70, "large": 0.95}
"""Difficulty (0 to 1) at which a model's scores fall to one half."""


def calibration(
    names: tuple[str, ...] = ("small", "large"), n: int = 400, seed: int = 1
) -> dict[str, Any]:
    """A table with a hidden difficulty: larger models score better, harder prompts are longer."""
    random = np.random.default_rng(seed)
    difficulty = random.beta(2, 2, n)
    inputs = np.exp(random.normal(5.5, 0.4, n) + difficulty).round().astype(int)
    columns = {}
    for name in names:
        score = 100 / (1 + np.exp((difficulty - SKILL[name]) * 8)) + random.normal(0, 6, n)
        output = random.lognormal(4.5 + 0.5 * difficulty, 0.5).round().astype(int)
        columns[name] = {
            "score": np.clip(score, 0, 100).round().astype(int).tolist(),
            "inputTokens": inputs.tolist(),
            "outputTokens": np.maximum(1, output).tolist(),
        }
    return {"columns": columns}


def document(names: tuple[str, ...] = ("small", "large"), **overrides: Any) -> dict[str, Any]:
    """A problem document: 16 H100, calibrated, quick to solve."""
    given: dict[str, Any] = {
        "models": [{"name": n, "architecture": ARCHITECTURES[n]} for n in names],
        "qmin": 60,
        "pools": [{"gpuType": "H100", "gpus": 16, "gpusPerNode": 8}],
        "workload": {
            "rate": 4.0,
            "inputTokens": {"mean": 500, "p95": 1200},
            "outputTokens": {"mean": 150, "p95": 400},
        },
        "calibration": calibration(names),
        "search": {"simulatedRequests": 400},
    }
    given.update(overrides)
    return {key: value for key, value in given.items() if value is not None}


def problem(names: tuple[str, ...] = ("small", "large"), **overrides: Any) -> Problem:
    return Problem.model_validate(document(names, **overrides))


def pool(gpus: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"gpuType": "H100", "gpus": gpus, "gpusPerNode": 8, **fields}]


def table(rows: dict[str, list[int]], **fields: Any) -> Calibration:
    """A calibration from scores alone; all lengths equal."""
    return Calibration.model_validate(
        {
            "columns": {
                name: {
                    "score": scores,
                    "inputTokens": [100] * len(scores),
                    "outputTokens": [10] * len(scores),
                }
                for name, scores in rows.items()
            },
            **fields,
        }
    )
