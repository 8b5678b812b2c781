"""What makes Services and names work for pods: kube-proxy and CoreDNS, one each per cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cascade_cluster.credentials import USERS, Credentials
from cascade_cluster.handle import Cluster
from cascade_cluster.launcher import Launcher
from cascade_cluster.network import Network
from cascade_cluster.nodes import node_name


def proxy_settings(credentials: Credentials, net: Network) -> dict[str, Any]:
    """kube-proxy's configuration. The nodes share one network namespace, so one serves them all."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(credentials.kubeconfig("kube-proxy"))},
        "mode": "nftables",
        "clusterCIDR": net.all,
        "hostnameOverride": node_name(0),
        "bindAddress": net.api,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # The table of connections is the host's, not the cluster's, to size.
        "conntrack": {"maxPerCore": 0},
        "oomScoreAdj": 0,
    }


def corefile(credentials: Credentials, net: Network) -> str:
    """CoreDNS's configuration: names of the cluster; there is no way out to others."""
    return f"""\
.:53 {{
    bind {net.dns}
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {credentials.kubeconfig("coredns")}
        pods insecure
    }}
    cache 5
}}
"""


def dns_permissions() -> dict[str, Any]:
    """The read permissions of CoreDNS: Kubernetes has no built-in role for it."""
    group = "rbac.authorization.k8s.io"
    name = USERS["coredns"][0]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": name},
                "rules": [
                    {
                        "apiGroups": [""],
                        "resources": ["services", "pods", "namespaces"],
                        "verbs": ["list", "watch"],
                    },
                    {
                        "apiGroups": ["discovery.k8s.io"],
                        "resources": ["endpointslices"],
                        "verbs": ["list", "watch"],
                    },
                ],
            },
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
            },
        ],
    }


def start(
    launcher: Launcher, kube: Path, credentials: Credentials, net: Network, cluster: Cluster
) -> None:
    """Start both; neither holds up the nodes."""
    folder = launcher.instance.folder
    settings = folder / "kube-proxy.json"
    settings.write_text(json.dumps(proxy_settings(credentials, net)))
    launcher.start("kube-proxy", [kube, "kube-proxy", f"--config={settings}"])
    cluster.kubectl("apply", "-f", "-", input=json.dumps(dns_permissions()))
    (folder / "Corefile").write_text(corefile(credentials, net))
    launcher.start("coredns", [kube, "coredns", "-conf", folder / "Corefile"])
