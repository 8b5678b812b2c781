"""What each model has to carry under given visit ratios: rates, lengths, judge calls."""

import dataclasses

import numpy as np

from . import replay
from .arrays import Floats, Ints
from .latency import samples
from .problem import Problem


@dataclasses.dataclass(frozen=True)
class Load:
    """One model's workload: answers and judge calls per second, lengths as 5 % steps away from
    the table's mean (science.md section 2, cached curves)."""

    rate: float
    judge_rate: float
    input_bucket: int = 0
    output_bucket: int = 0
    judge_share: int = 0
    stretch: float = 1.0
    """Exact over bucketed mean output length: what the bucket leaves to be scaled."""

    @property
    def total(self) -> float:
        """Requests per second at the engines."""
        return self.rate + self.judge_rate

    @property
    def key(self) -> tuple[int, int, int]:
        """What the latency curve depends on besides the rate."""
        return (self.input_bucket, self.output_bucket, self.judge_share)


@dataclasses.dataclass(frozen=True)
class Traffic:
    """All requests of the problem: their lengths at each model, and who judges."""

    rate: float
    lengths: tuple[samples.Sample, ...]
    mean_input: tuple[float, ...]
    mean_output: tuple[float, ...]
    longest: tuple[int, ...]
    judge: int | None
    """Index of the model whose engines judge."""
    judged: Ints
    """Tokens of a judged text: input and answer at the first model."""

    def sample(self, model: int, load: Load, seed: int) -> samples.Sample:
        """The requests that stand for this load in a simulation."""
        own = samples.scaled(
            self.lengths[model],
            samples.bucket_factor(load.input_bucket),
            samples.bucket_factor(load.output_bucket),
        )
        if not load.judge_share:
            return own
        share = load.judge_share / samples.SHARE_STEPS
        return samples.with_judging(own, self.judged, share, seed)

    def loads(self, walk: replay.Walk, thresholds: replay.Thresholds) -> tuple[Load, ...]:
        """One load per model for a replayed walk. Threshold 0 accepts without judging."""
        judged = sum(
            self.rate * p for p, h in zip(walk.visit_ratio, thresholds, strict=False) if h > 0
        )
        return tuple(self._load(i, walk, judged) for i in range(len(self.lengths)))

    def _load(self, model: int, walk: replay.Walk, judged: float) -> Load:
        rate = self.rate * walk.visit_ratio[model]
        judge_rate = judged if model == self.judge else 0.0
        if rate == 0.0:
            return Load(0.0, judge_rate, judge_share=samples.SHARE_STEPS if judge_rate else 0)
        longer = walk.mean_output[model] / self.mean_output[model]
        bucket = samples.length_bucket(longer)
        return Load(
            rate,
            judge_rate,
            samples.length_bucket(walk.mean_input[model] / self.mean_input[model]),
            bucket,
            samples.share_bucket(judge_rate / (rate + judge_rate)),
            # Rounded, so that the order of summation cannot make two loads of one.
            round(longer / samples.bucket_factor(bucket), 9),
        )


def calibrated(problem: Problem, data: replay.Table) -> Traffic:
    """Lengths from the calibration table, rate from the workload."""
    rows = range(len(problem.models))
    return _traffic(
        problem,
        [data.inputs[i] for i in rows],
        [data.outputs[i] for i in rows],
        data.weights,
    )


def uncalibrated(problem: Problem) -> Traffic:
    """Log-normal lengths with the workload's mean and 95th percentile, the same at each model.

    Outputs are paired with inputs at random (seeded): without a table nothing is known about
    their dependence.
    """
    n = problem.search.simulated_requests
    inputs = samples.log_normal(problem.workload.input_tokens, n)
    outputs = samples.log_normal(problem.workload.output_tokens, n)
    outputs = outputs[np.random.default_rng(problem.seed).permutation(n)]
    count = len(problem.models)
    return _traffic(problem, [inputs] * count, [outputs] * count, np.full(n, 1.0 / n))


def synthetic_walk(traffic: Traffic) -> replay.Walk:
    """Visit ratios 1, 1/2, 1/3, .. where no scores exist (science.md 1.2)."""
    count = len(traffic.lengths)
    return replay.Walk(
        visit_ratio=tuple(1.0 / (i + 1) for i in range(count)),
        mean_input=traffic.mean_input,
        mean_output=traffic.mean_output,
        mean_score=(None,) * count,
        mean_final=(None,) * count,
        rows=(0,) * count,
        quality=0.0,
    )


def _traffic(
    problem: Problem, inputs: list[Floats], outputs: list[Floats], weights: Floats
) -> Traffic:
    n, seed = problem.search.simulated_requests, problem.seed
    names = [m.name for m in problem.models]
    judge = names.index(problem.judge.model) if problem.judge.model is not None else None
    judged = samples.resample(inputs[0] + outputs[0], outputs[0], weights, n, seed).inputs
    return Traffic(
        rate=problem.workload.rate,
        lengths=tuple(
            samples.resample(a, b, weights, n, seed) for a, b in zip(inputs, outputs, strict=True)
        ),
        mean_input=tuple(float((weights * a).sum()) for a in inputs),
        mean_output=tuple(float((weights * b).sum()) for b in outputs),
        longest=tuple(int(np.ceil((a + b).max())) for a, b in zip(inputs, outputs, strict=True)),
        judge=judge,
        judged=judged,
    )
