"""A step's beginning and deadline survive the operator; progress does not extend them."""

import dataclasses

from cascade_operator import names, step

WAITING = step.Step("AwaitReady", "waiting for s-1", {"s": 2})


def annotations(found: step.Step) -> dict[str, str]:
    return {names.ANNOTATION_STEP: found.marker()}


def test_a_step_begins_when_it_is_first_seen_and_keeps_its_beginning() -> None:
    first = step.timed(WAITING, {}, 100.0, 30.0)
    assert (first.since, first.recheck_at, first.deadline_passed) == (100.0, 130.0, False)
    other_words = dataclasses.replace(WAITING, message="waiting for s-0", blocking_pod="s-0")
    later = step.timed(other_words, annotations(first), 120.0, 30.0)
    assert (later.since, later.marker()) == (100.0, first.marker())
    late = step.timed(WAITING, annotations(later), 130.0, 30.0)
    assert (late.deadline_passed, late.recheck_at) == (True, None)


def test_another_step_begins_anew() -> None:
    first = step.timed(WAITING, {}, 100.0, 30.0)
    for other in (
        dataclasses.replace(WAITING, replicas={"s": 3}),
        dataclasses.replace(WAITING, kind="AwaitGone"),
    ):
        assert step.timed(other, annotations(first), 120.0, 30.0).since == 120.0


def test_a_step_without_a_deadline_never_passes_it() -> None:
    settled = step.timed(step.Step("Settled", "", {}), {}, 100.0, None)
    assert (settled.deadline_passed, settled.recheck_at) == (False, None)


def test_an_edited_marker_counts_as_none() -> None:
    for text in ("", "{", "[]", '{"key": 1}', '{"key": "k", "since": "x"}'):
        assert step.started_at({names.ANNOTATION_STEP: text}, "k", 7.0) == 7.0
