"""All metrics of the router in one place, and how those of several processes become one."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
_SCORES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_P = "cascade_router_"

MAX_GAUGES = frozenset({_P + "breaker_state", _P + "threshold_in_force", _P + "plan_info"})
"""Gauges of which several processes show the greatest; all others are added up."""


_Child = TypeVar("_Child", Counter, Histogram)


class Labelled(Generic[_Child]):
    """A metric whose children are kept: finding one in the library costs ten times as much."""

    def __init__(self, metric: _Child) -> None:
        self._metric: _Child = metric
        self._children: dict[tuple[str, ...], _Child] = {}

    def labels(self, *values: str) -> _Child:
        """The child for these label values."""
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values)
        return child


class Metrics:
    """Metrics of one process. Label values are plan names and fixed words, never client strings."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        # OpenTelemetry GenAI names, not yet stable: kept here only.
        self.request_seconds = Labelled(
            Histogram(
                "gen_ai_server_request_duration_seconds",
                "From the request's last byte to the answer's last byte.",
                [
                    "gen_ai_operation_name",
                    "gen_ai_request_model",
                    "gen_ai_response_model",
                    "error_type",
                ],
                buckets=_SECONDS,
                registry=r,
            )
        )
        self.first_token_seconds = Labelled(
            Histogram(
                "gen_ai_server_time_to_first_token_seconds",
                "From the request's last byte to the first byte of a streamed answer.",
                ["gen_ai_response_model"],
                buckets=_SECONDS,
                registry=r,
            )
        )
        self.call_seconds = Labelled(
            Histogram(
                "gen_ai_client_operation_duration_seconds",
                "One call to an engine.",
                ["gen_ai_request_model", "kind"],
                buckets=_SECONDS,
                registry=r,
            )
        )
        self.requests = Labelled(
            Counter(_P + "requests_total", "Requests by outcome.", ["model", "outcome"], registry=r)
        )
        self.attempts = Labelled(
            Counter(
                _P + "attempts_total", "Engine calls.", ["model", "kind", "outcome"], registry=r
            )
        )
        self.tokens = Labelled(
            Counter(
                _P + "tokens_total",
                "Tokens of engine calls.",
                ["model", "kind", "type"],
                registry=r,
            )
        )
        self.escalations = Labelled(
            Counter(
                _P + "escalations_total", "Requests passed on.", ["model", "reason"], registry=r
            )
        )
        self.degraded = Labelled(
            Counter(
                _P + "degraded_total", "Answers below threshold.", ["model", "reason"], registry=r
            )
        )
        self.no_verdict = Labelled(
            Counter(
                _P + "judge_no_verdict_total", "Unjudged answers.", ["model", "reason"], registry=r
            )
        )
        self.judge_score = Labelled(
            Histogram(_P + "judge_score", "Scores given.", ["model"], buckets=_SCORES, registry=r)
        )
        self.judge_seconds = Labelled(
            Histogram(
                _P + "judge_seconds", "Time to judge.", ["model"], buckets=_SECONDS, registry=r
            )
        )
        self.label_mass = Labelled(
            Histogram(
                _P + "judge_label_mass", "Label mass.", ["model"], buckets=_SHARES, registry=r
            )
        )
        self.threshold = Gauge(
            _P + "threshold_in_force", "Threshold used now.", ["model"], registry=r
        )
        self.in_flight = Gauge(_P + "in_flight", "Open calls.", ["model", "pod"], registry=r)
        self.breaker = Gauge(
            _P + "breaker_state", "0 closed, 1 half open, 2 open.", ["model", "pod"], registry=r
        )
        self.endpoints = Gauge(_P + "endpoints", "Replicas.", ["model", "state"], registry=r)
        self.retries = Labelled(
            Counter(_P + "retries_total", "Second attempts.", ["model", "reason"], registry=r)
        )
        self.shed = Labelled(
            Counter(_P + "shed_total", "Requests refused.", ["reason"], registry=r)
        )
        self.aborts = Labelled(
            Counter(_P + "aborts_total", "Aborted calls.", ["reason"], registry=r)
        )
        self.disconnects = Labelled(
            Counter(_P + "client_disconnects_total", "Clients that left.", ["phase"], registry=r)
        )
        self.plan = Gauge(_P + "plan_info", "Plan in force.", ["plan_id"], registry=r)
        self.reloads = Labelled(
            Counter(_P + "plan_reloads_total", "Plan documents read.", ["result"], registry=r)
        )

    def dump(self) -> list[dict[str, Any]]:
        """All families as JSON values, for the supervisor."""
        return [
            {
                "name": family.name,
                "type": family.type,
                "help": family.documentation,
                "samples": [[s.name, s.labels, s.value] for s in family.samples
                            if not s.name.endswith("_created")],
            }
            for family in self.registry.collect()
        ]  # fmt: skip


class _Merged:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(dumps: Iterable[list[dict[str, Any]]]) -> bytes:
    """Prometheus text of the dumps of all processes, added up."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for dump in dumps:
        for family in dump:
            name = family["name"]
            families.setdefault(name, Metric(name, family["help"], family["type"]))
            merged = values.setdefault(name, {})
            for sample, labels, value in family["samples"]:
                key = (sample, tuple(sorted(labels.items())))
                if key in merged and name in MAX_GAUGES:
                    merged[key] = max(merged[key], value)
                else:
                    merged[key] = merged.get(key, 0.0) + value
    for name, metric in families.items():
        for (sample, labels), value in values[name].items():
            metric.add_sample(sample, dict(labels), value)
    registry = CollectorRegistry()
    registry.register(_Merged(families.values()))
    return generate_latest(registry)
