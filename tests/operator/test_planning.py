"""Planning: the problem that is stated, the identity of a plan, and when a new one is needed."""

import dataclasses
from typing import Any

import pytest

from cascade_operator import names, plan_record, planning
from cascade_operator.observation import Observation
from cascade_operator.spec import CascadeSpec
from cascade_solver import problem as problems
from tests.operator import samples

APPROVE = names.ANNOTATION_APPROVE
TABLE = samples.calibrated(samples.table())


def need(spec: CascadeSpec, observation: Observation, **settings: Any) -> planning.NeedPlan:
    decision = planning.decide(spec, observation, samples.settings(**settings))
    assert isinstance(decision, planning.NeedPlan), decision
    return decision


def keep(spec: CascadeSpec, observation: Observation, **settings: Any) -> planning.KeepPlan:
    decision = planning.decide(spec, observation, samples.settings(**settings))
    assert isinstance(decision, planning.KeepPlan), decision
    return decision


def refused(spec: CascadeSpec, observation: Observation) -> planning.Refuse:
    decision = planning.decide(spec, observation, samples.settings())
    assert isinstance(decision, planning.Refuse), decision
    return decision


def adopted(spec: CascadeSpec | None = None, **fields: Any) -> plan_record.Stored:
    """The plan ConfigMap after the first plan for this spec was adopted."""
    spec = spec or samples.spec()
    before = samples.observation(**fields)
    return planning.conclude(spec, before, need(spec, before), samples.plan())


def priced(price: str) -> CascadeSpec:
    """The usual spec with a price of its GPUs."""
    (pool,) = samples.body()["spec"]["gpuPool"]
    return samples.spec(gpuPool=[{**pool, "pricePerHour": price}])


def drifted(stored: plan_record.Stored, since: str = "10:00", **fields: Any) -> dict[str, Any]:
    """Fields of an observation in which drift-watch says that the traffic left the plan."""
    assert stored.record is not None
    window = fields.pop("window", samples.window(600))
    verdict = {
        "verdict": "Drifted",
        "observedPlan": stored.record.revision,
        "since": since,
        "window": window,
    }
    return {"drift": {**verdict, **fields}, "status": {"plan": {"applied": stored.record.revision}}}


def test_problem_holds_what_the_spec_asks_for() -> None:
    spec = samples.spec(
        [
            samples.model("small", minReplicas=2, maxGpus=4, kvTokens=900, pins={"tensor": 1}),
            samples.model("large", precision="FP8"),
        ],
        qmin=81,
        workload={"requestsPerMinute": 90, "inputTokens": {"mean": 10, "p95": 20}},
        search={"maxRounds": 7, "quantiles": 9},
        planPolicy={
            "pins": {
                "thresholds": [{"model": "small", "score": 70}],
                "gpus": [{"model": "large", "count": 8}],
            }
        },
        rollout={"allowDowntime": True},
    )
    problem = planning.build_problem(spec, samples.observation())
    small, large = problem.models
    assert (small.min_replicas, small.max_gpus, small.kv_tokens) == (2, 4, 900)
    assert small.pins == problems.Pins(tensor=1)
    assert (small.architecture, large.precision) == (samples.SMALL, "fp8")
    assert (problem.qmin, problem.workload.rate) == (81, 1.5)
    assert problem.workload.input_tokens == problems.LengthSummary(mean=10, p95=20)
    assert (problem.search.max_rounds, problem.search.quantiles) == (7, 9)
    assert problem.pinned_thresholds == {"small": 70}
    assert problem.pinned_gpus == {"large": 8}
    assert problem.allow_downtime is True
    assert problem.capabilities == problems.Capabilities(nodes_per_replica=1, shapes_per_model=1)
    assert problem.judge == problems.Judge(type="LLM", model="large")


@pytest.mark.parametrize(
    ("pool", "gpus", "free"),
    [
        pytest.param({}, 12, (8, 8), id="limit below the nodes"),
        pytest.param({"limit": 99}, 16, (8, 8), id="nodes below the limit"),
        pytest.param({"limit": 99, "others": 6}, 10, (8, 8), id="others hold 6"),
        pytest.param(
            {"limit": 99, "foreign": 6, "nodes": samples.nodes(8, 8, foreign=3)},
            10,
            (5, 5),
            id="foreign pods on each node",
        ),
        pytest.param(
            {
                "nodes": tuple(
                    dataclasses.replace(n, ready=n.name == "node-0") for n in samples.nodes(8, 8)
                )
            },
            8,
            (8,),
            id="a lost node",
        ),
        pytest.param({"nodes": (), "limit": 5}, 5, None, id="nodes cannot be read"),
    ],
)
def test_pool_is_what_the_limit_the_nodes_and_the_others_leave(
    pool: dict[str, Any], gpus: int, free: tuple[int, ...] | None
) -> None:
    view = samples.observation(pool=samples.pool(**pool))
    found = planning.build_problem(samples.spec(), view).pools[0]
    assert (found.gpus, found.free_per_node) == (gpus, free)


def test_table_and_plan_in_force_are_part_of_the_problem() -> None:
    stored = adopted()
    problem = planning.build_problem(samples.spec(), samples.observation(stored, calibration=TABLE))
    assert problem.calibration is not None
    assert len(problem.calibration.columns["small"].score) == 400
    assert problem.in_force is not None
    assert problem.in_force.thresholds == {"small": 60}
    assert problem.in_force.deployment["large"][0].tensor == 4


def test_plan_in_force_of_other_models_is_no_starting_point() -> None:
    spec = samples.spec([samples.model("tiny"), samples.model("large")])
    assert planning.build_problem(spec, samples.observation(adopted())).in_force is None


@pytest.mark.parametrize("has_plan", [False, True])
def test_stale_table_keeps_thresholds_once_there_are_any(has_plan: bool) -> None:
    stale = samples.calibrated(samples.table(header="# models: small=of-long-ago\n"))
    stored = adopted() if has_plan else None
    problem = planning.build_problem(samples.spec(), samples.observation(stored, calibration=stale))
    assert problem.calibration is not None
    assert "model small" in problem.calibration.stale
    assert problem.keep_thresholds is has_plan


def test_stale_table_keeps_the_judge_that_its_thresholds_belong_to() -> None:
    text = samples.table(signals=True, header="# models: small=of-long-ago\n")
    fields = {"calibration": samples.calibrated(text)}
    assert (
        planning.build_problem(samples.spec(), samples.observation(**fields)).judge.type == "Self"
    )
    view = samples.observation(adopted(), **fields)
    found = need(samples.spec(), view)
    assert found.problem.judge.type == "LLM"
    after = planning.conclude(samples.spec(), view, found, samples.plan()).record
    assert after is not None and after.judge_type == "LLM"


# -- identity of a plan ---------------------------------------------------------------------


def revision(spec: CascadeSpec | None = None, **fields: Any) -> str:
    problem = planning.build_problem(spec or samples.spec(), samples.observation(**fields))
    return planning.revision(problem)


def with_pods() -> dict[str, Any]:
    """Our own pods hold 4 GPUs of the first node."""
    busy = dataclasses.replace(samples.nodes(8)[0], ours=4)
    pods = [samples.pod(f"chat-small-1-{i}", "chat-small-1") for i in range(2)]
    pool = samples.pool(nodes=(busy, samples.nodes(8, 8)[1]))
    return {"pool": pool, "sets": (samples.set_view("chat-small-1", "small", pods),)}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"now": samples.NOW + 3600}, id="time"),
        pytest.param({"annotations": {"note": "x"}}, id="annotation"),
        pytest.param({"generation": 4}, id="generation"),
        pytest.param(with_pods(), id="GPUs of our own pods"),
        pytest.param({"status": {"plan": {"applied": "x"}}}, id="own status"),
        pytest.param({"drift": {"verdict": "Stable", "window": samples.window(61)}}, id="traffic"),
    ],
)
def test_revision_ignores_noise(fields: dict[str, Any]) -> None:
    assert revision(**fields) == revision()


def test_revision_counts_measured_step_times_in_steps_of_5_percent() -> None:
    def measured(factor: float) -> str:
        problem = planning.build_problem(samples.spec(), samples.observation())
        model = problem.models[0].model_copy(update={"step_time_factor": factor})
        return planning.revision(problem.model_copy(update={"models": (model, problem.models[1])}))

    assert measured(1.0) == measured(1.02)
    assert measured(1.0) != measured(1.1)


def test_adopting_a_plan_does_not_change_the_revision() -> None:
    stored = adopted()
    assert stored.record is not None
    problem = planning.build_problem(samples.spec(), samples.observation(stored))
    assert problem.in_force is not None
    assert planning.revision(problem) == stored.record.revision


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param(samples.spec(qmin=76), {}, id="qmin"),
        pytest.param(samples.spec(workload={"requestsPerMinute": 61}), {}, id="rate"),
        pytest.param(samples.spec(), {"pool": samples.pool(limit=11)}, id="limit"),
        pytest.param(samples.spec(), {"pool": samples.pool(nodes=samples.nodes(8, 4))}, id="nodes"),
        pytest.param(samples.spec(), {"calibration": TABLE}, id="table"),
    ],
)
def test_revision_changes_with_what_a_plan_depends_on(
    spec: CascadeSpec, fields: dict[str, Any]
) -> None:
    assert revision(spec, **fields) != revision()
    assert len(revision(spec, **fields)) == planning.REVISION_DIGITS


def test_the_price_reaches_the_planner_and_is_no_part_of_the_identity() -> None:
    plain, cheap, dear = (
        planning.build_problem(spec, samples.observation())
        for spec in (samples.spec(), priced("2.50"), priced("9"))
    )
    assert [p.pools[0].price_per_gpu_hour for p in (plain, cheap, dear)] == [None, 2.5, 9.0]
    assert planning.revision(plain) == planning.revision(cheap) == planning.revision(dear)


def test_another_price_keeps_the_plan() -> None:
    stored = adopted(priced("2.50"))
    assert keep(priced("9"), samples.observation(stored)).record == stored.record


# -- when to plan ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "fields", "reason"),
    [
        pytest.param(samples.spec(qmin=80), {}, "SpecChanged", id="qmin"),
        pytest.param(
            samples.spec(workload={"requestsPerMinute": 90}), {}, "SpecChanged", id="workload"
        ),
        pytest.param(samples.spec(judge={"type": "Self"}), {}, "SpecChanged", id="judge"),
        pytest.param(samples.spec(), {"calibration": TABLE}, "CalibrationChanged", id="table"),
        pytest.param(samples.spec(), {"pool": samples.pool(limit=16)}, "PoolChanged", id="pool"),
    ],
)
def test_changes_are_always_answered(
    spec: CascadeSpec, fields: dict[str, Any], reason: str
) -> None:
    found = need(spec, samples.observation(adopted(), **fields))
    assert (found.reason, found.adopts) == (reason, True)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        pytest.param(samples.spec(), {}, id="nothing"),
        pytest.param(samples.spec(), with_pods(), id="our pods start"),
        pytest.param(samples.spec(router={"replicas": 3}), {}, id="router"),
        pytest.param(
            samples.spec([samples.model("small", engine={"image": "x:1"}), samples.model("large")]),
            {},
            id="engine image: other sets, same plan",
        ),
        pytest.param(samples.spec(drift={"sampleSize": 60}), {}, id="drift-watch"),
        pytest.param(priced("2.50"), {}, id="price"),
    ],
)
def test_what_no_plan_depends_on_keeps_the_plan(spec: CascadeSpec, fields: dict[str, Any]) -> None:
    stored = adopted()
    assert keep(spec, samples.observation(stored, **fields)).record == stored.record


def test_first_plan_is_needed_at_once() -> None:
    found = need(samples.spec(), samples.observation())
    assert (found.reason, found.adopts, found.plan) == ("FirstPlan", True, None)


def test_unreadable_record_is_planned_again_and_told() -> None:
    found = need(samples.spec(), samples.observation(adopted(), record_text="{"))
    assert found.reason == "FirstPlan"
    assert "record.json" in found.why


def test_paused_keeps_the_plan_and_says_what_waits() -> None:
    spec = samples.spec(qmin=80, planPolicy={"paused": True})
    found = keep(spec, samples.observation(adopted()))
    assert found.reason == "Paused"
    assert "spec changed" in found.message


# -- drift ----------------------------------------------------------------------------------


def test_drift_is_planned_for_the_live_window() -> None:
    stored = adopted(calibration=TABLE)
    found = need(samples.spec(), samples.observation(stored, calibration=TABLE, **drifted(stored)))
    assert found.reason == "Drift"
    assert found.problem.workload.rate == 10.0
    assert found.problem.calibration is not None
    assert len(set(found.problem.calibration.weights)) > 1
    assert found.problem.keep_thresholds is False


def test_uncalibrated_drift_is_planned_for_the_windows_lengths() -> None:
    stored = adopted()
    window = samples.window(600, inputDeciles=[2000] * 9)
    found = need(samples.spec(), samples.observation(stored, **drifted(stored, window=window)))
    assert found.problem.workload.input_tokens == problems.LengthSummary(mean=2000, p95=2000)


def test_small_effective_sample_moves_gpus_only() -> None:
    stored = adopted(calibration=TABLE)
    rare = [0] * 9 + [40]
    window = samples.window(600, inputScoreCounts=[{"counts": rare}] + [{"counts": [0] * 10}] * 4)
    fields = drifted(stored, window=window)
    found = need(samples.spec(), samples.observation(stored, calibration=TABLE, **fields))
    assert found.problem.keep_thresholds is True


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        pytest.param({"drift": {"mode": "Report"}}, {}, id="mode Report"),
        pytest.param({"drift": {"mode": "Off"}}, {}, id="mode Off"),
        pytest.param({}, {"verdict": "Stable"}, id="stable"),
        pytest.param({}, {"verdict": "Unknown"}, id="unknown"),
        pytest.param({}, {"observedPlan": "another"}, id="verdict on an earlier plan"),
    ],
)
def test_no_plan_without_a_verdict_on_the_plan_in_force(
    spec: dict[str, Any], change: dict[str, Any]
) -> None:
    stored = adopted()
    fields = drifted(stored, **change)
    assert keep(samples.spec(**spec), samples.observation(stored, **fields)).reason == "Unchanged"


def test_drift_waits_for_the_move_under_way() -> None:
    stored = adopted()
    fields = drifted(stored) | {"status": {"plan": {"applied": "the one before"}}}
    assert keep(samples.spec(), samples.observation(stored, **fields)).reason == "MoveInProgress"


def answer_drift(
    stored: plan_record.Stored, before_seconds: float, in_force_rate: float = 600, **plan: Any
) -> plan_record.Stored:
    """The ConfigMap after a drift was answered ``before_seconds`` ago."""
    fields = drifted(stored, since="09:00", window=samples.window(in_force_rate))
    view = samples.observation(stored, now=samples.NOW - before_seconds, **fields)
    found = samples.plan(**{"objective": 2.0, "in_force_objective": 4.0, **plan})
    return planning.conclude(samples.spec(), view, need(samples.spec(), view), found)


@pytest.mark.parametrize(
    ("seconds", "spec", "scale", "waits"),
    [
        pytest.param(119, {}, 1.0, True, id="cooldown of the chart"),
        pytest.param(121, {}, 1.0, False, id="over"),
        pytest.param(121, {"drift": {"cooldownSeconds": 300}}, 1.0, True, id="of the spec"),
        pytest.param(13, {}, 10.0, False, id="ten times as fast"),
        pytest.param(1, {"drift": {"cooldownSeconds": 0}}, 1.0, False, id="none"),
    ],
)
def test_cooldown_between_two_drift_plans(
    seconds: float, spec: dict[str, Any], scale: float, waits: bool
) -> None:
    stored = answer_drift(adopted(), seconds)
    view = samples.observation(stored, **drifted(stored, window=samples.window(70)))
    decision = planning.decide(samples.spec(**spec), view, samples.settings(time_scale=scale))
    if waits:
        assert isinstance(decision, planning.KeepPlan)
        assert decision.reason == "Cooldown"
        assert decision.retry_after is not None and decision.retry_after > 0
    else:
        assert isinstance(decision, planning.NeedPlan)


def test_cooldown_is_skipped_when_the_plan_is_overloaded() -> None:
    stored = answer_drift(adopted(), 1)
    view = samples.observation(stored, **drifted(stored, window=samples.window(6000)))
    assert need(samples.spec(), view).reason == "Drift"


def test_cooldown_does_not_hold_back_a_spec_change() -> None:
    stored = answer_drift(adopted(), 1)
    view = samples.observation(stored, **drifted(stored))
    assert need(samples.spec(qmin=80), view).reason == "SpecChanged"


def test_a_verdict_is_answered_once_and_a_new_one_again() -> None:
    kept = answer_drift(adopted(), 1000, objective=4.0)
    same = samples.observation(kept, **drifted(kept, since="09:00"))
    assert keep(samples.spec(), same).reason == "Unchanged"
    new = samples.observation(kept, **drifted(kept, since="10:00"))
    assert need(samples.spec(), new).reason == "Drift"


@pytest.mark.parametrize(
    ("gain", "objective", "in_force", "adopts"),
    [
        pytest.param(10, 3.5, 4.0, True, id="12 % better"),
        pytest.param(10, 3.7, 4.0, False, id="8 % better"),
        pytest.param(5, 3.7, 4.0, True, id="8 % better, 5 % asked"),
        pytest.param(10, 9.0, None, True, id="plan in force overloaded"),
    ],
)
def test_hysteresis_of_a_drift_plan(
    gain: int, objective: float, in_force: float | None, adopts: bool
) -> None:
    stored = adopted()
    assert stored.record is not None
    spec = samples.spec(drift={"minimumGainPercent": gain})
    view = samples.observation(stored, **drifted(stored))
    found = samples.plan(
        objective=objective, in_force_objective=in_force, workload=samples.workload(rate=10.0)
    )
    after = planning.conclude(spec, view, need(spec, view), found).record
    assert after is not None
    assert (after.revision != stored.record.revision) is adopts
    # Kept or not: the load is known now, and the verdict does not ask again.
    assert after.plan.workload.rate == 10.0
    assert after.answered_drift == f"{stored.record.revision}@10:00"
    assert after.last_drift_at == samples.NOW


def test_kept_plan_is_measured_against_what_its_thresholds_did() -> None:
    stored = adopted()
    view = samples.observation(stored, **drifted(stored))
    found = samples.plan(objective=4.0, in_force_objective=4.0)
    after = planning.conclude(samples.spec(), view, need(samples.spec(), view), found).record
    assert after is not None
    assert after.plan.workload.escalation_ratio == {"small": pytest.approx(0.45)}
    assert after.plan.workload.mean_score["small"] == pytest.approx(58.5)
    assert "10 %" in after.reasons[-1]


def test_hysteresis_does_not_apply_to_a_spec_change() -> None:
    stored = adopted()
    spec = samples.spec(qmin=80)
    view = samples.observation(stored)
    found = samples.plan(objective=4.0, in_force_objective=4.0)
    after = planning.conclude(spec, view, need(spec, view), found).record
    assert after is not None and stored.record is not None
    assert after.revision != stored.record.revision
    assert after.previous == stored.record.summary()


def test_answered_load_stays_until_the_user_states_another() -> None:
    stored = answer_drift(adopted(), 1000)
    view = samples.observation(stored)
    assert planning.build_problem(samples.spec(qmin=80), view).workload.rate == 10.0
    other = samples.spec(workload={"requestsPerMinute": 120})
    assert planning.build_problem(other, view).workload.rate == 2.0
    calibrated = samples.observation(stored, calibration=TABLE)
    assert planning.build_problem(samples.spec(), calibrated).workload.rate == 1.0


# -- approval -------------------------------------------------------------------------------

PROPOSE = {"planPolicy": {"mode": "Propose"}}


def test_proposed_plan_waits_for_the_annotation_and_is_not_solved_twice() -> None:
    stored = adopted()
    spec = samples.spec(qmin=80, **PROPOSE)
    first = need(spec, samples.observation(stored))
    assert first.adopts is False
    better = samples.plan(objective=1.0)
    proposed = planning.conclude(spec, samples.observation(stored), first, better)
    assert proposed.record == stored.record
    assert proposed.proposal is not None

    waiting = keep(spec, samples.observation(proposed))
    assert waiting.reason == "AwaitingApproval"
    assert f"{APPROVE}={first.revision}" in waiting.message

    view = samples.observation(proposed, annotations={APPROVE: first.revision})
    approved = need(spec, view)
    assert (approved.adopts, approved.plan) == (True, better)
    after = planning.conclude(spec, view, approved, better)
    assert after.record is not None and after.record.revision == first.revision
    assert after.proposal is None


def test_approval_of_another_revision_adopts_nothing() -> None:
    spec = samples.spec(qmin=80, **PROPOSE)
    stored = adopted()
    proposed = planning.conclude(
        spec, samples.observation(stored), need(spec, samples.observation(stored)), samples.plan()
    )
    view = samples.observation(proposed, annotations={APPROVE: "bbbbbbbbbb"})
    assert keep(spec, view).reason == "AwaitingApproval"


def test_proposal_is_outdated_by_the_next_change() -> None:
    spec = samples.spec(qmin=80, **PROPOSE)
    view = samples.observation(adopted())
    proposed = planning.conclude(spec, view, need(spec, view), samples.plan())
    again = need(samples.spec(qmin=85, **PROPOSE), samples.observation(proposed))
    assert (again.adopts, again.plan) == (False, None)


def test_newer_windows_of_a_proposed_drift_change_nothing() -> None:
    stored = adopted()
    spec = samples.spec(**PROPOSE)
    view = samples.observation(stored, **drifted(stored))
    found = samples.plan(objective=1.0, in_force_objective=4.0)
    proposed = planning.conclude(spec, view, need(spec, view), found)
    assert proposed.proposal is not None
    newer = drifted(stored, window=samples.window(630))
    assert keep(spec, samples.observation(proposed, **newer)).reason == "AwaitingApproval"
    approval = {APPROVE: proposed.proposal.revision}
    approved = need(spec, samples.observation(proposed, annotations=approval, **newer))
    assert (approved.adopts, approved.plan) == (True, found)


def test_leaving_propose_adopts_what_was_proposed() -> None:
    stored = adopted()
    spec = samples.spec(qmin=80, **PROPOSE)
    view = samples.observation(stored)
    proposed = planning.conclude(spec, view, need(spec, view), samples.plan(objective=1.0))
    found = need(samples.spec(qmin=80), samples.observation(proposed))
    assert found.adopts is True
    assert found.plan == samples.plan(objective=1.0)


# -- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        pytest.param({"limit": 0}, ["limit", "0 GPUs"], id="limit 0"),
        pytest.param({"nodes": samples.nodes(0)}, ["no ready node"], id="nodes without GPUs"),
        pytest.param(
            {"others": 16, "elder": "demo/first"}, ["16 by other", "cascade first"], id="elder"
        ),
        pytest.param(
            {"foreign": 16, "nodes": samples.nodes(8, 8, foreign=8)}, ["16 are held"], id="foreign"
        ),
    ],
)
def test_empty_pool_is_refused_with_the_reason(pool: dict[str, Any], words: list[str]) -> None:
    found = refused(samples.spec(), samples.observation(pool=samples.pool(**pool)))
    assert found.reason == "InsufficientGPUs"
    assert [word for word in words if word not in found.message] == []


def test_cascade_of_another_namespace_is_not_named() -> None:
    pool = samples.pool(others=16, elder="neighbour/secret")
    assert "secret" not in refused(samples.spec(), samples.observation(pool=pool)).message


def test_wrong_table_is_refused_and_the_plan_in_force_stays() -> None:
    broken = samples.calibrated("request_id,small.score\nr,1\n")
    found = refused(samples.spec(), samples.observation(adopted(), calibration=broken))
    assert found.reason == "InvalidCalibration"
    assert "small.input_tokens" in found.message


def test_reasons_say_what_changed_and_why() -> None:
    stored = adopted()
    spec = samples.spec(qmin=80)
    view = samples.observation(stored)
    small = samples.model_plan("small", samples.planned_set(replicas=1), threshold=72)
    found = samples.plan(models=(small, samples.plan().models[1]), details=("large sets p95",))
    after = planning.conclude(spec, view, need(spec, view), found).record
    assert after is not None
    assert after.reasons == (
        "the spec changed",
        "small: 2 x TP2 on H100 -> 1 x TP2 on H100",
        "small: accept at 60 -> 72 points",
        "large sets p95",
    )
