"""The hand-over: from what is observed to the next idempotent step, with no other memory.

Order: route away, drain, shrink, wait until pods are gone, grow inside
the pool, wait Ready, publish the plan's thresholds, prune. One move at a time.
"""

import dataclasses
from collections.abc import Callable, Mapping

from . import moves, published, step
from .observation import Observation
from .situation import Rules, Situation, Target, TargetSet


def next_step(observation: Observation, target: Target, rules: Rules) -> step.Step:
    """The next step towards the target; safe to repeat, and safe after a restart anywhere."""
    situation = Situation(observation, target, rules)
    found = next(found for rule in RULES if (found := rule(situation)) is not None)
    if rules.is_paused and found.kind in STARTS:
        found = situation.step("Held", f"planPolicy.paused holds back: {found.message}")
    deadline = None if found.kind in ENDS else rules.step_deadline_seconds
    return step.timed(found, observation.plan_annotations, observation.now, deadline)


def confirmed(
    found: step.Step, observation: Observation, text: str, deadline_seconds: float
) -> step.Step:
    """A settled step is settled only once the router runs ``text``: until then it publishes.

    ``text`` is the configuration rendered for this step.
    """
    router = observation.router
    if not found.settled:
        return found
    if router.config_text == text and published.is_acknowledged(router, text):
        return found
    late = published.not_acknowledged(router, text)
    publishing = dataclasses.replace(
        found,
        kind="Publish",
        message="publishing the plan's thresholds; waiting for the router to confirm them",
        blocking_pod=late[0] if late else "",
    )
    return step.timed(publishing, observation.plan_annotations, observation.now, deadline_seconds)


def await_gone(s: Situation) -> step.Step | None:
    """An unfinished shrink: nothing else moves, nothing is credited to a grow."""
    leaving = [
        pod.name
        for view in s.sets.values()
        for pod in view.pods
        # A finished pod counts too: its controller has not let go of it before it is gone.
        if not pod.lost
        if view.deleting or pod.ordinal >= view.replicas
    ]
    unseen = [
        view.name
        for view in s.live.values()
        if not view.observed or view.status_replicas > max(view.replicas, len(view.pods))
    ]
    if not leaving and not unseen:
        return None
    what = f"pod {min(leaving)} to be gone" if leaving else f"the controller of set {min(unseen)}"
    return s.step("AwaitGone", f"waiting for {what}", blocking=min(leaving, default=""))


def grow(s: Situation, strict: bool = True) -> step.Step | None:
    """Raises replicas as far as free GPUs go, in turn."""
    room = s.free
    in_flight = sum(s.sets[_set_of(name)].gpus_per_pod for name, _ in s.waiting)
    grown: dict[str, int] = {}
    for entry in s.deficits:
        fits = min(s.missing(entry), room // entry.gpus_per_pod)
        if s.rules.max_gpus_per_move is not None:
            # One replica may always move: a cap below its size would stop the cascade.
            least = 0 if in_flight else 1
            cap = (s.rules.max_gpus_per_move - in_flight) // entry.gpus_per_pod
            fits = min(fits, max(least, cap))
        if fits > 0:
            grown[entry.name] = s.replicas.get(entry.name, 0) + fits
            room -= fits * entry.gpus_per_pod
            in_flight += fits * entry.gpus_per_pod
        if strict and fits < s.missing(entry):
            break
    return s.step("Grow", f"growing {_listed(grown)}", grown) if grown else None


def drop_dead(s: Situation) -> step.Step | None:
    """Surplus replicas that are not Ready serve nobody: they make room without a drain."""
    if s.fits():
        return None
    found = moves.dead_surplus(s.board(), s.need())
    return _lowered(s, found) if found else None


def shed(s: Situation) -> step.Step | None:
    """Over the limit (it was lowered, or a quota was): surplus leaves without waiting."""
    if s.free >= 0:
        return None
    found = moves.donors(s.board(), 1, -s.free)
    return _leave(s, found) if found else None


def await_ready(s: Situation) -> step.Step | None:
    """A move ends when its replicas are Ready."""
    if not s.waiting:
        return None
    name, pod = s.waiting[0]
    reason = ""
    if pod is not None and pod.waiting_reason:
        reason = f"{pod.waiting_reason}: {pod.message}".rstrip(": ")
    words = f"waiting for {name} to become Ready" + (f" ({reason})" if reason else "")
    if len(s.waiting) > 1:
        words += f" and {len(s.waiting) - 1} more"
    return dataclasses.replace(s.step("AwaitReady", words, blocking=name), blocking_reason=reason)


def make_room(s: Situation) -> step.Step | None:
    """Room for the first deficit: from donors, by publishing, by borrowing, by downtime, or not."""
    if s.fits() or not s.deficits:
        return None
    first = s.deficits[0]
    least = first.gpus_per_pod - s.free
    board = s.board()
    found = moves.donors(board, least, s.need())
    if found is None and s.removed() and all(s.ready_pods(m) for m in s.target.models):
        words = f"publishing thresholds that no longer reach {', '.join(sorted(s.removed()))}"
        return s.step("Publish", words, publish="final")
    if found is None and s.may_borrow(first.model):
        found = moves.borrowed(board, least, first.model)
    if found is None and s.rules.allow_downtime:
        found = moves.donors(s.board(models=set()), least, s.need())
    if found is not None:
        return _leave(s, found)
    return grow(s, strict=False) or _blocked(s, first, least)


def leave_surplus(s: Situation) -> step.Step | None:
    """All that the plan wants is Ready: its thresholds are published, what is left leaves."""
    surplus = sum(
        (view.replicas - s.want(name)) * view.gpus_per_pod
        for name, view in s.live.items()
        if view.replicas > s.want(name)
    )
    if not surplus:
        return None
    found = moves.donors(s.board(models=set(s.target.models)), 1, surplus)
    if found is not None:
        return _leave(s, found, publish="final")
    lost = s.lost_pods()
    words = f"surplus replicas stay until {', '.join(lost) or 'the others'} of their model is Ready"
    return s.step("AwaitReady", words, blocking=lost[0] if lost else "", publish="final")


def prune(s: Situation) -> step.Step | None:
    """Deletes sets that are empty and not in the plan."""
    empty = sorted(
        name
        for name, view in s.live.items()
        if name not in s.wanted and view.replicas == 0 and not view.pods
    )
    if not empty:
        return None
    found = s.step("Prune", f"deleting {', '.join(empty)}", publish="final")
    kept = {name: n for name, n in found.replicas.items() if name not in empty}
    return dataclasses.replace(found, delete=tuple(empty), replicas=kept)


def finish(s: Situation) -> step.Step:
    """Nothing is left to move."""
    return s.step("Settled", "the plan is in force", publish="final")


RULES: tuple[Callable[[Situation], step.Step | None], ...] = (
    await_gone,
    grow,
    drop_dead,
    shed,
    await_ready,
    make_room,
    leave_surplus,
    prune,
    finish,
)
"""Asked in this order; the first answer is the step."""

STARTS = ("Grow", "RouteAway", "Drain", "Shrink", "Publish", "Prune")
"""Steps that change something: a paused cascade does not take them."""
ENDS = ("Settled", "Blocked", "Held")
"""Steps that wait for nothing, and so have no deadline."""


def _leave(
    s: Situation, leaving: Mapping[str, int], publish: step.Publish = "in force"
) -> step.Step:
    """Route away, drain and shrink of the named number of highest ordinals per set."""
    router = s.observation.router
    pods = s.highest_ready(leaving)
    if not pods or not router.ready_pods:
        return _lowered(s, leaving, publish)
    words = f"routing away from {', '.join(sorted(pod.name for pod in pods))}"
    routed = s.step("RouteAway", words, leaving=leaving, publish=publish)
    # A model that is no longer routed to has no list of leaving pods.
    routable = [p for p in pods if s.live[p.set_name].model in s.routing.models]
    told = (
        {pod.name for pod in routable} <= s.routing.leaving
        and _is_bypass_published(s, routed)
        and (publish == "in force" or s.is_final())
    )
    late = published.not_acknowledged(router, router.config_text)
    if not told or late:
        return dataclasses.replace(routed, blocking_pod=late[0] if told else "")
    drained = published.drained(router)
    busy = sorted(pod.name for pod in routable if pod.uid not in drained)
    if not busy:
        return _lowered(s, leaving, publish)
    words = f"waiting for requests in flight at {', '.join(busy)}"
    draining = dataclasses.replace(routed, kind="Drain", message=words, blocking_pod=busy[0])
    waited = step.timed(
        draining, s.observation.plan_annotations, s.observation.now, s.rules.step_deadline_seconds
    )
    # Whoever is still being answered then ends within the pod's own termination grace period.
    return _lowered(s, leaving, publish) if waited.deadline_passed else draining


def _is_bypass_published(s: Situation, routed: step.Step) -> bool:
    order = s.routing.models
    expected = published.bypassing(s.routing.thresholds, order, routed.bypassed)
    return expected == dict(s.routing.thresholds)


def _lowered(
    s: Situation, leaving: Mapping[str, int], publish: step.Publish = "in force"
) -> step.Step:
    lowered = {name: s.replicas[name] - count for name, count in leaving.items()}
    return s.step(
        "Shrink", f"shrinking {_listed(lowered)}", lowered, leaving=leaving, publish=publish
    )


def _blocked(s: Situation, first: TargetSet, least: int) -> step.Step:
    words = (
        f"set {first.name} needs {first.gpus_per_pod} GPUs for its next replica, "
        f"{max(0, s.free)} are free"
    )
    usable = s.observation.pool.usable
    if s.target.gpus > usable:
        words += f": the plan holds {s.target.gpus}, the pool offers {usable}"
        return s.step("Blocked", words, blocked="InsufficientGPUs")
    words += (
        f", and {least} would have to come from models that have no Ready replica to spare "
        "(minReplicas); set rollout.allowDowntime to let one go down, or enlarge gpuPool"
    )
    return s.step("Blocked", words, blocked="NeedsDowntime")


def _set_of(pod_name: str) -> str:
    return pod_name.rpartition("-")[0]


def _listed(replicas: Mapping[str, int]) -> str:
    return ", ".join(f"{name} to {count} replicas" for name, count in sorted(replicas.items()))
