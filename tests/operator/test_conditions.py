"""Status: all nine conditions, what bad input makes of them, and no change without a cause."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cascade_operator import (
    conditions,
    errors,
    manifests,
    plan_record,
    planning,
    reasons,
    router_config,
    status_fields,
)
from cascade_operator.observation import AckView, Observation, PodView, RouterView
from cascade_operator.spec import CascadeSpec, parse
from cascade_operator.step import Step
from cascade_solver import plan as plans
from tests.operator import samples

CRD = Path(__file__).parents[2] / "crds" / "cascadeservices.yaml"
SETTLED = Step(kind="Settled", message="nothing to do", replicas={})
RECORD = samples.record()
NOW = samples.NOW


def running(
    spec: CascadeSpec | None = None, record: plan_record.PlanRecord = RECORD, **fields: Any
) -> Observation:
    """Every planned pod Ready, one router pod that runs the plan, drift-watch alive."""
    spec = spec or samples.spec()
    sets = []
    for model in record.plan.models:
        planned = model.sets[0]
        name = manifests.set_identity(spec, model.name, planned)
        pods = [
            samples.pod(f"{name}-{i}", name, gpus=planned.tensor) for i in range(planned.replicas)
        ]
        sets.append(samples.set_view(name, model.name, pods, gpus_per_pod=planned.tensor))
    in_service = {s.model: [(s.name, 1.0)] for s in sets}
    config = router_config.build(spec, record, in_service, {}, samples.settings())
    router = RouterView(
        exists=True,
        desired=1,
        ready_pods=("chat-router-1",),
        acks=(AckView("chat-router-1", record.revision, "digest", frozenset()),),
        config_text=router_config.text(config),
    )
    drift = {"verdict": "Stable", "lastUpdate": status_fields.timestamp(NOW - 30)}
    given = {"sets": tuple(sets), "router": router, "drift": drift, **fields}
    return samples.observation(plan_record.Stored(record=record), **given)


def summarise(observation: Observation | None = None, **given: Any) -> dict[str, Any]:
    record = given.get("record", RECORD)
    arguments: dict[str, Any] = {
        "spec": samples.spec(),
        "spec_errors": (),
        "observation": observation or running(),
        "record": record,
        "decision": planning.KeepPlan(record, "Unchanged", ""),
        "step": SETTLED,
        "errors": (),
        "now": NOW,
        **given,
    }
    return conditions.summarise(**arguments)


def verdicts(status: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: f"{c['status']}/{c['reason']}" for c in status["conditions"]}


def message(status: dict[str, Any], kind: str) -> str:
    return str(next(c["message"] for c in status["conditions"] if c["type"] == kind))


def with_plan(**fields: Any) -> plan_record.PlanRecord:
    return samples.record(plan=samples.plan(**fields))


def with_pod(observation: Observation, model: str, **fields: Any) -> Observation:
    """The first pod of a model changed; the others as they are."""
    sets = tuple(
        dataclasses.replace(s, pods=(dataclasses.replace(s.pods[0], **fields), *s.pods[1:]))
        if s.model == model
        else s
        for s in observation.sets
    )
    return dataclasses.replace(observation, sets=sets)


def starting() -> Observation:
    """The plan's sets exist, no pod is Ready yet."""
    view = running()
    pods = tuple(
        dataclasses.replace(s, pods=tuple(dataclasses.replace(p, ready=False) for p in s.pods))
        for s in view.sets
    )
    return dataclasses.replace(view, sets=pods)


def test_cascade_that_runs() -> None:
    assert verdicts(summarise()) == {
        "Ready": "True/Serving",
        "Reconciling": "False/Settled",
        "Stalled": "False/Progressing",
        "PlanReady": "True/Feasible",
        "PlanApplied": "True/Applied",
        "ModelsReady": "True/ModelsReady",
        "RouterReady": "True/RouterReady",
        "QualityMet": "True/Predicted",
        "DriftWatchHealthy": "True/Fresh",
    }


def test_first_sight_has_all_conditions() -> None:
    status = summarise(
        samples.observation(), record=None, decision=planning.KeepPlan(None, "Unchanged", ""),
        step=None,
    )  # fmt: skip
    assert list(verdicts(status)) == list(conditions.ORDER)
    assert verdicts(status)["Ready"].startswith("False/")


def uncalibrated() -> plans.Plan:
    nothing = plans.QualityForecast(
        predicted=None, all_last=None, all_first=None, best_reachable=None
    )
    return samples.plan(verdict="Uncalibrated", quality=nothing, meets_qmin=None)


def unreachable() -> plans.Plan:
    short = plans.QualityForecast(
        predicted=71.2, all_last=71.2, all_first=60.0, best_reachable=71.2
    )
    return samples.plan(verdict="QualityUnreachable", quality=short, meets_qmin=False)


# fmt: off
STALE = samples.plan(verdict="StaleCalibration", details=(
    "calibration table is stale: weights or engine of model small changed (a -> b)",))
BETTER = "small 1 x TP8, large 1 x TP4 has p95 2.0 s and needs downtime"
BLOCKED = Step(kind="Blocked", message="no order of moves fits", replicas={},
               blocked_reason="NeedsDowntime")
LATE = Step(kind="AwaitReady", message="waiting for chat-small-1-0", replicas={},
            deadline_passed=True, blocking_pod="chat-small-1-0",
            blocking_reason="ImagePullBackOff: no such image")
WAITING_FOR_OTHERS = Step(kind="Blocked", message="only 4 GPUs are free", replicas={},
                          blocked_reason="InsufficientGPUs")
MOVING = Step(kind="Drain", message="draining chat-large-1-1", replicas={})
SHORT = errors.InsufficientGpusError("needs at least 3 GPUs, the pool offers 2", 3, 2)
REFUSED_TABLE = planning.Refuse("InvalidCalibration", "c/table.csv: row 2, column small.score: x")
ELDER = samples.pool(elder="demo/first", others=10)
FOREIGN_ELDER = samples.pool(elder="neighbour/secret", others=10)
PULL = {"ready": False, "waiting_reason": "ImagePullBackOff", "message": "no such image"}

BAD_INPUT = [
    pytest.param(
        {"observation": running(), "errors": (errors.UnknownModelError("unknown GPU type 'H9'"),)},
        {"PlanReady": "False/UnknownModel", "Stalled": "True/UnknownModel",
         "Ready": "True/Serving"},
        ("PlanReady", ["H9", "aaaaaaaaaa stays in force"]), id="unknown GPU type"),
    pytest.param(
        {"errors": (errors.InfeasibleError("large: TP1 needs 140 GB, a GPU has 80"),)},
        {"PlanReady": "False/Infeasible", "Stalled": "True/Infeasible"},
        ("Stalled", ["large", "140 GB"]), id="model that fits no node"),
    pytest.param(
        {"record": samples.record(plan=unreachable())},
        {"PlanReady": "True/QualityUnreachable", "QualityMet": "False/QualityUnreachable",
         "Ready": "True/Serving", "Stalled": "False/Progressing"},
        ("QualityMet", ["75", "71.2"]), id="qmin above what the models reach"),
    pytest.param(
        {"record": None, "step": None, "observation": samples.observation(),
         "decision": planning.Refuse("InsufficientGPUs", "pool default: limit 0")},
        {"PlanReady": "False/InsufficientGPUs", "Stalled": "True/InsufficientGPUs"},
        ("PlanReady", ["limit 0"]), id="empty pool"),
    pytest.param(
        {"decision": REFUSED_TABLE},
        {"PlanReady": "False/InvalidCalibration", "Ready": "True/Serving"},
        ("PlanReady", ["row 2", "small.score", "stays in force"]), id="wrong calibration table"),
    pytest.param(
        {"observation": running(pool=ELDER), "errors": (SHORT,)},
        {"PlanReady": "False/InsufficientGPUs"},
        ("PlanReady", ["3 GPUs", "the older cascade first"]), id="two cascades, one namespace"),
    pytest.param(
        {"record": with_plan(needs_downtime=BETTER)},
        {"PlanApplied": "False/NeedsDowntime", "Ready": "True/Serving",
         "Stalled": "False/Progressing"},
        ("PlanApplied", [BETTER, "rollout.allowDowntime"]), id="plan that only downtime reaches"),
    pytest.param(
        {"step": BLOCKED},
        {"PlanApplied": "False/NeedsDowntime", "Stalled": "True/NeedsDowntime"},
        ("PlanApplied", ["no order of moves"]), id="hand-over that needs downtime"),
    pytest.param(
        {"observation": with_pod(starting(), "small", **PULL), "step": LATE},
        {"ModelsReady": "False/ImagePullFailed", "Ready": "False/ImagePullFailed",
         "Stalled": "True/PodNotReady", "Reconciling": "False/PodNotReady"},
        ("Stalled", ["chat-small-1-0", "ImagePullBackOff"]), id="image that never gets ready"),
    pytest.param(
        {"spec": None, "spec_errors": (
            errors.Fault("spec.models[0].architecture", "gpt-9", "known: llama-3-8b"),),
         "record": None, "decision": None, "step": None},
        {"Stalled": "True/InvalidSpec", "PlanReady": "False/InvalidSpec",
         "Ready": "False/InvalidSpec"},
        ("Stalled", ["spec.models[0].architecture", "gpt-9", "llama-3-8b"]),
        id="unknown architecture"),
]
OTHER = [
    pytest.param(
        {"record": samples.record(plan=uncalibrated())},
        {"PlanReady": "True/Uncalibrated", "QualityMet": "Unknown/Uncalibrated",
         "Ready": "True/Serving"},
        ("PlanReady", ["cascade-router calibrate", "chat-calibration/table.csv"]),
        id="uncalibrated"),
    pytest.param(
        {"record": samples.record(plan=STALE)},
        {"PlanReady": "True/StaleCalibration", "QualityMet": "Unknown/StaleCalibration"},
        ("PlanReady", ["model small changed"]), id="stale table"),
    pytest.param(
        {"step": WAITING_FOR_OTHERS},
        {"PlanApplied": "False/InsufficientGPUs", "Reconciling": "True/Moving",
         "Stalled": "False/Progressing"},
        ("PlanApplied", ["4 GPUs are free"]), id="GPUs promised to others"),
    pytest.param(
        {"step": dataclasses.replace(MOVING, kind="AwaitGone", deadline_passed=True)},
        {"Stalled": "True/GPUHeldByOldPod"}, ("Stalled", ["draining"]), id="pod that never ends"),
    pytest.param(
        {"step": dataclasses.replace(MOVING, kind="Publish", deadline_passed=True)},
        {"Stalled": "True/RouterNotAcknowledging"}, ("Stalled", ["draining"]), id="router silent"),
    pytest.param(
        {"step": MOVING},
        {"Reconciling": "True/Moving", "PlanApplied": "False/InProgress", "Ready": "True/Serving"},
        ("Reconciling", ["draining chat-large-1-1"]), id="hand-over under way"),
    pytest.param(
        {"errors": (errors.PlanningFailedError("planning took longer than 60 s"),)},
        {"Reconciling": "True/Retrying", "Stalled": "False/Progressing",
         "PlanReady": "False/PlanningFailed"},
        ("Reconciling", ["60 s"]), id="planner out of time"),
    pytest.param(
        {"errors": (TimeoutError("API server did not answer"),)},
        {"Reconciling": "True/Retrying", "Stalled": "False/Progressing",
         "PlanReady": "True/Feasible"},
        ("Reconciling", ["API server"]), id="API error"),
    pytest.param(
        {"decision": planning.KeepPlan(RECORD, "AwaitingApproval", "annotate with x=bbb")},
        {"PlanApplied": "False/AwaitingApproval", "Ready": "True/Serving"},
        ("PlanApplied", ["x=bbb"]), id="proposal waits"),
    pytest.param(
        {"decision": planning.KeepPlan(RECORD, "Paused", "planPolicy.paused: the spec changed")},
        {"PlanApplied": "False/Paused", "Reconciling": "False/Settled"},
        ("PlanApplied", ["the spec changed"]), id="paused"),
    pytest.param(
        {"observation": starting()},
        {"ModelsReady": "False/Starting", "Ready": "False/Starting"},
        ("ModelsReady", ["model small", "needs 1", "waiting for pod"]), id="engines start"),
    pytest.param(
        {"observation": with_pod(running(), "small", ready=False,
                                 waiting_reason="CrashLoopBackOff")},
        {"ModelsReady": "False/CrashLoop", "Ready": "False/CrashLoop"},
        ("ModelsReady", ["-0: CrashLoopBackOff"]), id="one of two replicas crashes"),
    pytest.param(
        {"observation": with_pod(running(), "large", lost=True)},
        {"ModelsReady": "False/NodeLost"},
        ("ModelsReady", ["its node is not Ready"]), id="node lost"),
    pytest.param(
        {"observation": running(router=RouterView(True, 2, (), (), message="no image"))},
        {"RouterReady": "False/RouterStarting", "Ready": "False/RouterStarting"},
        ("RouterReady", ["no image"]), id="router not ready"),
    pytest.param(
        {"observation": running(router=RouterView(
            True, 1, ("r-1",), (AckView("r-1", "p", "d", frozenset(), error="models: empty"),)))},
        {"RouterReady": "False/ConfigRefused"},
        ("RouterReady", ["r-1", "models: empty"]), id="router refuses the plan"),
    pytest.param(
        {"step": dataclasses.replace(MOVING, bypassed=("large",))},
        {"QualityMet": "False/Bypassed"}, ("QualityMet", ["large"]), id="declared downtime"),
    pytest.param(
        {"spec": samples.spec(qmin=85)},
        {"QualityMet": "False/Predicted"}, ("QualityMet", ["81.4", "85"]),
        id="qmin raised, new plan not there yet"),
    pytest.param(
        {"observation": running(drift={"lastUpdate": status_fields.timestamp(NOW - 7200)})},
        {"DriftWatchHealthy": "False/Stale", "Ready": "True/Serving"},
        ("DriftWatchHealthy", ["drift-watch running"]), id="drift-watch silent"),
    pytest.param(
        {"observation": running(drift={})},
        {"DriftWatchHealthy": "Unknown/Waiting"}, ("DriftWatchHealthy", ["nothing yet"]),
        id="drift-watch not heard of"),
    pytest.param(
        {"spec": samples.spec(drift={"mode": "Off"}), "observation": running(drift={})},
        {"DriftWatchHealthy": "True/Off"}, ("DriftWatchHealthy", ["Off"]), id="drift-watch off"),
    pytest.param(
        {"observation": running(drift={}), "is_drift_watch_installed": False},
        {"DriftWatchHealthy": "Unknown/Off", "Ready": "True/Serving",
         "Reconciling": "False/Settled", "Stalled": "False/Progressing"},
        ("DriftWatchHealthy", ["not installed", "driftWatch.enabled"]),
        id="drift-watch not installed"),
    pytest.param(
        {"observation": running(drift={"lastUpdate": status_fields.timestamp(NOW - 7200)}),
         "is_drift_watch_installed": False},
        {"DriftWatchHealthy": "Unknown/Off", "Ready": "True/Serving"},
        ("DriftWatchHealthy", ["not installed"]), id="drift-watch taken away"),
]
# fmt: on


@pytest.mark.parametrize(("given", "expected", "told"), [*BAD_INPUT, *OTHER])
def test_conditions(
    given: dict[str, Any], expected: dict[str, str], told: tuple[str, list[str]]
) -> None:
    status = summarise(**given)
    found = verdicts(status)
    assert {kind: found[kind] for kind in expected} == expected
    assert [word for word in told[1] if word not in message(status, told[0])] == []


@pytest.mark.parametrize(
    ("free", "told"),
    [
        ((2, 3), "it needs 4 GPUs on one node, free are node-0 2, node-1 3"),
        ((1, 1), ""),
        ((4,), ""),
    ],
    ids=["fragments", "too few in all", "room on one node"],
)
def test_free_gpus_in_fragments_are_named(free: tuple[int, ...], told: str) -> None:
    pending = with_pod(
        running(), "large", node=None, ready=False, gpus=4, waiting_reason="Unschedulable",
        message="0/2 nodes are available",
    )  # fmt: skip
    view = dataclasses.replace(pending, pool=samples.pool(nodes=samples.nodes(*free)))
    words = message(summarise(view), "ModelsReady")
    assert "0/2 nodes are available" in words
    assert told in words and ("on one node" in words) == bool(told)


def test_cascade_of_another_namespace_is_never_named() -> None:
    status = summarise(running(pool=FOREIGN_ELDER), errors=(SHORT,))
    assert "secret" not in json.dumps(status)


def test_every_condition_speaks_of_this_generation() -> None:
    status = summarise(running(generation=8))
    assert status["observedGeneration"] == 8
    assert {c["observedGeneration"] for c in status["conditions"]} == {8}


def test_transition_time_moves_with_the_status_only() -> None:
    first = summarise(now=NOW)
    later = running(status=first, generation=4)
    second = summarise(later, step=MOVING, now=NOW + 600)
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    changed = {kind for kind, time in times.items() if time != status_fields.timestamp(NOW)}
    assert changed == {"Reconciling", "PlanApplied"}
    assert times["PlanApplied"] == status_fields.timestamp(NOW + 600)


def test_second_pass_writes_nothing() -> None:
    first = summarise(now=NOW)
    view = running(status=first, now=NOW + 60)
    assert summarise(view, now=NOW + 60) == first


def test_applied_is_the_plan_that_runs_not_the_newest() -> None:
    before = {"plan": {"applied": "older"}}
    moving = summarise(running(status=before), step=MOVING)["plan"]
    assert (moving["revision"], moving["applied"]) == ("aaaaaaaaaa", "older")
    assert moving["move"] == MOVING.message
    settled = summarise(running(status=before))["plan"]
    assert settled["applied"] == "aaaaaaaaaa"
    assert "move" not in settled


def test_summary_lines() -> None:
    assert summarise()["summary"] == {
        "quality": "81.4/75 predicted",
        "gpus": "12/12",
        "thresholds": "small=60",
        "drift": "Stable",
    }
    assert summarise(record=samples.record(plan=uncalibrated()))["summary"]["quality"] == (
        "?/75 uncalibrated"
    )


def test_models_show_the_plan_and_what_is_there() -> None:
    view = with_pod(running(), "small", **PULL)
    small, large = summarise(view)["models"]
    assert (small["shape"], small["replicas"], small["readyReplicas"]) == ("2 x TP2 on H100", 2, 1)
    assert "ImagePullBackOff" in small["blockedBy"]
    assert (large["readyReplicas"], large["visitRatioPercent"]) == (2, 40)
    assert "blockedBy" not in large and "threshold" not in large


def test_ready_replicas_of_an_outdated_set_do_not_count_as_planned() -> None:
    spec = samples.spec(
        [samples.model("small", engine={"args": ["--enable-cache-report"]}), samples.model("large")]
    )
    small, large = summarise(running(), spec=spec)["models"]
    assert (small["readyReplicas"], large["readyReplicas"]) == (0, 2)


def test_thresholds_in_force_are_the_routers() -> None:
    steered = samples.model_plan("small", samples.planned_set(), threshold=50, steer_quantile=0.5)
    record = samples.record(plan=samples.plan(models=(steered, samples.plan().models[1])))
    status = summarise(running(record=record), record=with_plan(qmin=80))
    assert status["thresholds"] == [{"model": "small", "score": 50, "steerPercentile": 50}]


def ending() -> PodView:
    return samples.pod("chat-small-0-9", "chat-small-0", gpus=4, terminating=True)


def test_ledger_counts_terminating_pods_and_replicas_without_a_pod() -> None:
    view = running()
    grown = dataclasses.replace(view.sets[0], replicas=3)
    leaving = samples.set_view("chat-small-0", "small", [ending()], replicas=0, deleting=True)
    pool = summarise(dataclasses.replace(view, sets=(grown, view.sets[1], leaving)))["gpus"][
        "pools"
    ]
    assert (pool[0]["held"], pool[0]["promised"], pool[0]["committed"]) == (16, 2, 18)
    assert (pool[0]["allocatable"], pool[0]["limit"]) == (16, 12)


def test_namespaced_ledger_says_that_it_trusts_the_limit() -> None:
    gpus = summarise(running(pool=samples.pool(nodes=())))["gpus"]
    assert gpus["basis"] == "Declared"
    assert "allocatable" not in gpus["pools"][0]


def live(counts: list[int], visits: int) -> dict[str, Any]:
    models = [
        {"name": "small", "visits": sum(counts), "scoreCounts": counts},
        {"name": "large", "visits": visits},
    ]
    return {"verdict": "Stable", "window": samples.window(models=models)}


def with_last_score(score: float | None) -> plan_record.PlanRecord:
    small, large = samples.plan().models
    last = large.model_copy(update={"mean_final_score": score})
    return with_plan(models=(small, last))


def test_routed_quality_counts_accepted_scores_and_the_last_models_mean() -> None:
    # Threshold 60: 30 answers at 60-69 and 10 at 90-100 are accepted, 40 are passed on.
    view = running(drift=live([0, 0, 0, 0, 40, 0, 30, 0, 0, 10], 40))
    routed = summarise(view, record=with_last_score(80.0))["quality"]["routed"]
    assert routed == {"score": f"{(30 * 64.5 + 10 * 95 + 40 * 80) / 80:.1f}", "biased": True}
    assert "routed" not in summarise(view, record=with_last_score(None))["quality"]


@pytest.mark.parametrize(("before", "shown"), [("75.0", "75.0"), ("60.0", "76.1")])
def test_measured_quality_changes_by_5_percent_or_not_at_all(before: str, shown: str) -> None:
    view = running(
        drift=live([0, 0, 0, 0, 40, 0, 30, 0, 0, 10], 40),
        status={"quality": {"routed": {"score": before, "biased": True}}},
    )
    status = summarise(view, record=with_last_score(80.0))
    assert status["quality"]["routed"]["score"] == shown


def test_proposal_is_shown_with_its_revision() -> None:
    proposal = plan_record.Proposal(
        plan=samples.plan(), revision="bbbbbbbbbb", reason="SpecChanged", reasons=("the spec",)
    )
    data = plan_record.to_data(plan_record.Stored(proposal=proposal))
    view = running(proposal_text=data[plan_record.PROPOSAL_KEY])
    proposed = summarise(view)["plan"]["proposed"]
    assert (proposed["revision"], proposed["reasons"]) == ("bbbbbbbbbb", ["the spec"])


@functools.cache
def status_schema() -> dict[str, Any]:
    """The CRD's status schema, closed: an unknown field would be pruned silently."""
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["status"]

    def close(node: Any) -> None:
        if isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node:
                node["additionalProperties"] = False
            for value in node.values():
                close(value)

    close(schema)
    return schema


@pytest.mark.parametrize("given", [p.values[0] for p in (*BAD_INPUT, *OTHER)])
def test_status_is_what_the_schema_of_the_crd_describes(given: dict[str, Any]) -> None:
    jsonschema.validate(summarise(**given), status_schema())


def test_status_of_a_cascade_with_everything_is_described_by_the_schema() -> None:
    workload = samples.workload(effective_size=312.4)
    report = plans.SearchReport(
        rounds=4, candidates=90, simulations=30, converged=True, proven_gap_percent=0.4
    )
    small, large = samples.plan().models
    last = large.model_copy(update={"mean_final_score": 80.0})
    record = with_plan(
        models=(small, last), needs_downtime=BETTER, workload=workload, search=report
    )
    proposal = plan_record.Proposal(plan=samples.plan(), revision="b", reason="SpecChanged")
    data = plan_record.to_data(plan_record.Stored(proposal=proposal))
    view = with_pod(
        running(
            record=record,
            drift=live([0, 0, 0, 0, 40, 0, 30, 0, 0, 10], 40),
            pool=ELDER,
            proposal_text=data[plan_record.PROPOSAL_KEY],
        ),
        "small",
        **PULL,
    )
    status = summarise(view, record=record, step=MOVING)
    jsonschema.validate(status, status_schema())
    assert set(status["plan"]) >= {"effectiveSampleSize", "needsDowntime", "proposed", "move"}


def test_every_reason_given_is_one_of_the_documented_words() -> None:
    documented = {v for k, v in vars(reasons).items() if k.isupper()}
    documented |= set(plans.Verdict.__args__)
    documented |= {each.reason for each in errors.PlanningError.__subclasses__()}
    given = {
        found.split("/")[1]
        for p in (*BAD_INPUT, *OTHER)
        for found in verdicts(summarise(**p.values[0])).values()
    }
    assert given <= documented


def test_no_token_of_a_spec_reaches_status() -> None:
    env = [{"name": "API_TOKEN", "value": "s3cr3t"}]
    raw = samples.body([samples.model("small", engine={"env": env}), samples.model("large")])
    assert "s3cr3t" not in json.dumps(summarise(spec=parse(raw)))
