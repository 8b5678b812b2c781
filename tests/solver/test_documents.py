"""Wrong problem documents: one line per fault, with JSON path and value; never a traceback."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cascade_solver import __main__ as command
from cascade_solver import errors
from cascade_solver.plan import Plan
from cascade_solver.problem import MAX_CALIBRATION_ROWS, Problem
from tests.solver import builders


def changed(path: str, value: Any) -> dict[str, Any]:
    """The valid document with one value replaced; numbers in the path are list indices."""
    document: dict[str, Any] = json.loads(json.dumps(builders.document()))
    *parents, last = path.split(".")
    target: Any = document
    for key in parents:
        target = target[int(key) if key.isdigit() else key]
    target[int(last) if last.isdigit() else last] = value
    return document


COLUMN = "calibration.columns.small"
FAULTS = [
    ("qmin", 101, "$.qmin: 101"),
    ("qmin", -1, "$.qmin: -1"),
    ("qmin", "high", "$.qmin: 'high'"),
    ("qmin", float("nan"), "$.qmin: nan"),
    ("qmin", None, "$.qmin: None"),
    ("unknown", 1, "$.unknown: 1"),
    ("schemaVersion", 2, "$.schemaVersion: 2"),
    ("models", [], "$.models: []"),
    ("models", {}, "$.models: {}"),
    ("models.0.name", "", "$.models[0].name: ''"),
    ("models.0.precision", "fp3", "$.models[0].precision: 'fp3'"),
    ("models.0.pins", {"tensor": 0}, "$.models[0].pins.tensor: 0"),
    ("models.0.minReplicas", 0, "$.models[0].minReplicas: 0"),
    ("models.0.maxGpus", -2, "$.models[0].maxGpus: -2"),
    ("models.0.stepTimeFactor", 9, "$.models[0].stepTimeFactor: 9"),
    ("models.1.name", "small", "$: model names must be unique"),
    ("pools", [], "$.pools: []"),
    ("pools.0.gpus", -1, "$.pools[0].gpus: -1"),
    ("pools.0.gpus", 1e9, "$.pools[0].gpus: 1000000000.0"),
    ("pools.0.gpusPerNode", 0, "$.pools[0].gpusPerNode: 0"),
    ("pools.0.freePerNode", [3, -1], "$.pools[0].freePerNode[1]: -1"),
    ("workload.rate", 0, "$.workload.rate: 0"),
    ("workload.rate", float("inf"), "$.workload.rate: inf"),
    ("workload.inputTokens.mean", 0, "$.workload.inputTokens.mean: 0"),
    ("workload.inputTokens.p95", 1, "$.workload.inputTokens: p95 1 is below mean 500"),
    (f"{COLUMN}.score.7", 101, "$.calibration.columns.small.score[7]: 101"),
    (f"{COLUMN}.score.7", 50.5, "$.calibration.columns.small.score[7]: 50.5"),
    (f"{COLUMN}.score", [], "$.calibration.columns.small.score: []"),
    (f"{COLUMN}.score", [50], "$.calibration: columns have different numbers of rows: [1, 400]"),
    (f"{COLUMN}.inputTokens.3", 0, "$.calibration.columns.small.inputTokens[3]: 0"),
    (f"{COLUMN}.outputTokens.3", -5, "$.calibration.columns.small.outputTokens[3]: -5"),
    (f"{COLUMN}.audit", [200], "$.calibration.columns.small.audit[0]: 200"),
    ("calibration.columns", {}, "$.calibration.columns: {}"),
    ("calibration.weights", [-1.0] * 400, "$.calibration.weights[0]: -1.0"),
    ("calibration.weights", [0.0] * 400, "$.calibration: weights are all 0"),
    ("models.1.name", "other", "$: calibration: no columns for model(s) other"),
    ("judge", {"model": "nobody"}, "$: judge.model: unknown model 'nobody'"),
    ("pinnedGpus", {"nobody": 1}, "$: pinned_gpus: unknown model(s) nobody"),
    ("pinnedGpus", {"small": 0}, "$.pinnedGpus.small: 0"),
    ("pinnedThresholds", {"small": 102}, "$.pinnedThresholds.small: 102"),
    ("search", {"quantiles": 1}, "$.search.quantiles: 1"),
    ("search", {"simulatedRequests": 10**9}, "$.search.simulatedRequests: 1000000000"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "line"), FAULTS, ids=[f"{p}={str(v)[:20]}" for p, v, _ in FAULTS]
)
def test_a_wrong_value_gives_one_line_with_its_path(path: str, value: Any, line: str) -> None:
    with pytest.raises(errors.ProblemError) as caught:
        errors.validated(Problem, changed(path, value))
    relevant = [f for f in caught.value.faults if f.startswith(line)]
    assert len(relevant) == 1, caught.value.faults
    if isinstance(value, list) and len(value) > 50:
        assert len(caught.value.faults) <= errors.SHOWN_FAULTS + 1
    else:
        assert len(caught.value.faults) == 1, caught.value.faults


def test_every_fault_gets_its_own_line() -> None:
    document = changed("qmin", 200)
    document["pools"][0]["gpus"] = -4
    del document["workload"]["rate"]
    with pytest.raises(errors.ProblemError) as caught:
        errors.validated(Problem, document)
    assert [f.split(":")[0] for f in caught.value.faults] == [
        "$.qmin",
        "$.pools[0].gpus",
        "$.workload.rate",
    ]


def test_a_huge_table_is_refused_with_the_limit() -> None:
    with pytest.raises(errors.ProblemError) as caught:
        errors.validated(Problem, changed(f"{COLUMN}.score", [50] * (MAX_CALIBRATION_ROWS + 1)))
    assert any(str(MAX_CALIBRATION_ROWS) in f for f in caught.value.faults)


def write(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document))
    return path


def test_the_command_prints_a_table_and_writes_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plan.json"
    assert command.main([str(write(tmp_path, builders.document())), "-o", str(output)]) == 0
    plan = Plan.model_validate_json(output.read_text())
    assert plan.timings["solve"] > 0
    shown = capsys.readouterr().out
    assert shown.startswith("Feasible: p95 ")
    for model in plan.models:
        assert f"{model.sets[0].replicas} x TP{model.sets[0].tensor}" in shown
        assert all(reason in shown for reason in model.details)


def test_json_output_is_the_document_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, builders.document())
    done = subprocess.run(
        [sys.executable, "-m", "cascade_solver", str(path), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert Plan.model_validate_json(done.stdout).verdict == "Feasible"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "$: []"),
        ('{"qmin": NaN}', "$.qmin: nan"),
        (json.dumps(changed("pools.0.gpuType", "H1")), "unknown GPU type 'H1'; known: A100-80GB"),
        (json.dumps(changed("models.0.architecture", "x")), "unknown architecture 'x'; known: "),
        (json.dumps(changed("pools.0.gpus", 1)), "needs at least 3 GPUs, the pool offers 1"),
        (
            json.dumps(changed("models.1.architecture", "DeepSeek-R1")),
            "large: no shape is possible: TP1: ",
        ),
        (json.dumps(changed("objective", {"type": "Cost"})), "$.objective.type: Cost"),
    ],
    ids=["cut", "deep", "list", "nan", "gpu", "architecture", "few", "infeasible", "objective"],
)
def test_wrong_input_ends_with_exit_code_2_and_its_reason(
    content: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "problem.json"
    path.write_text(content)
    assert command.main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert line in captured.err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["/nowhere/problem.json"]) == 2
    assert "/nowhere/problem.json" in capsys.readouterr().err


def test_describe_shows_step_times_and_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["describe", "Llama-3.1-70B", "H100"]) == 0
    shown = capsys.readouterr().out
    assert "141.1 GB of weights" in shown
    assert "not possible: TP1" in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith("TP")]
    assert {row[0] for row in rows} == {"TP2", "TP4", "TP8"}


def test_describe_reads_a_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert command.main(["describe", str(path), "A100"]) == 0
    assert "16.1 GB of weights on A100" not in (shown := capsys.readouterr().out)
    assert "16.1 GB of weights" in shown


def test_describe_names_unknown_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["describe", "nothing", "H100"]) == 2
    assert "unknown architecture 'nothing'" in capsys.readouterr().err
