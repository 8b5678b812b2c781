"""Metrics of the operator, as Prometheus reads them at /metrics."""

from prometheus_client import Counter, Gauge, Histogram

PASSES = Counter(
    "cascade_operator_passes_total", "Reconcile passes that ended", ["result"]
)  # result: ok, error
PASS_SECONDS = Histogram(
    "cascade_operator_pass_seconds",
    "Duration of a reconcile pass without planning",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
PLAN_SECONDS = Histogram(
    "cascade_operator_plan_seconds",
    "Duration of a planning child process",
    ["result"],
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120),
)
WRITES = Counter("cascade_operator_writes_total", "Objects written", ["kind"])
WRITE_ERRORS = Counter(
    "cascade_operator_write_errors_total", "Writes that were refused or failed", ["kind", "status"]
)
WATCH_ERRORS = Counter("cascade_operator_watch_errors_total", "Watches that broke", ["kind"])
QUEUE_DEPTH = Gauge("cascade_operator_queue_depth", "Cascades that wait for a pass")
LEADING = Gauge("cascade_operator_leading", "1 while this process holds the Lease")
COMMITTED_GPUS = Gauge(
    "cascade_operator_committed_gpus", "GPUs held or promised", ["namespace", "cascade"]
)
STEP_STALLED = Gauge(
    "cascade_operator_step_deadline_passed",
    "1 while a step of a hand-over is past its deadline",
    ["namespace", "cascade"],
)
