"""Ledger: who holds or has been promised which GPUs; pure arithmetic on what was observed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .observation import PodView, PoolView, SetView


def held(pod: PodView) -> int:
    """GPUs that a pod object counts for. Terminating pods count until the object is gone."""
    return 0 if pod.finished else pod.gpus


def committed_by(view: SetView) -> int:
    """GPUs that one set holds or will hold: its pods, and each replica that has no pod yet.

    A replica is looked up by its ordinal, so a leaving pod is never taken for a missing one; pods
    that only the controller knows of so far count as well.
    """
    holding = sum(held(pod) for pod in view.pods)
    if view.deleting:
        return holding
    present = {pod.ordinal for pod in view.pods if not pod.finished}
    missing = sum(1 for ordinal in range(view.replicas) if ordinal not in present)
    unseen = max(0, view.status_replicas - len(present) - missing)
    return holding + (missing + unseen) * view.gpus_per_pod


def committed(sets: Iterable[SetView]) -> int:
    """Committed GPUs of a cascade."""
    return sum(committed_by(view) for view in sets)


def lost(sets: Iterable[SetView]) -> int:
    """GPUs of our pods on nodes that are not Ready: neither free nor usable."""
    return sum(held(pod) for view in sets for pod in view.pods if pod.lost)


def free(pool: PoolView, sets: Sequence[SetView]) -> int:
    """GPUs that may still be promised without passing the limit or what Ready nodes have.

    Negative when more is committed than is allowed, for instance after the limit was lowered.
    """
    ours = committed(sets)
    if not pool.nodes:
        return pool.limit - ours
    ready = sum(node.allocatable for node in pool.nodes if node.ready)
    # A pod on a lost node holds nothing on the Ready ones, but counts against the limit: it runs
    # again when its node returns.
    return min(pool.limit - ours, ready - pool.foreign - pool.others - (ours - lost(sets)))


@dataclass(frozen=True)
class Quota:
    """One ResourceQuota on the pool's resource in the cascade's namespace, in GPUs.

    ``scopes`` are its plain scopes, ``priority_classes`` the classes that it selects (``None``:
    all of them).
    """

    name: str
    hard: int
    used: int
    scopes: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] | None = None

    def applies(self, classes: Sequence[str]) -> bool:
        """Whether engine pods count: they have no active deadline and request resources."""
        if set(self.scopes) - {"NotTerminating", "NotBestEffort"}:
            return False
        return self.priority_classes is None or bool(set(self.priority_classes) & set(classes))


def quota_of(body: Mapping[str, Any], resource: str) -> Quota | None:
    """The quota that a ResourceQuota object sets on ``requests.<resource>``; ``None`` if none."""
    key = f"requests.{resource}"
    status, spec = body.get("status", {}), body.get("spec", {})
    hard = status.get("hard", {}).get(key, spec.get("hard", {}).get(key))
    if hard is None:
        return None
    terms = spec.get("scopeSelector", {}).get("matchExpressions", [])
    classes = [
        value
        for term in terms
        if term.get("scopeName") == "PriorityClass" and term.get("operator") == "In"
        for value in term.get("values", [])
    ]
    plain = [t["scopeName"] for t in terms if t.get("scopeName") != "PriorityClass"]
    return Quota(
        name=body["metadata"]["name"],
        hard=int(hard),
        used=int(status.get("used", {}).get(key, 0)),
        scopes=(*spec.get("scopes", []), *plain),
        priority_classes=tuple(classes) if classes else None,
    )


def limit(
    asked: int | None,
    allocatable: int,
    quotas: Iterable[Quota],
    ours: int,
    classes: Sequence[str],
) -> int:
    """Least of the user's limit, of what there is, and of every quota that matches.

    ``ours`` is what this cascade's pods use of each quota: only the rest is somebody else's.
    """
    bounds = [allocatable] if asked is None else [allocatable, asked]
    bounds += [q.hard - max(0, q.used - ours) for q in quotas if q.applies(classes)]
    return max(0, min(bounds))


@dataclass(frozen=True)
class Claim:
    """What another cascade on the same GPUs holds and wants.

    ``planned`` is ``None`` while it has no plan yet; ``refused``: it was told that it cannot have
    one; ``ceiling``: its own limit; ``elsewhere``: GPUs that its pods hold on nodes outside the
    pool in question.
    """

    key: str
    created: str
    uid: str
    committed: int
    planned: int | None
    refused: bool
    ceiling: int
    elsewhere: int = 0

    def is_elder_than(self, created: str, uid: str) -> bool:
        """Ties in creation time go to the lesser UID."""
        return (self.created, self.uid) < (created, uid)

    def promised(self, created: str, uid: str) -> int:
        """GPUs to leave to it: what it holds or plans to hold; an elder that has not planned yet
        comes first and may take all that it is allowed to."""
        wanted = self.planned or 0
        if self.planned is None and self.is_elder_than(created, uid) and not self.refused:
            wanted = self.ceiling
        return max(0, max(self.committed, wanted) - self.elsewhere)
