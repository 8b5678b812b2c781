"""The reads: everything that one pass knows, taken from the watch caches into one frozen value."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from cascade_router import config as router_config

from . import ledger, manifests, names, plan_record, views
from .cache import Cache, OnChange
from .kube import (
    CASCADE,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    LEASE,
    NETWORK_POLICY,
    NODE,
    POD,
    QUOTA,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Body,
    Kube,
)
from .observation import CalibrationView, Observation, PodView, PoolView, RouterView, SetView
from .settings import Settings
from .spec import CascadeSpec

OURS = names.LABEL_CASCADE
COMPONENT_ACK = "router-ack"
OTHER_CHILDREN = (
    SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, DISRUPTION_BUDGET, NETWORK_POLICY,
)  # fmt: skip
"""Kinds of children that nothing is read from: cached to see whether they still are as applied."""
NO_POOL = PoolView("", "", 0, 1, (), 0, 0)


class Caches:
    """One cache per kind, shared by all cascades. Foreign pods and nodes only cluster-wide."""

    def __init__(
        self, kube: Kube, settings: Settings, on_change: OnChange, draws: random.Random
    ) -> None:
        spaces = None if settings.cluster_scoped else settings.watch_namespaces

        def cache(resource: Any, selector: str = "", **more: Any) -> Cache:
            return Cache(
                kube, resource, on_change, namespaces=spaces, selector=selector, draws=draws, **more
            )

        self.is_cluster_scoped = settings.cluster_scoped
        self.cascades = cache(CASCADE)
        self.sets = cache(STATEFUL_SET, OURS)
        self.deployments = cache(DEPLOYMENT, OURS)
        self.config_maps = cache(CONFIG_MAP, OURS)
        self.pods = cache(POD, OURS)
        self.acks = cache(LEASE, f"{OURS},{names.LABEL_COMPONENT}={COMPONENT_ACK}")
        self.quotas = cache(QUOTA)
        self.others = {resource.kind: cache(resource, OURS) for resource in OTHER_CHILDREN}
        self.foreign_pods: Cache | None = None
        self.nodes: Cache | None = None
        if settings.cluster_scoped:
            self.foreign_pods = cache(POD, f"!{OURS}", reduce=views.reduced_foreign_pod)
            self.nodes = cache(NODE)

    def every(self) -> list[Cache]:
        found = [
            self.cascades, self.sets, self.deployments, self.config_maps, self.pods, self.acks,
            self.quotas, *self.others.values(), self.foreign_pods, self.nodes,
        ]  # fmt: skip
        return [cache for cache in found if cache is not None]

    def children(self) -> dict[str, Cache]:
        """Kinds that the operator writes -> their caches."""
        own = (self.sets, self.deployments, self.config_maps)
        return {cache.resource.kind: cache for cache in own} | self.others

    def of_cascade(self, cache: Cache, namespace: str, name: str) -> list[Body]:
        """A cascade's objects of one kind, by name."""
        return [body for body in cache.of(namespace) if views.labels(body).get(OURS) == name]


def observe(
    caches: Caches, body: Body, spec: CascadeSpec | None, calibration: Body | None, now: float
) -> Observation:
    """What is known of one cascade. Without a valid spec its pool is unknown and stays empty."""
    metadata = body["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    lost = _lost_nodes(caches)
    resource = spec.pool.resource_name if spec else _pool_of(body).get("resourceName", "")
    sets = sets_of(caches, namespace, name, resource, lost)
    plan = caches.config_maps.get(namespace, names.plan(name))
    data: Mapping[str, str] = (plan or {}).get("data") or {}
    return Observation(
        now=now,
        namespace=namespace,
        name=name,
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        created=metadata.get("creationTimestamp", ""),
        sets=sets,
        router=_router(caches, namespace, name),
        pool=_pool(caches, body, spec, sets, lost) if spec else NO_POOL,
        calibration=_calibration(spec, calibration),
        plan_text=data.get(plan_record.PLAN_KEY),
        problem_text=data.get(plan_record.PROBLEM_KEY),
        record_text=data.get(plan_record.RECORD_KEY),
        proposal_text=data.get(plan_record.PROPOSAL_KEY),
        plan_annotations=dict(views.annotations(plan)) if plan else {},
        drift=body.get("status", {}).get("drift") or {},
        annotations=dict(views.annotations(body)),
        status=body.get("status") or {},
    )


def sets_of(
    caches: Caches, namespace: str, name: str, resource: str, lost: frozenset[str]
) -> tuple[SetView, ...]:
    """A cascade's sets with their pods, and pods whose set is gone."""
    pods: dict[str, list[PodView]] = {}
    models: dict[str, str] = {}
    for pod in caches.of_cascade(caches.pods, namespace, name):
        if views.labels(pod).get(names.LABEL_COMPONENT) == names.COMPONENT_ENGINE:
            view = views.pod_view(pod, resource, lost)
            pods.setdefault(view.set_name, []).append(view)
            models[view.set_name] = views.labels(pod).get(names.LABEL_MODEL, "")
    found = [
        views.set_view(
            body, pods.pop(body["metadata"]["name"], ()), resource, manifests.RENDER_VERSION
        )
        for body in caches.of_cascade(caches.sets, namespace, name)
    ]
    return (*found, *(views.orphans(s, models[s], left) for s, left in sorted(pods.items())))


def claims(caches: Caches, body: Body) -> list[ledger.Claim]:
    """Other cascades on the same GPUs, elder ones first."""
    resource = _pool_of(body).get("resourceName", "nvidia.com/gpu")
    own = body["metadata"]["uid"]
    pool = {
        node["metadata"]["name"]
        for node in _pool_nodes(caches, _pool_of(body).get("nodeSelector") or {})
    }
    found = [
        _claim(caches, other, resource, pool)
        for other in caches.cascades.all()
        if other["metadata"]["uid"] != own and _overlaps(caches, body, other)
    ]
    return sorted(found, key=lambda claim: (claim.created, claim.uid))


def _claim(caches: Caches, other: Body, resource: str, pool: set[str]) -> ledger.Claim:
    metadata = other["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    plan = caches.config_maps.get(namespace, names.plan(name))
    planned = views.annotations(plan).get(names.ANNOTATION_GPUS) if plan else None
    limit = _pool_of(other).get("limit")
    sets = sets_of(caches, namespace, name, resource, frozenset())
    held = _by_node(pod for view in sets for pod in view.pods)
    return ledger.Claim(
        key=f"{namespace}/{name}",
        created=metadata.get("creationTimestamp", ""),
        uid=metadata["uid"],
        committed=ledger.committed(sets),
        planned=int(planned) if planned and planned.isdigit() else None,
        refused="deletionTimestamp" in metadata
        or views.condition(other, "PlanReady").get("status") == "False"
        or views.condition(other, "Stalled").get("status") == "True",
        ceiling=limit if limit is not None else _pool_size(caches, other, resource),
        elsewhere=sum(gpus for node, gpus in held.items() if node not in pool) if pool else 0,
    )


def _pool_of(body: Body) -> Mapping[str, Any]:
    pools = body.get("spec", {}).get("gpuPool") or [{}]
    found: Mapping[str, Any] = pools[0]
    return found


def _overlaps(caches: Caches, one: Body, other: Body) -> bool:
    """Whether two cascades want the same GPUs: the same resource on a common node; in namespaced
    mode, where nodes cannot be read, the same resource and selector."""
    first, second = _pool_of(one), _pool_of(other)
    if first.get("resourceName") != second.get("resourceName"):
        return False
    here, there = first.get("nodeSelector") or {}, second.get("nodeSelector") or {}
    if caches.nodes is None:
        return bool(here == there)
    return any(views.matches(n, here) and views.matches(n, there) for n in caches.nodes.all())


def _pool_nodes(caches: Caches, selector: Mapping[str, str]) -> list[Body]:
    nodes = caches.nodes.all() if caches.nodes is not None else ()
    matching = [node for node in nodes if views.matches(node, selector)]
    return sorted(matching, key=lambda node: str(node["metadata"]["name"]))


def _pool_size(caches: Caches, body: Body, resource: str) -> int:
    nodes = _pool_nodes(caches, _pool_of(body).get("nodeSelector") or {})
    return sum(views.node_view(node, resource, 0, 0).allocatable for node in nodes)


def _lost_nodes(caches: Caches) -> frozenset[str]:
    nodes = caches.nodes.all() if caches.nodes is not None else ()
    return frozenset(n["metadata"]["name"] for n in nodes if not views.is_ready_node(n))


def _pool(
    caches: Caches,
    body: Body,
    spec: CascadeSpec,
    sets: tuple[SetView, ...],
    lost: frozenset[str],
) -> PoolView:
    pool = spec.pool
    ours = _by_node(pod for view in sets for pod in view.pods)
    foreign = _foreign_by_node(caches, pool.resource_name)
    neighbours = _neighbours_by_node(caches, body, pool.resource_name)
    nodes = tuple(
        views.node_view(
            node,
            pool.resource_name,
            foreign.get(node["metadata"]["name"], 0) + neighbours.get(node["metadata"]["name"], 0),
            ours.get(node["metadata"]["name"], 0),
        )
        for node in _pool_nodes(caches, pool.node_selector)
    )
    # Without any node there is no GPU: an empty pool is not the same as nodes that are hidden.
    hidden = caches.nodes is None
    others = claims(caches, body)
    created, uid = body["metadata"].get("creationTimestamp", ""), body["metadata"]["uid"]
    elders = [c for c in others if c.is_elder_than(created, uid) and c.promised(created, uid)]
    allocatable = sum(node.allocatable for node in nodes)
    largest = max((node.allocatable for node in nodes), default=1)
    return PoolView(
        name=pool.name,
        gpu_type=pool.gpu_type,
        limit=ledger.limit(
            pool.limit,
            (pool.limit or 0) if hidden else allocatable,
            _quotas(caches, spec),
            sum(ours.values()),
            [m.scheduling.priority_class_name or "" for m in spec.models],
        ),
        gpus_per_node=pool.gpus_per_node or max(1, largest),
        nodes=nodes,
        foreign=sum(foreign.get(node.name, 0) for node in nodes if node.name not in lost),
        others=sum(claim.promised(created, uid) for claim in others),
        elder=elders[0].key if elders else "",
    )


def _by_node(pods: Iterable[PodView]) -> dict[str, int]:
    held: dict[str, int] = {}
    for pod in pods:
        if pod.node:
            held[pod.node] = held.get(pod.node, 0) + ledger.held(pod)
    return held


def _foreign_by_node(caches: Caches, resource: str) -> dict[str, int]:
    held: dict[str, int] = {}
    for pod in caches.foreign_pods.all() if caches.foreign_pods is not None else ():
        if pod["node"] and not pod["finished"]:
            held[pod["node"]] = held.get(pod["node"], 0) + pod["held"].get(resource, 0)
    return held


def _neighbours_by_node(caches: Caches, body: Body, resource: str) -> dict[str, int]:
    """GPUs that pods of other cascades hold, per node."""
    metadata = body["metadata"]
    own = (metadata["namespace"], metadata["name"])
    return _by_node(
        views.pod_view(pod, resource, frozenset())
        for pod in caches.pods.all()
        if (pod["metadata"]["namespace"], views.labels(pod).get(OURS)) != own
    )


def _quotas(caches: Caches, spec: CascadeSpec) -> list[ledger.Quota]:
    found = (ledger.quota_of(q, spec.pool.resource_name) for q in caches.quotas.of(spec.namespace))
    return [quota for quota in found if quota is not None]


def _router(caches: Caches, namespace: str, name: str) -> RouterView:
    config = caches.config_maps.get(namespace, names.router(name))
    return views.router_view(
        caches.deployments.get(namespace, names.router(name)),
        [
            pod
            for pod in caches.of_cascade(caches.pods, namespace, name)
            if views.labels(pod).get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER
        ],
        caches.of_cascade(caches.acks, namespace, name),
        ((config or {}).get("data") or {}).get(router_config.CONFIG_KEY, ""),
    )


def calibration_reference(spec: CascadeSpec) -> tuple[str, str]:
    """ConfigMap and key of the calibration table."""
    given = spec.workload.calibration_ref
    if given is not None:
        return given.name, given.key
    return names.calibration(spec.name), names.CALIBRATION_KEY


def _calibration(spec: CascadeSpec | None, config_map: Body | None) -> CalibrationView:
    if spec is None:
        return CalibrationView(text=None)
    return views.calibration_view(config_map, *calibration_reference(spec))
