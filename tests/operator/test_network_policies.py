"""NetworkPolicies: who may call whom on which port, evaluated over the rendered rules."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cascade_operator import manifests, names
from tests.operator import samples


@dataclass(frozen=True)
class Peer:
    """A pod with the labels that policies select by."""

    namespace: str
    labels: Mapping[str, str]


def cascade_pod(component: str, cascade: str = "chat", namespace: str = "demo") -> Peer:
    return Peer(namespace, {names.LABEL_CASCADE: cascade, names.LABEL_COMPONENT: component})


def operator_pod(component: str, namespace: str = "cascade-system") -> Peer:
    labels = {names.LABEL_NAME: "cascade-operator", names.LABEL_COMPONENT: component}
    return Peer(namespace, labels)


ROUTER, ENGINE = cascade_pod("router"), cascade_pod("engine")
PEERS = {
    "client": Peer("demo", {"app": "frontend"}),
    "stranger": Peer("elsewhere", {"app": "other"}),
    "prometheus": Peer("monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "router": ROUTER,
    "engine": ENGINE,
    "calibration": cascade_pod("calibration"),
    "other cascade's router": cascade_pod("router", cascade="other"),
    "namesake's router": cascade_pod("router", namespace="elsewhere"),
    "drift-watch": operator_pod("drift-watch"),
    "operator": operator_pod("operator"),
    "false drift-watch": operator_pod("drift-watch", namespace="elsewhere"),
}
CLIENTS = ({"podSelector": {"matchLabels": {"app": "frontend"}}},)
SCRAPERS = (
    {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    },
)
CLOSED = {"network_policy_clients": CLIENTS, "network_policy_metrics": SCRAPERS}
OPEN: dict[str, Any] = {}

API, ADMIN, SERVING = names.ROUTER_PORT, names.ADMIN_PORT, names.ENGINE_PORT

# fmt: off
TABLE = [
    # toggles, from, to, port, allowed
    (OPEN, "client", ROUTER, API, True),
    (OPEN, "stranger", ROUTER, API, True),
    (OPEN, "prometheus", ROUTER, ADMIN, True),
    (OPEN, "drift-watch", ROUTER, ADMIN, True),
    (OPEN, "router", ENGINE, SERVING, True),
    (OPEN, "calibration", ENGINE, SERVING, True),
    (OPEN, "client", ENGINE, SERVING, False),
    (OPEN, "stranger", ENGINE, SERVING, False),
    (OPEN, "prometheus", ENGINE, SERVING, False),
    (OPEN, "engine", ENGINE, SERVING, False),
    (OPEN, "router", ENGINE, 22, False),
    (OPEN, "client", ROUTER, 22, False),
    (CLOSED, "client", ROUTER, API, True),
    (CLOSED, "calibration", ROUTER, API, True),
    (CLOSED, "stranger", ROUTER, API, False),
    (CLOSED, "prometheus", ROUTER, API, False),
    (CLOSED, "prometheus", ROUTER, ADMIN, True),
    (CLOSED, "prometheus", ENGINE, SERVING, True),
    (CLOSED, "client", ROUTER, ADMIN, False),
    (CLOSED, "drift-watch", ROUTER, ADMIN, True),
    (CLOSED, "operator", ROUTER, ADMIN, True),
    (CLOSED, "drift-watch", ROUTER, API, False),
    (CLOSED, "false drift-watch", ROUTER, ADMIN, False),
    (CLOSED, "router", ENGINE, SERVING, True),
    (CLOSED, "other cascade's router", ENGINE, SERVING, False),
    (CLOSED, "namesake's router", ENGINE, SERVING, False),
    (CLOSED, "drift-watch", ENGINE, SERVING, False),
    (CLOSED, "client", ENGINE, SERVING, False),
]
# fmt: on
Policies = Sequence[dict[str, Any]]


def rendered(**settings: Any) -> Policies:
    given = samples.settings(network_policies=True, **settings)
    objects = manifests.render_cascade(samples.spec(), given, samples.OWNER)
    return [o for o in objects if o["kind"] == "NetworkPolicy"]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """A label selector as Kubernetes reads it, for the operators that policies use here."""
    expressions = selector.get("matchExpressions", [])
    assert {e["operator"] for e in expressions} <= {"In"}
    named = selector.get("matchLabels", {}).items() <= labels.items()
    return named and all(labels.get(e["key"]) in e["values"] for e in expressions)


def matches(peer: Mapping[str, Any], source: Peer, namespace: str) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}
    where = {"kubernetes.io/metadata.name": source.namespace}
    if "namespaceSelector" in peer:
        near = selects(peer["namespaceSelector"], where)
    else:
        near = source.namespace == namespace
    return near and selects(peer.get("podSelector", {}), source.labels)


def allows(policies: Policies, source: Peer, target: Peer, port: int) -> bool:
    """Ingress as Kubernetes decides it: a pod that no policy selects takes everything."""
    chosen = [
        p for p in policies
        if p["metadata"]["namespace"] == target.namespace
        and selects(p["spec"]["podSelector"], target.labels)
    ]  # fmt: skip
    if not chosen:
        return True
    return any(
        (not rule.get("from") or any(matches(p, source, target.namespace) for p in rule["from"]))
        and any(entry["port"] == port for entry in rule["ports"])
        for policy in chosen
        for rule in policy["spec"]["ingress"]
    )


@pytest.mark.parametrize(
    ("toggles", "source", "target", "port", "allowed"),
    [
        pytest.param(*row, id=f"{'closed' if row[0] else 'open'}: {row[1]} to "
                     f"{row[2].labels[names.LABEL_COMPONENT]}:{row[3]}")
        for row in TABLE
    ],
)  # fmt: skip
def test_traffic(
    toggles: dict[str, Any], source: str, target: Peer, port: int, allowed: bool
) -> None:
    assert allows(rendered(**toggles), PEERS[source], target, port) is allowed


def failing_rows(policies_of: Any) -> list[int]:
    return [
        i
        for i, (toggles, source, target, port, allowed) in enumerate(TABLE)
        if allows(policies_of(**toggles), PEERS[source], target, port) is not allowed
    ]


@pytest.mark.parametrize("lost", ["from", "ports", "policy", "podSelector", "namespaceSelector"])
def test_table_notices_a_lost_restriction(lost: str) -> None:
    def mutant(**toggles: Any) -> Policies:
        policies = copy.deepcopy(list(rendered(**toggles)))
        if lost == "policy":
            return policies[:-1]
        for rule in (rule for policy in policies for rule in policy["spec"]["ingress"]):
            if lost == "from":
                rule.pop("from", None)
            elif lost == "ports":
                rule["ports"] = [{"port": p} for p in (22, API, ADMIN, SERVING)]
            else:
                for peer in rule.get("from", ()):
                    peer.pop(lost, None)
                    peer.setdefault("podSelector", {})
        return policies

    assert failing_rows(mutant)


def test_no_policy_without_the_toggle() -> None:
    objects = manifests.render_cascade(samples.spec(), samples.settings(), samples.OWNER)
    assert [o for o in objects if o["kind"] == "NetworkPolicy"] == []


def test_egress_is_left_alone() -> None:
    assert [p["spec"]["policyTypes"] for p in rendered()] == [["Ingress"], ["Ingress"]]
