"""Plan: the planner's whole output, with its reasons in words."""

from typing import Literal

from pydantic import Field

from .document import Document
from .problem import DeployedSet, Deployment, Score

SCHEMA_VERSION: Literal[1] = 1

Verdict = Literal["Feasible", "Uncalibrated", "StaleCalibration", "QualityUnreachable"]


class PlannedSet(Document):
    """Replicas of one shape, the flags that belong to it, and what one replica can carry."""

    tensor: int
    pipeline: int
    replicas: int
    gpu_type: str
    mem_fraction_static: float
    chunked_prefill_size: int
    kv_tokens: int
    """KV tokens per replica that the plan counts on."""
    saturation_rate: float
    """Requests per second at which one replica saturates; the router's capacity weight."""
    low_confidence: tuple[str, ...] = ()

    def deployed(self) -> DeployedSet:
        return DeployedSet(
            tensor=self.tensor,
            pipeline=self.pipeline,
            replicas=self.replicas,
            mem_fraction_static=self.mem_fraction_static,
            chunked_prefill_size=self.chunked_prefill_size,
        )


class ModelPlan(Document):
    """One model's share of the plan. Latencies in seconds at the 95th percentile, rates in
    requests per second, ``visit_ratio`` as a fraction of all requests (science.md 1.2)."""

    name: str
    gpus_allocated: int
    gpus_used: int
    sets: tuple[PlannedSet, ...]
    threshold: Score | None
    """Accept at score >= threshold; ``None`` for the last model, which always answers."""
    steer_quantile: float | None = None
    """Uncalibrated: the router moves the threshold to this quantile of live scores."""
    visit_ratio: float
    arrival_rate: float
    latency_p95_seconds: float
    ttft_p95_seconds: float
    tpot_p95_seconds: float
    utilisation: float
    """Offered over saturation rate."""
    mean_score: float | None = None
    """Mean judge score of the requests that reach this model."""
    mean_final_score: float | None = None
    """Mean score of the answers that this model is planned to return."""
    details: tuple[str, ...] = ()


class QualityForecast(Document):
    """Predicted quality in points, and what the models could reach at best and at worst."""

    predicted: float | None
    all_last: float | None
    """Every request answered by the last model (utopia, z1*)."""
    all_first: float | None
    """Every request answered by the first model (nadir, z2*)."""
    best_reachable: float | None
    biased: bool = True
    """True when the judge that routes also measured the quality (science.md R6)."""


class PlannedWorkload(Document):
    """The load this plan was made for: what drift is measured against.

    Deciles are the 10 % .. 90 % quantiles (9 numbers) of token lengths at the first model;
    ``input_score_counts`` is the weighted joint histogram [5 input-length bins x 10 score bins]
    at the first model, ``input_edges`` its 4 inner length edges.
    """

    rate: float
    n: int
    effective_size: float | None = None
    input_deciles: tuple[float, ...]
    output_deciles: tuple[float, ...]
    escalation_ratio: dict[str, float]
    """Model -> fraction of its visitors that it passes on."""
    mean_score: dict[str, float | None]
    input_edges: tuple[float, ...] = ()
    input_score_counts: tuple[tuple[float, ...], ...] = ()


class SearchReport(Document):
    """What the search did, so that a reader can judge how far to trust the result."""

    rounds: int
    candidates: int
    simulations: int
    converged: bool
    proven_gap_percent: float | None = None
    truncated: bool = False
    milp_status: str = ""


class Plan(Document):
    """Thresholds and deployment that belong together (science.md 1.1).

    ``objective`` is J in seconds, ``latency_p95_seconds`` is L, the largest p95 of any model.
    ``timings`` are wall-clock seconds and no part of the canonical bytes.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    verdict: Verdict
    models: tuple[ModelPlan, ...]
    latency_p95_seconds: float
    objective: float
    mu_seconds: float
    quality: QualityForecast
    qmin: int
    meets_qmin: bool | None
    """``None`` while uncalibrated."""
    workload: PlannedWorkload
    search: SearchReport
    overloaded: bool = False
    needs_downtime: str = ""
    """The better plan that only downtime could reach, in words; empty when there is none."""
    reachable: bool = True
    """Whether moves inside pool and floors lead here from the deployment in force; ``False`` only
    when no allowed deployment can be reached so."""
    in_force_objective: float | None = None
    """J of the plan in force under this problem; ``None`` when there is none, or it overloads."""
    keeps_in_force: bool = False
    """This plan is the plan in force: nothing better is known."""
    cost_per_hour: float | None = None
    """Price of the GPUs in use for one hour, in the currency of the pool's price; ``None`` when
    the pool states none."""
    details: tuple[str, ...] = ()
    timings: dict[str, float] = Field(default_factory=dict)

    def deployment(self) -> Deployment:
        return {m.name: tuple(s.deployed() for s in m.sets) for m in self.models}

    def thresholds(self) -> dict[str, Score]:
        return {m.name: m.threshold for m in self.models if m.threshold is not None}

    def canonical_json(self) -> str:
        """The bytes that equal problems must reproduce."""
        return self.model_dump_json(by_alias=True, exclude={"timings"})


class Cost(Document):
    """What given thresholds and a given deployment would do under the problem's load."""

    latency_p95_seconds: float | None
    """``None`` when some model would be overloaded."""
    quality: float | None
    visit_ratio: dict[str, float]
    utilisation: dict[str, float]
    overloaded: tuple[str, ...] = ()
    objective: float | None = None
