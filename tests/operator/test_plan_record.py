"""Plan ConfigMap: what is stored reads back, and unreadable content never stops a pass."""

import pytest

from cascade_operator import plan_record
from cascade_router.config import SelfTable
from tests.operator import samples


def stored() -> plan_record.Stored:
    record = samples.record(
        answered_drift="aaaaaaaaaa@10:00",
        drift_window=samples.window(),
        judge_type="Self",
        self_tables={"small": SelfTable(signal=(0.0, 1.0), score=(0.0, 100.0))},
        previous=samples.record().summary(),
    )
    proposal = plan_record.Proposal(plan=samples.plan(), revision="b", reason="SpecChanged")
    return plan_record.Stored(record=record, proposal=proposal, problem_text="{}")


def test_what_is_stored_reads_back() -> None:
    assert plan_record.read(samples.observation(stored())) == stored()


def test_text_is_the_same_for_the_same_plan_whatever_it_took_to_find() -> None:
    slow = samples.record(plan=samples.plan(timings={"solve": 3.0}))
    quick = samples.record(plan=samples.plan(timings={"solve": 1.0}))
    assert plan_record.to_data(plan_record.Stored(record=slow)) == plan_record.to_data(
        plan_record.Stored(record=quick)
    )


def test_annotations_show_revision_and_answered_drift() -> None:
    assert plan_record.annotations(stored()) == {
        plan_record.ANNOTATION_REVISION: "aaaaaaaaaa",
        plan_record.ANNOTATION_ANSWERED_DRIFT: "aaaaaaaaaa@10:00",
    }


def test_problem_too_large_for_a_configmap_is_left_out() -> None:
    large = plan_record.Stored(record=samples.record(), problem_text="x" * 2_000_000)
    data = plan_record.to_data(large)
    assert sum(len(text.encode()) for text in data.values()) < 2**20
    assert plan_record.PLAN_KEY in data


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        pytest.param("record_text", "{", "record.json", id="not JSON"),
        pytest.param("record_text", '{"schemaVersion": 9}', "schemaVersion", id="newer version"),
        pytest.param("plan_text", "{}", "record.json", id="plan of another version"),
        pytest.param("proposal_text", "[]", "proposal.json", id="proposal"),
    ],
)
def test_unreadable_document_counts_as_absent_and_is_reported(
    field: str, text: str, words: str
) -> None:
    found = plan_record.read(samples.observation(stored(), **{field: text}))
    absent = found.proposal if field == "proposal_text" else found.record
    assert absent is None
    assert words in found.fault
