"""The cluster as the demo reads it: plain dictionaries through the official client."""

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes import client, config, dynamic
from kubernetes.client.exceptions import ApiException

CASCADE_API = "cascade-operator.io/v1alpha1"


class Kube:
    """Reads and writes of one cluster, named by its kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._api = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._dynamic = dynamic.DynamicClient(self._api)  # type: ignore[no-untyped-call]
        self.core = client.CoreV1Api(self._api)
        self.batch = client.BatchV1Api(self._api)

    def _resource(self, manifest: dict[str, Any]) -> Any:
        return self._dynamic.resources.get(
            api_version=manifest["apiVersion"], kind=manifest["kind"]
        )

    def apply(self, manifest: dict[str, Any], namespace: str) -> None:
        """Server-side apply, as ``kubectl apply --server-side`` does."""
        resource = self._resource(manifest)
        resource.server_side_apply(
            body=manifest,
            name=manifest["metadata"]["name"],
            namespace=namespace if resource.namespaced else None,
            field_manager="demo",
            force_conflicts=True,
        )

    def has_namespace(self, name: str) -> bool:
        """Whether the namespace exists, also while it is being deleted."""
        try:
            self.core.read_namespace(name)
        except ApiException as error:
            if error.status == 404:
                return False
            raise
        return True

    def cascade(self, name: str, namespace: str) -> dict[str, Any]:
        """The CascadeService as it stands."""
        resource = self._dynamic.resources.get(api_version=CASCADE_API, kind="CascadeService")
        found: dict[str, Any] = resource.get(name=name, namespace=namespace).to_dict()
        return found

    def config_map(self, name: str, namespace: str) -> dict[str, str]:
        """Data of a ConfigMap; empty when there is none."""
        try:
            return dict(self.core.read_namespaced_config_map(name, namespace).data or {})
        except ApiException as error:
            if error.status == 404:
                return {}
            raise

    def job(self, name: str, namespace: str) -> tuple[bool, bool]:
        """Whether the Job has succeeded, and whether it has failed."""
        status: Any = self.batch.read_namespaced_job(name, namespace).status
        return bool(status.succeeded), bool(status.failed)

    def pods(self, namespace: str, selector: str) -> list[Any]:
        """Pods that match a label selector."""
        return list(self.core.list_namespaced_pod(namespace, label_selector=selector).items)


def condition(cascade: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of the cascade by its type; empty when it is not there yet."""
    for entry in cascade.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return dict(entry)
    return {}


def is_true(cascade: dict[str, Any], kind: str) -> bool:
    """True when the condition is True for the generation that was asked for."""
    entry = condition(cascade, kind)
    return (
        entry.get("status") == "True"
        and entry.get("observedGeneration", 0) >= cascade["metadata"]["generation"]
    )


class Tunnel:
    """A URL of the router that this machine can reach: its Service, else a port-forward."""

    def __init__(
        self,
        kube: Kube,
        kubectl: Callable[..., list[str]],
        environment: dict[str, str],
        namespace: str,
        service: str,
    ) -> None:
        found: Any = kube.core.read_namespaced_service(service, namespace)
        self._process: subprocess.Popen[bytes] | None = None
        address = (str(found.spec.cluster_ip), 8000)
        if _reachable(*address):
            self.url = f"http://{address[0]}:{address[1]}"
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = kubectl("-n", namespace, "port-forward", f"svc/{service}", f"{port}:8000")
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        deadline = time.monotonic() + 20
        while not _reachable("127.0.0.1", port):
            if time.monotonic() > deadline:
                self.close()
                raise TimeoutError(f"port-forward to {service} did not come up within 20 s")
            time.sleep(0.2)
        self.url = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        """Ends the port-forward, if there is one."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=10)


def _reachable(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
