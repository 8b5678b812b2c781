"""Step times of one replica: a roofline condensed to 149 numbers and their interpolation."""

import bisect
import dataclasses
import math
from collections.abc import Sequence

from ..errors import ProblemError
from ..problem import ArchitectureConfig, Precision
from .gpus import Gpu
from .memory import WEIGHT_BYTES, dense_precision, kv_tokens

__all__ = ["StepModel", "build", "kv_tokens"]

BATCH_AXIS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
CONTEXT_AXIS = (64, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOKEN_AXIS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

DECODE_GAP_SECONDS = 1.0e-3
DECODE_GAP_PER_REQUEST_SECONDS = 0.02e-3
PREFILL_GAP_SECONDS = 2.0e-3
FRONT_END_SECONDS = 10.0e-3
"""Host time of latency-model.md section 3; the last one once per request, on the first token."""

STAGE_HOP_SECONDS = 10.0e-6
KERNEL_SECONDS = 1.5e-6
TABLE_SEQUENCE_TOKENS = 64
"""Sequences of the prefill table are this short, so that attention is negligible in it."""


@dataclasses.dataclass(frozen=True)
class StepModel:
    """Step times of one replica in seconds, host gaps apart.

    ``decode``: [17 batch sizes x 8 mean contexts]; ``prefill``: [12 token counts];
    ``attention``: seconds per unit of sum(end^2 - start^2) over the chunks of a prefill step.
    """

    decode: tuple[tuple[float, ...], ...]
    prefill: tuple[float, ...]
    attention: float
    tensor: int
    pipeline: int
    hop_per_token: float = 0.0
    low_confidence: tuple[str, ...] = ()

    def decode_seconds(self, batch: float, mean_context: float) -> float:
        """One token for each of ``batch`` requests with ``mean_context`` tokens behind them."""
        row, weight = _locate(BATCH_AXIS, batch)
        low = _interpolate(CONTEXT_AXIS, self.decode[row], mean_context)
        high = _interpolate(CONTEXT_AXIS, self.decode[row + 1], mean_context)
        return low + weight * (high - low)

    def prefill_seconds(self, tokens: float, attention_pairs: float) -> float:
        """One prefill step over ``tokens``; ``attention_pairs`` = sum(end^2 - start^2)."""
        return _interpolate(TOKEN_AXIS, self.prefill, tokens) + self.attention * attention_pairs

    @staticmethod
    def decode_gap_seconds(batch: float) -> float:
        return DECODE_GAP_SECONDS + DECODE_GAP_PER_REQUEST_SECONDS * batch

    def decode_step_seconds(self, batch: float, mean_context: float) -> float:
        """A decode step with its host gap; ``batch`` is split over the pipeline's lanes."""
        lane = max(1.0, batch / self.pipeline)
        step = self.decode_seconds(lane, mean_context) + self.pipeline * self.decode_gap_seconds(
            lane
        )
        return step + self._hops(lane)

    def prefill_step_seconds(self, tokens: float, attention_pairs: float) -> float:
        """A prefill step with its host gap, through all pipeline stages."""
        step = self.prefill_seconds(tokens, attention_pairs)
        return step + self.pipeline * PREFILL_GAP_SECONDS + self._hops(tokens)

    def scaled(self, factor: float) -> "StepModel":
        """The same with all step times multiplied: a measured over predicted ratio."""
        return dataclasses.replace(
            self,
            decode=tuple(tuple(t * factor for t in row) for row in self.decode),
            prefill=tuple(t * factor for t in self.prefill),
            attention=self.attention * factor,
        )

    def _hops(self, tokens: float) -> float:
        if self.pipeline == 1:
            return 0.0
        return (self.pipeline - 1) * (STAGE_HOP_SECONDS + self.hop_per_token * tokens)


def _locate(axis: Sequence[int], value: float) -> tuple[int, float]:
    """Cell and weight for linear interpolation: clamped below, extrapolated above."""
    cell = min(max(bisect.bisect_right(axis, value) - 1, 0), len(axis) - 2)
    return cell, max(0.0, (value - axis[cell]) / (axis[cell + 1] - axis[cell]))


def _interpolate(axis: Sequence[int], values: Sequence[float], value: float) -> float:
    cell, weight = _locate(axis, value)
    return values[cell] + weight * (values[cell + 1] - values[cell])


def build(
    architecture: ArchitectureConfig,
    gpu: Gpu,
    tensor: int,
    pipeline: int,
    precision: Precision,
) -> StepModel:
    """Evaluates the roofline of latency-model.md section 2 on the three axes.

    Raises ``ProblemError`` when the GPU cannot compute in this precision.
    """
    if precision == "fp8" and gpu.fp8_flops is None:
        raise ProblemError([f"precision fp8: {gpu.name} has no fp8 units; use bf16 or int4"])
    roofline = _Roofline(architecture, gpu, tensor, precision)
    return StepModel(
        decode=tuple(tuple(roofline.decode(b, c) for c in CONTEXT_AXIS) for b in BATCH_AXIS),
        prefill=tuple(roofline.prefill(m) for m in TOKEN_AXIS),
        attention=roofline.attention_coefficient(),
        tensor=tensor,
        pipeline=pipeline,
        hop_per_token=2.0 * architecture.hidden / (gpu.network_bandwidth * 0.8),
        low_confidence=_low_confidence(architecture, gpu, tensor, pipeline, precision),
    )


def _low_confidence(
    architecture: ArchitectureConfig, gpu: Gpu, tensor: int, pipeline: int, precision: Precision
) -> tuple[str, ...]:
    flags = []
    if gpu.derived:
        flags.append(f"{gpu.name}: {gpu.derived}")
    if tensor > 8:
        flags.append("tensor parallelism across nodes has no measured point")
    if pipeline > 1:
        flags.append("pipeline parallelism has no measured point")
    if precision == "int4" and not architecture.experts:
        flags.append("int4 dense layers have no measured table")
    if architecture.experts and precision == "bf16":
        flags.append("bf16 experts have no fitted constants")
    return tuple(flags)


def _smax4(a: float, b: float) -> float:
    """A maximum with a soft knee, as measured kernels show it."""
    return float((a**4 + b**4) ** 0.25)


# Precision -> (start-up seconds, share of memory bandwidth, share of peak FLOP/s). The share above
# 1 absorbs routing skew. bf16 has no fitted values: it takes those of fp8 at equal FLOP/s.
EXPERT_CONSTANTS = {
    "fp8": (45e-6, 1.09, 0.18),
    "int4": (18e-6, 0.75, 0.185),
    "bf16": (45e-6, 1.09, 0.36),
}


class _Roofline:
    """Section 2's formulas for one replica; times in seconds."""

    def __init__(
        self, architecture: ArchitectureConfig, gpu: Gpu, tensor: int, precision: Precision
    ) -> None:
        self.a = architecture
        self.gpu = gpu
        self.tensor = tensor
        self.precision = precision
        self.dense = dense_precision(architecture, precision)
        self.q = architecture.heads * architecture.head_dim
        self.kv = architecture.kv_heads * architecture.head_dim

    def decode(self, batch: float, context: float) -> float:
        """One decode step: one token for each of ``batch`` requests."""
        attention = self._decode_attention(batch * context, batch)
        return self.a.layers * (self._layer(batch, is_prefill=False) + attention) + self._head(
            batch
        )

    def prefill(self, tokens: float) -> float:
        """One prefill step of short sequences, so that attention is negligible."""
        length = min(tokens, TABLE_SEQUENCE_TOKENS)
        sequences = tokens / length
        attention = self._prefill_attention(tokens * length / 2)
        return self.a.layers * (self._layer(tokens, is_prefill=True) + attention) + self._head(
            sequences
        )

    def attention_coefficient(self) -> float:
        """Seconds per unit of sum(end^2 - start^2): half of it is tokens x mean context."""
        per_pair = self._prefill_attention(1.0) - self._prefill_attention(0.0)
        return self.a.layers * per_pair / 2

    def _gemm(self, m: float, n: float, k: float, precision: Precision | None = None) -> float:
        precision = precision or self.dense
        g = self.gpu
        peak, efficiency = g.bf16_flops, g.bf16_efficiency
        if precision == "fp8" and g.fp8_flops is not None:
            peak, efficiency = g.fp8_flops, g.fp8_efficiency
        moved = n * k * WEIGHT_BYTES[precision] + 2.0 * m * (n + k)
        return (
            _smax4(
                2.0 * m * n * k / (peak * efficiency),
                moved / (g.memory_bandwidth * g.memory_efficiency),
            )
            + KERNEL_SECONDS
        )

    def _layer(self, m: float, is_prefill: bool) -> float:
        """One layer without the attention over the context."""
        mlp = (
            self._experts(m, is_prefill)
            if self.a.experts
            else self._mlp(m, self.a.intermediate / self.tensor)
        )
        return self._projections(m, is_prefill) + mlp + self._all_reduces(m) + self._elementwise(m)

    def _projections(self, m: float, is_prefill: bool) -> float:
        a, t, h = self.a, self.tensor, self.a.hidden
        if not a.mla:
            return self._gemm(m, (self.q + 2 * self.kv) / t, h) + self._gemm(m, h, self.q / t)
        total = self._gemm(m, 1536 + 576, h) + self._gemm(m, 192 * a.heads / t, 1536)
        total += self._gemm(m, h, 128 * a.heads / t)
        return total + (self._gemm(m, 256 * a.heads / t, 512) if is_prefill else 0.0)

    def _mlp(self, m: float, width: float) -> float:
        return self._gemm(m, 2 * width, self.a.hidden) + self._gemm(m, self.a.hidden, width)

    def _experts(self, m: float, is_prefill: bool) -> float:
        a, g = self.a, self.gpu
        start, memory_share, compute_share = EXPERT_CONSTANTS[self.precision]
        peak = g.fp8_flops if self.precision == "fp8" and g.fp8_flops else g.bf16_flops
        size = 3.0 * a.hidden * a.moe_intermediate
        touched = 1.0 - math.pow(1.0 - a.experts_per_token / a.experts, m)
        weights = a.experts * size * WEIGHT_BYTES[self.precision] / self.tensor
        flops = 2.0 * m * a.experts_per_token * size / self.tensor
        total = start + touched * weights / (g.memory_bandwidth * memory_share)
        total += flops / (peak * compute_share)
        total += self._gemm(m, a.experts, a.hidden) + 6e-6
        if is_prefill and a.shared_experts:
            total += self._mlp(m, a.shared_experts * a.moe_intermediate / self.tensor)
        return total

    def _decode_attention(self, context_tokens: float, batch: float) -> float:
        a, g = self.a, self.gpu
        if not a.mla:
            width = max(self.kv / self.tensor, a.head_dim)
            moved = context_tokens * 2.0 * width * 2.0
            return moved / (g.memory_bandwidth * g.kv_efficiency) + 8e-6
        # The latent KV is read whole on every GPU.
        read = context_tokens * 1152.0 / (g.memory_bandwidth * 0.89)
        flops = context_tokens * (a.heads / self.tensor) * 2.0 * 1088.0
        return _smax4(read, flops / (g.bf16_flops * 0.6)) + 40e-6

    def _prefill_attention(self, pairs: float) -> float:
        """``pairs`` = new tokens x mean context."""
        a, g = self.a, self.gpu
        if a.mla:
            flops = 2.0 * pairs * (a.heads / self.tensor) * 320.0
            return flops / (g.bf16_flops * 0.45) + 40e-6
        return 4.0 * pairs * (self.q / self.tensor) / (g.bf16_flops * 0.5) + 8e-6

    def _all_reduces(self, m: float) -> float:
        """Two per layer; beyond one node hierarchical over the network."""
        if self.tensor == 1:
            return 0.0
        g, ranks = self.gpu, min(self.tensor, 8)
        message = 2.0 * m * self.a.hidden
        one = 2.5e-6 + g.all_reduce_per_rank * (ranks - 1)
        one += 2.0 * (ranks - 1) / ranks * message / (g.link_bandwidth * 0.8)
        if self.tensor > 8:
            nodes = self.tensor / 8
            one += 35e-6 + message / 8 * 2 * (nodes - 1) / nodes / (g.network_bandwidth * 0.8)
        return 2.0 * one

    def _elementwise(self, m: float) -> float:
        g = self.gpu
        moved = 14.0 * m * self.a.hidden * 2.0
        return g.elementwise_operations * 3e-6 + moved / (g.memory_bandwidth * 0.8)

    def _head(self, sequences: float) -> float:
        return self._gemm(sequences, self.a.vocabulary / self.tensor, self.a.hidden, "bf16")
