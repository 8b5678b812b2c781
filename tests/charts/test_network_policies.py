"""Who reaches operator and drift-watch, read out of the rendered policies for each toggle."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.charts.conftest import NAMESPACE, Render, pick

pytestmark = pytest.mark.api

Policies = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Pod:
    """What a policy sees of a pod."""

    namespace: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str]


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "this evaluation knows matchLabels only"
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def _is_peer(peer: Mapping[str, Any], source: Pod, namespace: str) -> bool:
    if "namespaceSelector" in peer:
        if not _selects(peer["namespaceSelector"], source.namespace_labels):
            return False
    elif source.namespace != namespace:
        return False
    return _selects(peer.get("podSelector", {}), source.labels)


def is_reachable(policies: Policies, source: Pod, target: Pod, port: int) -> bool:
    """Ingress as networking.k8s.io/v1 defines it: unselected pods take all, others what a rule
    of any policy lets in."""
    selecting = [
        p
        for p in policies
        if p["metadata"]["namespace"] == target.namespace
        and _selects(p["spec"]["podSelector"], target.labels)
        and "Ingress" in p["spec"]["policyTypes"]
    ]
    if not selecting:
        return True
    for policy in selecting:
        for rule in policy["spec"].get("ingress", ()):
            is_port = "ports" not in rule or port in [p["port"] for p in rule["ports"]]
            peers = rule.get("from")
            if is_port and (
                peers is None or any(_is_peer(p, source, target.namespace) for p in peers)
            ):
                return True
    return False


MONITORING = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
PROMETHEUS = Pod("monitoring", {"app": "prometheus"}, {"name": "monitoring"})
STRANGER = Pod("team-a", {"app": "web"}, {"name": "team-a"})
NEIGHBOUR = Pod(NAMESPACE, {"app": "other"}, {"name": NAMESPACE})
SOURCES = {"prometheus": PROMETHEUS, "stranger": STRANGER, "neighbour": NEIGHBOUR}

EVERYONE = {(source, port): True for source in SOURCES for port in (9090, 8000)}
METRICS_ONLY = {(source, port): port == 9090 for source, port in EVERYONE}
PROMETHEUS_ONLY = {(s, port): (s, port) == ("prometheus", 9090) for s, port in EVERYONE}

TOGGLES = [
    pytest.param({}, EVERYONE, id="off"),
    pytest.param({"enabled": True}, METRICS_ONLY, id="on"),
    pytest.param({"enabled": True, "metricsFrom": [MONITORING]}, PROMETHEUS_ONLY, id="from-named"),
    pytest.param(
        {"enabled": True, "clients": [MONITORING]}, METRICS_ONLY, id="clients-are-routers"
    ),
]


def _verdicts(objects: list[dict[str, Any]], component: str) -> dict[tuple[str, int], bool]:
    policies = [o for o in objects if o["kind"] == "NetworkPolicy"]
    labels = pick(objects, "Deployment", component)["spec"]["template"]["metadata"]["labels"]
    target = Pod(NAMESPACE, labels, {"name": NAMESPACE})
    return {
        (name, port): is_reachable(policies, source, target, port)
        for name, source in SOURCES.items()
        for port in (9090, 8000)
    }


@pytest.mark.parametrize("component", ["cascade-operator", "drift-watch"])
@pytest.mark.parametrize(("toggle", "expected"), TOGGLES)
def test_reach(
    render: Render,
    toggle: dict[str, Any],
    expected: dict[tuple[str, int], bool],
    component: str,
) -> None:
    assert _verdicts(render({"networkPolicies": toggle}), component) == expected


def _no_peers(spec: dict[str, Any]) -> None:
    del spec["ingress"][0]["from"]


def _no_ports(spec: dict[str, Any]) -> None:
    del spec["ingress"][0]["ports"]


def _other_pods(spec: dict[str, Any]) -> None:
    spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] = "router"


def _egress(spec: dict[str, Any]) -> None:
    spec["policyTypes"] = ["Egress"]


@pytest.mark.parametrize("mutate", [_no_peers, _no_ports, _other_pods, _egress])
def test_the_table_notices_a_weakened_policy(
    render: Render, mutate: Callable[[dict[str, Any]], None]
) -> None:
    values = {"networkPolicies": {"enabled": True, "metricsFrom": [MONITORING]}}
    objects = copy.deepcopy(render(values))
    mutate(pick(objects, "NetworkPolicy", "cascade-operator")["spec"])
    assert _verdicts(objects, "cascade-operator") != PROMETHEUS_ONLY
