"""Examples name the images of this version, so that a copy of them works after a release."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_images_in_examples_and_demo_carry_the_projects_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    texts = [p.read_text() for p in (ROOT / "examples").rglob("*") if p.is_file()]
    tags = [
        t for text in texts for t in re.findall(r"cascade-operator/[a-z]+:([0-9.]*[0-9])", text)
    ]
    assert tags
    assert set(tags) == {version}
