"""From looks to a verdict: what is said about the traffic, since when, on which windows; pure."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cascade_router.window import Window

from . import detect, merge
from .planned import PlanInForce

Verdict = Literal["Stable", "Drifted", "Unknown"]

CLEAN_WINDOWS = 3
"""A drift is over when this many windows that began after it fit the plan again."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A verdict with what led to it. ``since``: Unix seconds; ``evidence``: the windows behind it,
    joined; ``reason``: in words, for an Unknown only."""

    verdict: Verdict
    plan: PlanInForce | None
    since: float
    evidence: Window | None = None
    tests: tuple[detect.Test, ...] = ()
    convinced: tuple[detect.Test, ...] = ()
    reason: str = ""


def unknown(previous: Mapping[str, Any], plan: PlanInForce | None, now: float, why: str) -> Finding:
    """Nothing can be said, for this reason."""
    return Finding("Unknown", plan, _since(previous, "Unknown", plan, now), reason=why)


def find(
    previous: Mapping[str, Any],
    plan: PlanInForce,
    windows: Sequence[Window],
    limits: detect.Limits,
    now: float,
) -> Finding:
    """The verdict on the windows of this plan, oldest first, given the entry written last.

    A drift stands until the plan changes or the traffic has returned: the same drift never counts
    as a new one.
    """
    recent = merge.joined(windows[-detect.POOLED_WINDOWS :]) if windows else None
    seen = detect.look(plan, windows, limits)
    stands = _is_about(previous, "Drifted", plan)
    begun = parse_time(previous.get("since")) if stands else now
    if not seen.is_drift and stands and _is_over(plan, windows, limits, begun):
        stands = False
    if seen.is_drift or stands:
        convinced = seen.convinced
        evidence = _evidence(windows, seen.onset, begun) if seen.is_drift else recent
        since = _since(previous, "Drifted", plan, now)
        return Finding("Drifted", plan, since, evidence, seen.tests, convinced)
    if recent is None or recent.requests < detect.MINIMUM_REQUESTS:
        count = recent.requests if recent else 0
        why = (
            f"{count} requests in {len(windows[-detect.POOLED_WINDOWS :])} whole windows of plan "
            f"{plan.revision}, {detect.MINIMUM_REQUESTS} are needed to tell"
        )
        return unknown(previous, plan, now, why)
    since = _since(previous, "Stable", plan, now)
    return Finding("Stable", plan, since, recent, seen.tests)


def _evidence(windows: Sequence[Window], onset: int, begun: float) -> Window:
    """The windows that the drift covers: from its onset on, and all since it was found."""
    busy = [w for w in windows if w.requests]
    later = sum(1 for w in busy if w.start >= begun)
    return merge.joined(busy[-max(onset, min(len(busy), later + 2 if later else 0)) :])


def _is_over(
    plan: PlanInForce, windows: Sequence[Window], limits: detect.Limits, begun: float
) -> bool:
    later = [w for w in windows if w.start >= begun and w.requests >= detect.MINIMUM_REQUESTS]
    recent = later[-CLEAN_WINDOWS:]
    if len(recent) < CLEAN_WINDOWS or not all(detect.fits(plan, w, limits) for w in recent):
        return False
    return not detect.look(plan, recent, limits).is_drift


def _is_about(previous: Mapping[str, Any], verdict: Verdict, plan: PlanInForce | None) -> bool:
    revision = plan.revision if plan is not None else ""
    return previous.get("verdict") == verdict and (previous.get("observedPlan") or "") == revision


def _since(
    previous: Mapping[str, Any], verdict: Verdict, plan: PlanInForce | None, now: float
) -> float:
    begun = parse_time(previous.get("since"))
    return begun if begun and _is_about(previous, verdict, plan) else now


def parse_time(text: Any) -> float:
    """Unix seconds of an RFC 3339 time; 0 for anything else."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
