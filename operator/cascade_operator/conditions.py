"""Conditions and status of a cascade: what users and tools read; derived anew in every pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import changes, errors, names, plan_record, planning, readiness, reasons, status_fields
from .observation import Observation
from .readiness import FALSE, TRUE, UNKNOWN, Condition
from .spec import CascadeSpec
from .step import Step

ORDER = (
    "Ready",
    "Reconciling",
    "Stalled",
    "PlanReady",
    "PlanApplied",
    "ModelsReady",
    "RouterReady",
    "QualityMet",
    "DriftWatchHealthy",
)
MAX_MESSAGE = 4096
DEADLINE_REASONS = {
    "AwaitReady": reasons.POD_NOT_READY,
    "AwaitGone": reasons.GPU_HELD,
    "RouteAway": reasons.ROUTER_NOT_ACKNOWLEDGING,
    "Publish": reasons.ROUTER_NOT_ACKNOWLEDGING,
}
"""What a step that passed its deadline was waiting for."""
FRESH_WINDOWS = 3
FRESH_MARGIN_SECONDS = 60.0


@dataclass(frozen=True)
class Facts:
    """Everything that conditions are derived from."""

    spec: CascadeSpec | None
    spec_errors: Sequence[object]
    observation: Observation
    stored: plan_record.Stored
    record: plan_record.PlanRecord | None
    decision: planning.Decision | None
    step: Step | None
    errors: Sequence[Exception]
    is_drift_watch_installed: bool

    @property
    def planning_error(self) -> Condition | None:
        """Why no plan answers the present inputs; the plan in force, if any, stays."""
        kept = f"; plan {self.record.revision} stays in force" if self.record is not None else ""
        for error in self.errors:
            if isinstance(error, errors.PlanningError):
                words = str(error)
                if isinstance(error, errors.InsufficientGpusError):
                    pool = self.observation.pool
                    words += changes.elder_words(pool.elder, self.observation.namespace)
                return Condition(FALSE, error.reason, words + kept)
        if isinstance(self.decision, planning.Refuse):
            return Condition(FALSE, self.decision.reason, self.decision.message + kept)
        return None


def summarise(
    spec: CascadeSpec | None,
    spec_errors: Sequence[object],
    observation: Observation,
    record: plan_record.PlanRecord | None,
    decision: planning.Decision | None,
    step: Step | None,
    errors: Sequence[Exception],
    now: float,
    is_drift_watch_installed: bool = True,
) -> dict[str, Any]:
    """The operator's part of ``status`` (everything but ``drift``).

    ``spec`` is ``None`` when ``spec_errors`` say why; ``decision`` and ``step`` are ``None`` when
    the pass did not come so far; ``errors`` are those of this pass; ``now`` in Unix seconds;
    ``is_drift_watch_installed`` is the chart's choice. The same facts give the same document: a
    second pass writes nothing.
    """
    stored = plan_record.read(observation)
    facts = Facts(
        spec,
        spec_errors,
        observation,
        stored,
        record,
        decision,
        step,
        errors,
        is_drift_watch_installed,
    )
    status: dict[str, Any] = {
        "observedGeneration": observation.generation,
        "conditions": _written(_conditions(facts), observation, now),
    }
    if spec is None:
        return status
    return status | {
        "summary": status_fields.summary(spec, observation, record),
        "plan": status_fields.plan(record, stored.proposal, observation, step),
        "models": status_fields.models(spec, record, observation),
        "thresholds": status_fields.thresholds(observation),
        "quality": status_fields.quality(record, observation),
        "gpus": status_fields.gpus(observation),
    }


def _written(
    found: Mapping[str, Condition], observation: Observation, now: float
) -> list[dict[str, Any]]:
    """As the API has them; ``lastTransitionTime`` moves with the status only."""
    before = {c["type"]: c for c in observation.status.get("conditions", ())}
    entries = []
    for kind in ORDER:
        condition = found[kind]
        old = before.get(kind, {})
        same = old.get("status") == condition.status and "lastTransitionTime" in old
        entries.append(
            {
                "type": kind,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:MAX_MESSAGE],
                "observedGeneration": observation.generation,
                "lastTransitionTime": (
                    old["lastTransitionTime"] if same else status_fields.timestamp(now)
                ),
            }
        )
    return entries


def _conditions(facts: Facts) -> dict[str, Condition]:
    models = readiness.models(facts.spec, facts.record, facts.observation)
    router = readiness.router(facts.observation)
    stalled = _stalled(facts)
    return {
        "Ready": _ready(models, router, facts),
        "Reconciling": _reconciling(facts, stalled),
        "Stalled": stalled,
        "PlanReady": _plan_ready(facts),
        "PlanApplied": _plan_applied(facts),
        "ModelsReady": models,
        "RouterReady": router,
        "QualityMet": _quality_met(facts),
        "DriftWatchHealthy": _drift_watch(facts),
    }


def _ready(models: Condition, router: Condition, facts: Facts) -> Condition:
    if facts.spec is None:
        return Condition(FALSE, reasons.INVALID_SPEC, _spec_words(facts))
    for part in (models, router):
        if part.status != TRUE:
            return Condition(FALSE, part.reason, part.message)
    return Condition(TRUE, reasons.SERVING, f"{models.message}; {router.message}")


def _reconciling(facts: Facts, stalled: Condition) -> Condition:
    other = [e for e in facts.errors if not isinstance(e, errors.PlanningError)]
    if other:
        return Condition(TRUE, reasons.RETRYING, "; ".join(str(e) for e in other))
    if stalled.status == TRUE:
        return Condition(FALSE, stalled.reason, "given up, see Stalled")
    if any(isinstance(e, errors.PlanningFailedError) for e in facts.errors):
        return Condition(TRUE, reasons.RETRYING, "; ".join(str(e) for e in facts.errors))
    if isinstance(facts.decision, planning.NeedPlan) and not facts.errors:
        if facts.record is None or facts.decision.revision != facts.record.revision:
            return Condition(TRUE, reasons.PLANNING, facts.decision.why)
    if facts.step is not None and not facts.step.settled:
        return Condition(TRUE, reasons.MOVING, _step_words(facts.step))
    return Condition(FALSE, reasons.SETTLED, "nothing is under way")


def _stalled(facts: Facts) -> Condition:
    if facts.spec is None:
        return Condition(TRUE, reasons.INVALID_SPEC, _spec_words(facts))
    failed = facts.planning_error
    if failed is not None and failed.reason != errors.PlanningFailedError.reason:
        return Condition(TRUE, failed.reason, failed.message)
    step = facts.step
    if step is not None and (step.deadline_passed or step.blocked_reason == reasons.NEEDS_DOWNTIME):
        reason = step.blocked_reason or DEADLINE_REASONS.get(step.kind, reasons.STEP_DEADLINE)
        return Condition(TRUE, reason, _step_words(step))
    return Condition(FALSE, reasons.PROGRESSING, "nothing has been given up")


def _plan_ready(facts: Facts) -> Condition:
    if facts.spec is None:
        return Condition(FALSE, reasons.INVALID_SPEC, _spec_words(facts))
    failed = facts.planning_error
    if failed is not None:
        return failed
    if facts.record is None:
        decision = facts.decision
        if isinstance(decision, planning.KeepPlan) and decision.reason != "Unchanged":
            return Condition(FALSE, decision.reason, decision.message)
        return Condition(UNKNOWN, reasons.PLANNING, "no plan yet")
    return Condition(TRUE, facts.record.plan.verdict, _verdict_words(facts, facts.record))


def _verdict_words(facts: Facts, record: plan_record.PlanRecord) -> str:
    plan = record.plan
    line = status_fields.plan_line(plan)
    cascade = facts.observation.name
    how = (
        f"make a calibration table with `cascade-router calibrate` and store it in ConfigMap "
        f"{facts.observation.calibration.reference or names.calibration(cascade)}"
    )
    match plan.verdict:
        case "Uncalibrated":
            return f"{line}. No scores are known, so quality is not promised: {how}"
        case "StaleCalibration":
            return f"{line}. {_stale_words(plan.details)}; to replace it, {how}"
        case "QualityUnreachable":
            return f"{line}. {_unreachable_words(record)}"
    predicted = plan.quality.predicted
    quality = f"predicted quality {predicted:.1f} of {plan.qmin} points" if predicted else ""
    return f"{line}. {quality}"


def _stale_words(details: Sequence[str]) -> str:
    """The planner's words on what changed since the table was made."""
    return next((line for line in details if "stale" in line), "The calibration table is stale")


def _unreachable_words(record: plan_record.PlanRecord) -> str:
    best = record.plan.quality.best_reachable
    reach = f"these models reach at most {best:.1f} points" if best is not None else ""
    return f"qmin {record.plan.qmin} cannot be reached: {reach}; the plan of best quality runs"


def _plan_applied(facts: Facts) -> Condition:
    record, step = facts.record, facts.step
    if record is None:
        return Condition(FALSE, reasons.NO_PLAN, "no plan yet")
    if step is None:
        return Condition(UNKNOWN, reasons.IN_PROGRESS, "this pass did not get to the hand-over")
    if step.kind == "Blocked":
        reason = step.blocked_reason or reasons.IN_PROGRESS
        return Condition(FALSE, reason, _step_words(step))
    if not step.settled:
        return Condition(FALSE, reasons.IN_PROGRESS, _step_words(step))
    decision = facts.decision
    if isinstance(decision, planning.KeepPlan) and decision.reason in (
        reasons.AWAITING_APPROVAL,
        reasons.PAUSED,
    ):
        return Condition(FALSE, decision.reason, decision.message)
    if record.plan.needs_downtime:
        return Condition(
            FALSE,
            reasons.NEEDS_DOWNTIME,
            f"plan {record.revision} runs; {record.plan.needs_downtime}; set "
            "rollout.allowDowntime to true to allow it",
        )
    return Condition(TRUE, reasons.APPLIED, f"plan {record.revision} runs")


def _quality_met(facts: Facts) -> Condition:
    if facts.record is None or facts.spec is None:
        return Condition(UNKNOWN, reasons.NO_PLAN, "no plan yet")
    plan = facts.record.plan
    if facts.step is not None and facts.step.bypassed:
        missing = ", ".join(facts.step.bypassed)
        return Condition(FALSE, reasons.BYPASSED, f"during the downtime {missing} is not asked")
    predicted = plan.quality.predicted
    if plan.verdict in ("Uncalibrated", "StaleCalibration") or predicted is None:
        return Condition(UNKNOWN, plan.verdict, "quality is not known without a valid table")
    figures = f"predicted {predicted:.1f} points, qmin is {facts.spec.qmin}"
    if plan.verdict == "QualityUnreachable":
        return Condition(FALSE, reasons.QUALITY_UNREACHABLE, _unreachable_words(facts.record))
    biased = " (biased: the judge that routes also scored the table)" if plan.quality.biased else ""
    met = predicted >= facts.spec.qmin
    return Condition(TRUE if met else FALSE, reasons.PREDICTED, figures + biased)


def _drift_watch(facts: Facts) -> Condition:
    if facts.spec is not None and facts.spec.drift.mode == "Off":
        return Condition(TRUE, reasons.OFF, "drift.mode is Off: traffic is not watched")
    if not facts.is_drift_watch_installed:
        told = "drift-watch is not installed (chart value driftWatch.enabled): nothing is watched"
        return Condition(UNKNOWN, reasons.OFF, told)
    written = facts.observation.drift.get("lastUpdate")
    if facts.spec is None or not written:
        return Condition(UNKNOWN, reasons.WAITING, "drift-watch has written nothing yet")
    limit = FRESH_WINDOWS * facts.spec.drift.window_seconds + FRESH_MARGIN_SECONDS
    age = facts.observation.now - status_fields.seconds(written)
    if age > limit:
        told = f"last entry {written}, more than {limit:.0f} s ago: is drift-watch running?"
        return Condition(FALSE, reasons.STALE, told)
    return Condition(TRUE, reasons.FRESH, "status.drift is up to date")


def _spec_words(facts: Facts) -> str:
    return "; ".join(str(fault) for fault in facts.spec_errors)


def _step_words(step: Step) -> str:
    words = step.message
    if step.blocking_pod and step.blocking_pod not in words:
        words += f"; blocked by pod {step.blocking_pod}"
    if step.blocking_reason and step.blocking_reason not in words:
        words += f" ({step.blocking_reason})"
    if step.lost_pods:
        words += f"; on lost nodes: {', '.join(step.lost_pods)}"
    return words
