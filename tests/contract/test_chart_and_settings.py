"""The chart sets the variables that the processes read, with values that they accept."""

from typing import Any

import pytest
import yaml

from cascade_cluster.handle import Cluster
from cascade_driftwatch import settings as driftwatch_settings
from cascade_operator import settings
from tests.charts.conftest import NAMESPACE, ROOT, environment, pick

pytestmark = pytest.mark.api

OWN = {"CASCADE_NAMESPACE": NAMESPACE, "CASCADE_POD_NAME": "operator-0"}
"""Filled in by the kubelet."""

OTHER_VALUES: dict[str, Any] = {
    "imagePullPolicy": "Never",
    "imagePullSecrets": ["pull"],
    "router": {"image": {"tag": "other"}},
    "engine": {"image": {"tag": "other"}, "env": [{"name": "A", "value": "1"}]},
    "watchNamespaces": ["team-a"],
    "runAsUser": 1000,
    "planning": {"timeoutSeconds": 61, "memoryMiB": 1025},
    "lease": {
        "name": "other",
        "durationSeconds": 41,
        "renewDeadlineSeconds": 21,
        "retrySeconds": 6,
        "requestTimeoutSeconds": 9,
    },
    "resyncSeconds": 601,
    "drift": {"periodSeconds": 31, "cooldownSeconds": 121},
    "driftWatch": {"enabled": False},
    "timeScale": "2.5",
    "logLevel": "debug",
    "logFormat": "console",
    "networkPolicies": {
        "enabled": True,
        "clients": [{"podSelector": {}}],
        "metricsFrom": [{"namespaceSelector": {}}],
    },
}
"""Every value that reaches a process, none at its default."""


def _variables(cluster: Cluster, values: dict[str, Any], name: str) -> dict[str, str]:
    text = cluster.helm(
        "template", "cascade-operator", str(ROOT / "charts" / "cascade-operator"),
        "--namespace", NAMESPACE, "--kube-version", "1.30.0", "--values", "-",
        input=yaml.safe_dump(values),
    )  # fmt: skip
    objects = [each for each in yaml.safe_load_all(text) if each]
    found = {**environment(pick(objects, "Deployment", name)), **OWN}
    return {key: value for key, value in found.items() if key.startswith("CASCADE_")}


def test_defaults_of_the_chart_are_those_of_the_settings(api_cluster: Cluster) -> None:
    variables = _variables(api_cluster, {}, "cascade-operator")
    assert settings.from_environment(variables) == settings.Settings(
        namespace=NAMESPACE, pod_name="operator-0", router_image="cascade-operator/router:0.1.0"
    )


def test_every_variable_of_the_chart_is_read_and_every_setting_can_be_chosen(
    api_cluster: Cluster,
) -> None:
    variables = _variables(api_cluster, OTHER_VALUES, "cascade-operator")
    known = {f"CASCADE_{name.upper()}" for name in settings.READERS}
    assert variables.keys() <= known
    read = settings.from_environment(variables)
    default = settings.Settings(namespace="", pod_name="")
    same = {name for name in settings.READERS if getattr(read, name) == getattr(default, name)}
    assert same == {"http_port"}


def test_drift_watch_reads_what_the_chart_sets(api_cluster: Cluster) -> None:
    values = {**OTHER_VALUES, "driftWatch": {"enabled": True}}
    read = driftwatch_settings.load(_variables(api_cluster, values, "drift-watch"))
    assert read == driftwatch_settings.Settings(
        period_seconds=31,
        time_scale=2.5,
        namespaces=("team-a",),
        request_seconds=9,
        log_level="debug",
        log_format="console",
    )
