"""What the simulated engine runs on: architecture, GPUs, step times, KV tokens, limits."""

import dataclasses
import json
import pathlib

import structlog

from cascade_solver import errors as solver_errors
from cascade_solver.latency import catalogue, memory, steps
from cascade_solver.problem import ArchitectureConfig, Precision

from . import command, settings
from .errors import SettingsError

log = structlog.get_logger()

RUNNING_LIMIT = 2048
"""Running requests without ``--max-running-requests``, as in the planner's event simulation."""

FALLBACK = "Qwen/Qwen2.5-0.5B"
"""Simulated for a model path that neither the catalogue nor a config.json explains."""

FP8 = ("fp8", "w8a8_fp8", "modelopt_fp8", "mxfp8")
INT4 = ("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "w4afp8")


@dataclasses.dataclass(frozen=True)
class Machine:
    """One replica. ``kv_tokens``, ``chunk`` and ``context_length`` in tokens."""

    architecture_name: str
    architecture: ArchitectureConfig
    precision: Precision
    gpu: str
    step: steps.StepModel
    kv_tokens: int
    chunk: int
    context_length: int
    running_limit: int
    queue_limit: int | None
    weight_gigabytes: float
    """Weights on one GPU."""

    @property
    def parameters(self) -> float:
        """Weights of the model, counted as if all were 16 bits wide."""
        figures = self.architecture.model_copy(update={"weight_bytes": None})
        return memory.weight_bytes(figures, "bf16") / 2


def build(launch: command.Launch, chosen: settings.Settings) -> Machine:
    """The replica that this command line describes.

    Raises ``SettingsError`` where the real engine would fail while it loads: shapes that do not
    divide the model, weights that leave no room, a context beyond the model's.
    """
    name, architecture, published = _architecture(launch, chosen)
    precision = _precision(launch.quantization, published)
    try:
        gpu = catalogue.gpu(chosen.gpu)
        step = steps.build(architecture, gpu, launch.tensor, launch.pipeline, precision)
    except solver_errors.SolverError as error:
        raise SettingsError(f"ENGINESIM_GPU={chosen.gpu}: {error}") from error
    _check_shape(architecture, launch.tensor)
    chunk = launch.chunked_prefill_size or memory.default_chunk(gpu)
    context = _context(launch, architecture)
    fraction = launch.mem_fraction_static or memory.default_fraction(
        gpu, launch.tensor, launch.pipeline, max(chunk, 0)
    )
    kv = memory.kv_tokens(architecture, gpu, launch.tensor, launch.pipeline, precision, fraction)
    if kv <= 0:
        raise SettingsError(
            "Loaded weights leave no GPU memory for the KV cache: "
            f"--mem-fraction-static {fraction} of {gpu.name} with --tp-size {launch.tensor} "
            f"--pp-size {launch.pipeline}; raise the fraction or use more GPUs"
        )
    return Machine(
        architecture_name=name,
        architecture=architecture,
        precision=precision,
        gpu=gpu.name,
        step=step,
        kv_tokens=min(kv, launch.max_total_tokens or kv),
        chunk=chunk if chunk > 0 else context,
        context_length=context,
        running_limit=launch.max_running_requests or RUNNING_LIMIT,
        queue_limit=launch.max_queued_requests,
        weight_gigabytes=memory.weight_bytes(architecture, precision)
        / (launch.tensor * launch.pipeline)
        / 1e9,
    )


def _architecture(
    launch: command.Launch, chosen: settings.Settings
) -> tuple[str, ArchitectureConfig, Precision]:
    """Name, figures and published precision: the setting, then the path, then a config.json."""
    for name in filter(None, (chosen.architecture, launch.model_path)):
        try:
            entry = catalogue.entry(name)
        except solver_errors.UnknownArchitectureError:
            if name == chosen.architecture:
                raise SettingsError(
                    f"ENGINESIM_ARCHITECTURE={name}: not in the catalogue"
                ) from None
            continue
        return name, entry.architecture, entry.precision
    config = pathlib.Path(launch.model_path) / "config.json"
    if config.is_file():
        read = catalogue.from_config_json(json.loads(config.read_text()))
        return launch.model_path, read, "bf16"
    log.warning(
        "unknown model path, a small default architecture is simulated",
        model_path=launch.model_path,
        simulated=FALLBACK,
        remedy="set ENGINESIM_ARCHITECTURE to a catalogue name",
    )
    entry = catalogue.entry(FALLBACK)
    return FALLBACK, entry.architecture, entry.precision


def _precision(quantization: str | None, published: Precision) -> Precision:
    if quantization in FP8:
        return "fp8"
    return "int4" if quantization in INT4 else published


def _check_shape(architecture: ArchitectureConfig, tensor: int) -> None:
    """The divisions by tensor parallelism that fail while the model is built."""
    heads, kv_heads = architecture.heads, architecture.kv_heads
    if heads % tensor:
        raise SettingsError(f"--tp-size {tensor}: must divide the model's {heads} attention heads")
    if not architecture.mla and kv_heads % tensor and tensor % kv_heads:
        raise SettingsError(
            f"--tp-size {tensor}: must divide the model's {kv_heads} KV heads, or be a multiple"
        )
    if architecture.intermediate % tensor:
        raise SettingsError(
            f"--tp-size {tensor}: must divide the intermediate size {architecture.intermediate}"
        )


def _context(launch: command.Launch, architecture: ArchitectureConfig) -> int:
    longest = architecture.context_length
    if launch.context_length is not None and launch.context_length > longest:
        raise SettingsError(
            f"--context-length {launch.context_length}: the model's own limit is {longest}"
        )
    return launch.context_length or longest
