"""Plans and models as text for a terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from .errors import ProblemError
from .latency import catalogue, gpus, memory, shapes, steps
from .plan import ModelPlan, Plan
from .problem import ArchitectureConfig, Model, Precision

DESCRIBED_BATCHES = (1, 8, 32, 64)
DESCRIBED_CONTEXTS = (1024, 4096)
DESCRIBED_PREFILLS = (512, 2048)


class Line:
    """One line of a terminal, rewritten at each call."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()

    def clear(self) -> None:
        """Leaves an empty line for what comes next."""
        self("")


def plan_text(plan: Plan) -> str:
    """The plan as a table with its reasons below."""
    header = ("model", "GPUs", "replicas", "accept at", "visits", "load", "p95 s", "TTFT s")
    rows = [header, *(_model_row(m) for m in plan.models)]
    lines = [_headline(plan), "", *_aligned(rows), ""]
    for model in plan.models:
        lines.append(f"{model.name}:")
        lines += [f"  {reason}" for reason in (*model.details, *_flags(model))]
    lines += plan.details
    if plan.needs_downtime:
        lines.append(plan.needs_downtime)
    return "\n".join(lines)


def _headline(plan: Plan) -> str:
    quality = plan.quality.predicted
    measured = "quality unknown" if quality is None else f"quality {quality:.1f}"
    latency = f"p95 {plan.latency_p95_seconds:.2f} s"
    if plan.overloaded:
        latency = "OVERLOADED"
    gpu_count = sum(m.gpus_used for m in plan.models)
    return f"{plan.verdict}: {latency}, {measured} (qmin {plan.qmin}), {gpu_count} GPUs"


def _model_row(model: ModelPlan) -> tuple[str, ...]:
    sets = " + ".join(
        f"{s.replicas} x TP{s.tensor}" + (f" PP{s.pipeline}" if s.pipeline > 1 else "")
        for s in model.sets
    )
    return (
        model.name,
        str(model.gpus_used),
        sets,
        "always" if model.threshold is None else str(model.threshold),
        f"{100 * model.visit_ratio:.0f} %",
        f"{100 * model.utilisation:.0f} %",
        f"{model.latency_p95_seconds:.2f}",
        f"{model.ttft_p95_seconds:.2f}",
    )


def _flags(model: ModelPlan) -> list[str]:
    return [f"low confidence: {flag}" for s in model.sets for flag in s.low_confidence]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def describe_text(name: str, gpu_name: str, precision: Precision | None) -> str:
    """Step times, KV tokens and feasible shapes of a model on a GPU type."""
    architecture, published = _architecture(name)
    gpu = gpus.gpu(gpu_name)
    used: Precision = precision or published
    model = Model(name="model", architecture=architecture, precision=used)
    found = shapes.feasible(
        model, architecture, gpu, largest_node=max(shapes.TENSOR_SIZES), longest_request=0
    )
    weights = memory.weight_bytes(architecture, used) / 1e9
    lines = [f"{name} in {used} on {gpu.name}: {weights:.1f} GB of weights", ""]
    header = ["shape", "memory fraction", "chunk", "KV tokens"]
    header += [f"prefill {m} ms" for m in DESCRIBED_PREFILLS]
    header += [f"decode {b}x{c} ms" for c in DESCRIBED_CONTEXTS for b in DESCRIBED_BATCHES]
    rows = [header]
    for variants in found.variants.values():
        rows += [_shape_row(architecture, gpu, used, shape) for shape in variants]
    lines += _aligned(rows)
    lines += ["", *(f"not possible: {reason}" for reason in found.excluded)]
    return "\n".join(lines).rstrip()


def _shape_row(
    architecture: ArchitectureConfig, gpu: gpus.Gpu, precision: Precision, shape: shapes.Shape
) -> list[str]:
    model = steps.build(architecture, gpu, shape.tensor, shape.pipeline, precision)
    row = [f"TP{shape.tensor}", f"{shape.mem_fraction_static:g}", str(shape.chunk)]
    row.append(str(shape.kv_tokens))
    row += [f"{1e3 * model.prefill_seconds(m, m * m):.1f}" for m in DESCRIBED_PREFILLS]
    row += [
        f"{1e3 * model.decode_seconds(b, c):.2f}"
        for c in DESCRIBED_CONTEXTS
        for b in DESCRIBED_BATCHES
    ]
    return row


def _architecture(name: str) -> tuple[ArchitectureConfig, Precision]:
    path = Path(name)
    if path.suffix != ".json":
        found = catalogue.entry(name)
        return found.architecture, found.precision
    import json

    try:
        return catalogue.from_config_json(json.loads(path.read_text(encoding="utf-8"))), "bf16"
    except (OSError, ValueError) as error:
        raise ProblemError([f"{path}: {error}"]) from error
