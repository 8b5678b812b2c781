"""The router pods of a cascade, found by EndpointSlices, and the windows that they report."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import aiohttp
import pydantic

from cascade_operator import names
from cascade_router.window import WindowReport

WINDOW_PATH = "/internal/window"
ADMIN_PORT_NAME = "admin"
MAX_REPORT_BYTES = 16 * 2**20
SELECTOR = f"{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}"
"""EndpointSlices carry the labels of their Service."""


class RouterError(Exception):
    """A router whose windows could not be read: names the pod and what went wrong."""


class Reader(Protocol):
    """How the windows of one router are read; a test puts a stand-in here."""

    async def __call__(self, address: "Address") -> WindowReport: ...


@dataclasses.dataclass(frozen=True, order=True)
class Address:
    """A router pod's admin port."""

    pod: str
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{WINDOW_PATH}"


def addresses(
    slices: Iterable[Mapping[str, Any]], namespace: str, cascade: str
) -> tuple[Address, ...]:
    """Ready router pods of one cascade, each once, in a fixed order."""
    found = set()
    for one in slices:
        metadata = one.get("metadata", {})
        labels = metadata.get("labels") or {}
        if metadata.get("namespace") != namespace or labels.get(names.LABEL_CASCADE) != cascade:
            continue
        port = _admin_port(one.get("ports") or ())
        for endpoint in one.get("endpoints") or ():
            # An absent condition means ready (EndpointSlice API).
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            for host in endpoint.get("addresses") or ():
                pod = (endpoint.get("targetRef") or {}).get("name") or host
                found.add(Address(pod, host, port))
    return tuple(sorted(found))


def _admin_port(ports: Sequence[Mapping[str, Any]]) -> int:
    named = (p["port"] for p in ports if p.get("name") == ADMIN_PORT_NAME and p.get("port"))
    return int(next(named, names.ADMIN_PORT))


class HttpReader:
    """Reads windows over HTTP; every failure is a ``RouterError``."""

    def __init__(self, session: aiohttp.ClientSession, request_seconds: float) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=request_seconds)

    async def __call__(self, address: Address) -> WindowReport:
        try:
            async with self._session.get(
                address.url, timeout=self._timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise RouterError(f"router {address.pod}: {address.url} said {response.status}")
                raw = await response.content.read(MAX_REPORT_BYTES + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RouterError(f"router {address.pod}: {error!r}") from None
        if len(raw) > MAX_REPORT_BYTES:
            raise RouterError(f"router {address.pod}: its report exceeds {MAX_REPORT_BYTES} bytes")
        try:
            return WindowReport.model_validate_json(raw)
        except pydantic.ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(str(part) for part in fault["loc"])
            raise RouterError(f"router {address.pod}: window: {place}: {fault['msg']}") from None


async def read_all(reader: Reader, found: Sequence[Address]) -> tuple[WindowReport, ...]:
    """The reports of all these routers. Raises ``RouterError`` when one of them gives none: what
    it counted is missing, so the rest says nothing about the whole."""
    return tuple(await asyncio.gather(*(reader(address) for address in found)))
