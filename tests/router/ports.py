"""Ports and addresses for processes that cannot be given a bound socket."""

import socket


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_address() -> str:
    """An address of this machine that is not loopback: EndpointSlices refuse loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing, it only chooses the outgoing address.
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address
