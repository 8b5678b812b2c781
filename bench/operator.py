"""Benchmark of the operator: one pass over a cascade that has not changed, without a server."""

import asyncio
import json
import logging
import statistics
import sys
import time
from typing import Any

import structlog

from cascade_operator import childplan, kube, names
from tests.operator import samples
from tests.operator.memory import MemoryCluster, Planner

RUNS = 7
PASSES = 20
TABLE_ROWS = 2000


async def settled() -> tuple[MemoryCluster, tuple[str, str]]:
    """A calibrated cascade of two models whose plan is in force."""
    cluster = MemoryCluster()
    table: dict[str, Any] = {
        "metadata": {
            "name": names.calibration("chat"),
            "namespace": "demo",
            "labels": {names.LABEL_CASCADE: "chat"},
        },
        "data": {names.CALIBRATION_KEY: samples.table(rows=TABLE_ROWS)},
    }
    cluster.put(kube.CONFIG_MAP, table)
    key = cluster.create()
    await cluster.run(key)
    await cluster.reconciler.reconcile(key)
    return cluster, key


async def measure() -> list[float]:
    """Milliseconds per pass, one figure per run."""
    cluster, key = await settled()
    requests = len(cluster.api.requests)
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for _ in range(PASSES):
            await cluster.reconciler.reconcile(key)
        found.append((time.perf_counter() - began) / PASSES * 1000)
    if len(cluster.api.requests) != requests:
        raise AssertionError("the passes were not unchanged: something was asked or written")
    return found


def main() -> int:
    """Prints one JSON line."""
    logging.disable(logging.CRITICAL)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    childplan.solve = Planner(samples.plan())
    runs = asyncio.run(measure())
    median = statistics.median(runs)
    line = {
        "name": "pass_unchanged_ms",
        "value": median,
        "unit": "ms",
        "reference": None,
        "ratio": None,
        "spread": (max(runs) - min(runs)) / median,
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
