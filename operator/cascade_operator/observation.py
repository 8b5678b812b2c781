"""Observation: everything one pass has read, frozen; no I/O here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PodView:
    """One pod of an engine set, or a foreign pod that holds GPUs.

    ``gpus`` is the sum of its GPU requests; ``waiting_reason`` is the kubelet's word for a
    container that does not start (ImagePullBackOff, CrashLoopBackOff), ``message`` its text.
    """

    name: str
    uid: str
    set_name: str
    node: str | None
    gpus: int
    ready: bool
    terminating: bool
    finished: bool = False
    restarts: int = 0
    waiting_reason: str = ""
    message: str = ""
    lost: bool = False
    """On a node that is not Ready: its GPUs are neither free nor usable."""

    @property
    def ordinal(self) -> int:
        """Number at the end of a StatefulSet pod's name; -1 when there is none."""
        tail = self.name.rpartition("-")[2]
        return int(tail) if tail.isdigit() else -1


@dataclass(frozen=True)
class SetView:
    """One StatefulSet of the cascade as it stands. ``replicas`` is what its spec asks for.

    ``shape`` is the planned set that rendered it (annotation), ``pods`` all its live objects.
    ``observed``: the StatefulSet controller has acted on this spec; ``status_replicas``: pods it
    says exist. Pods whose set is gone form a set of their own with ``deleting`` true.
    """

    name: str
    uid: str
    model: str
    replicas: int
    gpus_per_pod: int
    shape: Mapping[str, Any]
    render_version: int
    pods: tuple[PodView, ...]
    deleting: bool = False
    manifest: Mapping[str, Any] = field(default_factory=dict)
    observed: bool = True
    status_replicas: int = 0

    def ready_pods(self) -> tuple[PodView, ...]:
        return tuple(p for p in self.pods if p.ready and not p.terminating)


@dataclass(frozen=True)
class NodeView:
    """One node of the pool, in GPUs: ``ours`` this cascade's pods hold, ``foreign`` all others
    (pods of other cascades included)."""

    name: str
    allocatable: int
    foreign: int
    ours: int
    ready: bool


@dataclass(frozen=True)
class AckView:
    """What one Ready router pod says that all its processes run (its Lease)."""

    pod: str
    plan_id: str
    config_digest: str
    drained_uids: frozenset[str]
    error: str = ""


@dataclass(frozen=True)
class RouterView:
    """The router as it stands: its Ready pods and their acknowledgements."""

    exists: bool
    desired: int
    ready_pods: tuple[str, ...]
    acks: tuple[AckView, ...]
    config_text: str = ""
    """Text of the RouterConfig in the ConfigMap; empty before the first plan."""
    message: str = ""
    """Why the Deployment is not available, in the words of its conditions or pods."""


@dataclass(frozen=True)
class PoolView:
    """GPUs of one pool. ``limit`` is the least of the user's limit and all quotas that match;
    ``foreign`` is what pods of no cascade hold on Ready nodes, ``others`` what other cascades
    hold, have been promised, or (elder ones) plan to hold."""

    name: str
    gpu_type: str
    limit: int
    gpus_per_node: int
    nodes: tuple[NodeView, ...]
    foreign: int
    others: int
    elder: str = ""
    """An older cascade that claims the same GPUs, when there is one: "namespace/name"."""

    @property
    def usable(self) -> int:
        """GPUs that this cascade may hold in all; without nodes to read, the limit is trusted."""
        if not self.nodes:
            return self.limit
        ready = sum(node.allocatable for node in self.nodes if node.ready)
        return max(0, min(self.limit, ready - self.foreign - self.others))


@dataclass(frozen=True)
class CalibrationView:
    """The calibration table's ConfigMap: its text, or why there is none."""

    text: str | None
    resource_version: str = ""
    reference: str = ""
    """"name/key" that was looked up."""


@dataclass(frozen=True)
class Observation:
    """All reads of one pass (reads first, in one place, into one frozen value).

    ``plan_text`` and ``problem_text`` are the documents of the plan ConfigMap; ``drift`` is
    ``status.drift`` as drift-watch wrote it; ``now`` is Unix seconds from the clock passed in.
    """

    now: float
    namespace: str
    name: str
    uid: str
    generation: int
    sets: tuple[SetView, ...]
    router: RouterView
    pool: PoolView
    calibration: CalibrationView
    plan_text: str | None
    problem_text: str | None
    plan_annotations: Mapping[str, str]
    drift: Mapping[str, Any]
    annotations: Mapping[str, str]
    status: Mapping[str, Any]
    created: str = ""
    """creationTimestamp of the cascade (RFC 3339)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Live children other than sets and plan, by "Kind/name", for the no-op comparison."""
    record_text: str | None = None
    """``record.json`` of the plan ConfigMap: when and why the plan in force was adopted."""
    proposal_text: str | None = None
    """``proposal.json`` of the plan ConfigMap: a plan that waits for approval."""
