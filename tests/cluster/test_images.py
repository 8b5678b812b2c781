"""Images: their keys follow what goes into them, and nothing is built twice."""

from __future__ import annotations

import json
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cascade_cluster import base_image, clusters, images, wheelhouse
from cascade_cluster.errors import ClusterError
from cascade_cluster.handle import Cluster
from cascade_cluster.images import Image
from cascade_cluster.settings import from_environment

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "cascade-operator"
version = "7.8.9"
readme = "README.md"
[project.optional-dependencies]
router = []
[tool.hatch.build.targets.wheel]
packages = ["router/small"]
"""
DOCKERFILE = """\
ARG BASE
FROM ${BASE} AS builder
COPY wheels/ /wheels/
RUN python3 -m venv /opt/venv \\
 && /opt/venv/bin/pip install --no-index --find-links /wheels 'cascade-operator[router]'
FROM ${BASE}
COPY --from=builder /opt/venv /opt/venv
USER 65532:65532
CMD ["/opt/venv/bin/python", "-c", "import small; print(small.WORD)"]
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The smallest project that has one of the images."""
    root = tmp_path / "repository"
    package = root / "router" / "small"
    package.mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "README.md").write_text("small")
    (root / "router" / "Dockerfile").write_text(DOCKERFILE)
    (package / "__init__.py").write_text("WORD = 'first'\n")
    return root


def describe(repository: Path, base: str = "base") -> Image:
    return images.describe(base, ["router"], repository)[0]


def test_an_image_is_named_after_component_and_version(repository: Path) -> None:
    assert describe(repository).reference == "cascade-operator/router:7.8.9"


CHANGES: dict[str, Callable[[Path], object]] = {
    "code": lambda root: (root / "router/small/__init__.py").write_text("WORD = 'other'\n"),
    "new file": lambda root: (root / "router/small/more.py").touch(),
    "dockerfile": lambda root: (root / "router/Dockerfile").write_text("FROM scratch\n"),
    "pins": lambda root: (root / "constraints.txt").write_text("aiohttp==3.14.5\n"),
    "dependencies": lambda root: (root / "pyproject.toml").write_text(
        PROJECT.replace("router = []", 'router = ["aiohttp"]')
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_key_changes_with_all_that_goes_in(
    repository: Path, change: Callable[[Path], object]
) -> None:
    before = describe(repository).key
    change(repository)
    assert describe(repository).key != before


def test_the_key_changes_with_the_base_and_with_nothing_else(repository: Path) -> None:
    before = describe(repository)
    assert describe(repository, base="newer").key != before.key
    (repository / "router/small/__pycache__").mkdir()
    (repository / "router/small/__pycache__/small.pyc").touch()
    (repository / "CHANGELOG.md").touch()
    assert describe(repository) == before


def test_a_code_change_fetches_no_other_wheels(repository: Path) -> None:
    before = wheelhouse.sources(repository)
    CHANGES["code"](repository)
    after = wheelhouse.sources(repository)
    assert after.project != before.project
    assert after.requirements == before.requirements


def test_files_that_do_not_hold_still_are_not_packed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit_meanwhile(*_: object, **__: object) -> str:
        (repository / "router/small" / f"n{time.monotonic_ns()}.py").touch()
        return ""

    monkeypatch.setattr(wheelhouse, "run", edit_meanwhile)
    with pytest.raises(ClusterError, match="changed each time"):
        wheelhouse.freeze(tmp_path / "cache", repository)
    assert list((tmp_path / "cache/wheels").glob("*")) == []


def test_a_missing_dockerfile_is_told(repository: Path) -> None:
    with pytest.raises(ClusterError, match="no enginesim/Dockerfile"):
        images.describe("base", ["enginesim"], repository)


@pytest.mark.pods
def test_an_image_is_built_once_and_runs(
    pods_cluster: Cluster,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = from_environment()
    base = base_image.ensure(settings.cache)
    cache = tmp_path / "cache"
    image = describe(repository, base.key)
    wheels = wheelhouse.freeze(cache, repository)
    images.build(cache, base, [image], wheels)
    archive = image.archive(cache)
    with tarfile.open(archive) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        names = json.load(manifest)[0]["RepoTags"]
    assert names == ["docker.io/cascade-operator/router:7.8.9"]
    shutil.rmtree(cache / "buildah")

    monkeypatch.setattr(images, "Buildah", lambda *_: pytest.fail("built a second time"))
    images.build(cache, base, [image], wheels)

    clusters.load_archive(settings, pods_cluster.name, archive)
    pods_cluster.kubectl(
        "run", "built", f"--image={image.reference}", "--image-pull-policy=Never",
        "--restart=Never",
    )  # fmt: skip
    try:
        pods_cluster.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", "pod/built"
        )
        assert pods_cluster.kubectl("logs", "built").strip() == "first"
    finally:
        pods_cluster.kubectl("delete", "pod", "built", "--wait=false")
