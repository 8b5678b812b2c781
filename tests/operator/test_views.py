"""Kubernetes objects as the operator sees them."""

import base64
import gzip
from typing import Any

import pytest

from cascade_operator import names, views

POD: dict[str, Any] = {
    "metadata": {
        "name": "chat-small-1", "namespace": "demo", "uid": "u", "resourceVersion": "3",
        "labels": {names.LABEL_SET: "chat-small", names.LABEL_MODEL: "small"},
    },
    "spec": {
        "nodeName": "n1",
        "containers": [
            {"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}},
            {"resources": {"requests": {"nvidia.com/gpu": 1}}},
        ],
        "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}],
    },
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"restartCount": 2, "state": {"running": {}}}],
    },
}  # fmt: skip


def test_a_pod() -> None:
    view = views.pod_view(POD, "nvidia.com/gpu", frozenset({"n1"}))
    assert (view.set_name, view.ordinal, view.node, view.gpus) == ("chat-small", 1, "n1", 4)
    assert (view.ready, view.terminating, view.finished, view.lost) == (True, False, False, True)
    assert (view.restarts, view.waiting_reason) == (2, "")


WAITING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
UNSCHEDULABLE = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes",
}  # fmt: skip
COMPLAINTS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "kubelet": ({"containerStatuses": [WAITING]}, ("ImagePullBackOff", "no such image")),
    "nothing wrong yet": ({"containerStatuses": [CREATING]}, ("", "")),
    "scheduler": ({"conditions": [UNSCHEDULABLE]}, ("Unschedulable", "0/3 nodes")),
}


@pytest.mark.parametrize(("status", "expected"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_why_a_pod_does_not_start(status: dict[str, Any], expected: tuple[str, str]) -> None:
    view = views.pod_view({**POD, "status": status}, "nvidia.com/gpu", frozenset())
    assert (view.waiting_reason, view.message) == expected
    assert not view.ready


def test_of_foreign_pods_only_gpus_are_kept() -> None:
    kept = views.reduced_foreign_pod(POD)
    assert kept is not None
    assert (kept["node"], kept["held"], kept["finished"]) == ("n1", {"nvidia.com/gpu": 4}, False)
    assert "spec" not in kept
    small = {**POD, "spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}
    assert views.reduced_foreign_pod(small) is None


def stateful_set(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "s", "uid": "u", "generation": 3, "labels": {names.LABEL_MODEL: "small"},
            "annotations": annotations,
        },
        "spec": {"replicas": 2, "template": POD},
        "status": {"observedGeneration": 2, "replicas": 1},
    }  # fmt: skip


def test_a_set() -> None:
    body = stateful_set(
        **{names.ANNOTATION_SHAPE: '{"tensor": 4}', names.ANNOTATION_RENDER_VERSION: "1"}
    )
    view = views.set_view(body, (), "nvidia.com/gpu")
    assert (view.model, view.replicas, view.gpus_per_pod) == ("small", 2, 4)
    assert (view.shape, view.render_version) == ({"tensor": 4}, 1)
    assert (view.observed, view.status_replicas) == (False, 1)


def test_edited_annotations_of_a_set_do_no_harm() -> None:
    view = views.set_view(stateful_set(**{names.ANNOTATION_SHAPE: "{"}), (), "nvidia.com/gpu")
    assert (view.shape, view.render_version) == ({}, -1)


def test_a_cordoned_node_offers_only_what_is_held() -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True},
        "status": {
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    assert views.node_view(node, "nvidia.com/gpu", foreign=1, ours=2).allocatable == 3
    node["spec"] = {}
    assert views.node_view(node, "nvidia.com/gpu", foreign=1, ours=2).allocatable == 8


def lease(pod: str, uid: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": pod, "ownerReferences": [{"uid": uid}],
            "annotations": {names.ANNOTATION_ACK_DIGEST: "d", **annotations},
        }
    }  # fmt: skip


def router_pod(name: str, uid: str, ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def test_only_the_leases_of_present_ready_pods_acknowledge() -> None:
    pods = [router_pod("r-0", "u0"), router_pod("r-1", "u1", ready="False")]
    leases = [
        lease("r-0", "u0", **{names.ANNOTATION_ACK_DRAINED: "a,b"}),
        lease("r-1", "u1"),
        lease("r-9", "u9"),
    ]
    view = views.router_view({"spec": {"replicas": 2}}, pods, leases, "text")
    assert (view.exists, view.desired, view.ready_pods) == (True, 2, ("r-0",))
    assert [(ack.pod, sorted(ack.drained_uids)) for ack in view.acks] == [("r-0", ["a", "b"])]
    former = views.router_view(None, pods, [lease("r-0", "uid of a former pod")], "")
    assert former.acks == ()


def config_map(**data: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7"}, **data}


def packed(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


TABLES: dict[str, tuple[dict[str, Any] | None, str | None]] = {
    "none": (None, None),
    "other key": (config_map(data={"other": "x"}), None),
    "plain": (config_map(data={"t": "a,b"}), "a,b"),
    "gzip": (config_map(binaryData={"t": packed(gzip.compress(b"a,b"))}), "a,b"),
    "binary but plain": (config_map(binaryData={"t": packed(b"a,b")}), "a,b"),
}


@pytest.mark.parametrize(("body", "text"), TABLES.values(), ids=TABLES)
def test_a_calibration_table(body: dict[str, Any] | None, text: str | None) -> None:
    view = views.calibration_view(body, "c", "t")
    assert (view.text, view.reference) == (text, "c/t")


def test_a_table_that_cannot_be_unpacked_is_text_that_says_so() -> None:
    broken = packed(gzip.compress(b"a,b")[:-6])
    view = views.calibration_view(config_map(binaryData={"t": broken}), "c", "t")
    assert view.text is not None
    assert "not a gzip" in view.text
