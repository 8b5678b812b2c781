"""A calibration table in a ConfigMap: the key the operator reads, gzip when it would not fit."""

import base64
import gzip
import time
from collections.abc import Callable
from typing import Any

from . import acknowledgement as names
from .errors import KubeError
from .kube import Kube

KEY = "table.csv"
UNFINISHED_KEY = "table.csv.unfinished"
FIELD_MANAGER = "cascade-router-calibrate"
PLAIN_BYTES = 700_000
"""A ConfigMap holds 1 MiB, metadata and managed fields included."""
SAVE_SECONDS = 5.0
"""Least time between two writes while rows come in."""


class ConfigMapStore:
    """Loads and saves the table, under another key until it is complete.

    A plan made from half a table would be made again with the whole one.
    """

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
        self._finished = ""

    async def load(self) -> str:
        """The table in the ConfigMap, empty when there is none; raises ``KubeError``."""
        try:
            found = await self._kube.get(self._path)
        except KubeError as error:
            if error.status == 404:
                return ""
            raise
        self._finished = content(found, KEY)
        return content(found, UNFINISHED_KEY) or self._finished

    async def save(self, text: str, added: str) -> None:
        """Keep the table; written at most every ``SAVE_SECONDS``, and on ``close``."""
        self._unsaved = text
        if self._saved_at is None or self._clock() - self._saved_at >= SAVE_SECONDS:
            await self._write()

    async def finish(self, text: str) -> None:
        """Put the complete table under the key that the operator reads."""
        self._finished, self._unsaved = text, None
        await self._kube.apply(
            self._path, configmap(self._identity, self._cascade, {KEY: text}), FIELD_MANAGER
        )

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
        parts = {UNFINISHED_KEY: text}
        if self._finished:
            parts[KEY] = self._finished
        body = configmap(self._identity, self._cascade, parts)
        await self._kube.apply(self._path, body, FIELD_MANAGER)


def content(configmap: dict[str, Any], key: str) -> str:
    """A table of a ConfigMap, plain or gzip; empty when it is not there."""
    packed = (configmap.get("binaryData") or {}).get(key)
    if packed is not None:
        return gzip.decompress(base64.b64decode(packed)).decode()
    return str((configmap.get("data") or {}).get(key, ""))


def configmap(identity: dict[str, str], cascade: str, tables: dict[str, str]) -> dict[str, Any]:
    """The ConfigMap with the tables by key, plain, or gzip when they would not fit."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **identity,
            "labels": {
                names.LABEL_COMPONENT: names.COMPONENT_CALIBRATION,
                names.LABEL_CASCADE: cascade,
            },
        },
    }
    if sum(len(text) for text in tables.values()) <= PLAIN_BYTES:
        body["data"] = tables
    else:
        body["binaryData"] = {
            key: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
            for key, text in tables.items()
        }
    return body


async def connect(namespace: str, name: str, cascade: str) -> ConfigMapStore:
    """A store over the API server; raises ``KubeError``."""
    return ConfigMapStore(await Kube.connect(), namespace, name, cascade, time.monotonic)
