"""The demo is the main job; its own assertions run here on real pods, then qmin is edited."""

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cascade_demo import flow

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = flow.NAMESPACE

pytestmark = pytest.mark.pods


class DemoRun:
    """The demo on a cluster of its own, left running as it leaves it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"demo-{uuid.uuid4().hex[:6]}"
        self.log = folder / "demo.log"

    def run(self, command: str, seconds: float) -> int:
        with self.log.open("a") as log:
            done = subprocess.run(
                [sys.executable, "-m", "cascade_demo", command, "--name", self.name],
                cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, timeout=seconds,
            )  # fmt: skip
        return done.returncode

    def cluster(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cascade_cluster", *arguments],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout

    def kubectl(self, *arguments: str) -> str:
        return self.cluster("kubectl", "--name", self.name, *arguments)

    def cascade(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.kubectl("-n", NAMESPACE, "get", "csc", "chat", "-o", "json")
        )
        return found

    def gpus(self) -> dict[str, int]:
        """GPUs that the engine pods of each model hold, pods on their way out left aside."""
        words = ("-n", NAMESPACE, "get", "pods", "-l", flow.ENGINES, "-o", "json")
        held: Counter[str] = Counter()
        for pod in json.loads(self.kubectl(*words))["items"]:
            if "deletionTimestamp" not in pod["metadata"]:
                limits = pod["spec"]["containers"][0]["resources"]["limits"]
                held[pod["metadata"]["labels"]["cascade-operator.io/model"]] += int(
                    limits["nvidia.com/gpu"]
                )
        return dict(held)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoRun]:
    """Runs the demo once; the paths of the packages are those that pytest itself uses."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        str(ROOT / p)
        for p in ("operator", "solver", "router", "enginesim", "hack/cluster", "hack/demo")
    )
    run = DemoRun(tmp_path_factory.mktemp("demo"))
    try:
        code = run.run("up", 1500)
        assert code == 0, run.log.read_text()[-6000:]
        yield run
    finally:
        assert run.run("down", 180) == 0, run.log.read_text()[-3000:]


def test_the_demo_shows_plan_pods_answers_visits_and_the_change(demo: DemoRun) -> None:
    text = demo.log.read_text()
    for shown in (
        "The plan",
        "The pods that realise it",
        "answered by the smallest model",
        "escalated",
        "predicted visits",
        "GPUs before",
        "Worth trying next",
    ):
        assert shown in text, f"{shown!r} is missing from the demo's output:\n{text[-4000:]}"


def test_editing_qmin_with_kubectl_moves_gpus(demo: DemoRun) -> None:
    before, plan = demo.gpus(), demo.cascade()["status"]["plan"]["revision"]
    patch = json.dumps({"spec": {"qmin": flow.QMIN_THAT_MOVES_GPUS}})
    demo.kubectl("-n", NAMESPACE, "patch", "csc", "chat", "--type", "merge", "-p", patch)
    deadline = time.monotonic() + 240
    while True:
        status = demo.cascade()["status"]
        revision = status["plan"]["revision"]
        if revision != plan and status["plan"].get("applied") == revision:
            break
        assert time.monotonic() < deadline, f"not applied within 240 s: {status['conditions']}"
        time.sleep(1)
    after = demo.gpus()
    assert after == {m["name"]: m["gpusUsed"] for m in status["models"]}
    assert after != before
    assert after["small"] > before["small"], "less to promise: the small model gets GPUs back"
