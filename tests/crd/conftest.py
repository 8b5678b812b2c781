"""The API server with the custom resource definition."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade_cluster.handle import Cluster
from tests import apiserver
from tests.apiserver import Api

ROOT = Path(__file__).resolve().parents[2]
CRD = apiserver.DEFINITION


@pytest.fixture(scope="session")
def api(api_cluster: Cluster) -> Iterator[Api]:
    apiserver.install_definition(api_cluster)
    yield Api(api_cluster)
