"""A small world for the hand-over: StatefulSet controller, kubelet and router, one event at a time.

It counts GPUs by itself, from what exists, so that it can contradict the operator's ledger.
"""

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping

from cascade_operator import names, published, situation, step, transition
from cascade_operator.observation import (
    AckView,
    CalibrationView,
    NodeView,
    Observation,
    PodView,
    PoolView,
    RouterView,
    SetView,
)
from cascade_router import config as router_config


@functools.lru_cache(maxsize=256)
def parsed(text: str) -> router_config.RouterConfig | None:
    return published.read(text)


@dataclasses.dataclass
class Pod:
    """One pod object; it is gone when it leaves its set's dictionary."""

    uid: str
    ready: bool = False
    terminating: bool = False
    finished: bool = False
    """Its containers have ended; the object stays for a moment."""
    stuck: bool = False
    broken: bool = False
    """Never becomes Ready."""
    lost: bool = False


@dataclasses.dataclass
class Set:
    """One StatefulSet with what its controller has done so far."""

    model: str
    gpus: int
    replicas: int = 0
    pods: dict[int, Pod] = dataclasses.field(default_factory=dict)
    observed: bool = True
    status_replicas: int = 0

    def held(self) -> int:
        """GPUs of all that exists or that the controller will create."""
        return self.gpus * len(set(self.pods) | set(range(self.replicas)))


class World:
    """The cluster of one cascade. ``limit`` is the pool; nodes are plenty unless given."""

    def __init__(
        self, limit: int, rules: situation.Rules, draws: random.Random, router_pods: int = 1
    ) -> None:
        self.limit = limit
        self.rules = rules
        self.draws = draws
        self.sets: dict[str, Set] = {}
        self.text = ""
        self.marker: dict[str, str] = {}
        self.routers: dict[str, str] = {f"router-{i}": "" for i in range(router_pods)}
        self.drained: dict[str, set[str]] = {name: set() for name in self.routers}
        self.clock = 1000.0
        self.uids = itertools.count()
        self.pods_seen: dict[str, dict[int, Pod]] = {}
        self.broken_sets: set[str] = set()
        self.is_immortal = False
        """The operator is never killed within a pass."""
        self.check: Callable[[str], None] = lambda event: None

    # -- what the operator sees ---------------------------------------------------------------

    def observe(self) -> Observation:
        """What caches would show: own writes at once, pods as of the last ``look``."""
        return Observation(
            now=self.clock,
            namespace="n",
            name="chat",
            uid="u",
            generation=1,
            sets=tuple(self._view(name, entry) for name, entry in sorted(self.sets.items())),
            router=RouterView(
                exists=True,
                desired=len(self.routers),
                ready_pods=tuple(self.routers),
                acks=tuple(self._ack(name) for name in self.routers),
                config_text=self.text,
            ),
            pool=PoolView(
                name="pool",
                gpu_type="H100",
                limit=self.limit,
                gpus_per_node=8,
                nodes=(NodeView("n1", 1000, 0, 0, True),),
                foreign=0,
                others=0,
            ),
            calibration=CalibrationView(text=None),
            plan_text=None,
            problem_text=None,
            plan_annotations=dict(self.marker),
            drift={},
            annotations={},
            status={},
        )

    def _view(self, name: str, entry: Set) -> SetView:
        pods = tuple(
            PodView(
                name=f"{name}-{ordinal}",
                uid=pod.uid,
                set_name=name,
                node="n1",
                gpus=entry.gpus,
                ready=pod.ready,
                terminating=pod.terminating,
                finished=pod.finished,
                lost=pod.lost,
            )
            for ordinal, pod in sorted(self.pods_seen.get(name, {}).items())
        )
        return SetView(
            name=name,
            uid=f"uid-{name}",
            model=entry.model,
            replicas=entry.replicas,
            gpus_per_pod=entry.gpus,
            shape={},
            render_version=1,
            pods=pods,
            observed=entry.observed,
            status_replicas=entry.status_replicas,
        )

    def _ack(self, name: str) -> AckView:
        text = self.routers[name]
        return AckView(
            pod=name,
            plan_id="",
            config_digest=published.digest(text),
            drained_uids=frozenset(self.drained[name]),
        )

    # -- what the operator does ---------------------------------------------------------------

    def operate(self, target: situation.Target, thresholds: Mapping[str, int]) -> step.Step:
        """One pass. It may be killed between any two of its writes."""
        observation = self.observe()
        found = transition.next_step(observation, target, self.rules)
        text = self.render(target, thresholds, found)
        found = transition.confirmed(found, observation, text, self.rules.step_deadline_seconds)
        for write in self._writes(target, found, text):
            if not self.is_immortal and self.draws.random() < 0.1:
                self.check("killed")
                break
            write()
            self.check(f"{found.kind}: {found.message}")
        return found

    def render(
        self, target: situation.Target, thresholds: Mapping[str, int], found: step.Step
    ) -> str:
        config = published.read(self.text)
        if found.publish == "in force" and config is not None:
            weights = {name: 1.0 for sets in found.sets_in_service.values() for name in sets}
            return published.interim(config, found, weights).model_dump_json()
        wanted = published.bypassing(thresholds, target.models, found.bypassed)
        return router_config.RouterConfig(
            cascade="chat",
            plan_id=target.plan_id,
            models=tuple(
                router_config.RoutedModel(
                    name=model,
                    threshold=wanted.get(model),
                    sets=tuple(
                        router_config.EngineSet(name=n, weight=1.0)
                        for n in found.sets_in_service.get(model, ())
                    ),
                    leaving_pods=found.leaving_pods.get(model, ()),
                )
                for model in target.models
            ),
        ).model_dump_json()

    def _writes(
        self, target: situation.Target, found: step.Step, text: str
    ) -> Iterator[Callable[[], None]]:
        known = {s.name: s for s in target.sets}
        yield lambda: self.marker.update({names.ANNOTATION_STEP: found.marker()})
        yield lambda: setattr(self, "text", text)
        for name, replicas in sorted(found.replicas.items()):
            if name not in self.sets:
                fresh = Set(known[name].model, known[name].gpus_per_pod)
                yield lambda name=name, fresh=fresh: self.sets.update({name: fresh})  # type: ignore[misc]
            yield lambda name=name, replicas=replicas: self._scale(name, replicas)  # type: ignore[misc]
        for name in found.delete:
            yield lambda name=name: self._delete(name)  # type: ignore[misc]

    def _scale(self, name: str, replicas: int) -> None:
        entry = self.sets[name]
        if entry.replicas != replicas:
            entry.replicas, entry.observed = replicas, False

    def _delete(self, name: str) -> None:
        assert not self.sets[name].pods, f"set {name} was deleted with pods in it"
        del self.sets[name]
        self.pods_seen.pop(name, None)

    # -- what the cluster does ----------------------------------------------------------------

    def events(self) -> list[Callable[[], None]]:
        """Everything that could happen next; each is one small change."""
        found: list[Callable[[], None]] = []
        for name, entry in self.sets.items():
            found.append(lambda name=name: self._control(name))  # type: ignore[misc]
            found.append(lambda name=name: self._look(name))  # type: ignore[misc]
            for ordinal, pod in entry.pods.items():
                found.append(lambda n=name, o=ordinal, p=pod: self._live(n, o, p))  # type: ignore[misc]
        for router in self.routers:
            found.append(lambda router=router: self.reload(router))  # type: ignore[misc]
            found.append(lambda router=router: self.finish_requests(router))  # type: ignore[misc]
        return found

    def happen(self, count: int) -> None:
        for _ in range(count):
            self.clock += 1.0
            self.draws.choice(self.events())()
            self.check("cluster")

    def settle(self) -> None:
        """Everything that is under way comes to its end, except what is stuck or broken."""
        for _ in range(5):
            for event in self.events():
                event()
                self.check("cluster")

    def advance(self) -> None:
        """One turn of every pod, then one of the controller, then the operator sees it."""
        for name, entry in self.sets.items():
            for ordinal, pod in 2 * list(entry.pods.items()):
                self._live(name, ordinal, pod)
        for name in list(self.sets):
            self._control(name)
        for name in self.sets:
            self._look(name)

    def _control(self, name: str) -> None:
        entry = self.sets.get(name)
        if entry is None:
            return
        for ordinal, pod in entry.pods.items():
            if ordinal >= entry.replicas:
                pod.terminating, pod.ready = True, False
        for ordinal in range(entry.replicas):
            if ordinal not in entry.pods:
                broken = name in self.broken_sets
                entry.pods[ordinal] = Pod(f"pod-{next(self.uids)}", broken=broken)
        entry.observed, entry.status_replicas = True, len(entry.pods)

    def _look(self, name: str) -> None:
        """The operator's pod cache catches up with one set."""
        if name in self.sets:
            copies = {o: dataclasses.replace(p) for o, p in self.sets[name].pods.items()}
            self.pods_seen[name] = copies

    def _live(self, name: str, ordinal: int, pod: Pod) -> None:
        entry = self.sets.get(name)
        if entry is None or entry.pods.get(ordinal) is not pod or pod.lost:
            return
        if pod.terminating and not pod.stuck:
            if pod.finished:
                del entry.pods[ordinal]
            pod.finished = True
        elif not pod.terminating and not pod.broken:
            pod.ready = True

    def reload(self, router: str) -> None:
        self.routers[router] = self.text
        self.drained[router] = set()

    def finish_requests(self, router: str) -> None:
        config = parsed(self.routers[router])
        leaving = {p for m in config.models for p in m.leaving_pods} if config else set()
        self.drained[router] = {
            pod.uid
            for name, entry in self.sets.items()
            for ordinal, pod in entry.pods.items()
            if f"{name}-{ordinal}" in leaving
        }

    # -- what the tests ask -------------------------------------------------------------------

    def committed(self) -> int:
        return sum(entry.held() for entry in self.sets.values())

    def ready(self, model: str) -> int:
        return sum(
            pod.ready and not pod.terminating
            for entry in self.sets.values()
            if entry.model == model
            for pod in entry.pods.values()
        )

    def seen_ready(self, model: str) -> bool:
        """Whether the operator can know that the model has a Ready replica."""
        return any(
            pod.ready and ordinal < entry.replicas
            for name, entry in self.sets.items()
            if entry.model == model
            for ordinal, pod in self.pods_seen.get(name, {}).items()
        )

    def reachable(self) -> list[str]:
        """Models that the thresholds in force can reach, per router process that runs."""
        found: list[str] = []
        for text in {self.text, *self.routers.values()}:
            config = parsed(text)
            for model in config.models if config else ():
                found.append(model.name)
                if model.threshold == 0:
                    break
        return found

    def running(self) -> dict[str, int]:
        return {name: entry.replicas for name, entry in self.sets.items() if entry.replicas}
