"""Bad documents are refused with the field, its value and what is allowed."""

from typing import Any

import pytest

from cascade_operator import errors, spec
from tests.apiserver import Api
from tests.crd import bad_documents, documents

pytestmark = pytest.mark.api


def _parsed(document: dict[str, Any]) -> str:
    try:
        spec.parse(document)
    except errors.SpecError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("bad", bad_documents.ALL, ids=lambda bad: bad.id)
def test_refusal_names_field_value_and_what_is_allowed(api: Api, bad: bad_documents.Bad) -> None:
    document = documents.changed(bad.changes)
    code, answer = api.create(document)
    if bad.by == bad_documents.PARSE:
        assert code == 201, answer["message"]
        message = _parsed(document)
    else:
        assert code in (400, 422)
        message = answer["message"]
    assert [word for word in bad.words if word not in message] == [], message


def test_ids_of_the_table_are_unique_and_at_least_sixty() -> None:
    ids = [bad.id for bad in bad_documents.ALL]
    assert len(set(ids)) == len(ids) >= 60


def test_the_minimal_document_is_accepted_and_parsed(api: Api) -> None:
    code, answer = api.create(documents.MINIMAL)
    assert code == 201, answer
    assert spec.parse(answer).model_names == ("small", "large")


def test_several_faults_are_reported_together() -> None:
    document = documents.changed(
        {"spec.gpuPool.0.gpuType": "H1000", "spec.slo": {"e2eP95Milliseconds": 5}}
    )
    message = _parsed(document)
    assert "spec.gpuPool[0].gpuType" in message
    assert "spec.slo.e2eP95Milliseconds" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"spec.qmin": "75"}, ("spec.qmin", '"75"', "integer"), id="type"),
        pytest.param({"spec.qmin": documents.ABSENT}, ("spec.qmin", "missing"), id="missing"),
        pytest.param({"spec.speed": 3}, ("spec.speed", "3", "no such field"), id="unknown"),
        pytest.param(
            {"spec.judge": {"modelRef": "huge"}},
            ("spec.judge.modelRef", '"huge"', "small, large"),
            id="judge-model",
        ),
        pytest.param(
            {"spec.models.1.name": "small"},
            ("spec.models[1].name", '"small"', "unique"),
            id="model-names",
        ),
        pytest.param(
            {"spec.planPolicy": {"pins": {"gpus": [{"model": "x", "count": 1}]}}},
            ("spec.planPolicy.pins.gpus", '"x"', "small, large"),
            id="pinned-model",
        ),
        pytest.param(
            {"spec.planPolicy": {"pins": {"thresholds": [{"model": "large", "score": 1}]}}},
            ("spec.planPolicy.pins.thresholds", '"large"', "small"),
            id="pinned-threshold",
        ),
    ],
)
def test_parse_refuses_what_an_older_schema_would_let_through(
    changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    message = _parsed(documents.changed(changes))
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("field", ["limit", "gpusPerNode"])
def test_namespaced_mode_needs_the_size_of_the_pool(field: str) -> None:
    document = documents.changed({f"spec.gpuPool.0.{field}": documents.ABSENT})
    spec.parse(document)
    with pytest.raises(errors.SpecError, match=rf"spec\.gpuPool\[0\]\.{field} is missing"):
        spec.parse(document, namespaced=True)
