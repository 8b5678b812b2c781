"""A whole router process tree against a real API server: plan, endpoints, acknowledgement."""

import asyncio
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
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


@dataclass
class Routed:
    """A router in the cluster's eyes: it runs here, with the rights of its ServiceAccount."""

    cluster: Any
    process: subprocess.Popen[bytes]
    port: int
    admin_port: int
    models: dict[str, dict[str, Any]] = field(default_factory=dict)

    def plan(self, plan_id: str, **models: dict[str, Any]) -> str:
        entries = [{"name": name, "service": f"chat-{name}", **more}
                   for name, more in models.items()]  # fmt: skip
        for entry in entries[:-1]:
            entry.setdefault("threshold", 60)
        document = {"cascade": "chat", "planId": plan_id, "models": entries,
                    "judge": {"deadlineMilliseconds": 5000}}  # fmt: skip
        return json.dumps(document)

    def write_plan(self, text: str) -> str:
        """Write the ConfigMap; returns the digest to be acknowledged."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chat-router"},
                "data": {"router.json": text}}  # fmt: skip
        self.apply(body)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def write_slice(self, service: str, *endpoints: tuple[str, str, str, bool]) -> None:
        """One EndpointSlice of (pod, uid, url, ready)."""
        port = int(endpoints[0][2].rpartition(":")[2]) if endpoints else 1
        self.apply(
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

    def apply(self, body: dict[str, Any]) -> None:
        text = json.dumps(body)
        self.cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=text)

    def lease(self) -> dict[str, Any]:
        found = self.cluster.get("leases", "-n", NAMESPACE, "-l", f"{ack.LABEL_CASCADE}=chat")
        return dict(found["items"][0]) if found["items"] else {}

    async def acknowledged(self, **annotations: str) -> float:
        """Wait until the Lease says so; returns the seconds that took."""
        started = time.monotonic()
        wanted = {getattr(ack, f"ANNOTATION_{k.upper()}"): v for k, v in annotations.items()}
        while True:
            found = (await asyncio.to_thread(self.lease)).get("metadata", {}).get("annotations", {})
            seconds = time.monotonic() - started
            if all(found.get(name) == value for name, value in wanted.items()):
                return seconds
            assert seconds < ACK_SECONDS, f"not acknowledged: {found}"
            await asyncio.sleep(0.05)

    async def ask(self) -> tuple[int, dict[str, str], str]:
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
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
    """A router pod that follows its ConfigMap; its own pod object owns the Lease."""
    for kind in ("configmap", "leases", "endpointslices", "pods"):
        api_cluster.kubectl("delete", kind, "--all", "-n", NAMESPACE)
    api_cluster.kubectl(
        "apply", "-n", NAMESPACE, "-f", "-",
        input=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "chat-router-0"},
                          "spec": {"serviceAccountName": "chat-router",
                                   "containers": [{"name": "r", "image": "r"}]}}),
    )  # fmt: skip
    pod = api_cluster.get("pod", "chat-router-0", "-n", NAMESPACE)
    port, admin_port = free_port(), free_port()
    environment = os.environ | {
        "KUBECONFIG": str(account),
        "POD_NAME": "chat-router-0",
        "POD_NAMESPACE": NAMESPACE,
        "POD_UID": pod["metadata"]["uid"],
        "PYTHONPATH": "router",
    }
    log = (tmp_path / "router.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "cascade_router", "serve", "--configmap", "chat-router",
         "--host", "127.0.0.1", "--port", str(port), "--admin-port", str(admin_port),
         "--processes", str(request.param), "--linger-seconds", "0", "--grace-seconds", "5"],
        env=environment, stderr=log,
    )  # fmt: skip
    try:
        yield Routed(api_cluster, process, port, admin_port)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(15)
        log.close()
        print((tmp_path / "router.log").read_text())
    assert status == 0


async def test_plan_is_acknowledged_within_two_seconds_and_a_bad_one_is_refused(
    router: Routed,
) -> None:
    digest = router.write_plan(router.plan("p1", small={}, large={}))
    await asyncio.sleep(3)  # start-up is not part of the promise
    await router.acknowledged(plan="p1", digest=digest, error="", drained="", versions="1")
    lease = router.lease()
    assert lease["metadata"]["name"] == lease["spec"]["holderIdentity"] == "chat-router-0"
    assert lease["metadata"]["labels"][ack.LABEL_COMPONENT] == ack.COMPONENT_ACK
    [owner] = lease["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", "chat-router-0")

    digest = router.write_plan(router.plan("p2", small={}, large={}))
    print("acknowledged after", await router.acknowledged(plan="p2", digest=digest), "seconds")

    router.write_plan(router.plan("p3", small={"treshold": 5}, large={}))
    while not router.lease()["metadata"]["annotations"][ack.ANNOTATION_ERROR]:
        await asyncio.sleep(0.05)
    await router.acknowledged(plan="p2", digest=digest)
    error = router.lease()["metadata"]["annotations"][ack.ANNOTATION_ERROR]
    assert "models.0.treshold" in error

    digest = router.write_plan(router.plan("p4", small={}, large={}))
    await router.acknowledged(plan="p4", digest=digest, error="")


async def test_endpoints_are_followed_and_leaving_pods_drain(router: Routed, engine: Any) -> None:
    released = asyncio.Event()

    async def slow(exchange: backend.Exchange) -> None:
        await released.wait()
        await exchange.reply(200, backend.completion("only", "slow"))

    host = own_address()
    first = await engine(host, chat=slow)
    second = await engine(host, chat=backend.answers("only", "fast"))
    router.write_plan(router.plan("p1", only={}))
    router.write_slice("chat-only", ("set-0", "uid-0", first.url, True))
    await router.acknowledged(plan="p1")
    status = 503
    while status == 503:
        asking = asyncio.ensure_future(router.ask())
        done, _ = await asyncio.wait([asking], timeout=0.5)
        status = done.pop().result()[0] if done else 0

    router.write_slice("chat-only", ("set-0", "uid-0", first.url, True))
    leaving = router.plan("p1", only={"leavingPods": ["set-0", "set-9"]})
    digest = router.write_plan(leaving)
    await router.acknowledged(digest=digest, drained="")
    assert (await router.ask())[0] == 503, "a leaving pod must get nothing new"

    router.cluster.kubectl("delete", "endpointslice", "chat-only-a", "-n", NAMESPACE)
    router.write_slice("chat-only", ("set-1", "uid-1", second.url, True))
    deadline = time.monotonic() + ACK_SECONDS
    while (answer := await router.ask())[0] == 503:
        assert time.monotonic() < deadline, "the new endpoint was not followed"
        await asyncio.sleep(0.05)
    assert "fast" in answer[2]
    await router.acknowledged(digest=digest, drained="")

    released.set()
    assert "slow" in (await asking)[2], "a request in flight on a leaving pod must finish"
    await router.acknowledged(digest=digest, drained="uid-0")
