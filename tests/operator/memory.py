"""A cluster in memory for passes without a server: objects, a StatefulSet controller, a router."""

import asyncio
import copy
import random
from collections.abc import Mapping
from typing import Any

from cascade_operator import (
    apply,
    errors,
    events,
    kube,
    names,
    observe,
    published,
    reconcile,
    views,
)
from cascade_operator.settings import Settings
from cascade_router import config as router_config
from tests.operator import samples

Body = dict[str, Any]


class MemoryApi:
    """Stands in for ``kube.Kube``: keeps objects by path and counts what is asked of it."""

    def __init__(self) -> None:
        self.objects: dict[str, Body] = {}
        self.requests: list[str] = []
        self.refusals: dict[str, errors.ClusterApiError] = {}
        """Start of "METHOD path" -> the error to raise."""
        self._version = 0

    async def get(self, path: str, **query: str) -> Body:
        self._asked("GET", path)
        return copy.deepcopy(self._found(path))

    async def create(self, path: str, body: Body) -> Body:
        self._asked("POST", path)
        return self._store(f"{path}/{body['metadata']['name']}", copy.deepcopy(body))

    async def apply(self, path: str, body: Body, manager: str) -> Body:
        self._asked("PATCH", path)
        if path.endswith("/status"):
            return self._applied_status(path.removesuffix("/status"), body["status"])
        if path not in self.objects:
            return self._store(path, copy.deepcopy(body))
        return self._changed(path, body)

    async def merge(self, path: str, body: Body, manager: str) -> Body:
        self._asked("PATCH", path)
        return self._changed(path, body)

    async def delete(self, path: str, uid: str) -> None:
        self._asked("DELETE", path)
        self._found(path)
        del self.objects[path]

    def store(self, path: str, body: Body) -> Body:
        """Puts an object there, as somebody else would."""
        return self._store(path, copy.deepcopy(body))

    def _applied_status(self, path: str, status: Body) -> Body:
        """Fields that are no longer applied go, those of drift-watch stay."""
        before = self._found(path)
        drift = {k: v for k, v in (before.get("status") or {}).items() if k == "drift"}
        after = {**before, "status": {**drift, **copy.deepcopy(status)}}
        return copy.deepcopy(before) if after == before else self._store(path, after)

    def _asked(self, method: str, path: str) -> None:
        self.requests.append(f"{method} {path}")
        for start, error in self.refusals.items():
            if f"{method} {path}".startswith(start):
                raise error

    def _found(self, path: str) -> Body:
        if path not in self.objects:
            raise errors.NotFoundError(f"GET {path}", 404, "not found")
        return self.objects[path]

    def _store(self, path: str, body: Body) -> Body:
        self._version += 1
        metadata = body["metadata"]
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata.setdefault("generation", 1)
        metadata["resourceVersion"] = str(self._version)
        self.objects[path] = body
        return copy.deepcopy(body)

    def _changed(self, path: str, change: Mapping[str, Any]) -> Body:
        before = self._found(path)
        after = _merged(before, change)
        if after == before:
            return copy.deepcopy(before)
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] += 1
        return self._store(path, after)


def _merged(before: Any, change: Any) -> Any:
    if isinstance(before, Mapping) and isinstance(change, Mapping):
        return {**before, **{k: _merged(before.get(k), v) for k, v in change.items()}}
    return copy.deepcopy(change)


class MemoryCluster:
    """One reconciler with filled caches. Nothing happens by itself: ``settle`` does it."""

    def __init__(self, **settings: Any) -> None:
        self.api = MemoryApi()
        self.clock = samples.NOW
        self.settings: Settings = samples.settings(**settings)
        self.caches = observe.Caches(
            self.api,
            self.settings,
            lambda *_: None,
            random.Random(0),  # type: ignore[arg-type]
        )
        self.may_write = True
        self.writer = apply.Writer(self.api, self.caches, lambda: self.may_write)  # type: ignore[arg-type]
        recorder = events.Recorder(self.api, "operator-0", lambda: self.clock)  # type: ignore[arg-type]
        self.reconciler = reconcile.Reconciler(
            self.api,  # type: ignore[arg-type]
            self.caches,
            self.writer,
            recorder,
            self.settings,
            lambda: self.clock,
        )
        for number in range(2):
            self.put(kube.NODE, node(f"node-{number}"))

    def put(self, resource: kube.Resource, body: Body) -> Body:
        """An object of somebody else, and the caches know it."""
        metadata = body["metadata"]
        stored = self.api.store(resource.path(metadata.get("namespace"), metadata["name"]), body)
        for cache in self.caches.every():
            if cache.resource == resource and cache is not self.caches.foreign_pods:
                cache.remember(copy.deepcopy(stored))
        return stored

    def put_foreign_pod(self, node_name: str, gpus: int) -> None:
        """A pod of somebody else that holds GPUs."""
        container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        pod = {
            "metadata": {"name": "job", "namespace": "other"},
            "spec": {"nodeName": node_name, "containers": [container]},
            "status": {"phase": "Running"},
        }
        assert self.caches.foreign_pods is not None
        self.caches.foreign_pods.remember(self.api.store(kube.POD.path("other", "job"), pod))

    def restarted(self) -> "MemoryCluster":
        """Another operator's process on the same cluster."""
        other = MemoryCluster()
        other.api.objects = self.api.objects
        other.adopt(self.caches)
        return other

    def adopt(self, caches: observe.Caches) -> None:
        """Fills the caches with what those of the former process hold."""
        for mine, theirs in zip(self.caches.every(), caches.every(), strict=True):
            for body in theirs.all():
                mine.remember(copy.deepcopy(body))

    def create(self, name: str = "chat", **spec: Any) -> reconcile.Key:
        """A cascade of two models on 12 of 16 GPUs."""
        body = samples.body(**spec)
        body["metadata"] |= {
            "name": name,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:00:0{len(list(self.caches.cascades.all()))}Z",
        }
        body |= {"apiVersion": names.API_VERSION, "kind": names.KIND}
        body["spec"]["gpuPool"] = [{"resourceName": "nvidia.com/gpu", **body["spec"]["gpuPool"][0]}]
        self.put(kube.CASCADE, body)
        return ("demo", name)

    def change(self, key: reconcile.Key, **spec: Any) -> None:
        """The user edits the spec."""
        body = self.cascade(key)
        body["spec"] |= spec
        body["metadata"]["generation"] += 1
        self.put(kube.CASCADE, body)

    def cascade(self, key: reconcile.Key) -> Body:
        return copy.deepcopy(self.api.objects[kube.CASCADE.path(*key)])

    def condition(self, key: reconcile.Key, kind: str) -> Mapping[str, Any]:
        return views.condition(self.cascade(key), kind)

    def reasons(self) -> list[str]:
        """Reasons of all Events so far."""
        events_path = f"{kube.EVENT.path('demo')}/"
        return [o["reason"] for p, o in self.api.objects.items() if p.startswith(events_path)]

    async def run(self, key: reconcile.Key, passes: int = 12) -> reconcile.Result:
        """Passes, with the cluster following each, until one asks for no other."""
        for _ in range(passes):
            result = await self.reconciler.reconcile(key)
            self.settle()
            if result.again_after is None and not self._is_moving(key):
                return result
        return result

    def _is_moving(self, key: reconcile.Key) -> bool:
        return bool(self.condition(key, "Reconciling").get("status") == "True")

    def settle(self) -> None:
        """Controllers, kubelet and router do all that is to do."""
        for path, body in list(self.api.objects.items()):
            if body.get("kind") == "StatefulSet":
                self._control(body)
            elif body.get("kind") == "Deployment":
                self._route(path, body)

    def _control(self, entry: Body) -> None:
        metadata, replicas = entry["metadata"], entry["spec"]["replicas"]
        own = {f"{metadata['name']}-{ordinal}" for ordinal in range(replicas)}
        for pod in list(self.caches.pods.all()):
            of_set = views.labels(pod).get(names.LABEL_SET) == metadata["name"]
            if of_set and pod["metadata"]["name"] not in own:
                del self.api.objects[kube.POD.path(metadata["namespace"], pod["metadata"]["name"])]
                self.caches.pods.forget(pod)
        for name in sorted(own):
            if self.caches.pods.get(metadata["namespace"], name) is None:
                template = entry["spec"]["template"]
                self.put(kube.POD, ready_pod(name, metadata["namespace"], template))
        status = {"replicas": replicas, "observedGeneration": metadata["generation"]}
        if entry.get("status") != status:
            self.put(kube.STATEFUL_SET, {**entry, "status": status})

    def _route(self, path: str, deployment: Body) -> None:
        metadata = deployment["metadata"]
        namespace, pod_name = metadata["namespace"], f"{metadata['name']}-0"
        if self.caches.pods.get(namespace, pod_name) is None:
            template = deployment["spec"]["template"]
            self.put(kube.POD, ready_pod(pod_name, namespace, template))
        pod = self.caches.pods.get(namespace, pod_name)
        config_map = self.api.objects[kube.CONFIG_MAP.path(namespace, metadata["name"])]
        text = config_map["data"][router_config.CONFIG_KEY]
        leaving = router_config.RouterConfig.model_validate_json(text)
        gone = [n for m in leaving.models for n in m.leaving_pods]
        pods = [self.caches.pods.get(namespace, name) for name in gone]
        assert pod is not None
        lease = {
            "metadata": {
                "name": pod_name,
                "namespace": namespace,
                "labels": views.labels(pod),
                "annotations": {
                    names.ANNOTATION_ACK_DIGEST: published.digest(text),
                    names.ANNOTATION_ACK_DRAINED: ",".join(p["metadata"]["uid"] for p in pods if p),
                },
                "ownerReferences": [{"uid": pod["metadata"]["uid"]}],
            }
        }
        self.put(kube.LEASE, lease)


def node(name: str, gpus: int = 8) -> Body:
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def ready_pod(name: str, namespace: str, template: Body, on: str = "node-0") -> Body:
    return {
        "metadata": {"name": name, "namespace": namespace, **template["metadata"]},
        "spec": {**template["spec"], "nodeName": on},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Planner:
    """Stands in for the planning child: gives plans or errors in turn, and can be held up."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(
        self, problem: Any, timeout_seconds: float, memory_mib: int, cancel: asyncio.Event
    ) -> Any:
        self.calls += 1
        answer = self.answers[min(self.calls, len(self.answers)) - 1]
        done = [asyncio.ensure_future(e.wait()) for e in (self.gate, cancel)]
        await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.cancel()
        if cancel.is_set():
            raise asyncio.CancelledError("a newer spec replaces this plan")
        if isinstance(answer, Exception):
            raise answer
        return answer
