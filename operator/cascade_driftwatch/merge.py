"""Windows of all router pods as one row of windows of the whole cascade; pure."""

from collections.abc import Iterable, Sequence

from cascade_router.window import ModelWindow, Window, WindowReport

ALIGNMENT_SECONDS = 1.0
"""Pods close a window at the same multiple of its length, up to the skew of their clocks."""


def usable(
    reports: Sequence[WindowReport], plan_id: str, not_before: float = 0.0
) -> tuple[Window, ...]:
    """Closed windows of this plan, oldest first, that every pod has seen whole.

    ``not_before``: Unix seconds; windows that began earlier are left out, as are those before the
    youngest pod's first one: what an absent pod counted is unknown.
    """
    if not reports:
        return ()
    begins = max(
        min((window.start for window in report.windows), default=report.now) for report in reports
    )
    earliest = max(begins - ALIGNMENT_SECONDS, not_before)
    groups: list[list[Window]] = []
    for window in sorted(_of_plan(reports, plan_id), key=lambda w: w.start + w.seconds):
        end = window.start + window.seconds
        last = groups[-1][0] if groups else None
        if last is not None and end - (last.start + last.seconds) < _tolerance(window):
            groups[-1].append(window)
        else:
            groups.append([window])
    return tuple(
        pooled(group)
        for group in groups
        if len(group) == len(reports) and min(w.start for w in group) >= earliest
    )


def _of_plan(reports: Iterable[WindowReport], plan_id: str) -> Iterable[Window]:
    return (w for r in reports for w in r.windows if w.closed and w.plan_id == plan_id)


def _tolerance(window: Window) -> float:
    return min(ALIGNMENT_SECONDS, window.seconds / 2)


def pooled(windows: Sequence[Window]) -> Window:
    """Windows of several pods over the same span, added up: counts weigh by themselves."""
    first = windows[0]
    return first.model_copy(
        update={
            "start": min(w.start for w in windows),
            "seconds": max(w.seconds for w in windows),
            "samples": (),
            **_added(windows),
        }
    )


def joined(windows: Sequence[Window]) -> Window:
    """Consecutive windows as one long one; ``seconds`` counts only the time that they cover."""
    first = windows[0]
    return first.model_copy(
        update={
            "seconds": sum(w.seconds for w in windows),
            "samples": (),
            **_added(windows),
        }
    )


def _added(windows: Sequence[Window]) -> dict[str, object]:
    total = ("requests", "forced_requests", "failed_requests", "samples_seen")
    tables = [w.input_score_counts for w in windows if w.input_score_counts]
    return {
        **{name: sum(getattr(w, name) for w in windows) for name in total},
        "input_counts": _sum([w.input_counts for w in windows]),
        "output_counts": _sum([w.output_counts for w in windows]),
        "input_score_counts": tuple(_sum(rows) for rows in zip(*tables, strict=False)),
        "models": _models(windows),
    }


def _models(windows: Sequence[Window]) -> tuple[ModelWindow, ...]:
    """Models in the order of the first window; each adds up over the windows that know it."""
    parts: dict[str, list[ModelWindow]] = {}
    for window in windows:
        for model in window.models:
            parts.setdefault(model.name, []).append(model)
    counted = (
        "visits", "accepted", "escalated", "no_verdict", "failed", "degraded", "score_sum",
    )  # fmt: skip
    return tuple(
        found[0].model_copy(
            update={
                **{name: sum(getattr(m, name) for m in found) for name in counted},
                "score_counts": _sum([m.score_counts for m in found]),
            }
        )
        for found in parts.values()
    )


def _sum(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))
