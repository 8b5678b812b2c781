"""A recording API server and scripted routers, for the tests of the watch."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from cascade_driftwatch import routers
from cascade_driftwatch.kube import KubeError
from cascade_driftwatch.planned import PlanInForce
from cascade_operator import names
from cascade_router.window import WindowReport
from tests.driftwatch import traffic


def cascade(name: str = "chat", namespace: str = "team-a", **drift: Any) -> dict[str, Any]:
    """A CascadeService whose plan is applied since the epoch."""
    applied = {
        "type": "PlanApplied",
        "status": "True",
        "reason": "Applied",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"drift": drift},
        "status": {"conditions": [applied]},
    }


def plan_text(plan: PlanInForce) -> str:
    verdict = "Uncalibrated" if plan.is_steered else "Feasible"
    workload = json.loads(plan.workload.model_dump_json(by_alias=True))
    # The planner's document holds more than drift-watch reads.
    return json.dumps({"verdict": verdict, "models": [], "workload": {**workload, "more": [1]}})


def config_map(plan: PlanInForce) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {names.LABEL_PLAN: plan.revision}},
        "data": {"plan.json": plan_text(plan)},
    }


def endpoint_slice(
    pods: Mapping[str, str], cascade: str = "chat", namespace: str = "team-a", port: int = 9090
) -> dict[str, Any]:
    """An EndpointSlice of a router Service. ``pods``: name -> address."""
    return {
        "metadata": {
            "name": f"{cascade}-router-x",
            "namespace": namespace,
            "labels": {
                names.LABEL_COMPONENT: names.COMPONENT_ROUTER,
                names.LABEL_CASCADE: cascade,
                "kubernetes.io/service-name": f"{cascade}-router",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "api", "port": 8000}, {"name": "admin", "port": port}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": pod},
            }
            for pod, address in pods.items()
        ],
    }


class FakeApi:
    """Answers from dictionaries and keeps what was applied, in the order of the calls."""

    def __init__(self) -> None:
        self.cascades: list[dict[str, Any]] = [cascade()]
        self.slices: list[dict[str, Any]] = [endpoint_slice({"router-0": "10.0.0.1"})]
        self.config_maps: dict[str, Any] = {"chat-plan": config_map(traffic.plan())}
        self.applied: list[tuple[str, dict[str, Any]]] = []
        self.listed: list[tuple[str, str]] = []
        self.failing: dict[str, KubeError | Exception] = {}

    def _fail(self, path: str) -> None:
        for part, error in self.failing.items():
            if part in path:
                raise error

    async def collection(self, path: str, selector: str = "") -> list[dict[str, Any]]:
        self.listed.append((path, selector))
        self._fail(path)
        return copy.deepcopy(self.slices if path.endswith("slices") else self.cascades)

    async def get(self, path: str) -> dict[str, Any]:
        self._fail(path)
        name = path.rpartition("/")[2]
        if name not in self.config_maps:
            raise KubeError(f"GET {path}: not found", 404)
        found: dict[str, Any] = self.config_maps[name]
        return found

    async def apply(self, path: str, body: Mapping[str, Any]) -> None:
        self._fail(path)
        self.applied.append((path, json.loads(json.dumps(body))))
        for known in self.cascades:
            if known["metadata"]["name"] == body["metadata"]["name"]:
                known["status"]["drift"] = body["status"].get("drift", {})

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [body["status"]["drift"] for _, body in self.applied]


class FakeRouters:
    """Windows by pod; a pod may raise instead."""

    def __init__(self) -> None:
        self.reports: dict[str, WindowReport | routers.RouterError] = {}

    async def __call__(self, address: routers.Address) -> WindowReport:
        found = self.reports[address.pod]
        if isinstance(found, routers.RouterError):
            raise found
        return found
