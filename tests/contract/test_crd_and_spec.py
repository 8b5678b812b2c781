"""The schema of crds/ and the classes of spec_fields describe the same document."""

import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml

from cascade_operator import names, spec_fields
from cascade_router import config

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = yaml.safe_load((ROOT / "crds" / "cascadeservices.yaml").read_text())
SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
TYPES = {str: "string", int: "integer", bool: "boolean"}


def _plain(annotation: Any) -> Any:
    """The annotation without ``None``."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        (found,) = [a for a in typing.get_args(annotation) if a is not type(None)]
        return found
    return annotation


def differences(
    model: type[pydantic.BaseModel], schema: Mapping[str, Any], path: str
) -> Iterator[str]:
    """What one side has and the other has not, below ``path``."""
    fields = {f.alias: f for f in model.model_fields.values()}
    yield from (f"{path}.{n} only in spec_fields" for n in fields.keys() - schema["properties"])
    yield from (f"{path}.{n} only in crds" for n in schema["properties"].keys() - fields.keys())
    for name in fields.keys() & schema["properties"].keys():
        field, described = fields[name], schema["properties"][name]
        here = f"{path}.{name}"
        if field.is_required() != (name in schema.get("required", ())):
            yield f"{here}: required on one side only"
        yield from _default_differences(field, described, here)
        yield from _type_differences(_plain(field.annotation), described, here)


def _default_differences(
    field: pydantic.fields.FieldInfo, described: Mapping[str, Any], path: str
) -> Iterator[str]:
    if field.is_required():
        return
    default = field.get_default(call_default_factory=True)
    if isinstance(default, pydantic.BaseModel):
        default = default.model_dump(by_alias=True, exclude_defaults=True)
    if default in (None, (), {}):  # absent and empty mean the same to spec_fields
        default = None
    if (described.get("default") or None) != (default or None):
        yield f"{path}: default {default!r} here, {described.get('default')!r} in crds"


def _type_differences(annotation: Any, described: Mapping[str, Any], path: str) -> Iterator[str]:
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        if set(typing.get_args(annotation)) != set(described.get("enum", ())):
            yield f"{path}: other words than in crds"
    elif origin is tuple:
        if described["type"] != "array":
            yield f"{path}: a list here only"
        else:
            inner = _plain(typing.get_args(annotation)[0])
            yield from _type_differences(inner, described["items"], f"{path}[]")
    elif isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield from differences(annotation, described, path)
    elif annotation in TYPES:
        if described["type"] != TYPES[annotation]:
            yield f"{path}: {annotation.__name__} here, {described['type']} in crds"
    elif described["type"] != "object":
        yield f"{path}: passed through here, {described['type']} in crds"


def test_fields_types_enums_and_defaults_are_equal() -> None:
    assert list(differences(spec_fields.Spec, SCHEMA, "spec")) == []


def test_the_comparison_sees_a_difference_of_each_kind() -> None:
    class Other(spec_fields.Section):
        """A drift section that differs in a name, a default, a type and an enum."""

        mode: typing.Literal["Replan"] = "Replan"
        window_seconds: int = 299
        sample_size: str = "50"
        extra: int | None = None

    found = "\n".join(differences(Other, SCHEMA["properties"]["drift"], "drift"))
    assert "drift.mode: other words" in found
    assert "drift.windowSeconds: default 299" in found
    assert "drift.sampleSize: str here" in found
    assert "drift.extra only in spec_fields" in found
    assert "drift.cooldownSeconds only in crds" in found


def test_group_version_and_kind_are_those_of_names() -> None:
    spec = DEFINITION["spec"]
    assert spec["group"] == names.GROUP
    assert spec["versions"][0]["name"] == names.VERSION
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (names.KIND, names.PLURAL)


def test_longest_names_fit_a_service_and_a_set() -> None:
    properties = SCHEMA["properties"]["models"]["items"]["properties"]
    model = "m" * properties["name"]["maxLength"]
    cascade = "c" * 32
    assert len(names.headless_service(cascade, model)) <= 63
    assert len(names.engine_set(cascade, model, {"tensor": 1})) <= names.MAX_SET_NAME


def test_reserved_model_names_are_those_that_would_clash() -> None:
    clashing = {
        name
        for name in ("router", "plan", "calibration", "pods", "engine")
        if names.serving_service("c", name)
        in (names.router("c"), names.plan("c"), names.calibration("c"))
        or names.serving_service("c", f"m-{name}") == names.headless_service("c", "m")
    }
    rules = SCHEMA["properties"]["models"]["items"]["properties"]["name"][
        "x-kubernetes-validations"
    ]
    assert clashing == {"router", "plan", "calibration", "pods"}
    assert "(router|plan|calibration|pods)" in rules[0]["rule"]


def test_engine_fields_that_may_be_allowed_are_the_routers() -> None:
    field = SCHEMA["properties"]["router"]["properties"]["allowedEngineFields"]
    assert tuple(field["items"]["enum"]) == config.ENGINE_CONTROL_FIELDS
