"""The reference page of the custom resource, written from its schema."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Schema = Mapping[str, Any]

HEAD = """\
# CascadeService

Generated from `crds/cascadeservices.yaml` by `make docs`; do not edit. The same texts are shown by
`kubectl explain cascadeservice.spec --recursive`.

API version `{group}/{version}`, kind `{kind}`, short name{plural} {short}; namespaced, with a
status subresource.

{description}
"""


def page(crd: str) -> str:
    """Markdown for the first version of the definition: columns, then every field in tables."""
    definition = yaml.safe_load(crd)
    spec = definition["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = spec["names"]
    lines = [
        HEAD.format(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural="" if len(names["shortNames"]) == 1 else "s",
            short=", ".join(f"`{name}`" for name in names["shortNames"]),
            description=schema["description"],
        ),
        *_columns(version["additionalPrinterColumns"]),
    ]
    for part in ("spec", "status"):
        lines += ["", *_section(part, schema["properties"][part])]
    return "\n".join(lines) + "\n"


def _columns(columns: list[Schema]) -> Iterator[str]:
    yield "## Columns of `kubectl get`"
    yield ""
    yield "| Column | Shown | Meaning |"
    yield "| --- | --- | --- |"
    for column in columns:
        shown = "with `-o wide`" if column.get("priority") else "always"
        meaning = column.get("description", "Time since creation.")
        yield f"| {column['name']} | {shown} | {_cell(meaning)} |"


def _section(path: str, schema: Schema) -> Iterator[str]:
    """A heading and a table for one object, then the same for each object inside it."""
    yield f"## {path}"
    yield ""
    yield schema["description"]
    rules = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        yield ""
        yield from (f"- Rule: {' '.join(rule.split())}." for rule in rules)
    yield ""
    yield "| Field | Type | Default | Description |"
    yield "| --- | --- | --- | --- |"
    required = schema.get("required", ())
    inner: list[tuple[str, Schema]] = []
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {_cell(_text(field))} |"
        element = field.get("items", field)
        if "properties" in element:
            inner.append((f"{path}.{name}{'[]' if 'items' in field else ''}", element))
    for inner_path, element in inner:
        yield ""
        yield from _section(inner_path, element)


def _text(field: Schema) -> str:
    """Description, and the rules of a value that has no section of its own."""
    plain = [each for each in (field, field.get("items", {})) if "properties" not in each]
    rules = [rule["message"] for each in plain for rule in each.get("x-kubernetes-validations", ())]
    return " ".join([field["description"], *(f"Rule: {rule.strip()}." for rule in rules)])


def _type(field: Schema) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        kept = f", at most {field['maxItems']}"
        return f"list of {_type(field['items'])}{kept}"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}, at most {field['maxProperties']}"
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("format") == "date-time":
        return "time"
    kind = str(field["type"])
    if kind == "integer":
        return f"integer, {field['minimum']} to {field['maximum']}"
    return kind


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "`" + ", ".join(f"{key}: {each}" for key, each in value.items()) + "`"
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
