"""The Kubernetes API as the router needs it: get, watch, apply. Sole importer of the client."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import orjson
from kubernetes.aio import client, config

from .errors import KubeError

APPLY = "application/apply-patch+yaml"
REQUEST_SECONDS = 8.0
WATCH_SECONDS = 300
"""A watch ends after this time and is followed by a fresh list: nothing is missed for longer."""
_LINE_BYTES = 16 * 2**20
_BROKEN = (OSError, asyncio.TimeoutError, aiohttp.ClientError)


class Kube:
    """A client with the pod's ServiceAccount, outside a cluster with the current kubeconfig."""

    def __init__(self, api: Any) -> None:
        self._api = api

    @classmethod
    async def connect(cls) -> "Kube":
        """Read the credentials; raises ``KubeError`` when there are none."""
        settings = client.Configuration()
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
            else:
                loaded = config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
                await loaded
        except config.ConfigException as error:
            raise KubeError(f"no credentials for the Kubernetes API: {error}") from None
        return cls(client.ApiClient(settings))

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """An object or list; raises ``KubeError``."""
        response = await self._call("GET", path, params or {})
        return _object(await self._read(response))

    async def apply(self, path: str, body: Mapping[str, Any], field_manager: str) -> None:
        """Server-side apply, taking over the fields named in ``body``; raises ``KubeError``."""
        params = {"fieldManager": field_manager, "force": "true"}
        response = await self._call("PATCH", path, params, body)
        await self._read(response)

    async def watch(
        self, path: str, params: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Events (type, object) until the watch ends; raises ``KubeError``."""
        seconds = {"watch": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        response = await self._call("GET", path, {**params, **seconds}, timeout=WATCH_SECONDS + 30)
        kept = b""
        try:
            async for chunk in response.content.iter_any():
                *lines, kept = (kept + chunk).split(b"\n")
                if len(kept) > _LINE_BYTES:
                    raise KubeError(f"a watch event exceeds {_LINE_BYTES} bytes")
                for line in lines:
                    event = _object(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object", {})
                        raise KubeError(str(status.get("message")), int(status.get("code", 0)))
                    yield event["type"], event["object"]
        except _BROKEN as error:
            raise KubeError(f"watch broken: {error}") from None
        finally:
            response.close()

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> Any:
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
            answer = await self._api.call_api(*request, _request_timeout=timeout)
        except _BROKEN as error:
            raise KubeError(f"{method} {path}: {error or 'timed out'}") from None
        response = answer.response
        if response.status >= 400:
            text = await self._read(response)
            message = _object(text).get("message") or text[:200].decode(errors="replace")
            raise KubeError(f"{method} {path}: {message}", response.status)
        return response

    async def _read(self, response: Any) -> bytes:
        try:
            raw: bytes = await response.read()
        except _BROKEN as error:
            raise KubeError(f"answer broken: {error or 'timed out'}") from None
        return raw


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
