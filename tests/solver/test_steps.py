"""Step times, catalogue, GPU types (latency-model.md sections 1, 2, 9, 11)."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from cascade_solver.errors import ProblemError, UnknownArchitectureError, UnknownGpuError
from cascade_solver.latency import catalogue, memory, steps

DATA = Path(__file__).parent / "data/h100_step_times.csv"
ROWS = list(csv.DictReader(DATA.read_text().splitlines()))
COLUMNS = sorted({(r["model"], r["precision"], int(r["tp_size"])) for r in ROWS})


def predicted_ms(row: dict[str, str]) -> float:
    model = steps.build(
        catalogue.architecture(row["model"]),
        catalogue.gpu("H100"),
        int(row["tp_size"]),
        1,
        catalogue.entry(row["model"]).precision,
    )
    tokens, batch = int(row["tokens"]), int(row["batch_size"])
    if row["phase"] == "prefill":
        return 1e3 * model.prefill_seconds(tokens, tokens**2)
    return 1e3 * model.decode_seconds(batch, tokens)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: f"{c[0]}-TP{c[2]}")
def test_roofline_is_within_12_percent_of_measured_kernels(
    column: tuple[str, str, int], phase: str
) -> None:
    model, _, tensor = column
    errors = [
        abs(predicted_ms(row) / float(row["database_ms"]) - 1)
        for row in ROWS
        if (row["model"], int(row["tp_size"]), row["phase"]) == (model, tensor, phase)
    ]
    assert len(errors) == {"prefill": 2, "decode": 8}[phase]
    assert sum(errors) / len(errors) <= 0.12


@pytest.mark.parametrize("row", ROWS, ids=lambda r: "-".join(list(r.values())[:6]))
def test_roofline_reproduces_its_published_figures(row: dict[str, str]) -> None:
    shown = row["roofline_ms"]
    digits = len(shown.rpartition(".")[2])
    assert predicted_ms(row) == pytest.approx(float(shown), rel=1e-3, abs=10**-digits)


def test_interpolation_is_clamped_below_and_linear_above() -> None:
    model = steps.build(catalogue.architecture("Qwen3-0.6B"), catalogue.gpu("L40S"), 1, 1, "bf16")
    assert model.decode_seconds(1, 1) == model.decode_seconds(1, steps.CONTEXT_AXIS[0])
    beyond = [model.decode_seconds(1, c) for c in (16_384, 20_000, 23_616)]
    assert beyond[2] - beyond[1] == pytest.approx(beyond[1] - beyond[0])
    assert model.prefill_seconds(24, 0) == pytest.approx((model.prefill[1] + model.prefill[2]) / 2)


def test_more_gpus_and_smaller_batches_are_faster() -> None:
    a, gpu = catalogue.architecture("Llama-3.1-70B"), catalogue.gpu("H100")
    by_tensor = [steps.build(a, gpu, t, 1, "bf16").decode_seconds(32, 2048) for t in (2, 4, 8)]
    assert by_tensor == sorted(by_tensor, reverse=True)
    model = steps.build(a, gpu, 4, 1, "bf16")
    by_batch = [model.decode_seconds(b, 2048) for b in (1, 7, 100, 2000)]
    assert by_batch == sorted(by_batch)


def test_host_gap_is_charged_per_pipeline_stage() -> None:
    a, gpu = catalogue.architecture("Llama-3.1-70B"), catalogue.gpu("H100")
    flat, staged = (steps.build(a, gpu, 4, p, "bf16") for p in (1, 3))
    extra = staged.prefill_step_seconds(512, 0) - flat.prefill_step_seconds(512, 0)
    hops = 2 * (steps.STAGE_HOP_SECONDS + staged.hop_per_token * 512)
    assert extra == pytest.approx(2 * steps.PREFILL_GAP_SECONDS + hops)


def test_calibration_factor_scales_every_step_time() -> None:
    model = steps.build(catalogue.architecture("Qwen3-8B"), catalogue.gpu("H100"), 1, 1, "bf16")
    slower = model.scaled(1.5)
    assert slower.decode_seconds(9, 700) == pytest.approx(1.5 * model.decode_seconds(9, 700))
    assert slower.prefill_seconds(900, 810_000) == pytest.approx(
        1.5 * model.prefill_seconds(900, 810_000)
    )


@pytest.mark.parametrize("name", ["A100-80GB", "a100", "NVIDIA-H200", "L40S", "b200"])
def test_gpu_types_are_found_in_any_spelling(name: str) -> None:
    gpu = catalogue.gpu(name)
    assert steps.build(catalogue.architecture("Qwen3-8B"), gpu, 1, 1, "bf16").prefill[0] > 0


def test_fp8_needs_fp8_units() -> None:
    with pytest.raises(ProblemError, match="A100-80GB has no fp8"):
        steps.build(catalogue.architecture("Qwen3-8B"), catalogue.gpu("A100"), 1, 1, "fp8")


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownGpuError, match=r"known: .*H100"):
        catalogue.gpu("TPUv9")
    with pytest.raises(UnknownArchitectureError, match=r"known: .*Qwen/Qwen3-8B"):
        catalogue.architecture("no/such-model")


PARAMETERS_BILLION = {
    "Llama-3.1-8B": 8.03,
    "Llama-3.1-70B": 70.55,
    "Qwen3-0.6B": 0.596,
    "Qwen3-8B": 8.19,
    "Qwen3-32B": 32.76,
    "Mistral-7B-v0.3": 7.25,
    "Mixtral-8x7B-v0.1": 46.7,
    "DeepSeek-R1-Distill-Qwen-7B": 7.62,
    "Qwen3-30B-A3B": 30.5,
    "Qwen3-235B-A22B": 235.1,
    "DeepSeek-R1": 671.0,
}
"""Parameter counts that the models' publishers state."""


@pytest.mark.parametrize("name", PARAMETERS_BILLION)
def test_catalogue_gives_the_published_parameter_count(name: str) -> None:
    parameters = memory.weight_bytes(catalogue.architecture(name), "bf16") / 2e9
    assert parameters == pytest.approx(PARAMETERS_BILLION[name], rel=0.005)


def test_config_json_gives_the_same_figures_as_the_catalogue() -> None:
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
        "max_position_embeddings": 40960,
    }
    assert catalogue.from_config_json(config) == catalogue.architecture("Qwen/Qwen3-8B")
    nested = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": config}
    assert catalogue.from_config_json(nested).layers == 36


def test_config_json_names_every_missing_key() -> None:
    with pytest.raises(ProblemError) as caught:
        catalogue.from_config_json({"hidden_size": 64, "num_attention_heads": 4})
    assert [f.split(":")[0] for f in caught.value.faults] == [
        "$.num_hidden_layers",
        "$.vocab_size",
        "$.intermediate_size",
    ]


def test_step_times_load_neither_numpy_nor_a_compiler() -> None:
    code = (
        "import sys; import cascade_solver.latency.steps, cascade_solver.latency.catalogue;"
        "print([m for m in ('numpy', 'numba', 'pulp') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
