"""The folder named operator/ must never shadow the standard library (see CONTRIBUTING)."""

import operator
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDERS = ("operator", "solver", "router", "enginesim")


def test_the_standard_operator_module_is_not_ours() -> None:
    assert not Path(operator.__file__).resolve().is_relative_to(ROOT)


def test_no_folder_with_a_standard_name_is_a_package() -> None:
    folders = [*ROOT.iterdir(), *(ROOT / "tests").iterdir()]
    shadows = [
        folder
        for folder in folders
        if folder.name in sys.stdlib_module_names and (folder / "__init__.py").exists()
    ]
    assert shadows == []


def test_no_package_below_tests() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_no_module_is_named_like_a_standard_one() -> None:
    modules = [p for folder in PACKAGE_FOLDERS for p in (ROOT / folder).rglob("*.py")]
    assert modules
    named = [p for p in modules if p.stem in sys.stdlib_module_names]
    assert named == []


def test_the_interpreter_starts_in_the_repository_root() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import dataclasses, operator; print(operator.add(1, 2))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
