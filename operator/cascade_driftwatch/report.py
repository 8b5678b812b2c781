"""``status.drift`` of a finding: integers and decimal strings only; pure."""

import datetime
from collections.abc import Mapping
from typing import Any

from cascade_router.window import ModelWindow, Window

from . import detect, measures, words
from .verdict import Finding, parse_time

MESSAGE_LIMIT = 4096
INPUT_BINS = 5


def entry(finding: Finding, now: float, time_scale: float) -> dict[str, Any]:
    """The entry as the schema of ``status.drift`` wants it (crds/cascadeservices.yaml)."""
    body: dict[str, Any] = {
        "verdict": finding.verdict,
        "since": timestamp(finding.since),
        "lastUpdate": timestamp(now),
        "message": words.message(finding, time_scale)[:MESSAGE_LIMIT],
        "tests": [_test(test) for test in finding.tests],
    }
    if finding.plan is not None:
        body["observedPlan"] = finding.plan.revision
    if finding.evidence is not None and finding.plan is not None:
        edges = finding.plan.workload.input_edges
        body["window"] = _window(finding.evidence, edges, time_scale)
    return body


def is_due(
    previous: Mapping[str, Any], body: Mapping[str, Any], now: float, window_seconds: float
) -> bool:
    """Whether to write: at once when the verdict or its plan changed, else once per window."""
    if any(previous.get(key) != body.get(key) for key in ("verdict", "observedPlan", "since")):
        return True
    return now - parse_time(previous.get("lastUpdate")) >= window_seconds


def timestamp(seconds: float) -> str:
    """RFC 3339 with whole seconds, as the API server keeps times."""
    moment = datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _test(test: detect.Test) -> dict[str, Any]:
    return {
        "name": test.name,
        "statistic": f"{test.statistic:.3f}",
        "threshold": f"{test.threshold:.3f}",
        "fired": test.fired,
    }


def _window(window: Window, edges: tuple[float, ...], time_scale: float) -> dict[str, Any]:
    rate = words.per_minute(window.requests, window.seconds, time_scale)
    body: dict[str, Any] = {
        "seconds": round(window.seconds),
        "requests": window.requests,
        "ratePerMinute": f"{rate:.2f}",
        "inputDeciles": list(measures.quantiles(window.input_counts)),
        "outputDeciles": list(measures.quantiles(window.output_counts)),
        "models": [_model(m, is_last=m is window.models[-1]) for m in window.models],
    }
    if len(edges) == INPUT_BINS - 1 and len(window.input_score_counts) == INPUT_BINS:
        body["inputEdges"] = [round(edge) for edge in edges]
        body["inputScoreCounts"] = [{"counts": list(row)} for row in window.input_score_counts]
    return body


def _model(model: ModelWindow, *, is_last: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": model.name,
        "visits": model.visits,
        "scoreCounts": list(model.score_counts),
    }
    judged, share = detect.escalation_share(model)
    if judged and not is_last:
        body["escalationPercent"] = f"{100 * share:.1f}"
    scored, mean, _ = measures.score_moments(model)
    if scored:
        body["meanScore"] = f"{mean:.1f}"
    return body
