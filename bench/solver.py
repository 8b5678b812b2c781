"""Benchmarks of the planner: time of a whole plan, and of one simulated request."""

import functools
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from cascade_solver.latency import catalogue, curve, engine, memory, samples, steps
from cascade_solver.problem import Problem
from cascade_solver.solve import solve

RUNS = 7
REQUESTS = 2000
PLAN_3X32_MARK_S = 1.0
PLAN_3X80_MARK_S = 3.0
SIMULATION_MARK_US = 1.0

CASCADE = (
    ("small", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "bf16", 0.45),
    ("medium", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "bf16", 0.70),
    ("large", "cognitivecomputations/DeepSeek-R1-AWQ", "int4", 0.90),
)
"""The paper's cascade; the last figure is the prompt difficulty at which a score falls to 50."""


def problem(gpus: int, rate: float) -> Problem:
    """Three models, 2,000 calibration rows, H100 nodes of eight."""
    random = np.random.default_rng(1)
    difficulty = random.beta(2, 2, REQUESTS)
    inputs = np.exp(random.normal(5.5, 0.4, REQUESTS) + difficulty).round().astype(int)
    columns = {}
    for name, _, _, skill in CASCADE:
        score = 100 / (1 + np.exp((difficulty - skill) * 8)) + random.normal(0, 8, REQUESTS)
        outputs = random.lognormal(5 + 0.5 * difficulty, 0.5).round().astype(int)
        columns[name] = {
            "score": np.clip(score, 0, 100).round().astype(int).tolist(),
            "inputTokens": inputs.tolist(),
            "outputTokens": np.maximum(1, outputs).tolist(),
        }
    lengths = {"mean": 500, "p95": 1200}
    return Problem.model_validate(
        {
            "models": [
                {"name": name, "architecture": architecture, "precision": precision}
                for name, architecture, precision, _ in CASCADE
            ],
            "qmin": 80,
            "pools": [{"gpuType": "H100", "gpus": gpus, "gpusPerNode": 8}],
            "workload": {"rate": rate, "inputTokens": lengths, "outputTokens": lengths},
            "calibration": {"columns": columns},
            "search": {"simulatedRequests": REQUESTS},
        }
    )


def seconds(work: Callable[[], object]) -> list[float]:
    """Wall time of each of the runs, after one that warms the process."""
    work()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return times


def report(name: str, values: list[float], unit: str, reference: float | None) -> None:
    """One JSON line: median, reference, their ratio, and the range of the runs over the median."""
    median = statistics.median(values)
    line = {
        "name": name,
        "value": median,
        "unit": unit,
        "reference": reference,
        "ratio": None if reference is None else median / reference,
        "spread": (max(values) - min(values)) / median,
    }
    print(json.dumps(line), flush=True)


def simulated_request_us() -> list[float]:
    """A 70B on four GPUs at 10 to 98 % load: microseconds per request, skip-ahead."""
    gpu, architecture = catalogue.gpu("H100"), catalogue.architecture("Llama-3.1-70B")
    fraction = memory.default_fraction(gpu, 4, 1, memory.default_chunk(gpu))
    kv_tokens = memory.kv_tokens(architecture, gpu, 4, 1, "bf16", fraction)
    model = steps.build(architecture, gpu, 4, 1, "bf16")
    machine = engine.replica(model, kv_tokens, memory.default_chunk(gpu))
    random = np.random.default_rng(0)
    inputs = np.maximum(1, random.lognormal(6.3, 0.8, REQUESTS)).astype(np.int64)
    outputs = np.maximum(1, random.lognormal(5, 0.8, REQUESTS)).astype(np.int64)
    sample = samples.Sample(inputs, outputs, np.ones(REQUESTS, dtype=np.bool_))
    arrivals = curve.unit_gaps(REQUESTS, 0)
    saturation = curve.Curve(machine, sample, arrivals).saturation
    loads = (0.1, 0.5, 0.9, 0.98)

    def run() -> None:
        for load in loads:
            engine.simulate(machine, arrivals / (load * saturation), inputs, outputs)

    return [1e6 * s / (len(loads) * REQUESTS) for s in seconds(run)]


def main() -> int:
    for name, gpus, rate, mark in (
        ("plan_3x32_s", 32, 20.0, PLAN_3X32_MARK_S),
        ("plan_3x80_s", 80, 50.0, PLAN_3X80_MARK_S),
    ):
        given = problem(gpus, rate)
        report(name, seconds(functools.partial(solve, given)), "s", mark)
    report("sim_request_us", simulated_request_us(), "us", SIMULATION_MARK_US)
    return 0


if __name__ == "__main__":
    sys.exit(main())
