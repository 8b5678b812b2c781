"""Free ports on loopback for clusters that share the host's network."""

from __future__ import annotations

import random
import socket

from cascade_cluster.errors import ClusterError

# Below the range that Linux gives to outgoing connections (32768 up), or such a connection could
# take the port between our look and the start of the component.
FIRST, LAST = 20000, 32000


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        # Without it a port with connections in TIME_WAIT would look taken, yet could be used.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_ports(count: int, first: int = FIRST, last: int = LAST) -> list[int]:
    """Distinct free ports, from a random point on, so that clusters that start together differ."""
    offset = random.randrange(last - first)
    found: list[int] = []
    for step in range(last - first):
        port = first + (offset + step) % (last - first)
        if is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise ClusterError(f"No {count} free ports between {first} and {last} on 127.0.0.1.")
