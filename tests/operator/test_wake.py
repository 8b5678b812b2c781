"""Which changes start a pass, and whose."""

import copy
from typing import Any

import pytest

from cascade_operator import names, wake

CASCADE: dict[str, Any] = {
    "kind": "CascadeService",
    "metadata": {
        "name": "chat", "namespace": "demo", "uid": "u", "generation": 1, "resourceVersion": "1",
        "annotations": {},
    },
    "spec": {"gpuPool": [{"resourceName": "nvidia.com/gpu"}]},
    "status": {"drift": {"verdict": "Stable"}, "conditions": []},
}  # fmt: skip


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    after = copy.deepcopy(body)
    *parents, last = path.split("/")
    place = after
    for part in parents:
        place = place[part]
    place[last] = value
    return after


OF_CASCADES: dict[str, tuple[str, Any, bool]] = {
    "spec": ("metadata/generation", 2, True),
    "approval": (f"metadata/annotations/{'x'}", "1", False),
    "drift": ("status/drift", {"verdict": "Drifted"}, True),
    "own status": ("status/conditions", [{"type": "Ready"}], False),
    "deletion": ("metadata/deletionTimestamp", "now", True),
    "labels of a GitOps tool": ("metadata/labels", {"a": "b"}, False),
    "made anew under the same name": ("metadata/uid", "other", True),
}


@pytest.mark.parametrize(("path", "value", "expected"), OF_CASCADES.values(), ids=OF_CASCADES)
def test_changes_of_a_cascade(path: str, value: Any, expected: bool) -> None:
    assert wake.is_news(CASCADE, changed(CASCADE, path, value)) == expected


def test_an_approval_wakes() -> None:
    after = copy.deepcopy(CASCADE)
    after["metadata"]["annotations"][names.ANNOTATION_APPROVE] = "aaaaaaaaaa"
    assert wake.is_news(CASCADE, after)


CHILD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "demo", "resourceVersion": "1",
                 "labels": {names.LABEL_CASCADE: "chat"}},
    "status": {"phase": "Pending"},
}  # fmt: skip


def test_a_child_wakes_its_cascade_when_more_than_bookkeeping_changed() -> None:
    assert not wake.is_news(CHILD, changed(CHILD, "metadata/resourceVersion", "2"))
    assert wake.is_news(CHILD, changed(CHILD, "status/phase", "Running"))
    assert wake.is_news(CHILD, changed(CHILD, "metadata/deletionTimestamp", "now"))
    assert wake.is_news(None, CHILD)
    assert wake.is_news(CHILD, None)
    assert wake.cascade_of(CHILD) == ("demo", "chat")
    assert wake.cascade_of({"metadata": {"name": "p"}}) is None


NODE: dict[str, Any] = {
    "metadata": {"name": "n", "labels": {"gpu": "yes"}},
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "memory": "1Gi"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}],
    },
}
OF_NODES: dict[str, tuple[str, Any, bool]] = {
    "heartbeat": (
        "status/conditions", [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}], False,
    ),
    "lost": ("status/conditions", [{"type": "Ready", "status": "Unknown"}], True),
    "GPUs": ("status/allocatable", {"nvidia.com/gpu": "4", "memory": "1Gi"}, True),
    "memory": ("status/allocatable", {"nvidia.com/gpu": "8", "memory": "2Gi"}, False),
    "cordon": ("spec/unschedulable", True, True),
    "labels": ("metadata/labels", {"gpu": "no"}, True),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value", "expected"), OF_NODES.values(), ids=OF_NODES)
def test_changes_of_a_node(path: str, value: Any, expected: bool) -> None:
    assert wake.is_node_news(NODE, changed(NODE, path, value)) == expected


def test_others_on_the_same_gpus_are_woken_too() -> None:
    other = changed(CASCADE, "metadata/name", "other")
    amd = changed(changed(CASCADE, "metadata/name", "amd"), "spec/gpuPool",
                  [{"resourceName": "amd.com/gpu"}])  # fmt: skip
    assert wake.sharing(("demo", "chat"), [CASCADE, other, amd]) == [("demo", "other")]
    # A cascade that is gone left GPUs to whomever they suit.
    assert wake.sharing(("demo", "gone"), [other, amd]) == [("demo", "other"), ("demo", "amd")]
