"""RouterConfig: the plan as the router reads it, from a file or from its ConfigMap."""

from typing import Literal

from pydantic import Field, model_validator

from .document import Document

SUPPORTED_VERSIONS = (1,)
CONFIG_KEY = "router.json"
"""Key of the ConfigMap that holds this document."""

ENGINE_CONTROL_FIELDS = (
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
)
"""Body fields that steer the engine itself: refused unless the config allows them by name."""


class EngineSet(Document):
    """Replicas of one shape. Pods are named ``<name>-<ordinal>``; ``weight`` is what one replica
    can carry, requests per second at saturation."""

    name: str
    weight: float = Field(gt=0)


class StaticEndpoint(Document):
    """An engine at a fixed address, for use outside Kubernetes."""

    url: str = Field(pattern=r"^https?://[^/\s]+$")
    weight: float = Field(default=1.0, gt=0)


class SelfTable(Document):
    """Isotonic map from the raw self signal to a score in points; both rise together.

    Between two points the map is linear, outside it is constant.
    """

    signal: tuple[float, ...] = Field(min_length=2, max_length=200)
    score: tuple[float, ...] = Field(min_length=2, max_length=200)

    @model_validator(mode="after")
    def _monotone(self) -> "SelfTable":
        if len(self.signal) != len(self.score):
            raise ValueError("signal and score have different lengths")
        if list(self.signal) != sorted(self.signal) or list(self.score) != sorted(self.score):
            raise ValueError("signal and score must not fall")
        return self


class RoutedModel(Document):
    """One model of the cascade, in the order of asking.

    ``threshold``: accept at score >= threshold, 0 to 101 (0: never judged, 101: never accepted);
    ``None`` for the last model. ``steer_quantile``: while uncalibrated the router moves the
    threshold to this quantile of live scores. ``leaving_pods`` get no new request; the router
    reports each of them as drained once nothing is in flight there.
    ``escalations_per_second`` and ``escalation_burst`` size the token bucket in front of *this*
    model. ``service_url`` reaches any Ready replica of the model.
    """

    name: str = Field(min_length=1, max_length=63)
    threshold: int | None = Field(default=None, ge=0, le=101)
    steer_quantile: float | None = Field(default=None, gt=0, lt=1)
    context_length: int | None = Field(default=None, ge=1)
    revision: str = ""
    """Identity of weights and engine, kept in calibration tables so that a change shows."""
    service: str | None = None
    """Name of the Service whose EndpointSlices list the replicas; ``None`` outside Kubernetes."""
    service_url: str | None = None
    sets: tuple[EngineSet, ...] = ()
    endpoints: tuple[StaticEndpoint, ...] = ()
    leaving_pods: tuple[str, ...] = ()
    visit_ratio: float = Field(default=1.0, ge=0, le=1)
    """Planned share of all requests that reach this model."""
    escalations_per_second: float | None = Field(default=None, ge=0)
    escalation_burst: float = Field(default=10.0, ge=1)
    self_table: SelfTable | None = None


class JudgeConfig(Document):
    """Who scores answers. ``model`` names the model of this cascade whose engines judge.

    ``template_id`` identifies rubric, levels and judge; a table made with another id is stale.
    """

    type: Literal["Self", "LLM"] = "LLM"
    model: str | None = None
    rubric: str = ""
    template_id: str = ""
    label_mass_min_percent: int = Field(default=50, ge=0, le=100)
    deadline_milliseconds: int = Field(default=300, ge=1, le=600_000)
    on_no_verdict: Literal["Escalate", "Accept"] = "Escalate"


class Timeouts(Document):
    """Seconds: connecting, first byte, between two bytes, and the whole request."""

    connect: float = Field(default=2.0, gt=0)
    first_byte: float = Field(default=300.0, gt=0)
    idle: float = Field(default=120.0, gt=0)
    total: float = Field(default=1800.0, gt=0)


class Limits(Document):
    """Bounds on what one router process admits and keeps."""

    body_bytes: int = Field(default=64 * 2**20, ge=1024)
    answer_bytes: int = Field(default=8 * 2**20, ge=1024)
    admitted_requests: int = Field(default=4096, ge=1)


class WindowConfig(Document):
    """Windows of live traffic kept for drift-watch: length in seconds, scored samples in each."""

    seconds: float = Field(default=300.0, gt=0)
    samples: int = Field(default=50, ge=1, le=1000)


class RouterConfig(Document):
    """Everything the router knows of the plan. Requests in flight keep the config they began with.

    ``when_unavailable``: what happens when a model on the path has no endpoint: fail the request,
    skip to the next model, or return the last collected answer, marked degraded.
    """

    schema_version: Literal[1] = 1
    cascade: str = Field(min_length=1, max_length=63)
    namespace: str = "default"
    plan_id: str = Field(min_length=1, max_length=63)
    models: tuple[RoutedModel, ...] = Field(min_length=1, max_length=8)
    judge: JudgeConfig = JudgeConfig()
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    window: WindowConfig = WindowConfig()
    when_unavailable: Literal["Fail", "Skip", "Answer"] = "Fail"
    allowed_engine_fields: tuple[str, ...] = ()
    allowed_image_hosts: tuple[str, ...] = ()
    """Hosts that engines may fetch images, audio and video from; inline data always pass."""
    allow_forced_model: bool = True
    input_edges: tuple[float, ...] = Field(default=(), max_length=4)
    """Inner edges of the plan's 5 input-length bins, tokens: windows count in the same bins."""

    @model_validator(mode="after")
    def _consistent(self) -> "RouterConfig":
        names = [m.name for m in self.models]
        if len(set(names)) != len(names):
            raise ValueError(f"models: names must be unique, got {names}")
        for model in self.models[:-1]:
            if model.threshold is None:
                raise ValueError(f"models: {model.name} is not the last model: set its threshold")
        if self.models[-1].threshold is not None:
            raise ValueError(f"models: {names[-1]} is the last model: its threshold must be absent")
        if self.judge.model is not None and self.judge.model not in names:
            raise ValueError(f"judge.model: {self.judge.model!r} is none of {names}")
        return self
