"""Events: one per transition, none while nothing changes."""

from typing import Any

import pytest

from cascade_operator import events
from tests.operator import samples
from tests.operator.memory import MemoryCluster


def status(**conditions: str) -> dict[str, Any]:
    entries = [
        {"type": kind, "status": value, "reason": "Why", "message": "in words"}
        for kind, value in conditions.items()
    ]
    return {"conditions": entries}


TRANSITIONS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "first sight, not Ready": ({}, status(Ready="False", PlanReady="Unknown"), []),
    "Ready": (status(Ready="False"), status(Ready="True"), [events.READY]),
    "Ready as before": (status(Ready="True"), status(Ready="True"), []),
    "no longer Ready": (status(Ready="True"), status(Ready="False"), [events.NOT_READY]),
    "no plan": ({}, status(PlanReady="False"), [events.PLAN_INFEASIBLE]),
    "stalled": (status(Stalled="False"), status(Stalled="True"), [events.STALLED]),
    "no longer stalled": (status(Stalled="True"), status(Stalled="False"), []),
}


@pytest.mark.parametrize(("before", "after", "reasons"), TRANSITIONS.values(), ids=TRANSITIONS)
def test_transitions(before: dict[str, Any], after: dict[str, Any], reasons: list[str]) -> None:
    found = events.transitions(before, after)
    assert [happening.reason for happening in found] == reasons
    assert all("in words" in happening.message for happening in found)


def test_an_event_names_its_cascade_and_has_a_name_of_its_own() -> None:
    cascade = samples.body()
    happening = events.Happening(events.READY, "x" * 2000)
    first, second = (events.event(cascade, happening, "operator-0", now) for now in (1.0, 2.0))
    assert first["involvedObject"]["uid"] == cascade["metadata"]["uid"]
    assert len(first["message"]) == 1024
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_an_event_that_cannot_be_posted_stops_nothing() -> None:
    cluster = MemoryCluster()
    cluster.api.refusals = {"POST": events.errors.ApiRefusedError("POST", 403, "no")}
    recorder = events.Recorder(cluster.api, "operator-0", lambda: 1.0)  # type: ignore[arg-type]
    await recorder.post(samples.body(), events.Happening(events.READY, "words"))
    assert cluster.reasons() == []
