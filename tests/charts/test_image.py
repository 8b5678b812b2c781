"""The operator's image holds the simulator's machine code: no planning run compiles anything."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.charts.conftest import ROOT

DOCKERFILE = (ROOT / "operator" / "Dockerfile").read_text()
FOLDER = "/opt/numba-cache"

COUNT = """
import sys, llvmlite.binding
llvmlite.binding.get_host_cpu_name = lambda: "znver4"
llvmlite.binding.get_host_cpu_features = lambda: {"avx512f": True}
from numba.core import event
from cascade_solver import __main__
with event.install_recorder("numba:compile") as recorder:
    code = __main__.main([sys.argv[1]])
print("compiled:", len(recorder.buffer), "exit:", code)
"""
"""Plans on a machine that calls itself another one, and counts compilations."""


def _environment(cache: Path) -> dict[str, str]:
    """The image's settings for numba, with the folder of its machine code at ``cache``."""
    final_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    settings = dict(re.findall(r"(NUMBA_\w+)=(\S*)", final_stage))
    assert settings["NUMBA_CACHE_DIR"] == FOLDER
    paths = os.pathsep.join(str(ROOT / name) for name in ("operator", "solver"))
    return {**os.environ, **settings, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths}


@pytest.fixture(scope="module")
def image_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the builder stage's command leaves behind."""
    cache = tmp_path_factory.mktemp("image")
    (command,) = re.findall(r"^RUN (echo .*?\bgrep -q \.)$", DOCKERFILE, re.S | re.M)
    command = command.replace("\\\n", " ").replace(FOLDER, str(cache))
    command = command.replace("/opt/venv/bin/cascade-solve", f"{sys.executable} -m cascade_solver")
    subprocess.run(["sh", "-ec", command], check=True, env=_environment(cache), timeout=120)
    return cache


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A calibrated problem, unlike the one that the image was warmed up with."""
    draw = random.Random(7)
    difficulties = [draw.random() for _ in range(200)]

    def column(ability: float) -> dict[str, list[int]]:
        return {
            "score": [round(100 * max(0.0, ability - d / 2)) for d in difficulties],
            "inputTokens": [draw.randint(50, 2000) for _ in difficulties],
            "outputTokens": [draw.randint(20, 600) for _ in difficulties],
        }

    document = {
        "models": [
            {"name": "small", "architecture": "Qwen/Qwen2.5-7B"},
            {"name": "large", "architecture": "Qwen/Qwen2.5-72B", "precision": "fp8"},
        ],
        "qmin": 60,
        "pools": [{"gpuType": "H200", "gpus": 8, "gpusPerNode": 8}],
        "workload": {
            "rate": 4,
            "inputTokens": {"mean": 1000, "p95": 2000},
            "outputTokens": {"mean": 300, "p95": 600},
        },
        "calibration": {"columns": {"small": column(0.8), "large": column(1.0)}},
        "search": {"maxRounds": 2, "simulatedRequests": 200},
    }
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document))
    return path


def _compilations(cache: Path, problem: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(problem)],
        env=_environment(cache), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    match = re.search(r"compiled: (\d+) exit: 0", done.stdout)
    assert match, done.stdout[-1000:] + done.stderr[-2000:]
    return int(match[1])


def test_a_copy_of_the_images_machine_code_serves_another_cpu(
    image_cache: Path, problem: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(image_cache, copy)
    assert _compilations(copy, problem) == 0


def test_without_it_there_would_be_compilations(problem: Path, tmp_path: Path) -> None:
    assert _compilations(tmp_path / "empty", problem) > 0
