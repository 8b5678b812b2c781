"""Situation: the facts of one observation that the rules of a hand-over ask for; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from . import ledger, moves, published, step
from .observation import Observation, PodView


@dataclass(frozen=True)
class TargetSet:
    """One set of the plan: ``replicas`` pods of ``gpus_per_pod`` GPUs."""

    name: str
    model: str
    replicas: int
    gpus_per_pod: int


@dataclass(frozen=True)
class Target:
    """Where the hand-over leads: the plan's sets, in the order of the cascade's models."""

    plan_id: str
    models: tuple[str, ...]
    sets: tuple[TargetSet, ...]

    @property
    def gpus(self) -> int:
        return sum(s.replicas * s.gpus_per_pod for s in self.sets)


@dataclass(frozen=True)
class Rules:
    """What the user allows. ``floors``: model -> Ready replicas that it keeps (1 for those not
    named); a paused cascade finishes what has begun and starts nothing."""

    floors: Mapping[str, int] = field(default_factory=dict)
    allow_downtime: bool = False
    max_gpus_per_move: int | None = None
    step_deadline_seconds: float = 1800.0
    is_paused: bool = False


class Situation:
    """One observation beside the target: what is missing, what is waited for, what may leave."""

    def __init__(self, observation: Observation, target: Target, rules: Rules) -> None:
        self.observation = observation
        self.target = target
        self.rules = rules
        self.routing = published.in_force(observation.router)
        self.sets = {s.name: s for s in observation.sets}
        self.live = {s.name: s for s in observation.sets if not s.deleting}
        self.wanted = {s.name: s.replicas for s in target.sets}
        self.replicas = {name: s.replicas for name, s in self.live.items()}
        self.free = ledger.free(observation.pool, observation.sets)
        self.deficits = self._deficits()
        self.waiting = self._waiting()

    def _deficits(self) -> list[TargetSet]:
        """Sets that have too few replicas, first the one whose turn it is.

        The order is strict, so that GPUs borrowed for one set are never spent on another. Models
        that change their shape come first, small replicas before large ones: they give back more
        than they take. Then models without a Ready replica, then the plan's order.
        """
        short = [s for s in self.target.sets if self.missing(s) > 0]
        changing = {s.model for s in self.live.values() if s.replicas > self.want(s.name)}

        def turn(entry: TargetSet) -> tuple[bool, int, bool, int]:
            is_changing = entry.model in changing
            is_served = bool(self.ready_pods(entry.model))
            size = entry.gpus_per_pod if is_changing else 0
            return not is_changing, size, is_served, self.target.sets.index(entry)

        return sorted(short, key=turn)

    def _waiting(self) -> list[tuple[str, PodView | None]]:
        """Replicas that the plan keeps and that are not Ready: (pod name, pod if it exists).

        First the one that the kubelet or the scheduler complains about. Pods on lost nodes are
        reported, not waited for.
        """
        found: list[tuple[str, PodView | None]] = []
        for view in self.live.values():
            pods = {pod.ordinal: pod for pod in view.pods}
            for ordinal in range(min(view.replicas, self.want(view.name))):
                pod = pods.get(ordinal)
                if pod is None or not (pod.lost or (pod.ready and not pod.terminating)):
                    found.append((f"{view.name}-{ordinal}", pod))
        found.sort(key=lambda entry: (not (entry[1] and entry[1].waiting_reason), entry[0]))
        return found

    def want(self, name: str) -> int:
        return self.wanted.get(name, 0)

    def missing(self, entry: TargetSet) -> int:
        return entry.replicas - self.replicas.get(entry.name, 0)

    def ready_pods(self, model: str) -> list[PodView]:
        """Ready pods of a model that stay: those above their set's replicas are on their way."""
        return [
            pod
            for view in self.live.values()
            if view.model == model
            for pod in view.ready_pods()
            if pod.ordinal < view.replicas
        ]

    def highest_ready(self, leaving: Mapping[str, int]) -> list[PodView]:
        """Ready pods among the named number of highest ordinals of each set."""
        return [
            pod
            for name, count in leaving.items()
            for pod in self.live[name].ready_pods()
            if pod.ordinal >= self.replicas[name] - count
        ]

    def lost_pods(self) -> tuple[str, ...]:
        return tuple(sorted(p.name for s in self.sets.values() for p in s.pods if p.lost))

    def is_final(self) -> bool:
        """Whether the plan's own thresholds are published, or nothing else is."""
        return self.routing.plan_id in ("", self.target.plan_id)

    def removed(self) -> set[str]:
        """Models that the thresholds in force may reach and the plan no longer has."""
        return set() if self.is_final() else set(self.routing.models) - set(self.target.models)

    def fits(self) -> bool:
        """Whether nothing has to leave for what comes next."""
        return self.free >= (self.deficits[0].gpus_per_pod if self.deficits else 0)

    def need(self) -> int:
        """GPUs that all deficits lack; at most one move's worth, at least one replica."""
        first = self.deficits[0].gpus_per_pod if self.deficits else 0
        total = sum(self.missing(s) * s.gpus_per_pod for s in self.deficits)
        if self.rules.max_gpus_per_move is not None:
            total = min(total, max(first, self.rules.max_gpus_per_move))
        return total - self.free

    def may_borrow(self, model: str) -> bool:
        """Whether a loan would come back: the model gives up as much elsewhere, and the whole plan
        fits. Otherwise two models would take the same GPUs from each other for ever."""
        changes = any(
            view.model == model and view.replicas > self.want(name)
            for name, view in self.live.items()
        )
        return changes and self.target.gpus <= self.observation.pool.usable

    def board(self, models: set[str] | None = None) -> moves.Board:
        """The replicas as the donor search sees them; by default every model that the plan or
        the routing in force may reach keeps its floor."""
        kept = set(self.target.models) | self.removed() if models is None else models
        return moves.Board(
            sets=tuple(self.live.values()),
            wanted=self.wanted,
            floors={model: self.rules.floors.get(model, 1) for model in kept},
            ready={m: len(self.ready_pods(m)) for m in {s.model for s in self.live.values()}},
            changing=frozenset(s.model for s in self.deficits),
        )

    def step(
        self,
        kind: step.Kind,
        message: str,
        changed: Mapping[str, int] | None = None,
        *,
        leaving: Mapping[str, int] | None = None,
        publish: step.Publish = "in force",
        blocking: str = "",
        blocked: step.BlockedReason = "",
    ) -> step.Step:
        """A step from here: ``changed`` replicas, ``leaving`` replicas to route away from."""
        replicas = {**self.replicas, **(changed or {})}
        going = self.highest_ready(leaving or {})
        return step.Step(
            kind=kind,
            message=message,
            replicas=replicas,
            create=tuple(sorted(set(replicas) - set(self.sets))),
            leaving_pods=self._leaving(going),
            sets_in_service=self._in_service(replicas),
            publish="final" if self.is_final() else publish,
            bypassed=self._bypassed(going),
            blocking_pod=blocking,
            blocked_reason=blocked,
            lost_pods=self.lost_pods(),
        )

    def _leaving(self, going: list[PodView]) -> dict[str, tuple[str, ...]]:
        """By model: pods chosen now, and those whose shrink has already been asked for."""
        chosen = {pod.name for pod in going}
        found: dict[str, list[str]] = {}
        for view in self.sets.values():
            for pod in view.pods:
                above = view.deleting or pod.ordinal >= view.replicas
                if pod.name in chosen or (above and not pod.finished):
                    found.setdefault(view.model, []).append(pod.name)
        return {model: tuple(sorted(pods)) for model, pods in sorted(found.items())}

    def _in_service(self, replicas: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """By model: sets that have or will have replicas, those still leaving included."""
        models = {s.name: s.model for s in self.target.sets}
        models |= {s.name: s.model for s in self.sets.values()}
        found: dict[str, list[str]] = {}
        for name, model in sorted(models.items()):
            view = self.sets.get(name)
            if replicas.get(name, 0) > 0 or (view is not None and view.pods):
                found.setdefault(model, []).append(name)
        return {model: tuple(sets) for model, sets in found.items()}

    def _bypassed(self, going: list[PodView]) -> tuple[str, ...]:
        """Models that have, or will have after this move, no Ready replica."""
        if not self.rules.allow_downtime or not self.routing.models:
            return ()
        gone = {pod.uid for pod in going}
        return tuple(
            model
            for model in self.target.models
            if model in self.routing.models
            and not [pod for pod in self.ready_pods(model) if pod.uid not in gone]
        )
