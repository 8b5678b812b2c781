"""Builders of what the pure steps read: the shortest valid values, so a test shows its subject."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_operator import plan_record
from cascade_operator.observation import (
    CalibrationView,
    NodeView,
    Observation,
    PodView,
    PoolView,
    RouterView,
    SetView,
)
from cascade_operator.settings import Settings
from cascade_operator.spec import CascadeSpec, parse
from cascade_solver import plan as plans

NOW = 1_800_000_000.0
SMALL = "meta-llama/Llama-3.1-8B-Instruct"
LARGE = "meta-llama/Llama-3.3-70B-Instruct"
OWNER = {
    "apiVersion": "cascade-operator.io/v1alpha1",
    "kind": "CascadeService",
    "name": "chat",
    "uid": "uid-chat",
    "controller": True,
    "blockOwnerDeletion": True,
}


def settings(**fields: Any) -> Settings:
    """The operator's settings as an installation with default values has them."""
    given = {"namespace": "cascade-system", "pod_name": "operator-0", "cluster_scoped": True}
    return Settings(**{**given, "router_image": "cascade-operator/router:0.1.0", **fields})


def body(models: Sequence[Mapping[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    """A CascadeService; ``fields`` are fields of its spec, camelCase."""
    hub = {"small": SMALL, "large": LARGE}
    given = models or [{"name": n, "source": {"huggingFace": {"id": i}}} for n, i in hub.items()]
    stated = {"qmin": 75, "gpuPool": [{"gpuType": "H100", "limit": 12, "gpusPerNode": 8}]}
    return {
        "metadata": {"name": "chat", "namespace": "demo", "uid": "uid-chat", "generation": 3},
        "spec": {"models": list(given), **stated, **fields},
    }


def spec(models: Sequence[Mapping[str, Any]] | None = None, **fields: Any) -> CascadeSpec:
    return parse(body(models, **fields))


def model(name: str, **fields: Any) -> dict[str, Any]:
    """One model of the spec, from the Hugging Face hub unless ``source`` is given."""
    hub = {"huggingFace": {"id": LARGE if name == "large" else SMALL}}
    return {"name": name, "source": hub, **fields}


def nodes(*allocatable: int, foreign: int = 0) -> tuple[NodeView, ...]:
    return tuple(
        NodeView(name=f"node-{i}", allocatable=gpus, foreign=foreign, ours=0, ready=True)
        for i, gpus in enumerate(allocatable)
    )


def pool(limit: int = 12, **fields: Any) -> PoolView:
    view = PoolView(
        name="default", gpu_type="H100", limit=limit, gpus_per_node=8, nodes=nodes(8, 8),
        foreign=0, others=0,
    )  # fmt: skip
    return dataclasses.replace(view, **fields)


def observation(stored: plan_record.Stored | None = None, **fields: Any) -> Observation:
    """What a pass sees of a cascade that has no children but, with ``stored``, its plan."""
    data = plan_record.to_data(stored) if stored is not None else {}
    view = Observation(
        now=NOW,
        namespace="demo",
        name="chat",
        uid="uid-chat",
        generation=3,
        sets=(),
        router=RouterView(exists=False, desired=0, ready_pods=(), acks=()),
        pool=pool(),
        calibration=CalibrationView(text=None, reference="chat-calibration/table.csv"),
        plan_text=data.get(plan_record.PLAN_KEY),
        problem_text=data.get(plan_record.PROBLEM_KEY),
        plan_annotations=plan_record.annotations(stored) if stored is not None else {},
        drift={},
        annotations={},
        status={},
        record_text=data.get(plan_record.RECORD_KEY),
        proposal_text=data.get(plan_record.PROPOSAL_KEY),
    )
    return dataclasses.replace(view, **fields)


def planned_set(**fields: Any) -> plans.PlannedSet:
    given: dict[str, Any] = {
        "tensor": 2,
        "pipeline": 1,
        "replicas": 2,
        "gpu_type": "H100",
        "mem_fraction_static": 0.88,
        "chunked_prefill_size": 8192,
        "kv_tokens": 400_000,
        "saturation_rate": 6.0,
        **fields,
    }
    return plans.PlannedSet(**given)


def model_plan(name: str, planned: plans.PlannedSet, **fields: Any) -> plans.ModelPlan:
    gpus = planned.tensor * planned.pipeline * planned.replicas
    given: dict[str, Any] = {
        "name": name,
        "gpus_allocated": gpus,
        "gpus_used": gpus,
        "sets": (planned,),
        "threshold": None,
        "visit_ratio": 1.0,
        "arrival_rate": 1.0,
        "latency_p95_seconds": 2.0,
        "ttft_p95_seconds": 0.3,
        "tpot_p95_seconds": 0.02,
        "utilisation": 0.5,
        **fields,
    }
    return plans.ModelPlan(**given)


def plan(**fields: Any) -> plans.Plan:
    """Two models on 4 + 8 GPUs, feasible at a quality of 81.4 points."""
    small = model_plan("small", planned_set(), threshold=60)
    large = model_plan(
        "large", planned_set(tensor=4, saturation_rate=2.0), visit_ratio=0.4, arrival_rate=0.4
    )
    given: dict[str, Any] = {
        "verdict": "Feasible",
        "models": (small, large),
        "latency_p95_seconds": 3.2,
        "objective": 3.2,
        "mu_seconds": 32.0,
        "quality": plans.QualityForecast(
            predicted=81.4, all_last=88.0, all_first=60.0, best_reachable=88.0
        ),
        "qmin": 75,
        "meets_qmin": True,
        "workload": workload(),
        "search": plans.SearchReport(rounds=4, candidates=90, simulations=30, converged=True),
        **fields,
    }
    return plans.Plan(**given)


def workload(**fields: Any) -> plans.PlannedWorkload:
    given: dict[str, Any] = {
        "rate": 1.0,
        "n": 400,
        "input_deciles": tuple(float(100 * i) for i in range(1, 10)),
        "output_deciles": tuple(float(20 * i) for i in range(1, 10)),
        "escalation_ratio": {"small": 0.4},
        "mean_score": {"small": 66.0, "large": None},
        "input_edges": (200.0, 400.0, 600.0, 800.0),
        **fields,
    }
    return plans.PlannedWorkload(**given)


def window(rate_per_minute: float = 60, **fields: Any) -> dict[str, Any]:
    """``status.drift.window`` of two models as drift-watch writes it."""
    row = [0, 0, 0, 5, 5, 10, 10, 5, 5, 0]
    return {
        "seconds": 600,
        "requests": 200,
        "ratePerMinute": f"{rate_per_minute:g}",
        "inputDeciles": [100 * i for i in range(1, 10)],
        "outputDeciles": [20 * i for i in range(1, 10)],
        "inputEdges": [200, 400, 600, 800],
        "inputScoreCounts": [{"counts": row} for _ in range(5)],
        "models": [
            {"name": "small", "visits": 200, "escalationPercent": "45.0", "meanScore": "58.5",
             "scoreCounts": [0, 0, 0, 25, 25, 50, 50, 25, 25, 0]},
            {"name": "large", "visits": 90},
        ],
        **fields,
    }  # fmt: skip


def table(
    rows: int = 400,
    signals: bool = False,
    header: str = "",
    names: Sequence[str] = ("small", "large"),
    seed: int = 7,
) -> str:
    """A calibration table in which later models score higher and harder rows lower."""
    generator = random.Random(seed)
    fields = ["score", "signal", "input_tokens", "output_tokens", "audit"]
    lines = [",".join(["request_id", *(f"{n}.{f}" for n in names for f in fields)])]
    for row in range(rows):
        difficulty = generator.random()
        length = 100 + int(1500 * generator.random())
        cells = [f"r-{row}"]
        for place in range(len(names)):
            strength = 70 + 25 * place / max(1, len(names) - 1)
            score = round(min(100, max(0, strength + 25 - 60 * difficulty + generator.gauss(0, 8))))
            signal = f"{min(1, max(0, score / 100 + generator.gauss(0, 0.05))):.4f}"
            cells += [str(score), signal if signals else "", str(length), str(50 + row % 200), ""]
        lines.append(",".join(cells))
    return header + "\n".join(lines) + "\n"


def calibrated(text: str) -> CalibrationView:
    return CalibrationView(text=text, reference="chat-calibration/table.csv")


def record(**fields: Any) -> plan_record.PlanRecord:
    """The plan of ``plan()`` in force since ten minutes."""
    given: dict[str, Any] = {
        "plan": plan(),
        "revision": "aaaaaaaaaa",
        "reason": "FirstPlan",
        "adopted_at": NOW - 600,
        "reasons": ("first plan of this cascade",),
        **fields,
    }
    return plan_record.PlanRecord(**given)


def pod(name: str, set_name: str, **fields: Any) -> PodView:
    view = PodView(
        name=name, uid=f"uid-{name}", set_name=set_name, node="node-0", gpus=2, ready=True,
        terminating=False,
    )  # fmt: skip
    return dataclasses.replace(view, **fields)


def set_view(name: str, model_name: str, pods: Sequence[PodView], **fields: Any) -> SetView:
    view = SetView(
        name=name, uid=f"uid-{name}", model=model_name, replicas=len(pods), gpus_per_pod=2,
        shape={}, render_version=1, pods=tuple(pods), status_replicas=len(pods),
    )  # fmt: skip
    return dataclasses.replace(view, **fields)
