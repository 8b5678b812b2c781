"""The definition itself: conventions that hold for every field, and its size."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.apiserver import Api
from tests.crd.conftest import CRD

LARGEST_BYTES = 262_144
"""Limit of the last-applied annotation that client-side apply writes."""

DEFINITION = yaml.safe_load(CRD.read_text())
VERSION = DEFINITION["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of the schema with its path; metadata belongs to the API server."""
    if path == ".metadata":
        return
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from fields(inner, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], f"{path}{{}}")


FIELDS = list(fields(SCHEMA))


def _violations(rule: Any) -> list[str]:
    return [path for path, field in FIELDS if not rule(field)]


def test_the_walk_reaches_the_depths() -> None:
    paths = {path for path, _ in FIELDS}
    assert {
        ".spec.models[].engine.env[].valueFrom.secretKeyRef.key",
        ".status.drift.window",
    } < paths


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(lambda f: len(f.get("description", "")) >= 9, id="described"),
        pytest.param(lambda f: f.get("type") != "number", id="no-floats"),
        pytest.param(
            lambda f: f.get("type") != "integer" or "enum" in f or {"minimum", "maximum"} <= {*f},
            id="integers-bounded",
        ),
        pytest.param(
            lambda f: (
                f.get("type") != "string"
                or "maxLength" in f
                or "enum" in f
                or f.get("format") == "date-time"
            ),
            id="strings-bounded",
        ),
        pytest.param(lambda f: f.get("type") != "array" or "maxItems" in f, id="lists-bounded"),
        pytest.param(
            lambda f: f.get("type") != "array" or "x-kubernetes-list-type" in f, id="list-types"
        ),
        pytest.param(
            lambda f: "additionalProperties" not in f or "maxProperties" in f, id="maps-bounded"
        ),
        pytest.param(
            lambda f: "x-kubernetes-preserve-unknown-fields" not in f, id="nothing-unchecked"
        ),
        pytest.param(
            lambda f: all("message" in r for r in f.get("x-kubernetes-validations", ())),
            id="rules-have-messages",
        ),
        pytest.param(
            lambda f: f.get("type") != "integer" or f.get("format") in ("int32", "int64"),
            id="integer-formats",
        ),
    ],
)
def test_every_field_follows_the_conventions(rule: Any) -> None:
    assert _violations(rule) == []


def test_lists_of_named_objects_are_keyed_by_name() -> None:
    for path, field in FIELDS:
        properties = field.get("items", {}).get("properties", {})
        if "name" in properties:
            assert field["x-kubernetes-list-map-keys"] == ["name"], path


def test_numbers_with_a_unit_carry_it_in_their_name() -> None:
    units = ("Milliseconds", "Seconds", "Percent", "Permille", "Gibibytes", "Mebibytes")
    words = {"in seconds": "Seconds", "in milliseconds": "Milliseconds", "in MiB": "Mebibytes"}
    for path, field in FIELDS:
        if field.get("type") == "integer":
            for word, unit in words.items():
                assert word not in field["description"] or path.endswith(unit), path
            if path.endswith(units) and not path.startswith(".status"):
                assert any(
                    word in field["description"]
                    for word in ("seconds", "percent", "hundredths", "thousandths", "GiB", "MiB")
                ), path


def test_no_phase_and_no_scale() -> None:
    assert "phase" not in SCHEMA["properties"]["status"]["properties"]
    assert list(VERSION["subresources"]) == ["status"]


def test_names_and_columns() -> None:
    names = DEFINITION["spec"]["names"]
    assert names["shortNames"] == ["csc"]
    assert "cascade" in names["categories"]
    columns = {c["name"]: c.get("priority", 0) for c in VERSION["additionalPrinterColumns"]}
    normal = ["Ready", "Reason", "Quality", "GPUs", "Plan", "Age"]
    assert columns == {**dict.fromkeys(normal, 0), "Thresholds": 1, "Drift": 1}


@pytest.mark.api
def test_the_api_server_accepts_it_as_structural_and_small(api: Api) -> None:
    stored = api.cluster.get("crd", DEFINITION["metadata"]["name"])
    conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    applied = stored["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert len(applied) < LARGEST_BYTES


@pytest.mark.api
def test_explain_shows_what_a_field_means(api: Api) -> None:
    text = api.cluster.kubectl("explain", "csc.spec.qmin")
    assert "0 (worst) to 100 (best)" in " ".join(text.split())
