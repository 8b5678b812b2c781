"""Step: the next thing to do in a hand-over, as a value that can be printed and compared."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from . import names

Kind = Literal[
    "Settled",
    "Grow",
    "AwaitReady",
    "RouteAway",
    "Drain",
    "Shrink",
    "AwaitGone",
    "Publish",
    "Prune",
    "Blocked",
    "Held",
]
Publish = Literal["in force", "final"]
BlockedReason = Literal["", "NeedsDowntime", "InsufficientGPUs"]


@dataclass(frozen=True)
class Step:
    """What the cluster should look like now, and what is waited for.

    ``replicas``: set name -> replicas, of all sets that stay or are created; ``create`` and
    ``delete``: set names; ``leaving_pods`` and ``sets_in_service``: by model, for the router.
    ``publish``: keep the thresholds in force, or publish the plan's own. ``bypassed``: models
    without a Ready replica that routing must not reach (rollout.allowDowntime). ``since``: Unix
    seconds at which this step began, ``recheck_at``: when its deadline passes.
    """

    kind: Kind
    message: str
    replicas: Mapping[str, int]
    create: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    leaving_pods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sets_in_service: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    publish: Publish = "in force"
    bypassed: tuple[str, ...] = ()
    blocking_pod: str = ""
    blocking_reason: str = ""
    blocked_reason: BlockedReason = ""
    lost_pods: tuple[str, ...] = ()
    deadline_passed: bool = False
    key: str = ""
    since: float = 0.0
    recheck_at: float | None = None

    @property
    def settled(self) -> bool:
        """The cluster is what the plan says, and the router confirmed it."""
        return self.kind == "Settled"

    def marker(self) -> str:
        """Annotation of the plan ConfigMap: equal as long as the step is the same."""
        return json.dumps({"kind": self.kind, "key": self.key, "since": round(self.since, 3)})


def started_at(annotations: Mapping[str, str], key: str, now: float) -> float:
    """When the step with this key began: from the marker of an earlier pass, else now."""
    try:
        marker = json.loads(annotations.get(names.ANNOTATION_STEP, "{}"))
        if marker.get("key") == key:
            return float(marker["since"])
    except (ValueError, TypeError, KeyError, AttributeError):
        # Somebody edited the annotation: the step then counts as begun now.
        return now
    return now


def timed(
    step: Step, annotations: Mapping[str, str], now: float, deadline_seconds: float | None
) -> Step:
    """The step with its beginning and whether its deadline (seconds; ``None``: none) passed.

    The key covers what the step wants, not what it has reached: progress within a step does not
    extend its deadline.
    """
    wanted = [dict(step.replicas), sorted(step.delete), dict(step.leaving_pods)]
    key = names.digest([step.kind, wanted if step.kind != "AwaitGone" else wanted[:2]])
    since = started_at(annotations, key, now)
    if deadline_seconds is None:
        return dataclasses.replace(step, key=key, since=since)
    ends = since + deadline_seconds
    passed = now >= ends
    return dataclasses.replace(
        step,
        key=key,
        since=since,
        deadline_passed=passed,
        recheck_at=None if passed else ends,
    )
