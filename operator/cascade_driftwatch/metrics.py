"""Prometheus metrics of drift-watch."""

import prometheus_client
from prometheus_client import registry

VERDICTS = ("Stable", "Drifted", "Unknown")


class Metrics:
    """Counters and gauges with the prefix ``cascade_driftwatch_``."""

    def __init__(self) -> None:
        self.registry = registry.CollectorRegistry()
        self._writes = prometheus_client.Counter(
            "cascade_driftwatch_status_writes", "Entries written.", registry=self.registry
        )
        self._api = prometheus_client.Counter(
            "cascade_driftwatch_api_failures", "Rounds without the API.", registry=self.registry
        )
        self._looks = prometheus_client.Counter(
            "cascade_driftwatch_look_failures",
            "Looks at one cascade that came to nothing.",
            ["reason"],
            registry=self.registry,
        )
        self._verdict = prometheus_client.Gauge(
            "cascade_driftwatch_verdict",
            "1 for the verdict in force.",
            ["namespace", "cascade", "verdict"],
            registry=self.registry,
        )

    def written(self) -> None:
        self._writes.inc()

    def api_failed(self) -> None:
        self._api.inc()

    def look_failed(self, reason: str) -> None:
        self._looks.labels(reason).inc()

    def found(self, namespace: str, cascade: str, verdict: str) -> None:
        for known in VERDICTS:
            self._verdict.labels(namespace, cascade, known).set(known == verdict)

    def forget(self, namespace: str, cascade: str) -> None:
        """Series leave with their cascade."""
        for known in VERDICTS:
            self._verdict.remove(namespace, cascade, known)

    def exposition(self) -> bytes:
        return prometheus_client.generate_latest(self.registry)
