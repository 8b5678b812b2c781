"""A whole router process tree against a real API server: plan, endpoints, acknowledgement."""

import asyncio
import hashlib
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cascade_router import acknowledgement as ack
from tests.router import backend
from tests.router.ports import free_port, own_address

pytestmark = pytest.mark.api

NAMESPACE = f"router-{secrets.token_hex(3)}"
"""Its own: at this level of cluster nobody empties a deleted namespace."""
ACK_SECONDS = 5.0
"""The target is 2 s; a loaded test machine gets more."""
START_SECONDS = 30.0
"""The first acknowledgement also waits for the supervisor's Kubernetes client to load."""
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: chat-router}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [chat-router], verbs: [get, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, patch]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: chat-router}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: chat-router}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: chat-router}
subjects: [{kind: ServiceAccount, name: chat-router, namespace: %s}]
"""


BASES = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps/{}",
    "Pod": "/api/v1/namespaces/{}/pods/{}",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}",
}


class Admin:
    """The administrator's calls: plain HTTPS, because a kubectl process for each costs seconds."""

    def __init__(self, cluster: Any, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._url = cluster.url
        self._tls = ssl.create_default_context(cafile=str(cluster.ca))
        self._headers = {"authorization": f"Bearer {cluster.admin_token}"}

    async def call(
        self, method: str, kind: str, name: str, body: Any = None, **params: str
    ) -> dict[str, Any]:
        url = self._url + BASES[kind].format(NAMESPACE, name).rstrip("/")
        kept = self._headers | {"content-type": "application/apply-patch+yaml"}
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, url, data=data, headers=kept, params=params, ssl=self._tls
        ) as response:
            document: dict[str, Any] = await response.json()
            assert response.status < 300 or response.status == 404, document
            return document

    async def apply(self, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        return await self.call("PATCH", body["kind"], name, body, fieldManager="test", force="true")


@dataclass
class Routed:
    """A router in the cluster's eyes: it runs here, with the rights of its ServiceAccount."""

    api: Admin
    session: aiohttp.ClientSession
    port: int

    def plan(self, plan_id: str, **models: dict[str, Any]) -> str:
        entries = [{"name": name, "service": f"chat-{name}", **more}
                   for name, more in models.items()]  # fmt: skip
        for entry in entries[:-1]:
            entry.setdefault("threshold", 60)
        document = {"cascade": "chat", "planId": plan_id, "models": entries,
                    "judge": {"deadlineMilliseconds": 5000}}  # fmt: skip
        return json.dumps(document)

    async def write_plan(self, text: str) -> str:
        """Write the ConfigMap; returns the digest to be acknowledged."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chat-router"},
                "data": {"router.json": text}}  # fmt: skip
        await self.api.apply(body)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    async def write_slice(self, service: str, *endpoints: tuple[str, str, str, bool]) -> None:
        """One EndpointSlice of (pod, uid, url, ready)."""
        port = int(endpoints[0][2].rpartition(":")[2])
        await self.api.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": f"{service}-a",
                             "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
                "endpoints": [
                    {"addresses": [host], "conditions": {"ready": ready},
                     "targetRef": {"kind": "Pod", "name": pod, "uid": uid}}
                    for pod, uid, url, ready in endpoints
                    for host in [url.removeprefix("http://").partition(":")[0]]
                ],
            }
        )  # fmt: skip

    async def lease(self) -> dict[str, Any]:
        return await self.api.call("GET", "Lease", "chat-router-0")

    async def annotations(self) -> dict[str, str]:
        return dict((await self.lease()).get("metadata", {}).get("annotations", {}))

    async def acknowledged(self, within: float = ACK_SECONDS, **annotations: str) -> float:
        """Wait until the Lease says so; returns the seconds that took."""
        started = time.monotonic()
        wanted = {getattr(ack, f"ANNOTATION_{k.upper()}"): v for k, v in annotations.items()}
        while True:
            found = await self.annotations()
            seconds = time.monotonic() - started
            if all(found.get(name) == value for name, value in wanted.items()):
                return seconds
            assert seconds < within, f"not acknowledged: {found}"
            await asyncio.sleep(0.02)

    async def ask(self) -> tuple[int, dict[str, str], str]:
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        async with self.session.post(url, json=body) as response:
            return response.status, dict(response.headers), await response.text()


@pytest.fixture(scope="module")
def account(api_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with exactly the rights of a router's ServiceAccount."""
    api_cluster.kubectl("create", "namespace", NAMESPACE)
    api_cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=ROLE % NAMESPACE)
    token = api_cluster.kubectl("create", "token", "chat-router", "-n", NAMESPACE).strip()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api_cluster.url,
                                               "certificate-authority": str(api_cluster.ca)}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(params=[1, 2], ids=["one-process", "two-processes"])
async def router(
    api_cluster: Any, account: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Routed]:
    """A router pod before its ConfigMap exists; its own pod object owns the Lease."""
    async with aiohttp.ClientSession() as session:
        api = Admin(api_cluster, session)
        for kind in ("ConfigMap", "Lease", "EndpointSlice", "Pod"):
            await api.call("DELETE", kind, "")
        container = {"name": "r", "image": "r"}
        pod = await api.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat-router-0"},
             "spec": {"serviceAccountName": "chat-router", "containers": [container]}}
        )  # fmt: skip
        port, admin_port = free_port(), free_port()
        environment = os.environ | {
            "KUBECONFIG": str(account),
            "POD_NAME": "chat-router-0",
            "POD_NAMESPACE": NAMESPACE,
            "POD_UID": pod["metadata"]["uid"],
            "PYTHONPATH": "router",
        }
        with (tmp_path / "router.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "cascade_router", "serve", "--configmap", "chat-router",
                 "--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin_port),
                 "--processes", str(request.param), "--linger-seconds", "0"],
                env=environment, stderr=log,
            )  # fmt: skip
        try:
            await started(session, f"http://127.0.0.1:{admin_port}/ready")
            yield Routed(api, session, port)
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(30)
            print((tmp_path / "router.log").read_text())
    assert status == 0


async def started(session: aiohttp.ClientSession, url: str) -> None:
    """Wait until all workers say that they wait for a plan."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with session.get(url) as response:
                    if "no plan yet" in await response.text():
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_plan_is_acknowledged_within_two_seconds_and_a_bad_one_is_refused(
    router: Routed,
) -> None:
    digest = await router.write_plan(router.plan("p1", small={}, large={}))
    first = {"plan": "p1", "digest": digest, "error": "", "drained": "", "versions": "1"}
    await router.acknowledged(within=START_SECONDS, **first)
    lease = await router.lease()
    assert lease["metadata"]["name"] == lease["spec"]["holderIdentity"] == "chat-router-0"
    assert lease["metadata"]["labels"][ack.LABEL_COMPONENT] == ack.COMPONENT_ACK
    assert lease["metadata"]["labels"][ack.LABEL_CASCADE] == "chat"
    [owner] = lease["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", "chat-router-0")

    digest = await router.write_plan(router.plan("p2", small={}, large={}))
    print("acknowledged after", await router.acknowledged(plan="p2", digest=digest), "seconds")

    await router.write_plan(router.plan("p3", small={"treshold": 5}, large={}))
    async with asyncio.timeout(ACK_SECONDS):
        while not (error := (await router.annotations())[ack.ANNOTATION_ERROR]):
            await asyncio.sleep(0.02)
    assert "models.0.treshold" in error
    await router.acknowledged(plan="p2", digest=digest)

    digest = await router.write_plan(router.plan("p4", small={}, large={}))
    await router.acknowledged(plan="p4", digest=digest, error="")


async def test_endpoints_are_followed_and_leaving_pods_drain(router: Routed, engine: Any) -> None:
    released = asyncio.Event()

    async def slow(exchange: backend.Exchange) -> None:
        await released.wait()
        await exchange.reply(200, backend.completion("only", "slow"))

    host = own_address()
    first = await engine(host, chat=slow)
    second = await engine(host, chat=backend.answers("only", "fast"))
    await router.write_plan(router.plan("p1", only={}))
    await router.write_slice("chat-only", ("set-0", "uid-0", first.url, True))
    await router.acknowledged(within=START_SECONDS, plan="p1")
    async with asyncio.timeout(START_SECONDS):
        while not first.received:
            asking = asyncio.ensure_future(router.ask())
            await asyncio.wait([asking], timeout=0.5)

    leaving = router.plan("p1", only={"leavingPods": ["set-0", "set-9"]})
    digest = await router.write_plan(leaving)
    await router.acknowledged(digest=digest, drained="")
    assert (await router.ask())[0] == 503, "a leaving pod must get nothing new"

    await router.write_slice("chat-only", ("set-1", "uid-1", second.url, True))
    async with asyncio.timeout(ACK_SECONDS):
        while (answer := await router.ask())[0] == 503:
            await asyncio.sleep(0.05)
    assert "fast" in answer[2]
    await router.acknowledged(digest=digest, drained="")

    released.set()
    assert "slow" in (await asking)[2], "a request in flight on a leaving pod must finish"
    await router.acknowledged(digest=digest, drained="uid-0")
