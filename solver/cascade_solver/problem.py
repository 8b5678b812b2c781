"""Problem: the planner's whole input, as one document that can be stored and replayed."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .document import Document

SCHEMA_VERSION: Literal[1] = 1
MAX_CALIBRATION_ROWS = 20_000

Score = int
"""A judge's score: integer points, 0 (worst) to 100 (best)."""

Threshold = Annotated[int, Field(ge=0, le=101)]
"""Accept at score >= threshold. 0 accepts without judging, 101 accepts none."""

Points = Annotated[int, Field(ge=0, le=100)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]

Precision = Literal["bf16", "fp8", "int4"]


class Pins(Document):
    """Shape decisions that the user took: the planner must keep them."""

    tensor: int | None = Field(default=None, ge=1, le=16)
    pipeline: int | None = Field(default=None, ge=1, le=8)
    replicas: int | None = Field(default=None, ge=1, le=1024)


class ArchitectureConfig(Document):
    """The figures of a published ``config.json`` that fix step times and memory.

    ``mla`` marks multi-head latent attention (DeepSeek): its KV cache is not sharded by tensor
    parallelism. ``weight_bytes`` overrides the computed size when a checkpoint's size is known.
    """

    layers: int = Field(ge=1, le=1024)
    hidden: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    experts: int = Field(default=0, ge=0)
    experts_per_token: int = Field(default=0, ge=0)
    moe_intermediate: int = Field(default=0, ge=0)
    shared_experts: int = Field(default=0, ge=0)
    dense_layers: int = Field(default=0, ge=0)
    """Leading layers of a mixture that have an ordinary MLP instead of experts."""
    mla: bool = False
    pipeline_capable: bool = True
    tied_embeddings: bool = False
    context_length: int = Field(default=131_072, ge=256)
    weight_bytes: float | None = Field(default=None, gt=0)


class Model(Document):
    """One model of the cascade; the order of ``Problem.models`` is the order of asking."""

    name: str = Field(min_length=1, max_length=63)
    architecture: str | ArchitectureConfig
    precision: Precision = "bf16"
    pins: Pins = Pins()
    min_replicas: int = Field(default=1, ge=1, le=1024)
    max_gpus: int | None = Field(default=None, ge=1)
    kv_tokens: int | None = Field(default=None, ge=1)
    """KV tokens per replica as the engine logged them; replaces the memory formula."""
    step_time_factor: float = Field(default=1.0, ge=0.5, le=2.0)
    """Measured over predicted step time (calibration factor)."""


class Pool(Document):
    """GPUs of one type that the plan may use. ``gpus`` is the usable count, after the limit,
    the quota and the GPUs that others hold."""

    name: str = "default"
    gpu_type: str
    gpus: int = Field(ge=0, le=4096)
    gpus_per_node: int = Field(ge=1, le=64)
    free_per_node: tuple[Annotated[int, Field(ge=0, le=64)], ...] | None = None
    """Usable GPUs of each node, when nodes can be read; a replica must fit one node."""
    price_per_gpu_hour: float | None = Field(default=None, ge=0)


class LengthSummary(Document):
    """Token lengths when no table exists: mean and 95th percentile, in tokens."""

    mean: float = Field(gt=0, le=1_000_000)
    p95: float = Field(gt=0, le=1_000_000)

    @model_validator(mode="after")
    def _ordered(self) -> "LengthSummary":
        if self.p95 < self.mean:
            raise ValueError(f"p95 {self.p95:g} is below mean {self.mean:g}; raise p95")
        return self


class Workload(Document):
    """Arrivals per second at the cascade and token lengths of its requests."""

    rate: float = Field(gt=0, le=1e6)
    input_tokens: LengthSummary
    output_tokens: LengthSummary


class ModelColumns(Document):
    """One model's columns of the calibration table; equal length for all models.

    ``score``: integer points of the live judge; ``audit``: points of a second judge or of ground
    truth, ``None`` where unknown; lengths in tokens.
    """

    score: tuple[Points, ...] = Field(min_length=1, max_length=MAX_CALIBRATION_ROWS)
    input_tokens: tuple[Tokens, ...] = Field(min_length=1, max_length=MAX_CALIBRATION_ROWS)
    output_tokens: tuple[Tokens, ...] = Field(min_length=1, max_length=MAX_CALIBRATION_ROWS)
    audit: tuple[Points | None, ...] = Field(default=(), max_length=MAX_CALIBRATION_ROWS)


class Calibration(Document):
    """n requests answered and scored at every model, with a weight for each request.

    ``weights`` sum to anything positive; empty means equal. A re-plan for a live window passes
    the raked weights (science.md section 2 [c]) and the effective sample size they leave.
    """

    columns: dict[str, ModelColumns] = Field(min_length=1)
    weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(), max_length=MAX_CALIBRATION_ROWS
    )
    effective_size: float | None = Field(default=None, ge=0)
    judge: str = ""
    stale: str = ""
    """Why the table no longer describes these models; empty when it does."""

    @model_validator(mode="after")
    def _rectangular(self) -> "Calibration":
        sizes = {len(c.score) for c in self.columns.values()}
        sizes |= {len(c.input_tokens) for c in self.columns.values()}
        sizes |= {len(c.output_tokens) for c in self.columns.values()}
        sizes |= {len(c.audit) for c in self.columns.values() if c.audit}
        sizes |= {len(self.weights)} if self.weights else set()
        if len(sizes) > 1:
            raise ValueError(f"columns have different numbers of rows: {sorted(sizes)}")
        if self.weights and sum(self.weights) == 0:
            raise ValueError("weights are all 0; leave them out for equal weights")
        return self


class Judge(Document):
    """What judging costs: a fixed delay, or a prefill on the model that judges.

    ``model`` names the model of the cascade whose engines judge (``LLM`` judges); its workload
    then includes one prefill per judged answer.
    """

    type: Literal["Self", "LLM", "Reward", "External"] = "Self"
    model: str | None = None
    latency_seconds: float = Field(default=0.0, ge=0, le=60)


class Objective(Document):
    """What the plan minimises. ``Bottleneck``: the largest p95 of any model (the paper's)."""

    type: Literal["Bottleneck", "EndToEnd", "Cost"] = "Bottleneck"
    latency_slo_seconds: float | None = Field(default=None, gt=0)


class Search(Document):
    """Limits and resolution of the search (science.md section 2)."""

    stable_rounds: int = Field(default=3, ge=1, le=20)
    stable_change_percent: float = Field(default=1.0, gt=0, le=50)
    max_rounds: int = Field(default=50, ge=1, le=500)
    quantiles: int = Field(default=20, ge=2, le=100)
    simulated_requests: int = Field(default=2000, ge=100, le=20_000)
    minimum_reaching: int = Field(default=50, ge=1)
    """Warn when fewer table rows than this reach a model."""


class Capabilities(Document):
    """What the deployer can realise, so that the planner never plans ahead of it."""

    nodes_per_replica: int = Field(default=1, ge=1)
    shapes_per_model: int = Field(default=1, ge=1, le=2)
    pipeline: bool = False


class DeployedSet(Document):
    """Replicas of one shape: ``replicas`` x (``tensor`` x ``pipeline``) GPUs."""

    tensor: int = Field(ge=1, le=16)
    pipeline: int = Field(default=1, ge=1, le=8)
    replicas: int = Field(ge=0, le=4096)
    mem_fraction_static: float = Field(gt=0, lt=1)
    chunked_prefill_size: int = Field(ge=128)

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.replicas


Deployment = dict[str, tuple[DeployedSet, ...]]
"""Model name -> its sets."""


class InForce(Document):
    """The plan that serves now: search starts here, and moves are measured from here."""

    thresholds: dict[str, Threshold]
    deployment: Deployment


class Problem(Document):
    """Everything the planner needs, in plain numbers. Same document, same plan.

    ``qmin`` is in points, 0 to 100. ``objective_margin_percent`` is the hysteresis of a drift
    re-plan: a new plan is adopted only when its score is lower by at least this share.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    models: tuple[Model, ...] = Field(min_length=1, max_length=8)
    qmin: int = Field(ge=0, le=100)
    pools: tuple[Pool, ...] = Field(min_length=1, max_length=8)
    workload: Workload
    calibration: Calibration | None = None
    judge: Judge = Judge()
    objective: Objective = Objective()
    search: Search = Search()
    capabilities: Capabilities = Capabilities()
    in_force: InForce | None = None
    pinned_thresholds: dict[str, Threshold] = Field(default_factory=dict)
    pinned_gpus: dict[str, Annotated[int, Field(ge=1, le=4096)]] = Field(default_factory=dict)
    allow_downtime: bool = False
    keep_thresholds: bool = False
    """Re-allocate only: thresholds in force stay (stale table, or too small a live sample)."""
    seed: int = 0

    @model_validator(mode="after")
    def _consistent(self) -> "Problem":
        names = [m.name for m in self.models]
        if len(set(names)) != len(names):
            raise ValueError(f"model names must be unique, got {names}")
        if self.calibration is not None:
            missing = [n for n in names if n not in self.calibration.columns]
            if missing:
                raise ValueError(f"calibration: no columns for model(s) {', '.join(missing)}")
        for field in ("pinned_thresholds", "pinned_gpus"):
            unknown = [n for n in getattr(self, field) if n not in names]
            if unknown:
                raise ValueError(f"{field}: unknown model(s) {', '.join(unknown)}; known: {names}")
        if self.judge.model is not None and self.judge.model not in names:
            raise ValueError(f"judge.model: unknown model {self.judge.model!r}; known: {names}")
        return self
