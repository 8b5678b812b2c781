"""The addresses of a cluster with real pods: one 10.x.0.0/16, split by purpose."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass

from cascade_cluster.commands import run
from cascade_cluster.errors import ClusterError

# High numbers are seldom used by company networks; the routing table is asked all the same.
FIRST, LAST = 200, 254
MAX_NODES = 32


@dataclass(frozen=True)
class Network:
    """Addresses by purpose. `host` is the outer end of the cable, all others lie inside."""

    number: int

    @property
    def device(self) -> str:
        """Name of the cable's outer end; 15 characters are allowed."""
        return f"cascade-{self.number}"

    @property
    def all(self) -> str:
        return f"10.{self.number}.0.0/16"

    @property
    def host(self) -> str:
        return f"10.{self.number}.0.1"

    @property
    def api(self) -> str:
        return f"10.{self.number}.0.2"

    @property
    def dns(self) -> str:
        return f"10.{self.number}.0.53"

    def node(self, index: int) -> str:
        return f"10.{self.number}.0.{100 + index}"

    def pods(self, index: int) -> str:
        return f"10.{self.number}.{1 + index}.0/24"

    @property
    def services(self) -> str:
        return f"10.{self.number}.240.0/20"

    @property
    def first_service(self) -> str:
        """The address that the API server takes for the Service `kubernetes`."""
        return f"10.{self.number}.240.1"


def candidates(routes: Iterable[str]) -> list[int]:
    """Network numbers that no present route touches; the default route does not count."""
    taken = [ipaddress.ip_network(route, strict=False) for route in routes if route != "default"]
    free = []
    for number in range(FIRST, LAST + 1):
        ours = ipaddress.ip_network(Network(number).all)
        if not any(each.version == 4 and ours.overlaps(each) for each in taken):
            free.append(number)
    if not free:
        raise ClusterError(
            f"Every network from 10.{FIRST}.0.0/16 to 10.{LAST}.0.0/16 is in use.",
            "The routing table has a route into each of them.",
            "Remove clusters that are no longer needed: `status` lists them.",
        )
    return free


def present_routes() -> list[str]:
    """Destinations in the host's routing table."""
    return [str(route["dst"]) for route in json.loads(run(["ip", "-j", "-4", "route", "show"]))]
