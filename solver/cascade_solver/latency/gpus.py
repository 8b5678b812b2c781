"""GPU types with the constants that the step-time roofline needs (latency-model.md section 2)."""

import dataclasses

from ..errors import UnknownGpuError

GIB = 1024.0**3


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU type. FLOP/s dense, bandwidths in bytes per second and per GPU, times in seconds.

    The efficiencies are fitted to measured kernel tables per GPU type; ``derived`` names what was
    taken over from a similar type instead, so that plans resting on it can say so.
    """

    name: str
    bf16_flops: float
    fp8_flops: float | None
    memory_bandwidth: float
    capacity_bytes: float
    """What the driver reports as total memory: the number memory fractions refer to."""
    link_bandwidth: float
    """Between GPUs of one node, per direction."""
    network_bandwidth: float
    bf16_efficiency: float
    fp8_efficiency: float
    memory_efficiency: float
    kv_efficiency: float
    all_reduce_per_rank: float
    elementwise_operations: int
    derived: str = ""


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("H100", 989e12, 1979e12, 3.35e12, 79.6 * GIB, 450e9, 50e9,
            0.70, 0.45, 0.83, 0.88, 0.35e-6, 3),
        Gpu("H200", 989e12, 1979e12, 4.8e12, 139.8 * GIB, 450e9, 50e9,
            0.70, 0.45, 0.85, 0.85, 0.35e-6, 3, derived="fp8 efficiency of H100"),
        Gpu("A100-80GB", 312e12, None, 2.04e12, 79.2 * GIB, 300e9, 25e9,
            0.75, 0.75, 0.65, 0.55, 2e-6, 5),
        Gpu("B200", 2250e12, 4500e12, 8.0e12, 178.3 * GIB, 900e9, 50e9,
            0.60, 0.45, 0.75, 0.85, 1e-6, 5, derived="fp8 efficiency of H100"),
        # No NVLink: PCIe 4.0 x16. Peaks and bandwidths from the data sheet.
        Gpu("L40S", 362e12, 733e12, 0.864e12, 44.4 * GIB, 32e9, 12.5e9,
            0.65, 0.45, 0.80, 0.80, 5e-6, 3, derived="all efficiencies (no measured tables)"),
    )
}  # fmt: skip

ALIASES = {
    "h100-80gb": "H100",
    "h100-sxm": "H100",
    "h100_sxm": "H100",
    "nvidia-h100-80gb-hbm3": "H100",
    "h200-141gb": "H200",
    "h200_sxm": "H200",
    "nvidia-h200": "H200",
    "a100": "A100-80GB",
    "a100_sxm": "A100-80GB",
    "nvidia-a100-sxm4-80gb": "A100-80GB",
    "b200_sxm": "B200",
    "nvidia-b200": "B200",
    "nvidia-l40s": "L40S",
}


def gpu(name: str) -> Gpu:
    """The GPU type of this name (any case; product labels of the device plugin are known too).

    Raises ``UnknownGpuError`` with the known names.
    """
    folded = name.lower()
    by_folded = {known.lower(): known for known in GPUS}
    found = by_folded.get(folded) or ALIASES.get(folded)
    if found is None:
        raise UnknownGpuError(name, list(GPUS))
    return GPUS[found]
