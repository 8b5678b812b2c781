"""EndpointSlices to endpoints by Service. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from .endpoints import Endpoint

LABEL_SERVICE = "kubernetes.io/service-name"


def endpoints(slices: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Endpoint, ...]]:
    """Endpoints of each Service, by pod name.

    Only ``ready`` takes new work; an absent ``ready`` counts as ready, as the API says. An address
    may stand in two slices while it moves between them: ready in one is ready.
    """
    found: dict[str, dict[str, Endpoint]] = {}
    for one in slices:
        service = (one["metadata"].get("labels") or {}).get(LABEL_SERVICE)
        port = next((p["port"] for p in one.get("ports") or () if p.get("port")), None)
        if service is None:
            continue
        known = found.setdefault(service, {})
        for entry in one.get("endpoints") or ():
            endpoint = _endpoint(entry, port)
            if endpoint is None:
                continue
            before = known.get(endpoint.address)
            if before is None or endpoint.ready:
                known[endpoint.address] = endpoint
    return {
        service: tuple(sorted(known.values(), key=lambda e: (e.pod, e.address)))
        for service, known in found.items()
    }


def _endpoint(entry: Mapping[str, Any], port: int | None) -> Endpoint | None:
    addresses = entry.get("addresses") or ()
    if not addresses or port is None:
        return None
    host = addresses[0]
    host = f"[{host}]" if ":" in host else host
    target = entry.get("targetRef") or {}
    is_ready = (entry.get("conditions") or {}).get("ready")
    return Endpoint(
        pod=target.get("name") or host,
        uid=target.get("uid") or "",
        address=f"http://{host}:{port}",
        ready=is_ready is None or bool(is_ready),
    )
