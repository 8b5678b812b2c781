"""The operator's rendered command runs unchanged on the simulated engine, as the plan means it."""

import pytest

from cascade_enginesim import command, machine, settings
from cascade_operator.rendering import engine as rendering
from cascade_solver.latency import catalogue, memory
from tests.operator import samples


@pytest.mark.parametrize(
    ("name", "tensor", "fraction", "chunk"),
    [
        pytest.param("small", 1, 0.835, 8192, id="one-gpu"),
        pytest.param("large", 4, 0.88, 4096, id="four-gpus"),
    ],
)
def test_a_rendered_engine_holds_what_the_plan_counts_on(
    name: str, tensor: int, fraction: float, chunk: int
) -> None:
    planned = samples.planned_set(
        tensor=tensor, mem_fraction_static=fraction, chunked_prefill_size=chunk
    )
    model = next(m for m in samples.spec().models if m.name == name)
    launch = command.parse(["serve", *rendering.arguments(model, planned)])
    built = machine.build(launch, settings.Settings())
    assert launch.served_model_name == name
    assert (launch.tensor, launch.host, launch.enable_metrics) == (tensor, "0.0.0.0", True)
    assert built.chunk == chunk
    expected = memory.kv_tokens(
        catalogue.architecture(launch.model_path),
        catalogue.gpu("H100"),
        tensor,
        1,
        "bf16",
        fraction,
    )
    assert built.kv_tokens == expected


def test_the_users_own_flags_are_read_too() -> None:
    models = [samples.model("small", engine={"args": ["--max-running-requests", "7"]})]
    model = samples.spec([*models, samples.model("large")]).models[0]
    arguments = rendering.arguments(model, samples.planned_set())
    assert command.parse(["serve", *arguments]).max_running_requests == 7
