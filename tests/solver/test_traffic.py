"""What each model carries: rates, lengths, judge calls, and the samples that stand for them."""

import numpy as np
import pytest

from cascade_solver import replay, traffic
from cascade_solver.latency import samples
from cascade_solver.problem import Calibration, LengthSummary, Problem
from tests.solver import builders


def calibrated(problem: Problem) -> tuple[traffic.Traffic, replay.Table]:
    assert problem.calibration is not None
    data = replay.table(problem.calibration, [m.name for m in problem.models])
    return traffic.calibrated(problem, data), data


def skewed() -> Calibration:
    """Half of the requests are hard, twice as long in and three times as long out."""
    hard = [k % 2 == 1 for k in range(200)]
    column = {
        "score": [10 if h else 90 for h in hard],
        "inputTokens": [200 if h else 100 for h in hard],
        "outputTokens": [300 if h else 100 for h in hard],
    }
    return Calibration.model_validate({"columns": {"small": column, "large": column}})


def test_loads_carry_the_lengths_of_those_that_reach_the_model() -> None:
    problem = builders.problem(calibration=skewed().model_dump(by_alias=True))
    carried, data = calibrated(problem)
    small, large = carried.loads(replay.walk(data, (50,)), (50,))
    assert (small.rate, large.rate) == pytest.approx((4.0, 2.0))
    assert (small.key, small.stretch) == ((0, 0, 0), 1.0)
    # 200 of 150 on average, 300 of 200: in steps of 5 %.
    assert samples.bucket_factor(large.input_bucket) == pytest.approx(4 / 3, rel=0.025)
    exact = samples.bucket_factor(large.output_bucket) * large.stretch
    assert exact == pytest.approx(3 / 2)
    sample = carried.sample(1, large, seed=0)
    assert sample.inputs.mean() == pytest.approx(200, rel=0.03)
    assert sample.outputs.mean() == pytest.approx(300, rel=0.03)


def test_judge_calls_read_the_judged_text_and_write_one_token() -> None:
    problem = builders.problem(
        calibration=skewed().model_dump(by_alias=True), judge={"type": "LLM", "model": "large"}
    )
    carried, data = calibrated(problem)
    small, large = carried.loads(replay.walk(data, (50,)), (50,))
    assert (small.judge_rate, large.judge_rate) == pytest.approx((0.0, 4.0))
    sample = carried.sample(1, large, seed=0)
    calls = ~sample.answers
    assert calls.mean() == pytest.approx(2 / 3, abs=0.03)
    assert set(sample.outputs[calls].tolist()) == {1}
    assert set(sample.inputs[calls].tolist()) == {200, 500}


def test_resampling_keeps_the_mixture_and_mixes_the_order() -> None:
    rows = np.arange(1.0, 1001.0)
    weights = np.where(rows > 500, 3.0, 1.0)
    drawn = samples.resample(rows, rows, weights, 2000, seed=1)
    assert (drawn.inputs > 500).mean() == pytest.approx(0.75, abs=0.001)
    assert abs(np.corrcoef(drawn.inputs[:-1], drawn.inputs[1:])[0, 1]) < 0.1
    again, other = (samples.resample(rows, rows, weights, 2000, seed=s) for s in (1, 2))
    assert again.inputs.tobytes() == drawn.inputs.tobytes()
    assert other.inputs.tobytes() != drawn.inputs.tobytes()


@pytest.mark.parametrize(("mean", "p95"), [(500, 1200), (100, 100), (50, 180), (2000, 3000)])
def test_log_normal_lengths_have_the_stated_mean_and_p95(mean: float, p95: float) -> None:
    lengths = samples.log_normal(LengthSummary(mean=mean, p95=p95), 4000)
    assert lengths.mean() == pytest.approx(mean, rel=0.01)
    assert np.quantile(lengths, 0.95) == pytest.approx(p95, rel=0.03)


def test_a_p95_beyond_every_log_normal_gives_the_widest_one() -> None:
    lengths = samples.log_normal(LengthSummary(mean=100, p95=10_000), 4000)
    assert lengths.mean() == pytest.approx(100, rel=0.02)
    assert np.quantile(lengths, 0.95) > 300
