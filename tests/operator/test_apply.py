"""The writes: nothing is written that is there already, and what somebody changed is noticed."""

import copy
from typing import Any

import pytest

from cascade_operator import apply, errors, kube, manifests, names
from tests.operator import samples
from tests.operator.memory import MemoryCluster

SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "chat-small",
        "namespace": "demo",
        "labels": {names.LABEL_CASCADE: "chat"},
        "ownerReferences": [{"uid": "uid-chat"}],
    },
    "spec": {"ports": [{"port": 30000}], "selector": {"a": "b"}},
}

CONTAINS: dict[str, tuple[Any, Any, bool]] = {
    "equal": ({"a": 1}, {"a": 1}, True),
    "defaults of the server": ({"a": 1, "b": 2}, {"a": 1}, True),
    "other value": ({"a": 2}, {"a": 1}, False),
    "missing": ({}, {"a": 1}, False),
    "empty left out": ({}, {"a": {}, "b": "", "c": [], "d": 0}, True),
    "list of objects with defaults": ([{"p": 1, "q": 2}], [{"p": 1}], True),
    "item too many": ([1, 2], [1], False),
    "item too few": ([1], [1, 2], False),
    "other shape": ("text", {"a": 1}, False),
}


@pytest.mark.parametrize(("live", "wanted", "expected"), CONTAINS.values(), ids=CONTAINS)
def test_contains(live: Any, wanted: Any, expected: bool) -> None:
    assert apply.contains(live, wanted) == expected


async def test_the_same_manifest_is_applied_once() -> None:
    cluster = MemoryCluster()
    assert await cluster.writer.apply(SERVICE)
    assert not await cluster.writer.apply(copy.deepcopy(SERVICE))
    assert cluster.writer.requests == 1


async def test_a_field_that_is_no_longer_rendered_is_applied_away() -> None:
    cluster = MemoryCluster()
    await cluster.writer.apply(SERVICE)
    smaller = copy.deepcopy(SERVICE)
    del smaller["spec"]["selector"]
    assert await cluster.writer.apply(smaller)


async def test_what_somebody_changed_is_put_right() -> None:
    cluster = MemoryCluster()
    await cluster.writer.apply(SERVICE)
    path = kube.SERVICE.path("demo", "chat-small")
    body = copy.deepcopy(cluster.api.objects[path])
    body["spec"]["selector"] = {"a": "c"}
    cluster.put(kube.SERVICE, body)
    assert await cluster.writer.apply(SERVICE)
    assert cluster.api.objects[path]["spec"]["selector"] == {"a": "b"}


async def test_a_value_that_the_server_writes_in_another_way_is_asked_about_once() -> None:
    cluster = MemoryCluster()
    await cluster.writer.apply(SERVICE)
    path = kube.SERVICE.path("demo", "chat-small")
    written = copy.deepcopy(cluster.api.objects[path])
    # The server keeps "1" where "1000m" was applied, and answers that nothing changed.
    written["spec"]["ports"] = [{"port": "30000"}]
    live = cluster.put(kube.SERVICE, written)

    async def unchanged(path: str, body: dict[str, Any], manager: str) -> dict[str, Any]:
        cluster.api.requests.append("PATCH")
        return copy.deepcopy(live)

    cluster.api.apply = unchanged  # type: ignore[method-assign]
    before = len(cluster.api.requests)
    assert [await cluster.writer.apply(SERVICE) for _ in range(3)] == [False, False, False]
    assert len(cluster.api.requests) == before + 1


async def test_only_own_children_of_kinds_that_come_and_go_are_pruned() -> None:
    cluster = MemoryCluster()
    foreign = copy.deepcopy(SERVICE)
    foreign["metadata"] |= {"name": "users-own", "ownerReferences": []}
    cluster.put(kube.SERVICE, foreign)
    table = copy.deepcopy(SERVICE) | {"kind": "ConfigMap"}
    table["metadata"] |= {"name": "chat-calibration"}
    cluster.put(kube.CONFIG_MAP, table)
    await cluster.writer.apply(SERVICE)
    assert await cluster.writer.prune("uid-chat", "demo", "chat", [SERVICE]) == 0
    assert await cluster.writer.prune("uid-chat", "demo", "chat", []) == 1
    assert kube.SERVICE.path("demo", "users-own") in cluster.api.objects
    assert kube.CONFIG_MAP.path("demo", "chat-calibration") in cluster.api.objects
    assert kube.SERVICE.path("demo", "chat-small") not in cluster.api.objects


async def test_a_models_disruption_budget_goes_when_one_replica_is_left() -> None:
    cluster = MemoryCluster()
    spec = samples.spec()

    def rendered(small: int) -> list[dict[str, Any]]:
        count = {"small": small, "large": 2}
        return manifests.render_cascade(spec, samples.settings(), samples.OWNER, count)

    def budgets() -> set[str]:
        found = {model: f"{spec.name}-{model}" for model in spec.model_names}
        path = kube.DISRUPTION_BUDGET.path
        return {m for m, name in found.items() if path(spec.namespace, name) in cluster.api.objects}

    for manifest in rendered(small=2):
        await cluster.writer.apply(manifest)
    assert budgets() == {"small", "large"}
    await cluster.writer.prune(spec.uid, spec.namespace, spec.name, rendered(small=1))
    assert budgets() == {"large"}


async def test_no_write_after_the_lease_may_be_lost() -> None:
    cluster = MemoryCluster()
    cluster.may_write = False
    with pytest.raises(errors.LeadershipLostError):
        await cluster.writer.apply(SERVICE)
    assert cluster.api.requests == []
