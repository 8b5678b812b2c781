"""The API server with the custom resource definition, and a plain client for it."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cascade_cluster.handle import Cluster

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "crds" / "cascadeservices.yaml"


@dataclass(frozen=True)
class Api:
    """Requests to the API server as its administrator."""

    cluster: Cluster
    namespace: str = "default"

    def send(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """HTTP status and parsed answer; a refusal is an answer too."""
        request = urllib.request.Request(
            self.cluster.url + path,
            method=method,
            data=json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.cluster.admin_token}",
                "Content-Type": "application/json",
            },
        )
        context = ssl.create_default_context(cafile=str(self.cluster.ca))
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def create(self, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A dry run: everything but the storing, unknown fields refused."""
        path = (
            f"/apis/cascade-operator.io/v1alpha1/namespaces/{self.namespace}/cascadeservices"
            "?dryRun=All&fieldValidation=Strict"
        )
        for _ in range(50):
            code, answer = self.send("POST", path, document)
            if code not in (404, 429):  # the new kind is not served yet
                return code, answer
            time.sleep(0.1)
        raise AssertionError(f"cascadeservices are not served: {answer}")


@pytest.fixture(scope="session")
def api(api_cluster: Cluster) -> Iterator[Api]:
    api_cluster.kubectl("apply", "-f", CRD)
    api_cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", CRD)
    yield Api(api_cluster)
