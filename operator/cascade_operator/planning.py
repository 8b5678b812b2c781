"""From spec and observation to the planner's problem, and whether a new plan is needed at all."""

import dataclasses
from typing import Any, Protocol

from cascade_solver import plan as plans
from cascade_solver import problem as problems

from . import changes, drafting, live_load, names, plan_record, reasons
from .observation import Observation
from .spec import CascadeSpec

REVISION_DIGITS = 10
FACTOR_STEP = 0.05
"""Measured step-time factors count in steps of 5 %."""


class DriftSettings(Protocol):
    """What deciding needs of the operator's settings, in seconds of wall time and as a factor."""

    @property
    def drift_cooldown_seconds(self) -> float: ...
    @property
    def time_scale(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class KeepPlan:
    """Nothing to plan. ``record`` is the plan in force, if there is one; ``retry_after`` in
    seconds when time alone will change this decision."""

    record: plan_record.PlanRecord | None
    reason: str
    message: str
    retry_after: float | None = None


@dataclasses.dataclass(frozen=True)
class NeedPlan:
    """A plan is needed for ``problem``. ``plan`` is set when an approved proposal already holds
    it, so that nothing has to be solved; ``adopts`` is False when the user must approve first."""

    problem: problems.Problem
    revision: str
    reason: plan_record.Reason
    why: str
    adopts: bool
    adoption: drafting.Draft
    plan: plans.Plan | None = None


Refuse = drafting.Refuse
Decision = KeepPlan | NeedPlan | Refuse


def build_problem(spec: CascadeSpec, observation: Observation) -> problems.Problem:
    """The planner's input for what was observed. Raises ``drafting.RefusedError``.

    The load is the live window of an unanswered drift, else of the drift that the plan in force
    answered (as long as workload and table are the same), else what the spec states.
    """
    stored = plan_record.read(observation)
    return drafting.problem(spec, observation, stored, drafting.draft(spec, observation, stored))


def revision(problem: problems.Problem) -> str:
    """Ten hexadecimal digits over what makes plans differ.

    The plan in force is no part: adopting a plan must not ask for the next one. Nor is the price
    of a GPU, which no plan depends on. Measured factors count in steps of 5 %.
    """
    document = problem.model_dump(
        mode="json", exclude={"in_force": True, **drafting.PRICE}, exclude_defaults=True
    )
    for model, given in zip(document["models"], problem.models, strict=True):
        model["step_time_factor"] = round(given.step_time_factor / FACTOR_STEP)
    return names.digest(document, REVISION_DIGITS)


def decide(spec: CascadeSpec, observation: Observation, settings: DriftSettings) -> Decision:
    """Whether this pass plans.

    A change of spec, table or pool is always answered; drift only once per verdict, after the
    cooldown, and not while the last plan is still being put into force.
    """
    stored = plan_record.read(observation)
    record = stored.record
    try:
        draft = drafting.draft(spec, observation, stored)
        cause = changes.cause(stored, draft.inputs, draft.drift, observation.pool.usable)
        if cause is None:
            return KeepPlan(record, "Unchanged", "the plan in force answers spec, pool and traffic")
        if spec.plan_policy.paused:
            return KeepPlan(
                record, reasons.PAUSED, f"planPolicy.paused holds a new plan back: {cause[1]}"
            )
        waiting = _cooldown(spec, observation, settings, record, cause[0], draft)
        waiting = waiting or _approval(spec, observation, stored, draft)
        if waiting is not None:
            return waiting
        return _need(spec, observation, stored, draft, cause)
    except drafting.RefusedError as refused:
        return refused.decision


def conclude(
    spec: CascadeSpec, observation: Observation, need: NeedPlan, plan: plans.Plan
) -> plan_record.Stored:
    """What the plan ConfigMap holds after ``plan`` was found for ``need``.

    Hysteresis applies to drift only: without the minimum gain the plan in force stays, now
    measured against the load that was seen, so that the same verdict does not come back.
    """
    stored = plan_record.read(observation)
    text = _canonical(need.problem)
    gain = spec.drift.minimum_gain_percent
    if stored.record is not None and changes.falls_short(need.reason, plan, gain):
        kept = _kept(stored.record, need, plan, observation.now, gain)
        return plan_record.Stored(record=kept, proposal=None, problem_text=text)
    adoption = {
        "plan": plan,
        "revision": need.revision,
        "reason": need.reason,
        "inputs": dict(need.adoption.inputs),
        "problem_digest": names.digest(text, 16),
        "judge_type": need.adoption.judge.type,
        "self_tables": dict(need.adoption.judge.tables),
        "reasons": changes.reasons(stored.record, plan, need.why),
        **_drift_fields(need, stored.record),
    }
    if not need.adopts:
        return stored.model_copy(update={"proposal": plan_record.Proposal(**adoption)})
    record = plan_record.PlanRecord(
        **adoption,
        adopted_at=observation.now,
        last_drift_at=_last_drift(need, stored.record, observation.now),
        previous=stored.record.summary() if stored.record is not None else None,
    )
    return plan_record.Stored(record=record, proposal=None, problem_text=text)


def _approval(
    spec: CascadeSpec, observation: Observation, stored: plan_record.Stored, draft: drafting.Draft
) -> KeepPlan | None:
    """A proposal that answers exactly this, and still waits."""
    proposal = _proposal(stored, draft)
    if spec.plan_policy.mode == "Automatic" or proposal is None:
        return None
    if observation.annotations.get(names.ANNOTATION_APPROVE) == proposal.revision:
        return None
    message = (
        f"plan {proposal.revision} waits for approval: annotate the cascade with "
        f"{names.ANNOTATION_APPROVE}={proposal.revision}"
    )
    return KeepPlan(stored.record, reasons.AWAITING_APPROVAL, message)


def _need(
    spec: CascadeSpec,
    observation: Observation,
    stored: plan_record.Stored,
    draft: drafting.Draft,
    cause: tuple[plan_record.Reason, str],
) -> NeedPlan:
    problem = drafting.problem(spec, observation, stored, draft)
    found = revision(problem)
    approved = observation.annotations.get(names.ANNOTATION_APPROVE) == found
    proposal = _proposal(stored, draft)
    solved = proposal is not None and proposal.revision == found
    return NeedPlan(
        problem=problem,
        revision=found,
        reason=cause[0],
        why=cause[1],
        adopts=spec.plan_policy.mode == "Automatic" or approved,
        adoption=draft,
        plan=proposal.plan if proposal is not None and solved else None,
    )


def _proposal(stored: plan_record.Stored, draft: drafting.Draft) -> plan_record.Proposal | None:
    """The waiting proposal, if it answers these inputs and this drift."""
    proposal = stored.proposal
    if proposal is None or dict(proposal.inputs) != dict(draft.inputs):
        return None
    wanted = draft.drift.identity if draft.drift is not None else proposal.answered_drift
    return proposal if proposal.answered_drift == wanted else None


def _cooldown(
    spec: CascadeSpec,
    observation: Observation,
    settings: DriftSettings,
    record: plan_record.PlanRecord | None,
    reason: plan_record.Reason,
    draft: drafting.Draft,
) -> KeepPlan | None:
    if reason != "Drift" or record is None or draft.drift is None:
        return None
    if observation.status.get("plan", {}).get("applied") != record.revision:
        message = f"drift waits until plan {record.revision} is applied"
        return KeepPlan(record, "MoveInProgress", message)
    overloaded = live_load.is_overloaded(record.plan, draft.drift.window)
    if overloaded or record.last_drift_at is None:
        return None
    asked = spec.drift.cooldown_seconds
    seconds = settings.drift_cooldown_seconds if asked is None else asked
    left = record.last_drift_at + seconds / settings.time_scale - observation.now
    if left <= 0:
        return None
    return KeepPlan(record, "Cooldown", f"drift waits {left:.0f} s for the cooldown", left)


def _kept(
    record: plan_record.PlanRecord,
    need: NeedPlan,
    plan: plans.Plan,
    now: float,
    gain: int,
) -> plan_record.PlanRecord:
    drift = need.adoption.drift
    window = drift.window if drift is not None else {}
    workload = live_load.measured(record.plan, plan.workload, window)
    note = changes.kept_words(plan, gain)
    return record.model_copy(
        update={
            "plan": record.plan.model_copy(update={"workload": workload}),
            "reasons": (*changes.without_kept(record.reasons), note),
            "last_drift_at": now,
            **_drift_fields(need, record),
        }
    )


def _drift_fields(need: NeedPlan, record: plan_record.PlanRecord | None) -> dict[str, Any]:
    drift = need.adoption.drift
    answered = record.answered_drift if record is not None else ""
    return {
        "answered_drift": drift.identity if drift is not None else answered,
        "drift_window": dict(drift.window) if drift is not None else None,
        "drift_thresholds": drift.thresholds if drift is not None else None,
    }


def _last_drift(need: NeedPlan, record: plan_record.PlanRecord | None, now: float) -> float | None:
    if need.reason == "Drift":
        return now
    return record.last_drift_at if record is not None else None


def _canonical(problem: problems.Problem) -> str:
    return problem.model_dump_json(by_alias=True)
