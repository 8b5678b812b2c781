"""What the API server does with good documents: defaults, order, columns, status, examples."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade_operator import spec
from tests.apiserver import Api
from tests.crd import documents
from tests.crd.conftest import ROOT

pytestmark = pytest.mark.api

EXAMPLES = sorted((ROOT / "examples").glob("*/*.yaml"))
SPECIFIC = ("name", "namespace", "uid", "generation")


def _contains(given: Any, got: Any) -> bool:
    """Whether everything given is in what came back, unchanged."""
    if isinstance(given, dict):
        return all(key in got and _contains(value, got[key]) for key, value in given.items())
    if isinstance(given, list):
        return len(given) == len(got) and all(map(_contains, given, got))
    return bool(given == got and type(given) is type(got))


def _intent(parsed: spec.CascadeSpec) -> dict[str, Any]:
    return {k: v for k, v in parsed.model_dump().items() if k not in SPECIFIC}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_examples_are_accepted(api: Api, path: Path) -> None:
    manifests = [each for each in yaml.safe_load_all(path.read_text()) if each]
    assert manifests
    api.cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", path)
    for manifest in manifests:
        if manifest["kind"] == "CascadeService":
            code, answer = api.create(manifest)
            assert code == 201, answer["message"]
            assert _contains(manifest["spec"], answer["spec"])
            assert _intent(spec.parse(answer)) == _intent(spec.parse(manifest))


def test_every_example_folder_has_a_cascade_and_a_readme() -> None:
    folders = {path.parent for path in EXAMPLES}
    assert len(folders) >= 4
    for folder in folders:
        assert (folder / "cascade.yaml").exists()
        assert "kubectl apply -f cascade.yaml" in (folder / "README.md").read_text()


def test_models_qmin_and_gpu_type_suffice_and_defaults_equal_those_of_parse(api: Api) -> None:
    document = documents.changed({"spec.gpuPool": [{"gpuType": "H100"}]})
    code, answer = api.create(document)
    assert code == 201, answer["message"]
    assert answer["spec"]["gpuPool"][0]["resourceName"] == "nvidia.com/gpu"
    assert answer["spec"]["drift"]["windowSeconds"] == 300
    assert _intent(spec.parse(answer)) == _intent(spec.parse(document))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("spec.search.stableRounds", 7, id="search"),
        pytest.param("spec.workload.inputTokens", {"mean": 5, "p95": 6}, id="lengths"),
        pytest.param("spec.drift.mode", "Off", id="a-word-that-yaml-reads-as-false"),
        pytest.param("spec.planPolicy.paused", True, id="boolean"),
        pytest.param("spec.gpuPool.0.pricePerHour", "2.50", id="decimal-string"),
        pytest.param(
            "spec.models.0.engine",
            {"resources": {"requests": {"cpu": 8, "memory": "64Gi"}}},
            id="quantities",
        ),
        pytest.param("spec.gpuPool.0.limit", 0, id="zero"),
    ],
)
def test_defaults_rewrite_nothing_given(api: Api, path: str, value: Any) -> None:
    document = documents.changed({path: value})
    code, answer = api.create(document)
    assert code == 201, answer["message"]
    assert _contains(document["spec"], answer["spec"])
    spec.parse(answer)


@pytest.fixture
def stored(api: Api) -> Any:
    """The minimal document, really stored, as a name to ask for."""
    text = yaml.safe_dump(documents.MINIMAL)
    api.cluster.kubectl("apply", "--server-side", "--field-manager=user", "-f", "-", input=text)
    yield "chat"
    api.cluster.kubectl("delete", "csc", "chat")


def test_the_order_of_models_is_the_users(api: Api, stored: str) -> None:
    models = list(reversed(documents.MINIMAL["spec"]["models"]))
    text = yaml.safe_dump(documents.changed({"spec.models": models}))
    api.cluster.kubectl("apply", "--server-side", "--field-manager=user", "-f", "-", input=text)
    names = [m["name"] for m in api.cluster.get("csc", stored)["spec"]["models"]]
    assert names == ["large", "small"]


STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "AllReady",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "summary": {
        "quality": "81.4/75 predicted",
        "gpus": "8/12",
        "thresholds": "small=60",
        "drift": "Stable",
    },
    "plan": {
        "revision": "a1b2c3d4",
        "applied": "a1b2c3d4",
        "verdict": "Feasible",
        "latencyP95Milliseconds": 3200,
        "reasons": ["large is the bottleneck"],
        "search": {"rounds": 4, "converged": True, "provenGapPercent": "0.5"},
    },
    "models": [
        {
            "name": "small",
            "gpus": 4,
            "shape": "4 x TP1 on H100",
            "readyReplicas": 4,
            "threshold": 60,
        }
    ],
    "thresholds": [{"model": "small", "score": 60, "steerPercentile": 50}],
    "quality": {
        "predicted": "81.4",
        "routed": {"score": "80.2", "biased": True},
        "measured": {"score": "79.0", "low": "77.5", "high": "80.5", "samples": 300},
    },
    "gpus": {
        "basis": "Nodes",
        "pools": [{"name": "default", "limit": 12, "held": 8, "committed": 8, "promised": 0}],
        "summary": "8/12",
    },
}


def _patch_status(api: Api, status: dict[str, Any]) -> str:
    document = {"apiVersion": "cascade-operator.io/v1alpha1", "kind": "CascadeService"}
    text = yaml.safe_dump({**document, "metadata": {"name": "chat"}, "status": status})
    return api.cluster.kubectl(
        "apply", "--server-side", "--subresource=status", "--field-manager=cascade-operator",
        "--validate=strict", "-f", "-", input=text,
    )  # fmt: skip


def test_columns_show_one_field_each(api: Api, stored: str) -> None:
    _patch_status(api, STATUS)
    head, row = api.cluster.kubectl("get", "csc", stored, "-o", "wide").splitlines()
    titles = ["NAME", "READY", "REASON", "QUALITY", "GPUS", "PLAN", "AGE", "THRESHOLDS", "DRIFT"]
    assert head.split() == titles
    cells = {
        title: row[head.index(title) : head.index(after) if after else None].strip()
        for title, after in zip(titles, [*titles[1:], None], strict=True)
    }
    del cells["AGE"]
    assert cells == {
        "NAME": "chat",
        "READY": "True",
        "REASON": "AllReady",
        "QUALITY": "81.4/75 predicted",
        "GPUS": "8/12",
        "PLAN": "a1b2c3d4",
        "THRESHOLDS": "small=60",
        "DRIFT": "Stable",
    }
    narrow = api.cluster.kubectl("get", "csc", stored).splitlines()[0].split()
    assert narrow == titles[:7]


def test_all_and_the_category_list_it(api: Api, stored: str) -> None:
    for category in ("all", "cascade"):
        assert "cascadeservice.cascade-operator.io/chat" in api.cluster.kubectl(
            "get", category, "-o", "name"
        )


def test_status_and_drift_have_one_writer_each(api: Api, stored: str) -> None:
    _patch_status(api, STATUS)
    drift = {"verdict": "Drifted", "message": "rate doubled", "lastUpdate": "2026-01-01T00:00:00Z"}
    document = {"apiVersion": "cascade-operator.io/v1alpha1", "kind": "CascadeService"}
    text = yaml.safe_dump({**document, "metadata": {"name": "chat"}, "status": {"drift": drift}})
    api.cluster.kubectl(
        "apply", "--server-side", "--subresource=status", "--field-manager=cascade-driftwatch",
        "-f", "-", input=text,
    )  # fmt: skip
    without_search = {**STATUS, "plan": {k: v for k, v in STATUS["plan"].items() if k != "search"}}
    _patch_status(api, without_search)
    status = api.cluster.get("csc", stored)["status"]
    assert status["drift"] == drift
    assert status["plan"] == without_search["plan"]
    assert status["quality"] == STATUS["quality"]
