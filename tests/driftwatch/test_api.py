"""Drift-watch as a process with its own ServiceAccount, against a real API server."""

import contextlib
import dataclasses
import http.server
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from cascade_cluster.handle import Cluster
from cascade_driftwatch.planned import PlanInForce
from cascade_operator import names
from tests.apiserver import Api
from tests.crd.documents import MINIMAL
from tests.driftwatch import stand_ins, traffic
from tests.driftwatch.traffic import STATIONARY

pytestmark = pytest.mark.api

ROOT = pathlib.Path(__file__).parents[2]
CRD = ROOT / "crds" / "cascadeservices.yaml"
WINDOW_SECONDS = 5
PLANNED = dataclasses.replace(STATIONARY, requests=200.0)
SHIFTED = dataclasses.replace(PLANNED, requests=400.0, input_median=2000.0)


def host_address() -> str:
    """An address of this host that is no loopback: EndpointSlices refuse those."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: connecting a datagram socket only chooses the address.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@dataclasses.dataclass
class Router:
    """A router's admin port; ``answer`` gives the text of its report."""

    server: http.server.ThreadingHTTPServer
    answer: Callable[[], str] = lambda: ""

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])


@pytest.fixture
def router() -> Iterator[Router]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = made.answer().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not worth a line."""

    made = Router(http.server.ThreadingHTTPServer(("", 0), Handler))
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def recent_windows(shape: traffic.Traffic) -> str:
    """Twelve windows of the wished length that end now."""
    now = time.time()
    end = now - now % WINDOW_SECONDS
    scaled = [
        window.model_copy(
            update={"start": end - (12 - i) * WINDOW_SECONDS, "seconds": float(WINDOW_SECONDS)}
        )
        for i, window in enumerate(traffic.row(shape, 12))
    ]
    return traffic.report("router-0", scaled, now).model_dump_json(by_alias=True)


def planned() -> PlanInForce:
    """The plan for the traffic of one short window."""
    return traffic.plan(PLANNED, rate=PLANNED.requests / WINDOW_SECONDS)


@dataclasses.dataclass
class Place:
    """A namespace with one cascade, its plan and its router's EndpointSlice."""

    cluster: Cluster
    namespace: str
    account: str

    def cascade(self) -> Any:
        return self.cluster.get("csc", "chat", "-n", self.namespace)

    def path(self, more: str = "") -> str:
        group = f"/apis/{names.GROUP}/{names.VERSION}"
        return f"{group}/namespaces/{self.namespace}/{names.PLURAL}/chat{more}"

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.account}"


@pytest.fixture
def place(api_cluster: Cluster, router: Router) -> Iterator[Place]:
    with installed(api_cluster, router.port) as made:
        yield made


@pytest.fixture(scope="module")
def quiet_place(api_cluster: Cluster) -> Iterator[Place]:
    """A place where no drift-watch runs, for questions about its rights."""
    with installed(api_cluster, names.ADMIN_PORT) as made:
        yield made


@contextlib.contextmanager
def installed(cluster: Cluster, router_port: int) -> Iterator[Place]:
    cluster.kubectl("apply", "-f", CRD)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", CRD)
    namespace = f"drift-{secrets.token_hex(3)}"
    cluster.kubectl("create", "namespace", namespace)
    account = _install_account(cluster, namespace)
    slices = stand_ins.endpoint_slice({"router-0": host_address()}, "chat", namespace, router_port)
    plan = stand_ins.config_map(planned())
    spec = {**MINIMAL["spec"], "drift": {"windowSeconds": WINDOW_SECONDS}}
    for document in (
        {**MINIMAL, "metadata": {"name": "chat", "namespace": namespace}, "spec": spec},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **slices},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "chat-plan", "namespace": namespace, **plan["metadata"]},
            "data": plan["data"],
        },
    ):
        cluster.kubectl("apply", "-f", "-", input=json.dumps(document))
    made = Place(cluster, namespace, account)
    _write_operator_status(made)
    yield made
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.kubectl("delete", "csc", "chat", "-n", namespace)


def _install_account(cluster: Cluster, namespace: str) -> str:
    """The chart's ServiceAccount of drift-watch with exactly the chart's rights."""
    rendered = cluster.helm(
        "template", namespace, str(ROOT / "charts" / "cascade-operator"), "--namespace", namespace,
        "--kube-version", "1.30.0", "--set", f"watchNamespaces={{{namespace}}}",
    )  # fmt: skip
    kept = [
        document
        for document in yaml.safe_load_all(rendered)
        if document
        and document["kind"] in ("ServiceAccount", "Role", "RoleBinding")
        and "drift" in document["metadata"]["name"]
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=yaml.safe_dump_all(kept))
    return str(next(d["metadata"]["name"] for d in kept if d["kind"] == "ServiceAccount"))


def _write_operator_status(place: Place) -> None:
    """What the operator owns in the status: it must outlive every write of drift-watch."""
    condition = {
        "type": "PlanApplied",
        "status": "True",
        "reason": "Applied",
        "message": "The plan is applied.",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "chat", "namespace": place.namespace},
        "status": {"observedGeneration": 1, "conditions": [condition]},
    }
    code, answer = Api(place.cluster).send(
        "PATCH",
        place.path(f"/status?fieldManager={names.FIELD_MANAGER}&force=true"),
        body,
        kind="apply-patch+yaml",
    )
    assert code == 200, answer


@contextlib.contextmanager
def drift_watch(place: Place, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The process, known to the API server by its own ServiceAccount only; yields its log."""
    token = place.cluster.kubectl("create", "token", place.account, "-n", place.namespace).strip()
    authority = {"server": place.cluster.url, "certificate-authority": str(place.cluster.ca)}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": authority}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "CASCADE_DRIFT_PERIOD_SECONDS": "0.5",
        "CASCADE_WATCH_NAMESPACES": json.dumps([place.namespace]),
        "CASCADE_HTTP_PORT": "0",
    }
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "cascade_driftwatch"],
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            yield log
            process.terminate()
            assert process.wait(10) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def awaited(place: Place, log: pathlib.Path, wanted: Callable[[Any], bool]) -> Any:
    """The cascade once its drift entry is as wished, within 20 seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = place.cascade()
        if wanted(found["status"].get("drift", {})):
            return found
        time.sleep(0.2)
    raise AssertionError(f"{found['status'].get('drift')}\n{log.read_text()}")


def test_a_shift_reaches_the_status_and_leaves_everything_else_alone(
    place: Place, router: Router, tmp_path: pathlib.Path
) -> None:
    before = place.cascade()
    router.answer = lambda: recent_windows(PLANNED)
    with drift_watch(place, tmp_path) as log:
        calm = awaited(place, log, lambda drift: drift.get("verdict") == "Stable")
        router.answer = lambda: recent_windows(SHIFTED)
        after = awaited(place, log, lambda drift: drift.get("verdict") == "Drifted")
    assert calm["spec"] == after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"]["conditions"] == before["status"]["conditions"]
    drift = after["status"]["drift"]
    assert drift["observedPlan"] == "p1"
    assert float(drift["window"]["ratePerMinute"]) > 60 * PLANNED.requests / WINDOW_SECONDS
    assert len(drift["window"]["inputDeciles"]) == 9
    assert {"rate/cusum-up", "inputTokens/ks"} <= {t["name"] for t in drift["tests"] if t["fired"]}
    place_of = ("csc", "chat", "-n", place.namespace, "--show-managed-fields")
    managed = place.cluster.get(*place_of)["metadata"]["managedFields"]
    owned = {entry["manager"]: json.dumps(entry["fieldsV1"]) for entry in managed}
    assert '"f:drift"' in owned["cascade-driftwatch"]
    assert '"f:conditions"' not in owned["cascade-driftwatch"]
    assert '"f:drift"' not in owned["cascade-operator"]


def test_a_new_plan_starts_from_its_own_windows(
    place: Place, router: Router, tmp_path: pathlib.Path
) -> None:
    router.answer = lambda: recent_windows(SHIFTED)
    with drift_watch(place, tmp_path) as log:
        awaited(place, log, lambda drift: drift.get("verdict") == "Drifted")
        annotation = f"{names.LABEL_PLAN}=p2"
        place.cluster.kubectl(
            "annotate", "configmap", "chat-plan", "-n", place.namespace, annotation, "--overwrite"
        )
        found = awaited(place, log, lambda drift: drift.get("observedPlan") == "p2")
    assert found["status"]["drift"]["verdict"] == "Unknown"
    assert "window" not in found["status"]["drift"]


def test_switching_it_off_takes_the_entry_away(
    place: Place, router: Router, tmp_path: pathlib.Path
) -> None:
    router.answer = lambda: recent_windows(PLANNED)
    with drift_watch(place, tmp_path) as log:
        awaited(place, log, lambda drift: drift.get("verdict") == "Stable")
        place.cluster.kubectl(
            "patch", "csc", "chat", "-n", place.namespace, "--type=merge",
            "-p", json.dumps({"spec": {"drift": {"mode": "Off"}}}),
        )  # fmt: skip
        found = awaited(place, log, lambda drift: drift == {})
    assert found["status"]["conditions"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        pytest.param("", {"spec": {"qmin": 1}}, 403, id="spec"),
        pytest.param("", {"metadata": {"labels": {"a": "b"}}}, 403, id="metadata"),
        pytest.param("/status", {"status": {"drift": {"verdict": "Stable"}}}, 200, id="status"),
    ],
)
def test_its_service_account_may_patch_the_status_only(
    quiet_place: Place, path: str, body: dict[str, Any], code: int
) -> None:
    answered, answer = Api(quiet_place.cluster).send(
        "PATCH", quiet_place.path(path), body, user=quiet_place.user, kind="merge-patch+json"
    )
    assert answered == code, answer


@pytest.mark.parametrize(
    ("verb", "group", "resource", "allowed"),
    [
        ("create", "", "pods", False),
        ("patch", "", "configmaps", False),
        ("get", "", "secrets", False),
        ("delete", names.GROUP, names.PLURAL, False),
        ("patch", names.GROUP, names.PLURAL, False),
        ("patch", "apps", "statefulsets", False),
        ("get", "", "configmaps", True),
        ("list", names.GROUP, names.PLURAL, True),
        ("list", "discovery.k8s.io", "endpointslices", True),
    ],
)
def test_its_service_account_has_the_rights_it_needs_and_no_others(
    quiet_place: Place, verb: str, group: str, resource: str, allowed: bool
) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": quiet_place.user,
            "resourceAttributes": {
                "namespace": quiet_place.namespace,
                "verb": verb,
                "group": group,
                "resource": resource,
            },
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    code, answer = Api(quiet_place.cluster).send("POST", path, review)
    assert code == 201
    assert answer["status"]["allowed"] is allowed
