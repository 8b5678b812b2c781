"""A calibration table in a ConfigMap: the key the operator reads, gzip when it would not fit."""

import base64
import gzip
import time
from collections.abc import Callable
from typing import Any

from . import acknowledgement as names
from .kube import Kube, KubeError

KEY = "table.csv"
FIELD_MANAGER = "cascade-router-calibrate"
PLAIN_BYTES = 700_000
"""A ConfigMap holds 1 MiB, metadata and managed fields included."""
SAVE_SECONDS = 5.0
"""Least time between two writes while rows come in."""


class ConfigMapStore:
    """Loads and saves the table; ``flush`` is part of ``close``."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, cascade: str, clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._identity = {"name": name, "namespace": namespace}
        self._cascade = cascade
        self._clock = clock
        self._saved_at: float | None = None
        self._unsaved: str | None = None

    async def load(self) -> str:
        """The table in the ConfigMap, empty when there is none; raises ``KubeError``."""
        try:
            found = await self._kube.get(self._path)
        except KubeError as error:
            if error.status == 404:
                return ""
            raise
        packed = (found.get("binaryData") or {}).get(KEY)
        if packed is not None:
            return gzip.decompress(base64.b64decode(packed)).decode()
        return str((found.get("data") or {}).get(KEY, ""))

    async def save(self, text: str, added: str) -> None:
        """Keep the table; written at most every ``SAVE_SECONDS``, and on ``close``."""
        self._unsaved = text
        if self._saved_at is None or self._clock() - self._saved_at >= SAVE_SECONDS:
            await self._write()

    async def close(self) -> None:
        """Write what is not yet written and close the connection."""
        try:
            await self._write()
        finally:
            await self._kube.close()

    async def _write(self) -> None:
        text, self._unsaved = self._unsaved, None
        if text is None:
            return
        self._saved_at = self._clock()
        body = configmap(self._identity, self._cascade, text)
        await self._kube.apply(self._path, body, FIELD_MANAGER)


def configmap(identity: dict[str, str], cascade: str, text: str) -> dict[str, Any]:
    """The ConfigMap with the table, plain or gzip."""
    labels = {
        names.LABEL_COMPONENT: names.COMPONENT_CALIBRATION,
        names.LABEL_CASCADE: cascade,
    }
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**identity, "labels": labels},
    }
    if len(text) <= PLAIN_BYTES:
        body["data"] = {KEY: text}
    else:
        packed = gzip.compress(text.encode(), mtime=0)
        body["binaryData"] = {KEY: base64.b64encode(packed).decode()}
    return body


async def connect(namespace: str, name: str, cascade: str) -> ConfigMapStore:
    """A store over the API server; raises ``KubeError``."""
    return ConfigMapStore(await Kube.connect(), namespace, name, cascade, time.monotonic)
