"""The fields of a CascadeService's spec in Python, one class for each object of the schema."""

from collections.abc import Mapping
from typing import Any, Literal

import pydantic
from pydantic.alias_generators import to_camel

from cascade_solver.latency import catalogue
from cascade_solver.problem import Precision

Passthrough = Mapping[str, Any]
"""A part that is handed to Kubernetes as it stands; the API server checks it."""


class Section(pydantic.BaseModel):
    """One object of the spec. Names, enums and defaults equal those of the CRD (a test compares
    them); bounds are the CRD's alone."""

    model_config = pydantic.ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, strict=True
    )


class HuggingFace(Section):
    """A repository of the Hugging Face hub."""

    id: str
    revision: str | None = None


class Claim(Section):
    """An existing PersistentVolumeClaim; ``path`` is relative to its root."""

    name: str
    path: str = "."


class Source(Section):
    """Where the weights come from: exactly one is set."""

    hugging_face: HuggingFace | None = None
    claim: Claim | None = None


class ConfigRef(Section):
    """A ConfigMap key that holds a model's config.json."""

    name: str
    key: str = "config.json"


class Architecture(Section):
    """A name of the planner's catalogue, or the model's config.json."""

    name: str | None = None
    config_ref: ConfigRef | None = None


class ModelPins(Section):
    """Shape decisions of the user. ``tensor`` and ``pipeline`` count GPUs of one replica."""

    tensor: int | None = None
    pipeline: int = 1
    replicas: int | None = None

    @property
    def gpus(self) -> int:
        """GPUs that the pins ask for at least."""
        return (self.tensor or 1) * self.pipeline * (self.replicas or 1)


class Resources(Section):
    """CPU, memory and ephemeral storage as Kubernetes quantities."""

    requests: Passthrough | None = None
    limits: Passthrough | None = None


class Engine(Section):
    """How the engine is started; ``env`` entries are core/v1 EnvVar objects."""

    image: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[Passthrough, ...] = ()
    resources: Resources | None = None


class TopologySpread(Section):
    """How replicas of one model spread over the places that ``topology_key`` tells apart."""

    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"


class Scheduling(Section):
    """Handed on to the engine pods (core/v1 Toleration and Affinity objects)."""

    priority_class_name: str | None = None
    tolerations: tuple[Passthrough, ...] = ()
    affinity: Passthrough | None = None
    topology_spread: tuple[TopologySpread, ...] = ()


class Storage(Section):
    """Volumes of an engine pod, in GiB."""

    type: Literal["Ephemeral", "PerPod"] = "Ephemeral"
    size_gibibytes: int | None = None
    storage_class_name: str | None = None
    shared_memory_gibibytes: int = 16


class Model(Section):
    """One model of the cascade; the order of ``CascadeSpec.models`` is the order of asking."""

    name: str
    source: Source
    architecture: Architecture | None = None
    precision: Literal["BF16", "FP8", "INT4"] | None = None
    pins: ModelPins = ModelPins()
    min_replicas: int = 1
    max_gpus: int | None = None
    kv_tokens: int | None = None
    engine: Engine = Engine()
    scheduling: Scheduling = Scheduling()
    storage: Storage = Storage()
    startup_budget_seconds: int = 1800

    @property
    def architecture_name(self) -> str | None:
        """What the planner's catalogue is asked for; ``None`` with a ``configRef``."""
        if self.architecture is not None:
            return self.architecture.name
        return self.source.hugging_face.id if self.source.hugging_face else None

    @property
    def served_precision(self) -> Precision:
        """The planner's precision: as given, else as the checkpoint is published, else bf16."""
        given: dict[str, Precision] = {"BF16": "bf16", "FP8": "fp8", "INT4": "int4"}
        if self.precision is not None:
            return given[self.precision]
        name = self.architecture_name
        return catalogue.entry(name).precision if name is not None else "bf16"


class ProfileRef(Section):
    """A ConfigMap key with measured step times of a GPU type."""

    name: str
    key: str = "profile.json"


class Pool(Section):
    """GPUs of one type. ``price_per_hour`` is a decimal number of one GPU, as written."""

    name: str = "default"
    gpu_type: str
    profile_ref: ProfileRef | None = None
    resource_name: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = pydantic.Field(default_factory=dict)
    limit: int | None = None
    gpus_per_node: int | None = None
    price_per_hour: str | None = None


class Objective(Section):
    """What the plan minimises."""

    type: Literal["Bottleneck", "EndToEnd", "Cost"] = "Bottleneck"
    latency_slo_milliseconds: int | None = None


class Slo(Section):
    """Latency bounds at the 95th percentile."""

    ttft_p95_milliseconds: int | None = None
    # The generator would capitalise the letter after the digit.
    e2e_p95_milliseconds: int | None = pydantic.Field(default=None, alias="e2eP95Milliseconds")


class PinnedThreshold(Section):
    """Accept the model's answer at ``score`` points or more (0 to 101)."""

    model: str
    score: int


class PinnedGpus(Section):
    """GPUs that the plan must give to the model."""

    model: str
    count: int


class PlanPins(Section):
    """Parts of the plan that the user decides."""

    thresholds: tuple[PinnedThreshold, ...] = ()
    gpus: tuple[PinnedGpus, ...] = ()


class PlanPolicy(Section):
    """When a plan is put into force, and what it must keep."""

    mode: Literal["Automatic", "Propose"] = "Automatic"
    paused: bool = False
    pins: PlanPins = PlanPins()


class Rollout(Section):
    """How the operator moves from one plan to the next."""

    allow_downtime: bool = False
    max_gpus_per_move: int | None = None
    step_deadline_seconds: int | None = None


class Search(Section):
    """Resolution and limits of the planner's search (science.md section 2)."""

    stable_rounds: int = 3
    stable_change_percent: int = 1
    max_rounds: int = 50
    quantiles: int = 20
    simulated_requests: int = 2000
    minimum_reaching: int = 50
    time_limit_seconds: int | None = None
    quality_penalty_factor: int | None = None
    length_step_percent: int | None = None


class Lengths(Section):
    """Token lengths: mean and 95th percentile."""

    mean: int
    p95: int


class CalibrationRef(Section):
    """The ConfigMap key with the calibration table."""

    name: str
    key: str = "table.csv"


class Workload(Section):
    """The load that the first plan is made for."""

    requests_per_minute: int = 60
    input_tokens: Lengths = Lengths(mean=1024, p95=4096)
    output_tokens: Lengths = Lengths(mean=256, p95=1024)
    calibration_ref: CalibrationRef | None = None


class Judge(Section):
    """Who scores answers. ``type`` absent: Self once the table carries its signal, LLM before."""

    type: Literal["Self", "LLM", "Reward", "External"] | None = None
    model_ref: str | None = None
    rubric: str | None = None
    label_mass_min_percent: int = 50
    deadline_milliseconds: int = 300
    on_no_verdict: Literal["Escalate", "Accept"] = "Escalate"


class RouterTimeouts(Section):
    """How long the router waits for an engine."""

    connect_milliseconds: int = 2000
    first_byte_seconds: int = 300
    idle_seconds: int = 120
    total_seconds: int = 1800


class RouterLimits(Section):
    """What one router process admits and keeps."""

    body_mebibytes: int = 64
    answer_mebibytes: int = 8
    admitted_requests: int = 4096


EngineField = Literal[
    "rid",
    "cache_salt",
    "priority",
    "lora_path",
    "custom_logit_processor",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "routed_dp_rank",
    "session_params",
    "return_hidden_states",
]
"""Request fields that steer the engine itself; the router refuses those that are not allowed."""


class Router(Section):
    """The router that clients talk to."""

    replicas: int = 1
    processes: int = 1
    resources: Resources | None = None
    when_unavailable: Literal["Fail", "Skip", "Answer"] = "Fail"
    forced_models: Literal["Allow", "Refuse"] = "Allow"
    allowed_engine_fields: tuple[EngineField, ...] = ()
    allowed_image_hosts: tuple[str, ...] = ()
    timeouts: RouterTimeouts = RouterTimeouts()
    limits: RouterLimits = RouterLimits()


class Drift(Section):
    """How the live traffic is watched and what happens when it leaves the plan."""

    mode: Literal["Replan", "Report", "Off"] = "Replan"
    window_seconds: int = 300
    sample_size: int = 50
    significance_permille: int = 10
    length_shift_percent: int = 20
    minimum_gain_percent: int = 10
    cooldown_seconds: int | None = None


class Spec(Section):
    """``.spec`` of the resource, field by field."""

    models: tuple[Model, ...]
    qmin: int
    gpu_pool: tuple[Pool, ...]
    objective: Objective = Objective()
    slo: Slo = Slo()
    plan_policy: PlanPolicy = PlanPolicy()
    rollout: Rollout = Rollout()
    search: Search = Search()
    workload: Workload = Workload()
    judge: Judge = Judge()
    router: Router = Router()
    drift: Drift = Drift()


class CascadeSpec(Spec):
    """The resource as the operator works with it: identity and spec. ``qmin`` in points, 0-100."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self.models)

    @property
    def pool(self) -> Pool:
        """The one pool (``parse`` refuses several)."""
        return self.gpu_pool[0]

    def model(self, name: str) -> Model:
        """The model of this name; ``KeyError`` if there is none."""
        return {model.name: model for model in self.models}[name]
