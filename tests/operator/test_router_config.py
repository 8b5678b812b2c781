"""RouterConfig for a plan in force: thresholds, sets, judge, escalation budgets, windows."""

from typing import Any

import pytest

from cascade_operator import judge, plan_record, router_config
from cascade_router.config import RouterConfig, SelfTable
from cascade_router.isotonic import apply
from tests.operator import samples

SETS = {"small": [("chat-small-1", 6.0)], "large": [("chat-large-1", 2.0)]}
TABLE = SelfTable(signal=(0.1, 0.9), score=(20.0, 95.0))


def build(
    spec: Any = None, record: plan_record.PlanRecord | None = None, **arguments: Any
) -> RouterConfig:
    given = {"sets_in_service": SETS, "leaving_pods": {}, "settings": samples.settings()}
    return router_config.build(
        spec or samples.spec(), record or samples.record(), **{**given, **arguments}
    )


def test_document_says_what_the_plan_says() -> None:
    config = build()
    assert config.plan_id == "aaaaaaaaaa"
    assert [(m.name, m.threshold, m.visit_ratio) for m in config.models] == [
        ("small", 60, 1.0),
        ("large", None, 0.4),
    ]
    assert [(s.name, s.weight) for m in config.models for s in m.sets] == [
        ("chat-small-1", 6.0),
        ("chat-large-1", 2.0),
    ]
    assert config.models[1].service == "chat-large"
    assert config.models[1].service_url == "http://chat-large.demo.svc:30000"
    assert config.input_edges == samples.plan().workload.input_edges


@pytest.mark.parametrize(
    ("time_scale", "replicas", "expected"),
    [
        pytest.param(1.0, 1, 4.0, id="2 replicas of 2 requests per second"),
        pytest.param(10.0, 1, 40.0, id="ten times as fast"),
        pytest.param(1.0, 4, 1.0, id="shared by four router pods"),
    ],
)
def test_escalations_are_bounded_by_the_next_models_capacity(
    time_scale: float, replicas: int, expected: float
) -> None:
    config = build(
        samples.spec(router={"replicas": replicas}),
        settings=samples.settings(time_scale=time_scale),
    )
    first, last = config.models
    assert first.escalations_per_second is None
    assert last.escalations_per_second == pytest.approx(expected)
    assert last.escalation_burst >= 1


def test_windows_shrink_with_the_time_scale() -> None:
    spec = samples.spec(drift={"windowSeconds": 300, "sampleSize": 20})
    config = build(spec, settings=samples.settings(time_scale=10.0))
    assert (config.window.seconds, config.window.samples) == (30.0, 20)


def test_uncalibrated_thresholds_are_steered_unless_they_are_interim() -> None:
    steered = samples.model_plan("small", samples.planned_set(), threshold=50, steer_quantile=0.5)
    plan = samples.plan(models=(steered, samples.plan().models[1]), verdict="Uncalibrated")
    record = samples.record(plan=plan)
    assert build(record=record).models[0].steer_quantile == 0.5
    final = build(record=record, thresholds=plan.thresholds())
    assert final.models[0].steer_quantile == 0.5
    interim = build(record=record, thresholds={"small": 80}).models[0]
    assert (interim.threshold, interim.steer_quantile) == (80, None)


def test_last_model_never_has_a_threshold() -> None:
    assert build(thresholds={"small": 0, "large": 40}).models[1].threshold is None


def test_leaving_pods_are_named_in_a_stable_order() -> None:
    config = build(leaving_pods={"large": ("chat-large-1-1", "chat-large-1-0")})
    assert config.models[1].leaving_pods == ("chat-large-1-0", "chat-large-1-1")
    assert config.models[0].leaving_pods == ()


def test_judge_and_self_tables_are_those_of_the_plan() -> None:
    record = samples.record(judge_type="Self", self_tables={"small": TABLE})
    spec = samples.spec(judge={"rubric": "Be strict.", "onNoVerdict": "Accept"})
    config = build(spec, record)
    assert config.judge.type == "Self"
    assert (config.judge.rubric, config.judge.on_no_verdict) == ("Be strict.", "Accept")
    table = config.models[0].self_table
    assert table is not None and apply(table, 0.5) == apply(TABLE, 0.5)


def test_table_made_with_this_document_is_not_stale() -> None:
    spec = samples.spec()
    config = build(spec)
    models = ",".join(f"{m.name}={m.revision}" for m in config.models)
    text = samples.table(header=f"# template: {config.judge.template_id}\n# models: {models}\n")
    fitted = judge.read(text, spec.model_names, "table")
    assert judge.stale_reason(spec, fitted.table) == ""
    assert len(fitted.table.header.models) == 2


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param([], 131_072, id="as the architecture has it"),
        pytest.param(["--context-length", "8192"], 8192, id="two arguments"),
        pytest.param(["--context-length=4096"], 4096, id="one argument"),
    ],
)
def test_context_length(args: list[str], expected: int) -> None:
    models = [samples.model("small", engine={"args": args}), samples.model("large")]
    assert build(samples.spec(models)).models[0].context_length == expected


def test_limits_and_timeouts_of_the_spec_reach_the_router() -> None:
    router = {
        "timeouts": {"connectMilliseconds": 500, "firstByteSeconds": 9},
        "limits": {"bodyMebibytes": 2, "admittedRequests": 7},
        "whenUnavailable": "Skip",
        "forcedModels": "Refuse",
        "allowedEngineFields": ["priority"],
    }
    config = build(samples.spec(router=router))
    assert (config.timeouts.connect, config.timeouts.first_byte) == (0.5, 9.0)
    assert (config.limits.body_bytes, config.limits.admitted_requests) == (2 * 2**20, 7)
    assert config.when_unavailable == "Skip"
    assert config.allow_forced_model is False
    assert config.allowed_engine_fields == ("priority",)


def test_models_follow_the_plan_while_the_spec_is_ahead_of_it() -> None:
    spec = samples.spec([samples.model("tiny"), samples.model("small"), samples.model("huge")])
    assert [m.name for m in build(spec).models] == ["small", "large"]


def test_text_is_canonical_and_reads_back() -> None:
    text = router_config.text(build())
    assert text == router_config.text(build())
    assert RouterConfig.model_validate_json(text) == build()
