"""Memory, KV tokens and the constraints on shapes (latency-model.md sections 4 and 10)."""

import pytest

from cascade_solver.latency import catalogue, memory, shapes
from cascade_solver.problem import ArchitectureConfig, DeployedSet, Model, Pins

H100 = catalogue.gpu("H100")


def find(model: Model, longest: int = 4096, node: int = 8, **fields: object) -> shapes.Feasible:
    running = fields.get("running", ())
    assert isinstance(running, tuple)
    architecture = catalogue.resolve(model.architecture)
    return shapes.feasible(
        model, architecture, H100, largest_node=node, longest_request=longest, running=running
    )


@pytest.mark.parametrize(
    ("fraction", "thousand_tokens", "thousand_at_worst"),
    [(0.835, 3.0, 0.0), (0.88, 26.5, 2.2), (0.90, 36.9, 12.7)],
)
def test_kv_tokens_of_70b_on_two_gpus(
    fraction: float, thousand_tokens: float, thousand_at_worst: float
) -> None:
    a = catalogue.architecture("Llama-3.1-70B")
    tokens = memory.kv_tokens(a, H100, 2, 1, "bf16", fraction)
    worst = memory.kv_tokens(a, H100, 2, 1, "bf16", fraction, memory.PESSIMISTIC_RESERVE_BYTES)
    assert tokens / 1e3 == pytest.approx(thousand_tokens, abs=0.05)
    assert worst / 1e3 == pytest.approx(thousand_at_worst, abs=0.05)


@pytest.mark.parametrize(("chunk", "fraction"), [(8192, 0.835), (2048, 0.874)])
def test_default_static_fraction(chunk: int, fraction: float) -> None:
    assert memory.default_fraction(H100, 1, 1, chunk) == fraction


@pytest.mark.parametrize(
    ("gpu", "chunk"), [("L40S", 4096), ("H100", 8192), ("H200", 8192), ("B200", 16384)]
)
def test_default_chunk_follows_capacity(gpu: str, chunk: int) -> None:
    assert memory.default_chunk(catalogue.gpu(gpu)) == chunk


def test_latent_attention_does_not_shard_its_kv() -> None:
    a = catalogue.architecture("DeepSeek-R1")
    assert memory.kv_bytes_per_token(a, 8, 1) == memory.kv_bytes_per_token(a, 1, 1) == 70_272


def test_kv_of_grouped_heads_stops_shrinking_at_one_head() -> None:
    a = catalogue.architecture("Qwen2.5-7B")
    per_token = [memory.kv_bytes_per_token(a, t, 1) for t in (1, 2, 4)]
    assert per_token == [per_token[0], per_token[0] / 2, per_token[0] / 4]
    assert memory.kv_bytes_per_token(a, 8, 1) == per_token[2]


WIDE_FP8 = ArchitectureConfig(
    layers=2, hidden=1024, intermediate=1536, heads=16, kv_heads=16, head_dim=64, vocabulary=1000
)


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (Model(name="m", architecture="Qwen2.5-7B"), "TP8", "28 attention heads do not divide"),
        (Model(name="m", architecture="Llama-3.1-70B"), "TP1", "131.4 GiB of weights"),
        (Model(name="m", architecture="Qwen3-8B", pins=Pins(tensor=3)), "TP3", "heads do not"),
        (Model(name="m", architecture=WIDE_FP8, precision="fp8"), "TP8", "1536/8 = 192"),
        (
            Model(name="m", architecture="Qwen3-8B", pins=Pins(pipeline=2)),
            "TP1",
            "pins.pipeline 2 is not available",
        ),
        (
            Model(name="m", architecture="Qwen3-8B", kv_tokens=4000),
            "TP1",
            "kvTokens 4000 are fewer than the 4096",
        ),
    ],
    ids=["heads", "memory", "pin", "fp8-block", "pipeline", "kv-tokens"],
)
def test_each_excluded_shape_names_its_constraint(model: Model, shape: str, reason: str) -> None:
    lines = [line for line in find(model).excluded if line.startswith(f"{shape}:")]
    assert len(lines) == 1
    assert reason in lines[0]


def test_a_shape_larger_than_a_node_is_excluded() -> None:
    found = find(Model(name="m", architecture="Qwen3-8B"), node=2)
    assert set(found.variants) == {(1, 1), (2, 1)}
    assert "TP4: needs 4 GPUs of one node, the largest node offers 2" in found.excluded


def test_the_longest_request_must_fit_the_kv_pool() -> None:
    model = Model(name="m", architecture="Qwen3-32B")
    assert (1, 1) in find(model, longest=9_000).variants
    assert (1, 1) not in find(model, longest=60_000).variants


def test_memory_knobs_are_searched_where_the_default_has_no_room() -> None:
    variants = find(Model(name="m", architecture="Llama-3.1-70B")).variants[2, 1]
    assert [(v.mem_fraction_static, v.chunk) for v in variants] == [(0.88, 4096), (0.9, 4096)]
    assert "4 GiB" in variants[0].low_confidence[0]
    assert variants[1].low_confidence == ()


def test_running_knobs_come_first() -> None:
    running = DeployedSet(tensor=2, replicas=1, mem_fraction_static=0.87, chunked_prefill_size=2048)
    variants = find(Model(name="m", architecture="Qwen3-8B"), running=(running,)).variants
    assert (variants[2, 1][0].mem_fraction_static, variants[2, 1][0].chunk) == (0.87, 2048)
    assert variants[1, 1][0].chunk == 8192
