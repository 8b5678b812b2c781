"""Fixtures that hand a real cluster to a test session, started when the first test asks.

`CASCADE_TEST_CLUSTER_REUSE=NAME[,NAME...]` names clusters that `up` has started: the fixture of a
level takes the named cluster of that level and leaves it running, so that a test can be repeated
within seconds. Such a cluster keeps what earlier sessions left in it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator

import pytest

from cascade_cluster import clusters
from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster
from cascade_cluster.instance import load
from cascade_cluster.settings import Settings, checked_name, from_environment

REUSE_VARIABLE = "CASCADE_TEST_CLUSTER_REUSE"
PREFIX = "test"


@contextlib.contextmanager
def running(level: str, nodes: int = 2, gpus: int = 8) -> Iterator[Cluster]:
    """A cluster of a level: a reused one, or one that lives as long as the block."""
    settings = from_environment()
    names = [checked_name(name) for name in os.environ.get(REUSE_VARIABLE, "").split(",") if name]
    for name in names:
        instance = load(settings.clusters / name)
        if instance is None:
            raise ClusterError(f"{REUSE_VARIABLE} names {name}, which is not up.")
        if instance.level == level:
            yield clusters.find(settings, name)
            return
    _sweep(settings)
    # The process id tells a later session whether this one still lives.
    name = f"{PREFIX}-{level}-{os.getpid()}-{secrets.token_hex(2)}"
    try:
        yield clusters.up(settings, name, level, nodes, gpus)
    finally:
        clusters.down(settings, name)


def _sweep(settings: Settings) -> None:
    """Remove the clusters of test sessions that were killed before they could."""
    for folder in settings.clusters.glob(f"{PREFIX}-*-*-*"):
        owner = folder.name.split("-")[2]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            clusters.down(settings, folder.name)


@pytest.fixture(scope="session")
def api_cluster() -> Iterator[Cluster]:
    """etcd and the API server."""
    with running("api") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kwok_cluster() -> Iterator[Cluster]:
    """A control plane with simulated nodes; the session starts with none of them."""
    with running("kwok") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pods_cluster() -> Iterator[Cluster]:
    """Two nodes that run real pods, each with 8 GPUs in its status."""
    with running("pods") as cluster:
        yield cluster
