"""Live load: the window behind a drift verdict, and the planner's problem for that traffic."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_solver import plan as plans
from cascade_solver import problem as problems

from . import plan_record
from .observation import Observation
from .spec import CascadeSpec

MINIMUM_EFFECTIVE_SIZE = 100
"""Requests that a re-weighted table must count for, before thresholds follow it (science.md 2)."""
EDGES = 4
"""Inner edges of the five input-length bins of a window."""


@dataclasses.dataclass(frozen=True)
class Drift:
    """A drift verdict with the window behind it, as drift-watch wrote it into ``status.drift``.

    ``identity``: plan and time of the verdict, the same as long as the verdict is; ``fresh``: no
    plan has answered it. ``thresholds``: those in force while the window was taken, ``None`` when
    they are not known (an uncalibrated router steers its own).
    """

    identity: str
    window: Mapping[str, Any]
    fresh: bool
    thresholds: Mapping[str, int] | None
    message: str = ""

    @property
    def rate(self) -> float:
        """Requests per second of modelled time."""
        return float(self.window["ratePerMinute"]) / 60


def select(
    spec: CascadeSpec,
    observation: Observation,
    stored: plan_record.Stored,
    inputs: Mapping[str, str],
) -> Drift | None:
    """The drift whose window the next plan is made for; ``None``: the load is as stated.

    A verdict counts only if it is about the plan in force. A drift that was answered stays the
    load of later plans until the user states another one or brings another table.
    """
    record = stored.record
    if record is None:
        return None
    fresh = _fresh(spec, observation, record)
    proposal = stored.proposal
    if fresh is not None and proposal and proposal.answered_drift == fresh.identity:
        # The proposal waits for its user: newer windows of the same verdict change nothing.
        return dataclasses.replace(fresh, window=proposal.drift_window or fresh.window)
    if fresh is not None:
        return fresh
    same = all(record.inputs.get(kind) == inputs[kind] for kind in ("workload", "calibration"))
    if record.drift_window is None or not same:
        return None
    return Drift(record.answered_drift, record.drift_window, False, record.drift_thresholds)


def apply(problem: problems.Problem, drift: Drift) -> problems.Problem:
    """The problem for the live window: its rate, its lengths, and the table re-weighted to it.

    Below ``MINIMUM_EFFECTIVE_SIZE`` effective rows only GPUs move, thresholds stay.
    """
    workload = problem.workload.model_copy(
        update={
            "rate": drift.rate,
            "input_tokens": _lengths(drift.window, "inputDeciles", problem.workload.input_tokens),
            "output_tokens": _lengths(
                drift.window, "outputDeciles", problem.workload.output_tokens
            ),
        }
    )
    update: dict[str, Any] = {"workload": workload}
    raked = _raked(problem, drift)
    if raked is not None:
        size = raked.effective_size
        small = size is not None and size < MINIMUM_EFFECTIVE_SIZE and problem.in_force is not None
        update |= {"calibration": raked, "keep_thresholds": problem.keep_thresholds or small}
    return problem.model_copy(update=update)


def is_overloaded(plan: plans.Plan, window: Mapping[str, Any]) -> bool:
    """Whether the plan would be overloaded by the window's arrivals, lengths left as planned."""
    rate = float(window["ratePerMinute"]) / 60
    requests = max(1, window["requests"])
    visits = {m["name"]: m["visits"] / requests for m in window.get("models", ())}
    return any(
        m.arrival_rate > 0
        and m.utilisation * rate * visits.get(m.name, m.visit_ratio) / m.arrival_rate >= 1
        for m in plan.models
    )


def measured(
    kept: plans.Plan, found: plans.PlannedWorkload, window: Mapping[str, Any]
) -> plans.PlannedWorkload:
    """The window as the load of a plan that was kept: rate and lengths as just planned for,
    escalation and scores as the thresholds in force produced them."""
    seen = {m["name"]: m for m in window.get("models", ())}
    escalation = {
        name: _number(seen.get(name, {}).get("escalationPercent"), 100 * ratio) / 100
        for name, ratio in kept.workload.escalation_ratio.items()
    }
    scores = {
        name: _optional(seen.get(name, {}).get("meanScore"), score)
        for name, score in kept.workload.mean_score.items()
    }
    return found.model_copy(update={"escalation_ratio": escalation, "mean_score": scores})


def _fresh(
    spec: CascadeSpec, observation: Observation, record: plan_record.PlanRecord
) -> Drift | None:
    entry = observation.drift
    if spec.drift.mode != "Replan" or entry.get("verdict") != "Drifted":
        return None
    if entry.get("observedPlan") != record.revision or "window" not in entry:
        return None
    identity = f"{entry['observedPlan']}@{entry.get('since', '')}"
    if identity == record.answered_drift or float(entry["window"]["ratePerMinute"]) <= 0:
        return None
    steered = record.plan.verdict == "Uncalibrated"
    thresholds = None if steered else record.plan.thresholds()
    return Drift(identity, entry["window"], True, thresholds, entry.get("message", ""))


def _raked(problem: problems.Problem, drift: Drift) -> problems.Calibration | None:
    """The table re-weighted to the window; ``None`` without a table, or without scores to go by."""
    order = [m.name for m in problem.models]
    counts = [row["counts"] for row in drift.window.get("inputScoreCounts", ())]
    edges = drift.window.get("inputEdges", ())
    if problem.calibration is None or problem.calibration.stale or drift.thresholds is None:
        return None
    known = set(order[:-1]) <= set(drift.thresholds)
    if not known or len(edges) != EDGES or sum(map(sum, counts)) == 0:
        return None
    # numpy is loaded only here, in an operator whose traffic has drifted.
    from cascade_solver import reweight

    target = reweight.LiveWindow(
        rate=drift.rate,
        n=max(1, drift.window["requests"]),
        input_edges=tuple(edges),
        input_score_counts=tuple(tuple(row) for row in counts),
        score_counts={
            m["name"]: tuple(m["scoreCounts"])
            for m in drift.window.get("models", ())
            if m["name"] in order[1:] and m.get("scoreCounts")
        },
        input_deciles=tuple(drift.window.get("inputDeciles", ())),
        output_deciles=tuple(drift.window.get("outputDeciles", ())),
    )
    return reweight.rake(problem.calibration, drift.thresholds, target, order)


def _lengths(
    window: Mapping[str, Any], field: str, stated: problems.LengthSummary
) -> problems.LengthSummary:
    """Mean and p95 of a log-normal with the window's median and 90 % quantile."""
    deciles: Sequence[int] = window.get(field, ())
    if len(deciles) != 9 or deciles[4] < 1:
        return stated
    median, high = float(deciles[4]), float(max(deciles[8], deciles[4]))
    spread = math.log(high / median) / 1.2816
    p95 = median * math.exp(1.6449 * spread)
    return problems.LengthSummary(mean=min(p95, median * math.exp(spread * spread / 2)), p95=p95)


def _number(text: str | None, otherwise: float) -> float:
    return otherwise if text is None else float(text)


def _optional(text: str | None, otherwise: float | None) -> float | None:
    return otherwise if text is None else float(text)
