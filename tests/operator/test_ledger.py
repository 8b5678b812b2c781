"""The ledger: what is held, promised, free, and left to others."""

import dataclasses
from typing import Any

import pytest

from cascade_operator import ledger
from cascade_operator.observation import NodeView, PodView, PoolView, SetView


def pod(ordinal: int, **fields: Any) -> PodView:
    given: dict[str, Any] = {
        "name": f"s-{ordinal}", "uid": f"u{ordinal}", "set_name": "s", "node": "n1", "gpus": 2,
        "ready": True, "terminating": False,
    }  # fmt: skip
    return PodView(**{**given, **fields})


def of_set(replicas: int, *pods: PodView, **fields: Any) -> SetView:
    given: dict[str, Any] = {
        "name": "s", "uid": "s", "model": "small", "replicas": replicas, "gpus_per_pod": 2,
        "shape": {}, "render_version": 1, "pods": pods,
    }  # fmt: skip
    return SetView(**{**given, **fields})


COMMITTED = {
    "two running": (of_set(2, pod(0), pod(1)), 4),
    "no pod yet": (of_set(2), 4),
    "unbound Pending": (of_set(2, pod(0), pod(1, node=None, ready=False)), 4),
    "terminating counts until it is gone": (of_set(1, pod(0), pod(1, terminating=True)), 4),
    "the leaving pod is not the missing one": (of_set(1, pod(1, terminating=True)), 4),
    "finished holds nothing and is made anew": (of_set(1, pod(0, finished=True)), 2),
    "finished above the replicas": (of_set(0, pod(0, finished=True)), 0),
    "set deleted, pod still there": (of_set(3, pod(0), deleting=True), 2),
    "the controller knows of pods that are not seen yet": (of_set(0, status_replicas=2), 4),
    "status not behind": (of_set(2, pod(0), pod(1), status_replicas=2), 4),
}


@pytest.mark.parametrize(("view", "gpus"), COMMITTED.values(), ids=COMMITTED)
def test_committed(view: SetView, gpus: int) -> None:
    assert ledger.committed([view]) == gpus


NODES = (NodeView("n1", 8, 2, 4, True), NodeView("n2", 8, 0, 0, True))
POOL = PoolView("p", "H100", 16, 8, NODES, foreign=2, others=3)


def pool(**fields: Any) -> PoolView:
    return dataclasses.replace(POOL, **fields)


FREE: dict[str, tuple[PoolView, SetView, int]] = {
    "nodes bound": (pool(), of_set(2), 16 - 2 - 3 - 4),
    "limit bound": (pool(limit=6), of_set(2), 2),
    "over a lowered limit": (pool(limit=2), of_set(2), -2),
    "namespaced: the limit is all that is known": (pool(nodes=(), limit=9), of_set(2), 9 - 4),
    "a lost node has nothing to give": (
        pool(nodes=(NODES[0], dataclasses.replace(NODES[1], ready=False))),
        of_set(1, pod(0)),
        8 - 2 - 3 - 2,
    ),
    "a lost pod holds nothing on Ready nodes": (
        pool(nodes=(dataclasses.replace(NODES[0], ready=False), NODES[1]), foreign=0),
        of_set(1, pod(0, lost=True)),
        8 - 3,
    ),
    "a lost pod counts against the limit": (pool(limit=2), of_set(1, pod(0, lost=True)), 0),
}


@pytest.mark.parametrize(("view", "entry", "gpus"), FREE.values(), ids=FREE)
def test_free(view: PoolView, entry: SetView, gpus: int) -> None:
    assert ledger.free(view, (entry,)) == gpus


@pytest.mark.parametrize(
    ("view", "gpus"),
    [
        pytest.param(pool(), 11, id="nodes"),
        pytest.param(pool(limit=5), 5, id="limit"),
        pytest.param(pool(others=100), 0, id="never negative"),
        pytest.param(pool(nodes=(), limit=5), 5, id="namespaced"),
    ],
)
def test_usable(view: PoolView, gpus: int) -> None:
    assert view.usable == gpus


def quota(**fields: Any) -> ledger.Quota:
    return dataclasses.replace(ledger.Quota("q", hard=10, used=6), **fields)


LIMITS: dict[str, tuple[int | None, int, list[ledger.Quota], int, int]] = {
    "all there is": (None, 16, [], 0, 16),
    "the user's limit": (12, 16, [], 0, 12),
    "never more than there is": (32, 16, [], 0, 16),
    "quota less what others use of it": (None, 16, [quota()], 4, 10 - 2),
    "the least of all": (12, 16, [quota(), quota(hard=5, used=0)], 0, 4),
    "quota of other pods": (None, 16, [quota(scopes=("BestEffort",))], 0, 16),
    "quota of lasting pods": (None, 16, [quota(scopes=("NotTerminating",))], 6, 10),
    "quota of another priority": (None, 16, [quota(priority_classes=("low",))], 0, 16),
    "quota of this priority": (None, 16, [quota(priority_classes=("high",))], 0, 4),
}


@pytest.mark.parametrize(
    ("asked", "allocatable", "quotas", "ours", "expected"), LIMITS.values(), ids=LIMITS
)
def test_limit(
    asked: int | None, allocatable: int, quotas: list[ledger.Quota], ours: int, expected: int
) -> None:
    assert ledger.limit(asked, allocatable, quotas, ours, ["high"]) == expected


def test_a_quota_is_read_from_its_object() -> None:
    body = {
        "metadata": {"name": "gpus"},
        "spec": {
            "hard": {"requests.nvidia.com/gpu": "8"},
            "scopes": ["NotTerminating"],
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
                ]
            },
        },
        "status": {
            "hard": {"requests.nvidia.com/gpu": "8"},
            "used": {"requests.nvidia.com/gpu": "3"},
        },
    }
    found = ledger.quota_of(body, "nvidia.com/gpu")
    assert found == ledger.Quota("gpus", 8, 3, ("NotTerminating",), ("high",))
    assert ledger.quota_of(body, "amd.com/gpu") is None


def claim(**fields: Any) -> ledger.Claim:
    given: dict[str, Any] = {
        "key": "n/elder", "created": "2026-01-01T00:00:00Z", "uid": "a", "committed": 4,
        "planned": None, "refused": False, "ceiling": 12,
    }  # fmt: skip
    return ledger.Claim(**{**given, **fields})


PROMISED = {
    "an elder without a plan may take all that it is allowed to": (claim(), 12),
    "a plan says how much": (claim(planned=8), 8),
    "a dip in a hand-over is not free": (claim(planned=8, committed=2), 8),
    "what is held counts beyond the plan": (claim(planned=2, committed=6), 6),
    "refused: what it holds": (claim(refused=True), 4),
    "younger without a plan: what it holds": (claim(created="2026-01-03T00:00:00Z"), 4),
    "same second: the lesser UID is the elder": (claim(created="2026-01-02T00:00:00Z"), 12),
    "same second, greater UID": (claim(created="2026-01-02T00:00:00Z", uid="z"), 4),
    "on nodes of its own": (claim(planned=8, elsewhere=6), 2),
}


@pytest.mark.parametrize(("other", "gpus"), PROMISED.values(), ids=PROMISED)
def test_what_is_left_to_another_cascade(other: ledger.Claim, gpus: int) -> None:
    assert other.promised("2026-01-02T00:00:00Z", "m") == gpus
