"""What the demo prints about plans, pods and answers; every figure comes from the cluster."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import steps, traffic


def plan(document: Mapping[str, Any]) -> None:
    """The plan as the planner wrote it: GPUs, shapes, thresholds, predicted p95 and quality."""
    rows = [["model", "GPUs", "shape", "accept at", "visits", "p95", "TTFT p95", "load"]]
    for model in document["models"]:
        shapes = " + ".join(
            f"DP{s['replicas']} x TP{s['tensor']} x PP{s['pipeline']}" for s in model["sets"]
        )
        threshold = model.get("threshold")
        rows.append(
            [
                model["name"],
                str(model["gpusAllocated"]),
                shapes,
                "always" if threshold is None else f"score >= {threshold}",
                f"{100 * model['visitRatio']:.0f} %",
                f"{model['latencyP95Seconds']:.2f} s",
                f"{model['ttftP95Seconds']:.2f} s",
                f"{100 * model['utilisation']:.0f} %",
            ]
        )
    steps.table(rows)
    quality = document["quality"]["predicted"]
    known = "not known before calibration" if quality is None else f"{quality:.1f} of 100"
    steps.say(
        f"  verdict {document['verdict']}; predicted quality {known} (qmin {document['qmin']}); "
        f"predicted p95 of the slowest model {document['latencyP95Seconds']:.2f} s"
    )


def pods(found: Sequence[Any]) -> None:
    """The pods that realise the plan."""
    rows = [["pod", "node", "GPUs", "state"]]
    for pod in sorted(found, key=lambda p: str(p.metadata.name)):
        limits = pod.spec.containers[0].resources.limits or {}
        ready = any(c.type == "Ready" and c.status == "True" for c in (pod.status.conditions or []))
        rows.append(
            [
                pod.metadata.name,
                pod.spec.node_name or "-",
                limits.get("nvidia.com/gpu", "0"),
                "Ready" if ready else str(pod.status.phase),
            ]
        )
    steps.table(rows)


def answer(title: str, found: traffic.Answer) -> None:
    """One answered request with its path and scores."""
    body = json.loads(found.text)
    text = body["choices"][0]["message"]["content"]
    steps.say(f"  {title}")
    steps.say(f"    path    {' -> '.join(found.path)}   scores {found.scores}")
    steps.say(f"    model   {body['model']} (plan {found.plan}), {found.seconds:.2f} s")
    steps.say(f"    answer  {text[:72]}...")


def visits(document: Mapping[str, Any], tally: traffic.Tally, time_scale: float) -> None:
    """Measured visit ratios beside the predicted ones."""
    rows = [["model", "predicted visits", "measured visits", "answers given"]]
    for model in document["models"]:
        rows.append(
            [
                model["name"],
                f"{100 * model['visitRatio']:.1f} %",
                f"{100 * tally.visit_ratio(model['name']):.1f} %",
                str(tally.accepted_by[model["name"]]),
            ]
        )
    steps.table(rows)
    steps.say(
        f"  {tally.answered} answered, {len(tally.failures)} failed, {tally.degraded} degraded; "
        f"p95 at the client {tally.p95() * time_scale:.1f} s in model time "
        f"({tally.p95():.2f} s on this machine)"
    )


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Two plans side by side."""
    rows = [["model", "GPUs", "", "replicas", "", "accept at", ""]]
    rows[0] = ["model", "GPUs before", "now", "shape before", "now", "threshold before", "now"]
    for old, new in zip(before["models"], after["models"], strict=True):
        rows.append(
            [
                old["name"],
                str(old["gpusUsed"]),
                str(new["gpusUsed"]),
                _shape(old),
                _shape(new),
                _threshold(old),
                _threshold(new),
            ]
        )
    steps.table(rows)


def _shape(model: Mapping[str, Any]) -> str:
    return " + ".join(f"DP{s['replicas']} TP{s['tensor']}" for s in model["sets"])


def _threshold(model: Mapping[str, Any]) -> str:
    return "-" if model.get("threshold") is None else str(model["threshold"])
