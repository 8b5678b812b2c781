"""The event simulation (latency-model.md sections 5, 7, 9, 11)."""

import csv
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
import pytest

from cascade_solver.latency import catalogue, compiled, curve, engine, memory, steps
from cascade_solver.latency.samples import Sample

H100 = catalogue.gpu("H100")
N = 1500


def machine(name: str, tensor: int, fraction: float | None = None) -> engine.Replica:
    a, precision = catalogue.architecture(name), catalogue.entry(name).precision
    mfs = fraction or memory.default_fraction(H100, tensor, 1, 8192)
    kv = memory.kv_tokens(a, H100, tensor, 1, precision, mfs)
    return engine.replica(steps.build(a, H100, tensor, 1, precision), kv, 8192)


def sample(seed: int = 0, n: int = N, mean_output: float = 5.0) -> Sample:
    random = np.random.default_rng(seed)
    inputs = np.maximum(1, random.lognormal(6.3, 0.8, n)).astype(np.int64)
    outputs = np.maximum(1, random.lognormal(mean_output, 0.8, n)).astype(np.int64)
    return Sample(inputs, outputs, np.ones(n, dtype=np.bool_))


REPLICAS = {
    "8B": ("Llama-3.1-8B", 1, None),
    "70B-short-of-KV": ("Llama-3.1-70B", 2, 0.88),
    "70B": ("Llama-3.1-70B", 8, None),
    "mixture": ("DeepSeek-R1-AWQ", 8, None),
}


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9, 0.98])
@pytest.mark.parametrize("replica", REPLICAS)
def test_skip_ahead_agrees_with_step_by_step(replica: str, load: float) -> None:
    m, s = machine(*REPLICAS[replica]), sample()
    rate = load * curve.Curve(m, s, curve.unit_gaps(N, 0)).saturation
    arrivals = curve.unit_gaps(N, 0) / rate
    fast = engine.simulate(m, arrivals, s.inputs, s.outputs)
    slow = engine.simulate(m, arrivals, s.inputs, s.outputs, skip_ahead=False)
    expected = curve.percentiles(slow, s)
    assert curve.percentiles(fast, s).latency == pytest.approx(expected.latency, rel=2.5e-3)
    assert curve.percentiles(fast, s).ttft == pytest.approx(expected.ttft, rel=2e-2)


def test_every_request_is_served_in_a_possible_order() -> None:
    m, s = machine("Llama-3.1-70B", 2, 0.88), sample()
    run = engine.simulate(m, curve.unit_gaps(N, 0) / 3.0, s.inputs, s.outputs)
    assert run.retractions > 0
    assert run.kv_blocked
    assert np.all(run.first > run.arrival)
    assert np.all(run.finish >= run.first)
    fastest = steps.build(catalogue.architecture("Llama-3.1-70B"), H100, 2, 1, "bf16")
    least = (s.outputs - 1) * fastest.decode_step_seconds(1, 1)
    assert np.all(run.finish - run.first >= least * (1 - 1e-9))


def test_a_single_request_costs_its_prefill_and_its_decode_steps() -> None:
    model = steps.build(catalogue.architecture("Qwen3-8B"), H100, 1, 1, "bf16")
    m = engine.replica(model, 100_000, 8192)
    run = engine.simulate(m, np.zeros(1), np.array([10_000]), np.array([3]))
    # 10,000 tokens are two chunks: attention goes over each chunk's own end.
    first = model.prefill_step_seconds(8192, 8192**2)
    first += model.prefill_step_seconds(1808, 10_000**2 - 8192**2)
    assert run.first[0] == pytest.approx(first)
    # Two steps at 10,000 and 10,001 tokens of context, priced half a token later.
    decode = model.decode_step_seconds(1, 10_000.5) + model.decode_step_seconds(1, 10_001.5)
    assert run.finish[0] == pytest.approx(first + decode)


def test_a_request_larger_than_the_pool_is_still_served_alone() -> None:
    m = engine.replica(
        steps.build(catalogue.architecture("Qwen3-8B"), H100, 1, 1, "bf16"), 500, 256
    )
    run = engine.simulate(m, np.zeros(2), np.array([600, 600]), np.array([40, 40]))
    assert np.all(run.finish > 0)
    assert run.first[1] > run.finish[0]


def test_kv_pressure_delays_first_tokens() -> None:
    s = sample()
    model = steps.build(catalogue.architecture("Llama-3.1-8B"), H100, 1, 1, "bf16")
    arrivals = curve.unit_gaps(N, 0) / 8.0
    roomy, tight = (
        engine.simulate(engine.replica(model, kv, 8192), arrivals, s.inputs, s.outputs)
        for kv in (400_000, 20_000)
    )
    assert not roomy.kv_blocked
    assert tight.kv_blocked
    assert (tight.first - tight.arrival).mean() > 2 * (roomy.first - roomy.arrival).mean()


def test_closed_loop_keeps_its_concurrency() -> None:
    m, s = machine("Llama-3.1-8B", 1), sample(n=200)
    run = engine.simulate(m, np.zeros(200), s.inputs, s.outputs, concurrency=7)
    for moment in np.sort(run.finish)[10:-10:17] - 1e-9:
        assert np.sum((run.arrival <= moment) & (run.finish > moment)) == 7


def test_same_input_same_bytes() -> None:
    m, s = machine("Llama-3.1-8B", 1), sample()
    runs = [engine.simulate(m, curve.unit_gaps(N, 3) / 9, s.inputs, s.outputs) for _ in range(2)]
    assert runs[0].finish.tobytes() == runs[1].finish.tobytes()


MEASURED = Path(__file__).parent / "data/qwen3_32b_h100_sglang.csv"


def end_to_end_error(row: dict[str, str]) -> float:
    """Relative error of mean TTFT + (output - 1) x TPOT, 10 x concurrency requests."""
    concurrency, n = int(row["batch_size"]), 10 * int(row["batch_size"])
    inputs, outputs = int(row["isl"]), int(row["osl"])
    m = machine("Qwen3-32B", int(row["tp_size"]))
    run = engine.simulate(
        m, np.zeros(n), np.full(n, inputs), np.full(n, outputs), concurrency=concurrency
    )
    predicted = float((run.finish - run.arrival).mean()) + steps.FRONT_END_SECONDS
    measured = float(row["silicon_ttft_ms"]) + (outputs - 1) * float(row["silicon_tpot_ms"])
    return 1e3 * predicted / measured - 1


def test_end_to_end_error_on_measured_rows_is_within_6_percent() -> None:
    rows = [r for r in csv.DictReader(MEASURED.read_text().splitlines()) if r["tp_size"] != "1"]
    errors = [abs(end_to_end_error(row)) for row in rows]
    assert len(errors) == 78
    assert sum(errors) / len(errors) <= 0.06
    assert max(errors) <= 0.15


def queueing_shortcut(model: steps.StepModel, s: Sample, rate: float) -> float:
    """p95 by the fixed point of section 7: decode slowed by prefill, M/G/1 wait."""
    prefill = np.array([model.prefill_step_seconds(a, float(a) ** 2) for a in s.inputs])
    busy = rate * prefill.mean()
    context, outputs = s.inputs.mean() + s.outputs.mean() / 2, s.outputs.mean()
    batch, step = 1.0, 0.0
    for _ in range(100):
        step = model.decode_step_seconds(max(batch, 1.0), context) / (1 - busy)
        batch = rate * outputs * step
    wait = rate * (prefill**2).mean() / (2 * (1 - busy)) + step / 2
    latency = wait + prefill + (s.outputs - 1) * step + steps.FRONT_END_SECONDS
    return float(np.quantile(latency, 0.95))


def test_queueing_theory_agrees_at_low_load() -> None:
    s = sample(n=4000)
    differences = []
    for name, tensor in (("Llama-3.1-8B", 1), ("Llama-3.1-70B", 4), ("Qwen3-32B", 2)):
        model = steps.build(catalogue.architecture(name), H100, tensor, 1, "bf16")
        simulated = curve.Curve(machine(name, tensor), s, curve.unit_gaps(4000, 0))
        for load in (0.05, 0.1, 0.2, 0.3, 0.5):
            rate = load * simulated.saturation
            exact = simulated.exact(rate).latency
            differences.append(abs(queueing_shortcut(model, s, rate) / exact - 1))
    assert median(differences) <= 0.05


def test_without_a_writable_cache_folder_the_code_still_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Any = numba.njit

    def refuse(*args: object, **kwargs: object) -> object:
        if kwargs.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*args, **kwargs)

    monkeypatch.setattr(numba, "njit", refuse)

    def double(value: int) -> int:
        return 2 * value

    assert compiled.compiled(double)(21) == 42
