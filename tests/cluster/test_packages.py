"""Missing Debian packages are told in one message, or installed where that is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cascade_cluster import packages
from cascade_cluster.errors import ClusterError

STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "{log}"
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine where nothing is installed; the root of it is us."""
    monkeypatch.setattr(packages, "_SEARCH_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setitem(packages.NEEDS, "pods", {**packages.NEEDS["pods"], "runc": "/none/runc"})
    return tmp_path


@pytest.mark.parametrize("level", ["api", "kwok"])
def test_the_light_levels_need_openssl_alone(bare: Path, level: str) -> None:
    assert packages.missing(level) == ["openssl"]


def test_one_message_names_all_packages_and_the_command(bare: Path) -> None:
    with pytest.raises(ClusterError) as caught:
        packages.ensure("pods", install=False)
    text = str(caught.value)
    assert "openssl" in text and "containerd" in text and "runc" in text and "nftables" in text
    assert "apt-get install --yes --no-install-recommends openssl" in text


def test_installing_updates_the_lists_once_before(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bare / "log"
    program = bare / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    packages.ensure("images", install=True)
    assert log.read_text().splitlines() == [
        "apt-get update",
        "apt-get install --yes --no-install-recommends buildah debootstrap",
    ]


def test_real_pods_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root"):
        packages.ensure("pods", install=True)
