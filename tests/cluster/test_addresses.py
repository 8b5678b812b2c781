"""Ports and networks are taken only where nobody else uses them."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from cascade_cluster import network, ports
from cascade_cluster.errors import ClusterError
from cascade_cluster.network import MAX_NODES, Network


def test_free_ports_are_distinct_and_below_the_range_of_outgoing_connections() -> None:
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    assert all(ports.FIRST <= port < ports.LAST for port in found)


def test_a_port_in_use_is_left_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not ports.is_free(port)
        with pytest.raises(ClusterError, match="No 1 free ports"):
            ports.free_ports(1, first=port, last=port + 1)


def test_networks_with_a_route_are_left_out() -> None:
    free = network.candidates(["default", "10.200.0.0/16", "10.201.7.0/24", "192.0.2.0/24"])
    assert free[0] == 202


def test_a_route_to_all_of_10_leaves_no_network() -> None:
    with pytest.raises(ClusterError, match="in use"):
        network.candidates(["10.0.0.0/8"])


def test_the_parts_of_a_network_do_not_overlap() -> None:
    net = Network(222)
    parts = [ipaddress.ip_network(f"10.{net.number}.0.0/24"), ipaddress.ip_network(net.services)]
    parts += [ipaddress.ip_network(net.pods(index)) for index in range(MAX_NODES)]
    whole = ipaddress.ip_network(net.all)
    for position, part in enumerate(parts):
        assert part.subnet_of(whole)  # type: ignore[arg-type]
        assert not any(part.overlaps(other) for other in parts[position + 1 :])
    single = [net.host, net.api, net.dns, *[net.node(index) for index in range(MAX_NODES)]]
    assert len(set(single)) == len(single)
    assert all(ipaddress.ip_address(address) in parts[0] for address in single)
    assert ipaddress.ip_address(net.first_service) == parts[1][1]
