"""The Kubernetes API as drift-watch needs it: list, get, apply. Sole importer of the client."""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp
from kubernetes.aio import client, config

from cascade_operator import names

APPLY = "application/apply-patch+yaml"
PAGE = 500
BROKEN = (OSError, asyncio.TimeoutError, aiohttp.ClientError)


class KubeError(Exception):
    """A call that failed. ``status``: HTTP status, 0 when no answer came."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Api(Protocol):
    """What the watch calls; a test puts a recording stand-in here."""

    async def collection(self, path: str, selector: str = "") -> list[dict[str, Any]]: ...

    async def get(self, path: str) -> dict[str, Any]: ...

    async def apply(self, path: str, body: Mapping[str, Any]) -> None: ...


class Kube:
    """A client with the pod's ServiceAccount, outside a cluster with the current kubeconfig."""

    def __init__(self, api: Any, request_seconds: float) -> None:
        self._api = api
        self._seconds = request_seconds

    @classmethod
    async def connect(cls, request_seconds: float, kubeconfig: str | None = None) -> "Kube":
        """Reads the credentials; raises ``KubeError`` when there are none."""
        settings = client.Configuration()
        try:
            if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=kubeconfig, client_configuration=settings
                )
        except config.ConfigException as error:
            raise KubeError(f"no credentials for the Kubernetes API: {error}") from None
        return cls(client.ApiClient(settings), request_seconds)

    async def close(self) -> None:
        await self._api.close()

    async def collection(self, path: str, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a collection, page by page; raises ``KubeError``."""
        found: list[dict[str, Any]] = []
        params = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        while True:
            page = await self._call("GET", path, params)
            found += page.get("items") or []
            token = page.get("metadata", {}).get("continue")
            if not token:
                return found
            params = {**params, "continue": token}

    async def get(self, path: str) -> dict[str, Any]:
        """One object; raises ``KubeError``."""
        return await self._call("GET", path, {})

    async def apply(self, path: str, body: Mapping[str, Any]) -> None:
        """Server-side apply as drift-watch's own field manager; raises ``KubeError``."""
        params = {"fieldManager": names.DRIFTWATCH_FIELD_MANAGER, "force": "true"}
        await self._call("PATCH", path, params, body)

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = APPLY
        request = await self._api.param_serialize(
            method,
            path,
            query_params=list(params.items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._api.call_api(*request, _request_timeout=self._seconds)
            raw = await answer.response.read()
        except BROKEN as error:
            raise KubeError(f"{method} {path}: {error or 'timed out'}") from None
        found = _object(raw)
        if answer.response.status >= 400:
            message = found.get("message") or raw[:200].decode(errors="replace")
            raise KubeError(f"{method} {path}: {message}", answer.response.status)
        return found


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
