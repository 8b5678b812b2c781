"""A plain client of the API server, for tests that look at its answers."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascade_cluster.commands import wait_until
from cascade_cluster.handle import Cluster

DEFINITION = Path(__file__).resolve().parents[1] / "crds" / "cascadeservices.yaml"
CASCADES = "/apis/cascade-operator.io/v1alpha1"


def install_definition(cluster: Cluster) -> None:
    """Applies the custom resource definition and waits until its objects can be read, its schema
    is published, and kubectl, which keeps what it knows of a server on disk, knows the kind."""
    cluster.kubectl("apply", "-f", DEFINITION)
    api = Api(cluster)
    wait_until(
        "cascadeservices are served",
        lambda: api.send("GET", f"{CASCADES}/cascadeservices", None)[0] == 200,
        timeout_seconds=30,
    )
    wait_until(
        "the schema of cascadeservices is published",
        lambda: "paths" in api.send("GET", f"/openapi/v3{CASCADES}", None)[1],
        timeout_seconds=30,
    )
    wait_until(
        "kubectl knows cascadeservices",
        lambda: "cascadeservices" in cluster.kubectl("api-resources", "--output=name"),
        timeout_seconds=30,
    )


@dataclass(frozen=True)
class Api:
    """Requests to the API server as its administrator, or as somebody else."""

    cluster: Cluster
    namespace: str = "default"

    def send(
        self, method: str, path: str, body: Any, *, user: str = "", kind: str = "json"
    ) -> tuple[int, dict[str, Any]]:
        """HTTP status and parsed answer; a refusal is an answer too. ``user`` is impersonated,
        ``kind`` is the body's media type after ``application/``."""
        headers = {
            "Authorization": f"Bearer {self.cluster.admin_token}",
            "Content-Type": f"application/{kind}",
        }
        if user:
            headers["Impersonate-User"] = user
        request = urllib.request.Request(
            self.cluster.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
        )
        context = ssl.create_default_context(cafile=str(self.cluster.ca))
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            # A path that nobody serves is answered in plain text.
            return error.code, json.loads(text) if text.startswith("{") else {"message": text}

    def create(self, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A CascadeService as a dry run: everything but the storing, unknown fields refused."""
        path = f"{CASCADES}/namespaces/{self.namespace}/cascadeservices"
        return self.send("POST", f"{path}?dryRun=All&fieldValidation=Strict", document)
