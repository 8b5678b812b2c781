"""Weights, KV tokens and the static memory fraction of one replica (latency-model.md section 4)."""

from ..problem import ArchitectureConfig, Precision
from .gpus import GIB, Gpu

MIB = 1024.0**2
RESERVE_BYTES = 0.3 * GIB
"""Activations, graphs and runtime inside the static fraction, as far as we count on."""
PESSIMISTIC_RESERVE_BYTES = 4.0 * GIB
"""The same at worst; a plan that this would make infeasible is flagged."""
MINIMUM_KV_TOKENS = 8_000
GRAPH_BATCH = 256

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.53}
"""Bytes per quantised weight; int4 carries 6 % of scales and zero points."""


def dense_precision(architecture: ArchitectureConfig, precision: Precision) -> Precision:
    """Precision of everything but experts: int4 mixtures keep attention in bf16."""
    return "bf16" if precision == "int4" and architecture.experts else precision


def attention_parameters(architecture: ArchitectureConfig) -> float:
    """Weights of one layer's attention projections."""
    a = architecture
    if a.mla:
        # Ranks of DeepSeek's latent attention: query 1536, KV 512 + 64 rotary, heads 128 + 64.
        query = a.hidden * 1536 + 1536 * 192 * a.heads
        return query + a.hidden * 576 + 512 * 256 * a.heads + 128 * a.heads * a.hidden
    width = a.head_dim * (a.heads + 2 * a.kv_heads)
    return a.hidden * width + a.heads * a.head_dim * a.hidden


def weight_bytes(architecture: ArchitectureConfig, precision: Precision) -> float:
    """Bytes of the whole model's weights; embeddings and LM head stay in bf16."""
    a = architecture
    if a.weight_bytes is not None:
        return a.weight_bytes
    expert_layers = a.layers - a.dense_layers if a.experts else 0
    expert = 3.0 * a.hidden * a.moe_intermediate
    dense = a.layers * attention_parameters(a)
    dense += (a.layers - expert_layers) * 3.0 * a.hidden * a.intermediate
    dense += expert_layers * (a.shared_experts * expert + a.hidden * a.experts)
    embeddings = a.vocabulary * a.hidden * (1 if a.tied_embeddings else 2)
    return (
        2.0 * embeddings
        + WEIGHT_BYTES[dense_precision(a, precision)] * dense
        + WEIGHT_BYTES[precision] * expert_layers * a.experts * expert
    )


def kv_bytes_per_token(architecture: ArchitectureConfig, tensor: int, pipeline: int) -> float:
    """KV bytes that one token takes on one GPU; latent attention is not sharded by tensor."""
    a = architecture
    if a.mla:
        return a.layers / pipeline * 576 * 2.0
    return 2.0 * a.layers / pipeline * max(a.kv_heads / tensor, 1.0) * a.head_dim * 2.0


def default_chunk(gpu: Gpu) -> int:
    """The engine's default chunked prefill size for a GPU of this capacity, in tokens."""
    gigabytes = gpu.capacity_bytes / GIB
    for below, chunk in ((20, 2048), (60, 4096), (160, 8192)):
        if gigabytes < below:
            return chunk
    return 16_384


def default_fraction(gpu: Gpu, tensor: int, pipeline: int, chunk: int) -> float:
    """The engine's default static memory fraction, rounded down to what a flag carries."""
    reserved = 512 * MIB + max(chunk, 2048) * 1.5 * MIB
    reserved += tensor * pipeline / 8 * GIB + GRAPH_BATCH * 2 * MIB
    if gpu.capacity_bytes > 60 * GIB:
        reserved = max(reserved, 10 * GIB)
    fraction = (gpu.capacity_bytes - reserved) / gpu.capacity_bytes
    return int(fraction * 1000) / 1000


def kv_tokens(
    architecture: ArchitectureConfig,
    gpu: Gpu,
    tensor: int,
    pipeline: int,
    precision: Precision,
    mem_fraction_static: float,
    reserve_bytes: float = RESERVE_BYTES,
) -> int:
    """KV tokens that one replica holds; 0 when its weights alone do not fit."""
    weights = weight_bytes(architecture, precision) / (tensor * pipeline)
    room = mem_fraction_static * gpu.capacity_bytes - weights - reserve_bytes
    return max(0, int(room / kv_bytes_per_token(architecture, tensor, pipeline)))
