"""Scene: one namespace with its own GPU nodes, a played router and a record of what happens."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from cascade_cluster.handle import Cluster
from cascade_operator import errors, kube, names, published, views
from cascade_router import config as router_config
from tests.operator import samples

Body = dict[str, Any]
SMALL, LARGE = samples.SMALL, samples.LARGE
WAIT_SECONDS = 45.0
QUICK_SEARCH = {"maxRounds": 3, "simulatedRequests": 200, "quantiles": 5}
"""The plan is not what these tests are about."""


class Scene:
    """Everything a test does to one namespace, and sees of it."""

    def __init__(self, api: kube.Kube, cluster: Cluster, namespace: str) -> None:
        self.api = api
        self.cluster = cluster
        self.namespace = namespace
        self.nodes: list[str] = []
        self.events: list[tuple[int, str, str, Body]] = []
        """(resourceVersion, event type, kind, object) of pods and sets, as they came."""
        self.changed = asyncio.Event()
        """Something happened, for the test that waits."""
        self.to_route = asyncio.Event()
        """Something happened, for the played router."""
        self.answers_router = True

    # -- doing --------------------------------------------------------------------------------

    def document(self, name: str = "chat", limit: int | None = 8, **fields: Any) -> Body:
        """A cascade of two models on this scene's nodes."""
        pool = {"gpuType": "H100", "nodeSelector": {"scene": self.namespace}}
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "models": [model("small", SMALL), model("large", LARGE)],
                "qmin": 75,
                "gpuPool": [pool | ({} if limit is None else {"limit": limit})],
                "search": QUICK_SEARCH,
                **fields,
            },
        }

    async def create(self, document: Body) -> Body:
        path = kube.CASCADE.path(self.namespace)
        return await self.api.create(f"{path}?fieldValidation=Strict", document)

    async def change(self, name: str, **spec: Any) -> None:
        """Sets fields of the spec (merge patch)."""
        path = kube.CASCADE.path(self.namespace, name)
        await self.api.merge(path, {"spec": spec}, "user")

    async def annotate(self, resource: kube.Resource, name: str, **values: str | None) -> None:
        path = resource.path(self.namespace, name)
        await self.api.merge(path, {"metadata": {"annotations": values}}, "user")

    async def calibrate(self, text: str, name: str = "chat") -> None:
        """The calibration table as the calibration Job writes it."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": names.calibration(name),
                "labels": {names.LABEL_CASCADE: name},
            },
            "data": {names.CALIBRATION_KEY: text},
        }
        path = kube.CONFIG_MAP.path(self.namespace, names.calibration(name))
        await self.api.apply(path, body, "calibrate")

    # -- seeing -------------------------------------------------------------------------------

    async def cascade(self, name: str = "chat") -> Body:
        return await self.api.get(kube.CASCADE.path(self.namespace, name))

    async def objects(self, resource: kube.Resource) -> list[Body]:
        found: list[Body] = (await self.api.get(resource.path(self.namespace)))["items"]
        return found

    async def plan(self, name: str = "chat") -> Body:
        body = await self.api.get(kube.CONFIG_MAP.path(self.namespace, names.plan(name)))
        found: Body = json.loads(body["data"]["plan.json"])
        return found

    async def router(self, name: str = "chat") -> router_config.RouterConfig:
        body = await self.api.get(kube.CONFIG_MAP.path(self.namespace, names.router(name)))
        text = body["data"][router_config.CONFIG_KEY]
        return router_config.RouterConfig.model_validate_json(text)

    async def until(
        self,
        what: str,
        holds: Callable[[Body], bool],
        name: str = "chat",
        seconds: float = WAIT_SECONDS,
    ) -> Body:
        """The cascade, once the predicate holds for it; looks again at every event."""
        body: Body = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.changed.clear()
                    body = await self.cascade(name)
                    if holds(body):
                        return body
                    await self.changed.wait()
        except TimeoutError:
            shown = json.dumps(body.get("status", {}).get("conditions"), indent=1)
            raise AssertionError(f"{what}: not within {seconds:g} s; conditions {shown}") from None

    async def until_condition(
        self,
        kind: str,
        status: str,
        reason: str | None = None,
        name: str = "chat",
        seconds: float = WAIT_SECONDS,
        mentions: str = "",
    ) -> str:
        """The condition's message, once it has this status (and reason) at this generation, and
        names what it should."""

        def holds(body: Body) -> bool:
            found = views.condition(body, kind)
            return (
                found.get("status") == status
                and found.get("observedGeneration") == body["metadata"]["generation"]
                and reason in (None, found.get("reason"))
                and mentions in found.get("message", "")
            )

        what = f"{kind}={status} {reason or ''} {mentions}".rstrip()
        body = await self.until(what, holds, name, seconds)
        return str(views.condition(body, kind)["message"])

    async def until_settled(self, name: str = "chat", seconds: float = WAIT_SECONDS) -> Body:
        """Ready, nothing under way, and what runs is what was planned for this generation (a plan
        that only downtime could reach may be named beside it)."""

        def holds(body: Body) -> bool:
            wanted = (("Ready", "True"), ("Stalled", "False"), ("Reconciling", "False"))
            found = [views.condition(body, kind) for kind, _ in wanted]
            generation = body["metadata"]["generation"]
            plan = body.get("status", {}).get("plan", {})
            return plan.get("applied") == plan.get("revision") and all(
                c.get("status") == status and c.get("observedGeneration") == generation
                for c, (_, status) in zip(found, wanted, strict=True)
            )

        return await self.until("settled", holds, name, seconds)

    def committed(self) -> list[tuple[int, str]]:
        """Committed GPUs after every event, in the order of the API server, with what happened.

        Counted here from the objects alone: bound pods that are not gone, unbound Pending ones,
        and replicas without a pod.
        """
        pods: dict[str, Body] = {}
        sets: dict[str, Body] = {}
        history = []
        for _, kind, plural, body in sorted(self.events, key=lambda event: event[0]):
            table = pods if plural == "pods" else sets
            name = body["metadata"]["name"]
            if kind == "DELETED":
                table.pop(name, None)
            else:
                table[name] = body
            held = sum(_gpus(p["spec"]) for p in pods.values() if _is_engine(p))
            for set_name, entry in sets.items():
                own = [p for p in pods.values() if views.labels(p).get(names.LABEL_SET) == set_name]
                missing = max(0, entry["spec"]["replicas"] - len(own))
                held += missing * _gpus(entry["spec"]["template"]["spec"])
            history.append((held, f"{kind} {plural}/{name}"))
        return history

    def pod_uids(self) -> set[str]:
        """Every engine pod that was ever seen."""
        return {
            body["metadata"]["uid"]
            for _, _, plural, body in self.events
            if plural == "pods" and _is_engine(body)
        }

    # -- in the background --------------------------------------------------------------------

    async def watch(self, resource: kube.Resource) -> None:
        """Records everything that happens to one kind in this namespace."""
        path = resource.path(self.namespace)
        version = "0"
        while True:
            try:
                async for event in self.api.watch(path, {"resourceVersion": version}):
                    body = event["object"]
                    version = body["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        if resource in (kube.POD, kube.STATEFUL_SET):
                            seen = (int(version), event["type"], resource.plural, body)
                            self.events.append(seen)
                        self.changed.set()
                        self.to_route.set()
            except errors.UnavailableError:
                await asyncio.sleep(0.1)  # the server closes idle streams

    async def play_router(self) -> None:
        """Does what routers do: runs each configuration at once, has no request in flight."""
        while True:
            await self.to_route.wait()
            self.to_route.clear()
            if self.answers_router:
                with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
                    for config_map in await self.objects(kube.CONFIG_MAP):
                        text = (config_map.get("data") or {}).get(router_config.CONFIG_KEY)
                        if text is not None:
                            await self._acknowledge(config_map, text)

    async def _acknowledge(self, config_map: Body, text: str) -> None:
        cascade = views.labels(config_map)[names.LABEL_CASCADE]
        pods = {p["metadata"]["name"]: p for p in await self.objects(kube.POD)}
        leaving = router_config.RouterConfig.model_validate_json(text)
        gone = [n for m in leaving.models for n in m.leaving_pods if n in pods]
        annotations = {
            names.ANNOTATION_ACK_DIGEST: published.digest(text),
            names.ANNOTATION_ACK_PLAN: leaving.plan_id,
            names.ANNOTATION_ACK_DRAINED: ",".join(pods[n]["metadata"]["uid"] for n in gone),
            names.ANNOTATION_ACK_ERROR: "",
            names.ANNOTATION_ACK_VERSIONS: "1",
        }
        for pod in pods.values():
            labels = views.labels(pod)
            is_router = labels.get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER
            if is_router and labels.get(names.LABEL_CASCADE) == cascade:
                lease = _lease(pod, cascade, annotations)
                path = kube.LEASE.path(self.namespace, pod["metadata"]["name"])
                await self.api.apply(path, lease, "cascade-router")


def model(name: str, source: str, **fields: Any) -> Body:
    return {"name": name, "source": {"huggingFace": {"id": source}}, **fields}


def _lease(pod: Body, cascade: str, annotations: dict[str, str]) -> Body:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "labels": {names.LABEL_COMPONENT: "router-ack", names.LABEL_CASCADE: cascade},
            "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}],
        },
        "spec": {"holderIdentity": name},
    }


def _is_engine(pod: Body) -> bool:
    return views.labels(pod).get(names.LABEL_COMPONENT) == names.COMPONENT_ENGINE


def _gpus(pod_spec: Body) -> int:
    return sum(
        int(c.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        for c in pod_spec["containers"]
    )


async def connect(kubeconfig: Path) -> kube.Kube:
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return kube.Kube(client.ApiClient(configuration), 15.0)


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, namespace: str) -> AsyncIterator[Scene]:
    """A new namespace with its record and its router; deleted at the end."""
    api = await connect(cluster.kubeconfig)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    space = kube.Resource("v1", "Namespace", "namespaces", is_namespaced=False)
    made = await api.create(space.path(), body)
    scene = Scene(api, cluster, namespace)
    tasks = [
        asyncio.create_task(scene.watch(resource))
        for resource in (kube.POD, kube.STATEFUL_SET, kube.CONFIG_MAP, kube.CASCADE)
    ]
    tasks.append(asyncio.create_task(scene.play_router()))
    try:
        yield scene
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for body in await scene.objects(kube.CASCADE):
            path = kube.CASCADE.path(namespace, body["metadata"]["name"])
            await api.delete(path, body["metadata"]["uid"])
        # Pods end on their node: it may go, and its name be used again, only after them.
        async with asyncio.timeout(WAIT_SECONDS):
            while await scene.objects(kube.POD):
                await asyncio.sleep(0.1)
        with contextlib.suppress(errors.NotFoundError):
            await api.delete(space.path(name=namespace), made["metadata"]["uid"])
        await api.close()
