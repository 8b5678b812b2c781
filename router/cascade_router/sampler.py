"""Windows of live traffic for drift-watch: exact counts, and a uniform reservoir of samples."""

import bisect
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .config import RouterConfig
from .visits import Trace, Visit
from .window import LENGTH_EDGES, SCORE_BINS, ModelWindow, Sample, Window

KEPT_WINDOWS = 12


class _OpenWindow:
    """Counts of one window while it fills; ``freeze`` gives the document."""

    def __init__(self, config: RouterConfig, start: float) -> None:
        self.config = config
        self.start = start
        self.seconds = config.window.seconds
        self.closed = False
        self.requests = self.forced = self.failed = self.samples_seen = 0
        self.input_counts = [0] * (len(LENGTH_EDGES) + 1)
        self.output_counts = [0] * (len(LENGTH_EDGES) + 1)
        bins = len(config.input_edges) + 1 if config.input_edges else 0
        self.joint = [[0] * SCORE_BINS for _ in range(bins)]
        self.models: dict[str, dict[str, Any]] = {}
        self.samples: list[Sample] = []

    def model(self, name: str) -> dict[str, Any]:
        empty = {"score_counts": [0] * SCORE_BINS, "score_sum": 0, "visits": 0, "accepted": 0,
                 "escalated": 0, "no_verdict": 0, "failed": 0, "degraded": 0}  # fmt: skip
        return self.models.setdefault(name, empty)

    def freeze(self, now: float, thresholds: Callable[[str], int | None]) -> Window:
        return Window(
            start=self.start,
            seconds=self.seconds if self.closed else max(0.0, now - self.start),
            closed=self.closed,
            plan_id=self.config.plan_id,
            requests=self.requests,
            forced_requests=self.forced,
            failed_requests=self.failed,
            input_counts=tuple(self.input_counts),
            output_counts=tuple(self.output_counts),
            input_score_counts=tuple(tuple(row) for row in self.joint),
            models=tuple(
                ModelWindow(
                    name=m.name, threshold_in_force=thresholds(m.name), **self.model(m.name)
                )
                for m in self.config.models
            ),
            samples=tuple(self.samples),
            samples_seen=self.samples_seen,
        )


class Recorder:
    """Counts the requests of one process; ``clock`` gives Unix seconds.

    Windows start at multiples of their length, so that those of several processes line up. A new
    plan closes the window early. A request counts as arrived in the window of its arrival and with
    its outcome in the newest window of its plan.
    """

    def __init__(
        self,
        rng: random.Random,
        clock: Callable[[], float],
        thresholds: Callable[[str], int | None],
    ) -> None:
        self._rng = rng
        self._clock = clock
        self._thresholds = thresholds
        self._open: _OpenWindow | None = None
        self._closed: deque[tuple[_OpenWindow, dict[str, int | None]]] = deque(maxlen=KEPT_WINDOWS)

    def apply(self, config: RouterConfig) -> None:
        """Follow a new plan: its windows are its own."""
        now = self._clock()
        if self._open is not None:
            self._roll(now)
            if self._open.config == config:
                return
            self._close(min(now, self._open.start + self._open.seconds))
        length = config.window.seconds
        self._open = _OpenWindow(config, now)
        self._open.seconds = length - now % length

    def arrive(self, is_forced: bool) -> None:
        """Count an arrival."""
        window = self._roll(self._clock())
        if is_forced:
            window.forced += 1
        else:
            window.requests += 1

    def finish(self, trace: Trace) -> None:
        """Count the outcome of a request."""
        window = self._window_of(trace)
        if window is None:
            return
        if trace.answered_by is None and trace.forced is None:
            window.failed += 1
        if trace.forced is not None:
            return
        for index, visit in enumerate(trace.visits):
            _count_visit(window.model(visit.model), visit)
            if index == 0:
                _count_lengths(window, visit)
        self._sample(window, trace)

    def windows(self) -> tuple[Window, ...]:
        """All kept windows, the open one last."""
        now = self._clock()
        open_window = self._roll(now)
        closed = (w.freeze(now, held.get) for w, held in self._closed)
        return (*closed, open_window.freeze(now, self._thresholds))

    def _roll(self, now: float) -> _OpenWindow:
        """The open window, after closing it if its time is over."""
        window = self._open
        if window is None:
            raise RuntimeError("apply a plan before recording")
        end = window.start + window.seconds
        if now >= end:
            self._close(end)
            length = window.config.window.seconds
            self._open = window = _OpenWindow(window.config, now - now % length)
        return window

    def _close(self, end: float) -> None:
        window = self._open
        assert window is not None
        window.seconds, window.closed = end - window.start, True
        held = {m.name: self._thresholds(m.name) for m in window.config.models}
        self._closed.append((window, held))

    def _window_of(self, trace: Trace) -> _OpenWindow | None:
        window = self._roll(self._clock())
        if window.config.plan_id == trace.plan_id:
            return window
        return next(
            (w for w, _ in reversed(self._closed) if w.config.plan_id == trace.plan_id), None
        )

    def _sample(self, window: _OpenWindow, trace: Trace) -> None:
        if not any(v.is_judged for v in trace.visits):
            return
        window.samples_seen += 1
        place = len(window.samples)
        if place >= window.config.window.samples:
            place = self._rng.randrange(window.samples_seen)
            if place >= window.config.window.samples:
                return
        first = trace.visits[0]
        sample = Sample(
            arrival=trace.arrival,
            input_tokens=first.input_tokens or 0,
            output_tokens=first.output_tokens or 0,
            scores={v.model: v.score for v in trace.visits if v.is_judged},
            signals={v.model: v.signal for v in trace.visits if v.is_judged},
            accepted_by=trace.answered_by,
        )
        if place == len(window.samples):
            window.samples.append(sample)
        else:
            window.samples[place] = sample


def merge(parts: Iterable[tuple[Window, ...]], rng: random.Random) -> tuple[Window, ...]:
    """Windows of several processes as those of one: equal plan and start are added up.

    Reservoirs are merged by weight: each sample stands for seen / kept requests of its process.
    """
    groups: list[list[Window]] = []
    for window in sorted((w for windows in parts for w in windows), key=lambda w: w.start):
        last = groups[-1][0] if groups else None
        # Processes take a new plan within milliseconds of each other, not at one instant.
        tolerance = min(1.0, window.seconds / 2) if window.closed else 1.0
        if last and last.plan_id == window.plan_id and window.start - last.start < tolerance:
            groups[-1].append(window)
        else:
            groups.append([window])
    return tuple(_merge_group(group, rng) if len(group) > 1 else group[0] for group in groups)


def _merge_group(group: list[Window], rng: random.Random) -> Window:
    first = group[0]
    weighted = [(s, w.samples_seen / len(w.samples)) for w in group for s in w.samples]
    kept = max(len(w.samples) for w in group)
    # Weighted draw without replacement: the largest of u^(1/weight) (Efraimidis and Spirakis).
    weighted.sort(key=lambda pair: rng.random() ** (1.0 / pair[1]), reverse=True)
    models = [_merge_models([w.models[i] for w in group]) for i in range(len(first.models))]
    return first.model_copy(
        update={
            "start": min(w.start for w in group),
            "seconds": max(w.seconds for w in group),
            "closed": all(w.closed for w in group),
            "requests": sum(w.requests for w in group),
            "forced_requests": sum(w.forced_requests for w in group),
            "failed_requests": sum(w.failed_requests for w in group),
            "input_counts": _sum_rows([w.input_counts for w in group]),
            "output_counts": _sum_rows([w.output_counts for w in group]),
            "input_score_counts": tuple(
                _sum_rows(list(rows))
                for rows in zip(*(w.input_score_counts for w in group), strict=True)
            ),
            "models": tuple(models),
            "samples": tuple(s for s, _ in weighted[:kept]),
            "samples_seen": sum(w.samples_seen for w in group),
        }
    )


def _merge_models(parts: list[ModelWindow]) -> ModelWindow:
    counted = ("visits", "accepted", "escalated", "no_verdict", "failed", "degraded", "score_sum")
    update: dict[str, Any] = {name: sum(getattr(p, name) for p in parts) for name in counted}
    update["score_counts"] = _sum_rows([p.score_counts for p in parts])
    known = [p.threshold_in_force for p in parts if p.threshold_in_force is not None]
    update["threshold_in_force"] = round(sum(known) / len(known)) if known else None
    return parts[0].model_copy(update=update)


def _sum_rows(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))


def _count_visit(model: dict[str, Any], visit: Visit) -> None:
    model["visits"] += 1
    model[visit.outcome] += 1
    if visit.is_judged and visit.score is None:
        model["no_verdict"] += 1
    if visit.score is not None:
        model["score_counts"][min(visit.score // 10, SCORE_BINS - 1)] += 1
        model["score_sum"] += visit.score


def _count_lengths(window: _OpenWindow, visit: Visit) -> None:
    if visit.input_tokens is not None:
        window.input_counts[bisect.bisect_left(LENGTH_EDGES, visit.input_tokens)] += 1
        if window.joint and visit.score is not None:
            # The plan's bins hold their lower edge, unlike the length histograms.
            row = bisect.bisect_right(window.config.input_edges, visit.input_tokens)
            window.joint[row][min(visit.score // 10, SCORE_BINS - 1)] += 1
    if visit.output_tokens is not None:
        window.output_counts[bisect.bisect_left(LENGTH_EDGES, visit.output_tokens)] += 1
