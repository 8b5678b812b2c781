"""Kube: plain JSON requests to the API server, with errors named by what the caller does next."""

import json
import os
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from . import errors

Body = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
WATCH_SECONDS = 290


@dataclass(frozen=True)
class Resource:
    """One kind of object: ``api_version`` as in manifests, ``plural`` as in paths."""

    api_version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Path of one object, of a namespace's objects, or of all of them."""
        group = f"/apis/{self.api_version}" if "/" in self.api_version else "/api/v1"
        middle = f"/namespaces/{namespace}" if self.is_namespaced and namespace else ""
        return f"{group}{middle}/{self.plural}" + (f"/{name}" if name else "")


async def connect(request_timeout_seconds: float) -> "Kube":
    """A client of the cluster that this process runs in, else of its kubeconfig.

    Nothing is tried again here: a repeated write could come after the Lease was lost.
    """
    configuration = client.Configuration()
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not os.environ.get("KUBECONFIG"):
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    configuration.connection_pool_maxsize = 100
    return Kube(client.ApiClient(configuration), request_timeout_seconds)


class Kube:
    """The API server. Every request ends within the time-out, watches within minutes."""

    def __init__(self, api: client.ApiClient, request_timeout_seconds: float) -> None:
        self._api = api
        self._timeout = aiohttp.ClientTimeout(total=request_timeout_seconds)

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str, **query: str) -> Body:
        return await self._request("GET", path, query)

    async def create(self, path: str, body: Body) -> Body:
        return await self._request("POST", path, {}, body)

    async def apply(self, path: str, body: Body, manager: str) -> Body:
        """Server-side apply; takes over fields of others, which are ours by ownership."""
        query = {"fieldManager": manager, "force": "true"}
        return await self._request("PATCH", path, query, body, APPLY)

    async def merge(self, path: str, body: Body, manager: str) -> Body:
        """Merge patch: changes the named fields only. With a resourceVersion in ``body`` it fails
        with ``ConflictError`` when the object has changed since."""
        return await self._request("PATCH", path, {"fieldManager": manager}, body, MERGE)

    async def delete(self, path: str, uid: str) -> None:
        """Deletes the object only while it has this UID."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        await self._request("DELETE", path, {}, body)

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Body | None = None,
        content_type: str = "application/json",
    ) -> Body:
        what = f"{method} {path}"
        try:
            response = await self._send(method, path, query, body, content_type, self._timeout)
            text = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise errors.UnavailableError(what, 0, str(error) or type(error).__name__) from error
        if response.status >= 400:
            raise error_of(what, response.status, text)
        found: Body = json.loads(text)
        return found

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Body | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        # The hook renews a service account's token; the authorisation header is made from it.
        settings = self._api.configuration
        headers = {"Accept": "application/json", "Content-Type": content_type}
        for value in (await settings.auth_settings()).values():
            if value["in"] == "header" and value["value"]:
                headers[value["key"]] = value["value"]
        suffix = f"?{urllib.parse.urlencode(query)}" if query else ""
        return await self._api.rest_client.request(  # type: ignore[no-untyped-call]
            method,
            f"{settings.host}{path}{suffix}",
            headers=headers,
            body=body,
            _request_timeout=timeout,
        )

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Body]:
        """Events until the server ends the stream. Raises ``UnavailableError`` when it breaks."""
        everything = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        # Bookmarks come once a minute: a stream that is silent for longer is dead.
        timeout = aiohttp.ClientTimeout(total=WATCH_SECONDS + 30, sock_connect=10, sock_read=100)
        what = f"WATCH {path}"
        response = None
        try:
            response = await self._send("GET", path, everything, None, "application/json", timeout)
            if response.status >= 400:
                raise error_of(what, response.status, await response.read())
            async for event in _lines(response.response.content):
                yield event
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise errors.UnavailableError(what, 0, str(error) or type(error).__name__) from error
        finally:
            if response is not None:
                response.response.close()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[Body]:
    """One JSON document per line; a line may be longer than the reader's buffer."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield json.loads(line)


def error_of(what: str, status: int, text: bytes) -> errors.ClusterApiError:
    """The error that an answer's status stands for."""
    try:
        message = json.loads(text).get("message", "")
    except (ValueError, AttributeError):
        message = text[:300].decode(errors="replace")
    kinds: dict[int, type[errors.ClusterApiError]] = {
        404: errors.NotFoundError,
        409: errors.ConflictError,
        410: errors.ConflictError,
        401: errors.UnavailableError,
        408: errors.UnavailableError,
        429: errors.UnavailableError,
    }
    if status >= 500:
        return errors.UnavailableError(what, status, message)
    return kinds.get(status, errors.ApiRefusedError)(what, status, message)


STATEFUL_SET = Resource("apps/v1", "StatefulSet", "statefulsets")
DEPLOYMENT = Resource("apps/v1", "Deployment", "deployments")
POD = Resource("v1", "Pod", "pods")
CONFIG_MAP = Resource("v1", "ConfigMap", "configmaps")
SERVICE = Resource("v1", "Service", "services")
SERVICE_ACCOUNT = Resource("v1", "ServiceAccount", "serviceaccounts")
EVENT = Resource("v1", "Event", "events")
LEASE = Resource("coordination.k8s.io/v1", "Lease", "leases")
ROLE = Resource("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
DISRUPTION_BUDGET = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
NODE = Resource("v1", "Node", "nodes", is_namespaced=False)
QUOTA = Resource("v1", "ResourceQuota", "resourcequotas")
CASCADE = Resource("cascade-operator.io/v1alpha1", "CascadeService", "cascadeservices")
