"""What the operator writes is what drift-watch reads, and the other way round."""

import dataclasses
import json

from cascade_driftwatch import detect, planned, report, verdict
from cascade_operator import live_load, names, plan_record
from tests.driftwatch import traffic
from tests.operator import samples


def test_a_stored_plan_is_read_with_the_planners_numbers() -> None:
    stored = plan_record.Stored(record=samples.record())
    found = planned.parse(
        {
            "metadata": {"annotations": plan_record.annotations(stored)},
            "data": plan_record.to_data(stored),
        }
    )
    assert found is not None
    written = samples.plan().workload
    assert found.revision == samples.record().revision
    assert not found.is_steered
    for name in type(found.workload).model_fields:
        assert getattr(found.workload, name) == getattr(written, name), name


def test_an_uncalibrated_plan_is_known_as_steered() -> None:
    record = samples.record(plan=samples.plan(verdict="Uncalibrated"))
    stored = plan_record.Stored(record=record)
    found = planned.parse(
        {
            "metadata": {"annotations": plan_record.annotations(stored)},
            "data": plan_record.to_data(stored),
        }
    )
    assert found is not None and found.is_steered


def test_the_operator_finds_the_drift_that_was_written() -> None:
    shifted = dataclasses.replace(traffic.STATIONARY, requests=900.0, input_median=2500.0)
    record = samples.record()
    plan = traffic.plan(revision=record.revision)
    windows = traffic.row(traffic.STATIONARY, 4) + traffic.row(shifted, 3, first=4)
    joint = tuple((4,) * 10 for _ in range(5))
    counted = [w.model_copy(update={"input_score_counts": joint}) for w in windows]
    finding = verdict.find({}, plan, counted, detect.Limits(), 2100.0)
    entry = json.loads(json.dumps(report.entry(finding, 2100.0, 1.0)))
    stored = plan_record.Stored(record=record)
    observation = dataclasses.replace(samples.observation(stored), drift=entry)
    found = live_load.select(samples.spec(), observation, stored, record.inputs)
    assert found is not None and found.fresh
    assert found.identity == f"{record.revision}@{entry['since']}"
    assert 2.5 < found.rate < 3.5
    assert found.message == entry["message"]


def test_names_of_annotation_and_key_agree() -> None:
    assert planned.PLAN_KEY == plan_record.PLAN_KEY
    assert plan_record.ANNOTATION_REVISION == names.LABEL_PLAN
