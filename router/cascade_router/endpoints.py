"""The replicas of each model: who takes new work, who only finishes, who has nothing left."""

from collections.abc import Iterable, Mapping

from pydantic import Field

from .balance import Pool, Replica
from .config import RoutedModel, RouterConfig
from .document import Document

NO_POOL = Pool(())


class Endpoint(Document):
    """One address of a Service as its EndpointSlices give it. ``ready`` takes new work."""

    pod: str
    uid: str = ""
    address: str = Field(pattern=r"^https?://[^/\s]+$")
    ready: bool


class Directory:
    """Replicas by model, rebuilt on each change of plan or endpoints; counters survive."""

    def __init__(self) -> None:
        self._config: RouterConfig | None = None
        self._services: Mapping[str, tuple[Endpoint, ...]] = {}
        self._replicas: dict[tuple[str, str, str], Replica] = {}
        self._pools: dict[str, Pool] = {}
        self._seen: set[str] = set()
        self._leaving: frozenset[str] = frozenset()

    def apply_config(self, config: RouterConfig) -> set[str]:
        """Follow a new plan; returns the addresses that no replica has any more."""
        self._config = config
        return self._rebuild()

    def apply_services(self, services: Mapping[str, tuple[Endpoint, ...]]) -> set[str]:
        """Follow new endpoints by Service name; returns the addresses that are gone."""
        self._services = services
        return self._rebuild()

    def pool(self, model: str) -> Pool:
        """Replicas of ``model`` that take new work."""
        return self._pools.get(model, NO_POOL)

    @property
    def replicas(self) -> Iterable[Replica]:
        """All replicas known, those that only finish included."""
        return self._replicas.values()

    def missing(self) -> list[str]:
        """Models that the plan asks and that never had a Ready replica here."""
        if self._config is None:
            return ["any model: no plan yet"]
        return [m.name for m in self._config.models if is_asked(m) and m.name not in self._seen]

    def idle_leaving(self) -> list[str]:
        """Leaving pods of the plan with nothing in flight in this process, sorted."""
        busy = {r.pod for r in self._replicas.values() if r.in_flight}
        return sorted(self._leaving - busy)

    def is_leaving(self, pod: str) -> bool:
        """Whether the plan gives the pod no new work."""
        return pod in self._leaving

    def prune(self) -> None:
        """Forget replicas that are gone and have finished."""
        gone = [k for k, r in self._replicas.items() if not r.listed and not r.in_flight]
        for key in gone:
            del self._replicas[key]

    def _rebuild(self) -> set[str]:
        if self._config is None:
            return set()
        before = {r.address for r in self._replicas.values() if r.listed}
        for replica in self._replicas.values():
            replica.listed = False
        self._pools = {}
        models = self._config.models
        self._leaving = frozenset(pod for model in models for pod in model.leaving_pods)
        for model in models:
            open_replicas = []
            for pod, uid, address, weight, ready in self._listed(model):
                replica = self._replica(model.name, pod, uid, address)
                replica.weight, replica.listed = weight, True
                if ready and pod not in model.leaving_pods:
                    open_replicas.append(replica)
            self._pools[model.name] = Pool(open_replicas)
            if open_replicas:
                self._seen.add(model.name)
        self.prune()
        return before - {r.address for r in self._replicas.values() if r.listed}

    def _replica(self, model: str, pod: str, uid: str, address: str) -> Replica:
        key = (model, pod, address)
        replica = self._replicas.get(key)
        if replica is None:
            replica = self._replicas[key] = Replica(model, pod, uid, address)
        return replica

    def _listed(self, model: RoutedModel) -> Iterable[tuple[str, str, str, float, bool]]:
        for endpoint in model.endpoints:
            yield endpoint.url, "", endpoint.url, endpoint.weight, True
        if model.service is not None:
            for found in self._services.get(model.service, ()):
                weight = set_weight(model, found.pod)
                yield found.pod, found.uid, found.address, weight, found.ready


def is_asked(model: RoutedModel) -> bool:
    """Whether requests can reach the model at all."""
    return model.threshold != 101 and model.visit_ratio > 0


def set_weight(model: RoutedModel, pod: str) -> float:
    """Capacity of a pod by the set it belongs to; 1 for a pod of no planned set."""
    prefix, _, ordinal = pod.rpartition("-")
    if ordinal.isdigit():
        for engine_set in model.sets:
            if engine_set.name == prefix:
                return engine_set.weight
    return 1.0
