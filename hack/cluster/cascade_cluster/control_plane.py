"""etcd, the API server, the controller manager and the scheduler."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_cluster.commands import wait_until
from cascade_cluster.credentials import Credentials
from cascade_cluster.errors import WaitError
from cascade_cluster.launcher import Launcher

READY_TIMEOUT_SECONDS = 180


@dataclass(frozen=True)
class Endpoints:
    """Where the control plane listens. etcd and health ports are on loopback always."""

    api_address: str
    service_network: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    controller_manager_port: int
    scheduler_port: int

    @property
    def url(self) -> str:
        return f"https://{self.api_address}:{self.api_port}"

    @property
    def is_local(self) -> bool:
        return self.api_address.startswith("127.")


def start_api(
    launcher: Launcher, kube: Path, credentials: Credentials, endpoints: Endpoints
) -> None:
    """Start etcd and the API server; both retry until the other is there, so neither waits."""
    etcd = f"http://127.0.0.1:{endpoints.etcd_port}"
    peer = f"http://127.0.0.1:{endpoints.etcd_peer_port}"
    launcher.start(
        "etcd",
        [
            kube, "etcd", "--name=default", f"--data-dir={launcher.instance.folder / 'etcd'}",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}", "--log-level=warn",
            # The data live as long as the cluster: surviving a power cut is not worth the time.
            "--unsafe-no-fsync",
        ],
    )  # fmt: skip
    launcher.start("kube-apiserver", [kube, *api_arguments(credentials, endpoints)])


def api_arguments(credentials: Credentials, endpoints: Endpoints) -> list[str]:
    """The API server's command line."""
    words = [
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{endpoints.etcd_port}",
        f"--bind-address={endpoints.api_address}",
        f"--advertise-address={endpoints.api_address}",
        f"--secure-port={endpoints.api_port}",
        f"--tls-cert-file={credentials.certificate('kube-apiserver')}",
        f"--tls-private-key-file={credentials.key('kube-apiserver')}",
        f"--client-ca-file={credentials.ca}",
        f"--token-auth-file={credentials.tokens}",
        # For API servers behind this one, of which there are none; without it the controllers
        # complain every minute.
        f"--requestheader-client-ca-file={credentials.ca}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={credentials.certificate('kubelet-client')}",
        f"--kubelet-client-key={credentials.key('kubelet-client')}",
        # Nodes have names that no DNS server knows.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={credentials.folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={credentials.key('service-accounts')}",
        f"--service-cluster-ip-range={endpoints.service_network}",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if endpoints.is_local:
        # Endpoints of the Service `kubernetes` may not be loopback addresses, and no pod asks.
        words.append("--endpoint-reconciler-type=none")
    return words


def wait_for_api(launcher: Launcher, credentials: Credentials, endpoints: Endpoints) -> None:
    """Wait until the API server says that it is ready, its bootstrap roles included."""
    context = ssl.create_default_context(cafile=str(credentials.ca))
    # Without the proxies of the environment: none of them knows this address.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    request = urllib.request.Request(
        f"{endpoints.url}/readyz",
        headers={"Authorization": f"Bearer {credentials.token('admin')}"},
    )

    def is_ready() -> bool:
        try:
            with opener.open(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    try:
        wait_until(
            "the API server's /readyz",
            is_ready,
            timeout_seconds=READY_TIMEOUT_SECONDS,
            alive=lambda: launcher.check("etcd", "kube-apiserver"),
        )
    except WaitError as error:
        raise WaitError(error.what, launcher.explain("etcd", "kube-apiserver")) from error


def start_controllers(
    launcher: Launcher,
    kube: Path,
    credentials: Credentials,
    endpoints: Endpoints,
    extra: Sequence[str] = (),
) -> None:
    """Start the controller manager and the scheduler, with room for tests of hundreds of pods."""

    def shared(user: str, port: int) -> list[str]:
        kubeconfig = credentials.kubeconfig(user)
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            # One of each: there is nobody to elect a leader among.
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--profiling=false",
        ]

    launcher.start(
        "kube-controller-manager",
        [
            kube, "kube-controller-manager",
            *shared("kube-controller-manager", endpoints.controller_manager_port),
            "--use-service-account-credentials",
            f"--root-ca-file={credentials.ca}",
            f"--service-account-private-key-file={credentials.key('service-accounts')}",
            f"--cluster-signing-cert-file={credentials.ca}",
            f"--cluster-signing-key-file={credentials.ca_key}",
            "--allocate-node-cidrs=false",
            *extra,
        ],
    )  # fmt: skip
    launcher.start(
        "kube-scheduler",
        [kube, "kube-scheduler", *shared("kube-scheduler", endpoints.scheduler_port)],
    )
