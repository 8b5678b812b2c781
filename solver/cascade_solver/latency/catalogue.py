"""Architectures by Hugging Face id or short name, from published config.json values."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import ProblemError, UnknownArchitectureError
from ..problem import ArchitectureConfig, Precision
from . import gpus

Gpu = gpus.Gpu
gpu = gpus.gpu


def _dense(
    layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, vocabulary: int,
    context: int, *, head_dim: int = 128, tied: bool = False,
) -> ArchitectureConfig:  # fmt: skip
    return ArchitectureConfig(
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        context_length=context,
        tied_embeddings=tied,
    )


def _mixture(
    dense: ArchitectureConfig, experts: int, per_token: int, intermediate: int
) -> ArchitectureConfig:
    return dense.model_copy(
        update={
            "experts": experts,
            "experts_per_token": per_token,
            "moe_intermediate": intermediate,
        }
    )


@dataclasses.dataclass(frozen=True)
class Entry:
    """An architecture, the precision its checkpoint is published in, and the ids it serves."""

    architecture: ArchitectureConfig
    ids: tuple[str, ...]
    precision: Precision = "bf16"


_LLAMA_8B = _dense(32, 4096, 14336, 32, 8, 128256, 131072)
_LLAMA_70B = _dense(80, 8192, 28672, 64, 8, 128256, 131072)
_QWEN25_7B = _dense(28, 3584, 18944, 28, 4, 152064, 131072)
_MISTRAL_7B = _dense(32, 4096, 14336, 32, 8, 32768, 32768)
_DEEPSEEK_671B = ArchitectureConfig(
    layers=61,
    hidden=7168,
    intermediate=18432,
    heads=128,
    kv_heads=128,
    head_dim=128,
    vocabulary=129280,
    experts=256,
    experts_per_token=8,
    moe_intermediate=2048,
    shared_experts=1,
    dense_layers=3,
    mla=True,
    context_length=163840,
)

ENTRIES = (
    Entry(
        _dense(32, 4096, 14336, 32, 8, 128256, 8192),
        ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
    ),
    Entry(
        _dense(80, 8192, 28672, 64, 8, 128256, 8192),
        ("meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b"),
    ),
    Entry(
        _LLAMA_8B,
        (
            "meta-llama/Llama-3.1-8B",
            "meta-llama/Llama-3.1-8B-Instruct",
            "meta-llama/Meta-Llama-3.1-8B",
            "meta-llama/Meta-Llama-3.1-8B-Instruct",
            "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        ),
    ),
    Entry(
        _LLAMA_70B,
        (
            "meta-llama/Llama-3.1-70B",
            "meta-llama/Llama-3.1-70B-Instruct",
            "meta-llama/Meta-Llama-3.1-70B",
            "meta-llama/Meta-Llama-3.1-70B-Instruct",
            "meta-llama/Llama-3.3-70B-Instruct",
            "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
        ),
    ),
    Entry(
        _dense(16, 2048, 8192, 32, 8, 128256, 131072, head_dim=64, tied=True),
        ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"),
    ),
    Entry(
        _dense(28, 3072, 8192, 24, 8, 128256, 131072, tied=True),
        ("meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-3B-Instruct"),
    ),
    Entry(
        _dense(24, 896, 4864, 14, 2, 151936, 32768, head_dim=64, tied=True),
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"),
    ),
    Entry(
        _dense(28, 1536, 8960, 12, 2, 151936, 131072, tied=True),
        ("Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B-Instruct"),
    ),
    Entry(
        _QWEN25_7B,
        (
            "Qwen/Qwen2.5-7B",
            "Qwen/Qwen2.5-7B-Instruct",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
        ),
    ),
    Entry(
        _dense(48, 5120, 13824, 40, 8, 152064, 131072),
        (
            "Qwen/Qwen2.5-14B",
            "Qwen/Qwen2.5-14B-Instruct",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
        ),
    ),
    Entry(
        _dense(64, 5120, 27648, 40, 8, 152064, 131072),
        (
            "Qwen/Qwen2.5-32B",
            "Qwen/Qwen2.5-32B-Instruct",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        ),
    ),
    Entry(
        _dense(80, 8192, 29568, 64, 8, 152064, 131072),
        ("Qwen/Qwen2.5-72B", "Qwen/Qwen2.5-72B-Instruct"),
    ),
    Entry(_dense(28, 1024, 3072, 16, 8, 151936, 40960, tied=True), ("Qwen/Qwen3-0.6B",)),
    Entry(_dense(28, 2048, 6144, 16, 8, 151936, 40960, tied=True), ("Qwen/Qwen3-1.7B",)),
    Entry(_dense(36, 2560, 9728, 32, 8, 151936, 40960, tied=True), ("Qwen/Qwen3-4B",)),
    Entry(_dense(36, 4096, 12288, 32, 8, 151936, 40960), ("Qwen/Qwen3-8B",)),
    Entry(_dense(40, 5120, 17408, 40, 8, 151936, 40960), ("Qwen/Qwen3-14B",)),
    Entry(_dense(64, 5120, 25600, 64, 8, 151936, 40960), ("Qwen/Qwen3-32B",)),
    Entry(
        _mixture(_dense(48, 2048, 6144, 32, 4, 151936, 40960), 128, 8, 768),
        ("Qwen/Qwen3-30B-A3B",),
    ),
    Entry(
        _mixture(_dense(94, 4096, 12288, 64, 4, 151936, 40960), 128, 8, 1536),
        ("Qwen/Qwen3-235B-A22B",),
    ),
    Entry(
        _MISTRAL_7B,
        (
            "mistralai/Mistral-7B-v0.3",
            "mistralai/Mistral-7B-Instruct-v0.3",
            "mistral-7b",
        ),
    ),
    Entry(
        _mixture(_dense(32, 4096, 14336, 32, 8, 32000, 32768), 8, 2, 14336),
        ("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    ),
    Entry(
        _DEEPSEEK_671B,
        (
            "deepseek-ai/DeepSeek-V3",
            "deepseek-ai/DeepSeek-V3-0324",
            "deepseek-ai/DeepSeek-R1",
            "deepseek-ai/DeepSeek-R1-0528",
        ),
        precision="fp8",
    ),
    Entry(
        # latency-model.md section 4: int4 experts in groups of 64, attention in bf16.
        _DEEPSEEK_671B.model_copy(update={"weight_bytes": 385e9}),
        ("cognitivecomputations/DeepSeek-V3-AWQ", "cognitivecomputations/DeepSeek-R1-AWQ"),
        precision="int4",
    ),
)


def _index() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in ENTRIES:
        for identifier in entry.ids:
            found[identifier.lower()] = entry
            found.setdefault(identifier.rpartition("/")[2].lower(), entry)
    return found


_BY_NAME = _index()


def entry(name: str) -> Entry:
    """The catalogue's entry for a Hugging Face id or its last part, in any case.

    Raises ``UnknownArchitectureError`` with the known ids.
    """
    found = _BY_NAME.get(name.lower())
    if found is None:
        raise UnknownArchitectureError(name, [i for e in ENTRIES for i in e.ids])
    return found


def architecture(name: str) -> ArchitectureConfig:
    """The architecture of a Hugging Face id or short name; see ``entry``."""
    return entry(name).architecture


def resolve(value: str | ArchitectureConfig) -> ArchitectureConfig:
    """A model's architecture as given in the problem: a name, or the figures themselves."""
    return architecture(value) if isinstance(value, str) else value


PIPELINE_CAPABLE = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "deepseek", "glm4", "gemma2", "gemma3",
    "gptoss", "olmo", "phi",
)  # fmt: skip
"""Families of SGLang's pipeline-capable model files."""

_REQUIRED = (
    ("num_hidden_layers", "layers"),
    ("hidden_size", "hidden"),
    ("num_attention_heads", "heads"),
    ("vocab_size", "vocabulary"),
)


def from_config_json(config: Mapping[str, Any]) -> ArchitectureConfig:
    """Reads the figures from a model's ``config.json`` (multimodal: its ``text_config``).

    Raises ``ProblemError`` with one line per missing key.
    """
    text = {**config, **config["text_config"]} if "text_config" in config else dict(config)
    faults = [f"$.{key}: missing in config.json" for key, _ in _REQUIRED if not text.get(key)]
    experts = text.get("num_experts") or text.get("n_routed_experts")
    experts = experts or text.get("num_local_experts") or 0
    width = text.get("intermediate_size") or text.get("moe_intermediate_size")
    if not width:
        faults.append("$.intermediate_size: missing in config.json")
    if faults:
        raise ProblemError(faults)
    heads = text["num_attention_heads"]
    family = "".join(text.get("architectures") or ()).lower().replace("_", "")
    return ArchitectureConfig(
        **{field: text[key] for key, field in _REQUIRED},
        intermediate=width,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=(text.get("head_dim") or text.get("v_head_dim") or text["hidden_size"] // heads),
        experts=experts,
        experts_per_token=text.get("num_experts_per_tok") or 0,
        moe_intermediate=(text.get("moe_intermediate_size") or width) if experts else 0,
        shared_experts=text.get("n_shared_experts") or 0,
        dense_layers=text.get("first_k_dense_replace") or 0,
        mla=bool(text.get("kv_lora_rank")),
        pipeline_capable=any(name in family for name in PIPELINE_CAPABLE),
        tied_embeddings=bool(text.get("tie_word_embeddings", False)),
        context_length=text.get("max_position_embeddings") or 8192,
    )
