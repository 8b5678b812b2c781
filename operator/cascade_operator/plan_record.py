"""PlanRecord: the plan in force with why it was adopted, as the plan ConfigMap keeps it."""

from typing import Any, Literal

import pydantic
from pydantic import Field

from cascade_router import config as router_config
from cascade_solver import plan as plans
from cascade_solver.document import Document

from . import names
from .observation import Observation

PLAN_KEY = "plan.json"
PROBLEM_KEY = "problem.json"
RECORD_KEY = "record.json"
PROPOSAL_KEY = "proposal.json"

ANNOTATION_REVISION = f"{names.GROUP}/plan-revision"
ANNOTATION_ANSWERED_DRIFT = f"{names.GROUP}/answered-drift"

MAX_PROBLEM_BYTES = 700_000
"""A ConfigMap holds 1 MiB in all; a problem with a larger table is kept as its digest only."""

Reason = Literal["FirstPlan", "SpecChanged", "CalibrationChanged", "PoolChanged", "Drift"]


class PlanSummary(Document):
    """What is worth remembering of a plan that was replaced. Objective in seconds."""

    revision: str
    thresholds: dict[str, int]
    gpus: dict[str, int]
    latency_p95_seconds: float


class _Adoption(Document):
    """What both a plan in force and a proposed plan carry beside the plan itself.

    ``inputs``: hash per kind of input (spec, calibration, pool), so that the next pass can say
    which of them changed. ``answered_drift`` identifies the drift verdict that the plan answers,
    ``drift_window`` is the live window behind it: later plans start from the same load.
    """

    schema_version: Literal[1] = 1
    revision: str
    reason: Reason
    inputs: dict[str, str] = Field(default_factory=dict)
    answered_drift: str = ""
    drift_window: dict[str, Any] | None = None
    drift_thresholds: dict[str, int] | None = None
    """Thresholds in force while that window was taken; unknown where the router steered them."""
    problem_digest: str = ""
    judge_type: Literal["Self", "LLM"] = "LLM"
    self_tables: dict[str, router_config.SelfTable] = Field(default_factory=dict)
    """Judge and self tables that the thresholds were planned with; they change together."""
    reasons: tuple[str, ...] = ()
    """In words: what changed against the previous plan, and why."""


class Proposal(_Adoption):
    """A plan that waits for the user's approval (planPolicy.mode Propose)."""

    plan: plans.Plan


class _InForce(_Adoption):
    """``record.json``: a PlanRecord without the plan, which has a key of its own.

    ``adopted_at``: Unix seconds; ``last_drift_at``: when a drift was last answered, from where
    the cooldown counts.
    """

    adopted_at: float
    last_drift_at: float | None = None
    previous: PlanSummary | None = None


class PlanRecord(_InForce):
    """The plan in force, with when and why it was adopted."""

    plan: plans.Plan

    def summary(self) -> PlanSummary:
        return PlanSummary(
            revision=self.revision,
            thresholds=self.plan.thresholds(),
            gpus={m.name: m.gpus_used for m in self.plan.models},
            latency_p95_seconds=self.plan.latency_p95_seconds,
        )


class Stored(Document):
    """Content of the plan ConfigMap. ``fault`` says why its content could not be read; the pass
    then plans as if there were none."""

    record: PlanRecord | None = None
    proposal: Proposal | None = None
    problem_text: str | None = None
    fault: str = ""


def read(observation: Observation) -> Stored:
    """What an earlier pass stored. Unreadable documents are reported, not fatal: a plan can be
    computed again, and the running sets carry their own shape."""
    record = proposal = None
    faults = []
    if observation.plan_text is not None and observation.record_text is not None:
        try:
            record = _joined(observation.plan_text, observation.record_text)
        except ValueError as error:
            faults.append(_fault(RECORD_KEY, error))
    if observation.proposal_text is not None:
        try:
            proposal = Proposal.model_validate_json(observation.proposal_text)
        except ValueError as error:
            faults.append(_fault(PROPOSAL_KEY, error))
    return Stored(
        record=record,
        proposal=proposal,
        problem_text=observation.problem_text,
        fault="; ".join(faults),
    )


def to_data(stored: Stored) -> dict[str, str]:
    """``data`` of the ConfigMap ``names.plan(cascade)``; equal content gives equal text."""
    data = {}
    if stored.record is not None:
        data[PLAN_KEY] = stored.record.plan.canonical_json()
        data[RECORD_KEY] = stored.record.model_dump_json(by_alias=True, exclude={"plan"})
    if stored.proposal is not None:
        data[PROPOSAL_KEY] = stored.proposal.model_dump_json(by_alias=True)
    if stored.problem_text is not None and len(stored.problem_text.encode()) <= MAX_PROBLEM_BYTES:
        data[PROBLEM_KEY] = stored.problem_text
    return data


def annotations(stored: Stored) -> dict[str, str]:
    """Annotations of the ConfigMap: what a reader wants to see without opening the documents."""
    if stored.record is None:
        return {}
    return {
        ANNOTATION_REVISION: stored.record.revision,
        ANNOTATION_ANSWERED_DRIFT: stored.record.answered_drift,
    }


def _joined(plan_text: str, record_text: str) -> PlanRecord:
    plan = plans.Plan.model_validate_json(plan_text)
    partial = _InForce.model_validate_json(record_text)
    fields = {name: getattr(partial, name) for name in type(partial).model_fields}
    return PlanRecord(plan=plan, **fields)


def _fault(key: str, error: ValueError) -> str:
    if isinstance(error, pydantic.ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{key}: {where}: {first['msg']}"
    return f"{key}: {error}"
