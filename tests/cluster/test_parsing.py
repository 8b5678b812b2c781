"""Small readers: names, versions, package sources, cached folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cascade_cluster import __main__, cached, hashing
from cascade_cluster.base_image import Mirror, parse_mirror
from cascade_cluster.errors import ClusterError
from cascade_cluster.settings import checked_name, from_environment
from cascade_cluster.toolchain import parse_version

TARGETS = """\
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm-updates main
http://mirror.example/debian/ bookworm contrib
"""


def test_the_mirror_is_the_one_of_the_machine() -> None:
    assert parse_mirror(TARGETS, "bookworm") == Mirror("http://mirror.example/debian/", "bookworm")


def test_a_machine_without_a_source_of_its_release_is_told() -> None:
    with pytest.raises(ClusterError, match="No package source for trixie"):
        parse_mirror(TARGETS, "trixie")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.9 linux/amd64", (1, 9)),
        ("", (0, 0)),
    ],
)
def test_go_versions_compare_as_numbers(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("name", ["demo", "test-kwok-123-ab", "a"])
def test_good_names(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "../a", "A", "a" * 41, "a.b"])
def test_names_that_would_break_a_path_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="cannot be used"):
        checked_name(name)


def test_folders_follow_the_environment() -> None:
    plain = from_environment({"HOME": "/h"})
    assert plain.cache == Path("/h/.cache/cascade-operator")
    assert plain.clusters == Path("/h/.local/state/cascade-operator/clusters")
    assert plain.install and plain.kubeconfig is None
    named = from_environment(
        {
            "HOME": "/h",
            "XDG_CACHE_HOME": "/x",
            "CASCADE_DATA": "/d",
            "INSTALL": "0",
            "CASCADE_KUBECONFIG": "/k",
        }
    )
    assert named.cache == Path("/x/cascade-operator")
    assert named.clusters == Path("/d/clusters")
    assert not named.install and named.kubeconfig == Path("/k")


def test_hashes_tell_the_borders_between_parts() -> None:
    assert hashing.of_parts(["ab", "c"]) != hashing.of_parts(["a", "bc"])


def test_the_cache_keeps_the_newest(tmp_path: Path) -> None:
    for age, name in enumerate(["c", "b", "a"]):
        (tmp_path / f"image-{name}").mkdir()
        os.utime(tmp_path / f"image-{name}", (age, age))
    (tmp_path / "other").touch()
    cached.keep_newest(tmp_path, "image-*", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image-a", "image-b", "other"]


@pytest.mark.parametrize(
    ("words", "name", "passed_on"),
    [
        (["--name", "x", "get", "pods", "-A"], "x", ["get", "pods", "-A"]),
        (["-n", "other", "get", "pods"], "demo", ["-n", "other", "get", "pods"]),
        (["get", "pods", "--name", "x"], "demo", ["get", "pods", "--name", "x"]),
        ([], "demo", []),
    ],
    ids=["named", "options first", "name later", "nothing"],
)
def test_words_after_kubectl_are_passed_on(
    words: list[str], name: str, passed_on: list[str]
) -> None:
    parsed = __main__.parse(["kubectl", *words])
    assert (parsed.name, parsed.words) == (name, passed_on)


def test_errors_are_told_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CASCADE_DATA", str(tmp_path))
    monkeypatch.delenv("CASCADE_KUBECONFIG", raising=False)
    assert __main__.main(["kubeconfig", "--name", "none"]) == 1
    assert capsys.readouterr().err == (
        "error: There is no cluster none.\nStart it: up --name none\n"
    )
