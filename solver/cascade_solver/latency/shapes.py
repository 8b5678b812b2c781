"""Which shapes a model can run in, and why the others cannot (latency-model.md sections 4, 10)."""

import dataclasses

from ..problem import ArchitectureConfig, DeployedSet, Model, Precision
from . import memory
from .gpus import GIB, Gpu

TENSOR_SIZES = (1, 2, 4, 8)
FP8_BLOCK = 128
INT4_GROUP = 128
MARLIN_OUTPUT = 64
SEARCHED_FRACTIONS = (0.88, 0.90)
"""Static memory fractions searched beside the engine's default (science.md section 2)."""
HIGH_FRACTION_CHUNK = 4096
"""Largest chunk whose activations fit beside these fractions."""


@dataclasses.dataclass(frozen=True, order=True)
class Shape:
    """GPUs of one replica and the engine's memory knobs; ``kv_tokens`` follow from them."""

    tensor: int
    pipeline: int
    mem_fraction_static: float
    chunk: int
    kv_tokens: int
    low_confidence: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline

    def deployed(self, replicas: int) -> DeployedSet:
        return DeployedSet(
            tensor=self.tensor,
            pipeline=self.pipeline,
            replicas=replicas,
            mem_fraction_static=self.mem_fraction_static,
            chunked_prefill_size=self.chunk,
        )


def sharding_fault(architecture: ArchitectureConfig, precision: Precision, tensor: int) -> str:
    """The first rule of section 10 that this tensor size breaks; empty when it breaks none."""
    a = architecture
    if a.heads % tensor:
        return f"{a.heads} attention heads do not divide by {tensor}"
    if not a.mla and a.kv_heads % tensor and tensor % a.kv_heads:
        return f"{a.kv_heads} KV heads and {tensor} do not divide one another"
    widths = {"MLP width": a.intermediate} if not a.experts or a.dense_layers else {}
    if a.experts:
        widths["expert width"] = a.moe_intermediate
    for name, width in widths.items():
        if width % tensor:
            return f"{name} {width} does not divide by {tensor}"
        shard = width // tensor
        if precision == "fp8" and shard % FP8_BLOCK:
            return f"{name} {width}/{tensor} = {shard} is no multiple of the fp8 block {FP8_BLOCK}"
        if precision == "int4" and shard % MARLIN_OUTPUT:
            return f"{name} {width}/{tensor} = {shard} is no multiple of {MARLIN_OUTPUT} (int4)"
        if precision == "int4" and not a.experts and shard % INT4_GROUP:
            return f"{name} {width}/{tensor} = {shard} is no multiple of the int4 group"
    return ""


@dataclasses.dataclass(frozen=True)
class Feasible:
    """Per tensor size the memory variants to choose from, and the reasons against the rest."""

    variants: dict[tuple[int, int], tuple[Shape, ...]]
    excluded: tuple[str, ...]


def feasible(
    model: Model,
    architecture: ArchitectureConfig,
    gpu: Gpu,
    *,
    largest_node: int,
    longest_request: int,
    running: tuple[DeployedSet, ...] = (),
) -> Feasible:
    """All shapes of one node that hold the model and its longest request (tokens).

    ``running``: sets in force; their memory knobs stay among the variants, so that a plan can
    keep replicas as they are.
    """
    variants: dict[tuple[int, int], tuple[Shape, ...]] = {}
    excluded = []
    sizes = TENSOR_SIZES if model.pins.tensor is None else (model.pins.tensor,)
    for tensor in sizes:
        name = f"TP{tensor}"
        fault = _placement_fault(model, gpu, tensor, largest_node) or sharding_fault(
            architecture, model.precision, tensor
        )
        if fault:
            excluded.append(f"{name}: {fault}")
            continue
        found = _variants(model, architecture, gpu, tensor, longest_request, running)
        if found:
            variants[tensor, 1] = found
        else:
            excluded.append(
                f"{name}: {_memory_fault(model, architecture, gpu, tensor, longest_request)}"
            )
    return Feasible(variants, tuple(excluded))


def _placement_fault(model: Model, gpu: Gpu, tensor: int, largest_node: int) -> str:
    if model.pins.pipeline not in (None, 1):
        return f"pins.pipeline {model.pins.pipeline} is not available: replicas fit one node"
    if model.precision == "fp8" and gpu.fp8_flops is None:
        return f"{gpu.name} has no fp8 units; use bf16 or int4"
    if tensor > largest_node:
        return f"needs {tensor} GPUs of one node, the largest node offers {largest_node}"
    return ""


def _needed_tokens(model: Model, longest_request: int) -> int:
    if model.kv_tokens is not None:
        return longest_request
    return max(longest_request, memory.MINIMUM_KV_TOKENS)


def _memory_fault(
    model: Model, architecture: ArchitectureConfig, gpu: Gpu, tensor: int, longest_request: int
) -> str:
    """Why no memory variant works; quotes the roomiest one."""
    need = _needed_tokens(model, longest_request)
    weights = memory.weight_bytes(architecture, model.precision) / tensor / GIB
    capacity = gpu.capacity_bytes / GIB
    room = f"{weights:.1f} GiB of weights per GPU on {capacity:.1f} GiB"
    if model.kv_tokens is not None:
        return f"kvTokens {model.kv_tokens} are fewer than the {need} of the longest request"
    best = max(_kv_tokens(model, architecture, gpu, tensor, f) for f, _ in _knobs(gpu, tensor))
    return f"{room} leave {best} KV tokens, {need} are needed"


def _knobs(gpu: Gpu, tensor: int) -> list[tuple[float, int]]:
    """(static fraction, chunk) to search: the default, then larger fractions if there are any."""
    chunk = memory.default_chunk(gpu)
    default = memory.default_fraction(gpu, tensor, 1, chunk)
    smaller = min(chunk, HIGH_FRACTION_CHUNK)
    return [(default, chunk)] + [(f, smaller) for f in SEARCHED_FRACTIONS if f > default]


def _kv_tokens(
    model: Model,
    architecture: ArchitectureConfig,
    gpu: Gpu,
    tensor: int,
    fraction: float,
    reserve: float = memory.RESERVE_BYTES,
) -> int:
    if model.kv_tokens is not None:
        return model.kv_tokens
    return memory.kv_tokens(architecture, gpu, tensor, 1, model.precision, fraction, reserve)


def _variants(
    model: Model,
    architecture: ArchitectureConfig,
    gpu: Gpu,
    tensor: int,
    longest_request: int,
    running: tuple[DeployedSet, ...],
) -> tuple[Shape, ...]:
    need = _needed_tokens(model, longest_request)
    # Running knobs come first: another variant must be clearly better to roll replicas.
    knobs = [
        (d.mem_fraction_static, d.chunked_prefill_size)
        for d in running
        if (d.tensor, d.pipeline) == (tensor, 1)
    ]
    knobs = list(dict.fromkeys(knobs + _knobs(gpu, tensor)))
    found = []
    for fraction, chunk in knobs:
        tokens = _kv_tokens(model, architecture, gpu, tensor, fraction)
        if tokens < need:
            continue
        worst = _kv_tokens(
            model, architecture, gpu, tensor, fraction, memory.PESSIMISTIC_RESERVE_BYTES
        )
        flags = (
            (f"KV room: {worst} tokens if the engine keeps 4 GiB for itself, {need} needed",)
            if worst < need
            else ()
        )
        found.append(Shape(tensor, 1, fraction, chunk, tokens, flags))
    return tuple(found)
