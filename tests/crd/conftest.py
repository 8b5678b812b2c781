"""The API server with the custom resource definition."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade_cluster.handle import Cluster
from tests.apiserver import Api

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "crds" / "cascadeservices.yaml"


@pytest.fixture(scope="session")
def api(api_cluster: Cluster) -> Iterator[Api]:
    api_cluster.kubectl("apply", "-f", CRD)
    api_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", CRD)
    yield Api(api_cluster)
