"""A plain client of the API server, for tests that look at its answers."""

import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from cascade_cluster.handle import Cluster


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
            self.cluster.url + path, method=method, data=json.dumps(body).encode(), headers=headers
        )
        context = ssl.create_default_context(cafile=str(self.cluster.ca))
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def create(self, document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A CascadeService as a dry run: everything but the storing, unknown fields refused."""
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
