"""Least rights: what the operator and drift-watch may do, as the API server decides it."""

import types
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cascade_cluster.handle import Cluster
from cascade_operator import spec
from cascade_operator.rendering import router
from tests.apiserver import Api
from tests.charts.conftest import NAMESPACE, Render
from tests.crd import documents

pytestmark = pytest.mark.api

MODES: dict[str, dict[str, Any]] = {
    "cluster": {},
    "namespaced": {"watchNamespaces": ["team-a"]},
}
RIGHTS_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
CASCADES, STATUS = (
    "cascade-operator.io/cascadeservices",
    "cascade-operator.io/cascadeservices/status",
)


def user(component: str) -> str:
    name = {"operator": "cascade-operator", "drift-watch": "cascade-operator-drift-watch"}
    return f"system:serviceaccount:{NAMESPACE}:{name[component]}"


def roles(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [o for o in objects if o["kind"] in ("Role", "ClusterRole")]


@pytest.fixture(scope="module", params=list(MODES))
def mode(request: pytest.FixtureRequest, server: Cluster, render: Render) -> Iterator[str]:
    """The chart's rights, installed for one mode."""
    objects = [o for o in render(MODES[request.param]) if o["kind"] in RIGHTS_KINDS]
    text = yaml.safe_dump_all(objects)
    server.kubectl("apply", "-f", "-", input=text)
    yield request.param
    server.kubectl("delete", "-f", "-", input=text)


def is_allowed(server: Cluster, who: str, verb: str, what: str, namespace: str) -> bool:
    """``what``: group/resource[/subresource], the core group written as ``core``."""
    group, resource, *sub = what.split("/")
    attributes = {
        "verb": verb,
        "group": "" if group == "core" else group,
        "resource": resource,
        "subresource": "".join(sub),
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": who, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    code, answer = Api(server).send("POST", path, review)
    assert code == 201, answer
    return bool(answer["status"]["allowed"])


TABLE = [
    # who, verb, what, in every namespace of cluster mode, in team-a of namespaced mode, elsewhere
    ("operator", "list", CASCADES, True, True, False),
    ("operator", "watch", CASCADES, True, True, False),
    ("operator", "patch", CASCADES, False, False, False),
    ("operator", "delete", CASCADES, False, False, False),
    ("operator", "patch", STATUS, True, True, False),
    ("operator", "create", "apps/statefulsets", True, True, False),
    ("operator", "patch", "apps/deployments", True, True, False),
    ("operator", "patch", "core/configmaps", True, True, False),
    ("operator", "delete", "core/configmaps", False, False, False),
    ("operator", "delete", "apps/statefulsets", True, True, False),
    ("operator", "delete", "core/services", True, True, False),
    ("operator", "delete", "core/serviceaccounts", False, False, False),
    ("operator", "list", "core/nodes", True, False, False),
    ("operator", "patch", "core/nodes", False, False, False),
    ("operator", "list", "core/pods", True, True, False),
    ("operator", "delete", "core/pods", False, False, False),
    ("operator", "create", "core/pods/exec", False, False, False),
    ("operator", "get", "core/secrets", False, False, False),
    ("operator", "list", "core/secrets", False, False, False),
    ("operator", "watch", "core/secrets", False, False, False),
    ("operator", "create", "core/serviceaccounts/token", False, False, False),
    ("operator", "escalate", "rbac.authorization.k8s.io/roles", False, False, False),
    ("operator", "bind", "rbac.authorization.k8s.io/roles", False, False, False),
    ("operator", "create", "rbac.authorization.k8s.io/roles", True, True, False),
    ("operator", "create", "rbac.authorization.k8s.io/clusterroles", False, False, False),
    ("operator", "create", "core/events", True, True, False),
    ("operator", "patch", "core/events", False, False, False),
    ("operator", "patch", "coordination.k8s.io/leases", True, True, False),
    ("drift-watch", "list", CASCADES, True, True, False),
    ("drift-watch", "patch", STATUS, True, True, False),
    ("drift-watch", "patch", CASCADES, False, False, False),
    ("drift-watch", "update", CASCADES, False, False, False),
    ("drift-watch", "list", "discovery.k8s.io/endpointslices", True, True, False),
    ("drift-watch", "patch", "core/configmaps", False, False, False),
    ("drift-watch", "list", "core/pods", False, False, False),
    ("drift-watch", "get", "core/secrets", False, False, False),
    ("drift-watch", "create", "apps/deployments", False, False, False),
]


@pytest.mark.parametrize(
    ("who", "verb", "what", "everywhere", "own", "elsewhere"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}-{row[2].partition('/')[2].replace('/', '.')}" for row in TABLE],
)
def test_rights(
    server: Cluster,
    mode: str,
    who: str,
    verb: str,
    what: str,
    everywhere: bool,
    own: bool,
    elsewhere: bool,
) -> None:
    expected = (everywhere, everywhere) if mode == "cluster" else (own, elsewhere)
    found = tuple(is_allowed(server, user(who), verb, what, n) for n in ("team-a", "team-b"))
    assert found == expected


def test_the_operator_may_renew_its_own_lease(server: Cluster, mode: str) -> None:
    for verb in ("get", "create", "patch"):
        leases = "coordination.k8s.io/leases"
        assert is_allowed(server, user("operator"), verb, leases, NAMESPACE), verb


@pytest.mark.parametrize("values", MODES.values(), ids=MODES)
def test_no_rule_names_secrets_wildcards_or_ways_to_more_rights(
    render: Render, values: dict[str, Any]
) -> None:
    found = roles(render(values))
    assert found
    for role in found:
        for rule in role["rules"]:
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not words & {
                "*",
                "secrets",
                "escalate",
                "bind",
                "impersonate",
                "nonResourceURLs",
            }


def _routers_rights() -> list[dict[str, Any]]:
    body = documents.changed({"metadata": {"name": "chat", "namespace": "team-a"}})
    settings = types.SimpleNamespace(
        router_image="router:1", image_pull_policy="Never", image_pull_secrets=(), run_as_user=1
    )
    objects = router.objects(spec.parse(body), settings, {})
    found = [o for o in objects if o["kind"] in ("Role", "RoleBinding")]
    for each in found:
        del each["metadata"]["ownerReferences"]
    return found


def test_the_operator_may_hand_a_router_its_rights_and_no_more(server: Cluster, mode: str) -> None:
    role, binding = _routers_rights()
    base = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a"
    api, who = Api(server), user("operator")
    more = {**role, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    code, answer = api.send("POST", f"{base}/roles?dryRun=All", more, user=who)
    assert code == 403, answer
    assert "is attempting to grant RBAC permissions not currently held" in answer["message"]
    code, answer = api.send("POST", f"{base}/roles", role, user=who)
    assert code == 201, answer
    try:
        code, answer = api.send("POST", f"{base}/rolebindings?dryRun=All", binding, user=who)
        assert code == 201, answer
    finally:
        server.kubectl("delete", "role", role["metadata"]["name"], "-n", "team-a")


def test_drift_watch_patches_status_and_never_spec(server: Cluster, mode: str) -> None:
    text = yaml.safe_dump(documents.MINIMAL)
    server.kubectl("apply", "-n", "team-a", "-f", "-", input=text)
    path = "/apis/cascade-operator.io/v1alpha1/namespaces/team-a/cascadeservices/chat"
    api, who = Api(server), user("drift-watch")
    try:
        patch: dict[str, Any] = {"spec": {"qmin": 1}}
        code, answer = api.send("PATCH", path, patch, user=who, kind="merge-patch+json")
        assert code == 403, answer
        patch["status"] = {"drift": {"verdict": "Stable"}}
        code, answer = api.send("PATCH", f"{path}/status", patch, user=who, kind="merge-patch+json")
        assert code == 200, answer
        assert answer["status"]["drift"]["verdict"] == "Stable"
        assert answer["spec"]["qmin"] == documents.MINIMAL["spec"]["qmin"]
    finally:
        server.kubectl("delete", "csc", "chat", "-n", "team-a")
