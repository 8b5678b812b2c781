"""The operator's rights as the chart grants them, and a kubeconfig that has just these."""

import json
from pathlib import Path
from typing import Any

import yaml

from cascade_cluster.handle import Cluster
from tests.operator.live.process import ROOT

NAMESPACE = "cascade-system"
RELEASE = "cascade-operator"
KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def kubeconfig(cluster: Cluster, folder: Path, watch_namespaces: tuple[str, ...] = ()) -> Path:
    """Applies the chart's rights and returns a kubeconfig of the operator's ServiceAccount."""
    text = cluster.helm(
        "template", RELEASE, str(ROOT / "charts" / "cascade-operator"), "--namespace", NAMESPACE,
        "--kube-version", "1.30.0", "--values", "-",
        input=yaml.safe_dump({"watchNamespaces": list(watch_namespaces)}),
    )  # fmt: skip
    rights = [each for each in yaml.safe_load_all(text) if each and each["kind"] in KINDS]
    if watch_namespaces:
        # What a cluster-wide installation was given before would hide what is missing here.
        cluster.kubectl("delete", "clusterrolebinding", RELEASE, "--ignore-not-found")
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(rights))
    token = cluster.kubectl("create", "token", RELEASE, "--namespace", NAMESPACE).strip()
    view: dict[str, Any] = json.loads(
        cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    )
    view["users"] = [{"name": view["users"][0]["name"], "user": {"token": token}}]
    path = folder / "kubeconfig"
    path.write_text(json.dumps(view))
    return path
