"""What README shows is true: its manifests are accepted, its links and commands exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade_operator import spec
from tests.apiserver import CASCADES, Api

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MANIFESTS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", README, re.S)]


@pytest.mark.api
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda m: m["metadata"]["name"])
def test_manifests_of_the_readme_are_accepted(api: Api, manifest: dict[str, Any]) -> None:
    path = f"{CASCADES}/namespaces/default/cascadeservices?dryRun=All&fieldValidation=Strict"
    status, answer = api.send("POST", path, manifest)
    assert status == 201, answer
    spec.parse(answer)


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets
    assert [t for t in targets if not (ROOT / t).exists()] == []


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z][a-z-]*)", README))
    assert {"demo", "test"} <= named
    assert [
        t for t in sorted(named) if not re.search(rf"^[a-z -]*\b{t}\b[a-z -]*:", makefile, re.M)
    ] == []


def test_nothing_is_left_to_fill_in() -> None:
    assert re.findall(r"@[A-Z]+@", README) == []
