"""Prometheus metrics under SGLang's names and labels, read from the engine when scraped."""

from collections.abc import Iterator

import prometheus_client
from prometheus_client import core, registry

from . import command
from .engine import Engine

FIRST_TOKEN_BUCKETS = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400,
)  # fmt: skip
PER_TOKEN_BUCKETS = (
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080,
    0.100, 0.200, 0.400, 0.600, 0.800, 1, 2, 4, 6, 8,
)  # fmt: skip
WHOLE_BUCKETS = (
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1,
    2,
    4,
    6,
    8,
    10,
    20,
    40,
    60,
    80,
    100,
    200,
    400,
    600,
    1200,
)


class Metrics:
    """Counters and histograms of requests, in modelled seconds; gauges come from the engine."""

    def __init__(self, engine: Engine, launch: command.Launch) -> None:
        self.registry = registry.CollectorRegistry()
        self.labels = {
            "model_name": launch.served_model_name,
            "engine_type": "unified",
            **launch.extra_metric_labels,
        }
        names = [*self.labels, "is_streaming"]
        self._prompt = self._counter("sglang:prompt_tokens", "Prompt tokens.", names)
        self._generated = self._counter("sglang:generation_tokens", "Generated tokens.", names)
        self._requests = self._counter("sglang:num_requests", "Requests.", names)
        self._aborted = self._counter(
            "sglang:num_aborted_requests", "Aborted requests.", [*self.labels]
        )
        self._http = self._counter("sglang:http_requests", "HTTP requests.", ["endpoint", "method"])
        self._responses = self._counter(
            "sglang:http_responses", "HTTP responses.", ["endpoint", "status_code", "method"]
        )
        self._first = self._histogram(
            "sglang:time_to_first_token_seconds", names, FIRST_TOKEN_BUCKETS
        )
        self._whole = self._histogram("sglang:e2e_request_latency_seconds", names, WHOLE_BUCKETS)
        self._per_token = self._histogram(
            "sglang:inter_token_latency_seconds", [*self.labels], PER_TOKEN_BUCKETS
        )
        self._queue = self._histogram(
            "sglang:queue_time_seconds", [*self.labels], FIRST_TOKEN_BUCKETS
        )
        self.registry.register(_Gauges(engine, self.labels))

    def _counter(self, name: str, text: str, labels: list[str]) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, labels: list[str], buckets: tuple[float, ...]
    ) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            name, "Modelled seconds.", labels, buckets=buckets, registry=self.registry
        )

    def answered(self, path: str, method: str, status: int) -> None:
        self._http.labels(path, method).inc()
        self._responses.labels(path, str(status), method).inc()

    def finished(
        self, *, streamed: bool, prompt: int, generated: int, queued: float, first: float,
        whole: float,
    ) -> None:  # fmt: skip
        """One sequence that ended by itself; times in modelled seconds since its submission."""
        labels = {**self.labels, "is_streaming": str(streamed).lower()}
        self._prompt.labels(**labels).inc(prompt)
        self._generated.labels(**labels).inc(generated)
        self._requests.labels(**labels).inc()
        self._first.labels(**labels).observe(first)
        self._whole.labels(**labels).observe(whole)
        self._queue.labels(**self.labels).observe(queued)
        if generated > 1:
            self._per_token.labels(**self.labels).observe((whole - first) / (generated - 1))

    def aborted(self) -> None:
        self._aborted.labels(**self.labels).inc()

    def exposition(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)


class _Gauges(registry.Collector):
    """The scheduler's gauges, with the labels of rank 0."""

    def __init__(self, engine: Engine, labels: dict[str, str]) -> None:
        self._engine = engine
        self._labels = {**labels, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}

    def collect(self) -> Iterator[core.Metric]:
        batch, machine = self._engine.batch, self._engine.machine
        modelled = max(self._engine.now(), 1e-9)
        values = {
            "num_running_reqs": len(batch.running),
            "num_queue_reqs": batch.queued,
            "num_grammar_queue_reqs": 0,
            "num_used_tokens": batch.used,
            "token_usage": batch.used / machine.kv_tokens,
            "max_total_num_tokens": machine.kv_tokens,
            "kv_used_tokens": batch.used,
            "kv_available_tokens": machine.kv_tokens - batch.used,
            "gen_throughput": batch.tokens_per_second,
            "cache_hit_rate": 0.0,
            "utilization": min(1.0, batch.busy_seconds / modelled),
            "num_retracted_reqs": batch.retractions,
            "num_paused_reqs": 0,
            "context_len": machine.context_length,
            "weight_memory_usage_gb": machine.weight_gigabytes,
        }
        for name, value in values.items():
            gauge = core.GaugeMetricFamily(f"sglang:{name}", name, labels=[*self._labels])
            gauge.add_metric([*self._labels.values()], value)
            yield gauge
