"""The batch model follows the planner's step model and its event simulation, in modelled time."""

import dataclasses

import numpy as np
import pytest

from cascade_enginesim import command, machine, settings
from cascade_enginesim.batch import Batch, Sequence
from cascade_enginesim.machine import Machine
from cascade_solver.latency import engine as event_simulation
from tests.enginesim.processes import MODEL


def built(**changes: object) -> Machine:
    replica = machine.build(command.Launch(MODEL, MODEL), settings.Settings())
    return dataclasses.replace(replica, **changes)  # type: ignore[arg-type]


def sequence(name: str, inputs: int, outputs: int, ready: float = 0.0) -> Sequence:
    return Sequence(name, inputs, outputs, ready)


def test_a_request_alone_takes_one_prefill_and_its_decode_steps() -> None:
    replica = built()
    one = sequence("a", 1000, 101)
    batch = Batch(replica)
    batch.submit(one)
    assert batch.advance(60.0) == [one]
    first = replica.step.prefill_step_seconds(1000, 1000.0**2)
    steps = sum(replica.step.decode_step_seconds(1, 1000 + i + 0.5) for i in range(100))
    assert one.first == pytest.approx(first)
    assert one.finished == pytest.approx(first + steps, rel=1e-3)
    assert batch.used == 0


def test_requests_in_one_batch_share_their_steps() -> None:
    replica = built()
    many = [sequence(str(i), 100, 50) for i in range(32)]
    batch = Batch(replica)
    for one in many:
        batch.submit(one)
    assert batch.advance(60.0) == many
    step = replica.step.decode_step_seconds(32, 100 + 25)
    assert many[0].finished is not None and many[0].first is not None
    assert many[0].finished - many[0].first == pytest.approx(49 * step, rel=0.01)
    assert len({one.finished for one in many}) == 1


def test_a_long_prompt_is_prefilled_in_chunks_and_the_next_one_shares_the_last_chunk() -> None:
    replica = built(chunk=512)
    long, short = sequence("long", 1200, 2), sequence("short", 100, 2)
    batch = Batch(replica)
    batch.submit(long)
    batch.submit(short)
    batch.advance(60.0)
    seconds = replica.step.prefill_step_seconds
    expected = seconds(512, 512.0**2) + seconds(512, 1024.0**2 - 512.0**2)
    expected += seconds(176 + 100, 1200.0**2 - 1024.0**2 + 100.0**2)
    assert long.first == pytest.approx(expected)
    assert short.first == long.first


@pytest.mark.parametrize(
    ("rate", "kv_tokens"),
    [
        pytest.param(2.0, 400_000, id="quiet"),
        pytest.param(25.0, 400_000, id="busy"),
        pytest.param(25.0, 20_000, id="short-of-kv"),
    ],
)
def test_times_equal_those_of_the_planners_event_simulation(rate: float, kv_tokens: int) -> None:
    replica = built(kv_tokens=kv_tokens)
    random = np.random.default_rng(7)
    arrival = np.cumsum(random.exponential(1 / rate, 300))
    inputs = random.integers(50, 1500, 300)
    outputs = random.integers(2, 400, 300)
    reference = event_simulation.simulate(
        event_simulation.replica(replica.step, kv_tokens, replica.chunk), arrival, inputs, outputs
    )
    batch = Batch(replica)
    submitted = []
    for at, n_in, n_out in zip(arrival, inputs, outputs, strict=True):
        batch.advance(float(at))
        submitted.append(sequence("r", int(n_in), int(n_out), float(at)))
        batch.submit(submitted[-1])
    batch.advance(1e6)
    finished = np.array([s.finished for s in submitted])
    first = np.array([s.first for s in submitted])
    np.testing.assert_allclose(first, reference.first, rtol=1e-9)
    np.testing.assert_allclose(finished, reference.finish, rtol=1e-9)
    assert batch.retractions == reference.retractions
    assert batch.used == 0


def test_tokens_within_a_jump_are_visible_as_time_passes() -> None:
    batch = Batch(built())
    one = sequence("a", 100, 1000)
    batch.submit(one)
    batch.advance(0.0)
    seen = []
    for step in range(1, 60):
        batch.advance(step * 0.05)
        seen.append(batch.visible(one, step * 0.05))
    assert seen == sorted(seen)
    assert seen[0] < seen[20] < seen[40]
    gained = seen[40] - seen[20]
    assert gained == pytest.approx(1.0 / batch.machine.step.decode_step_seconds(1, 350), rel=0.1)


def test_an_aborted_sequence_frees_its_tokens_and_speeds_up_the_rest() -> None:
    batch = Batch(built())
    kept, dropped = sequence("kept", 100, 2000), sequence("dropped", 30_000, 2000)
    batch.submit(kept)
    batch.submit(dropped)
    batch.advance(10.0)
    batch.abort(dropped, 10.0)
    batch.advance(11.0)
    assert dropped.aborted and dropped.finished is None
    assert batch.used < 30_000
    assert list(batch.running) == [kept]
    batch.advance(1e4)
    assert kept.generated == 2000
    assert batch.used == 0 and batch.active == 0


@pytest.mark.parametrize("moment", [0.0, 0.001, 0.5])
def test_aborting_everything_at_any_moment_leaves_an_empty_batch(moment: float) -> None:
    batch = Batch(built(chunk=512))
    both = [sequence("a", 2000, 300), sequence("b", 700, 300)]
    for one in both:
        batch.submit(one)
    batch.advance(moment)
    for one in both:
        batch.abort(one, moment)
    batch.advance(100.0)
    assert (batch.used, batch.active) == (0, 0)


def test_no_more_requests_run_than_the_limit_allows() -> None:
    batch = Batch(built(running_limit=2))
    for i in range(5):
        batch.submit(sequence(str(i), 10, 500))
    batch.advance(0.5)
    assert len(batch.running) == 2
    assert batch.queued == 3


def test_a_full_kv_pool_keeps_the_next_request_waiting() -> None:
    batch = Batch(built(kv_tokens=3000))
    batch.submit(sequence("a", 2000, 500))
    batch.submit(sequence("b", 2000, 500))
    batch.advance(0.5)
    assert len(batch.running) == 1
    assert batch.queued == 1
    assert batch.used <= 3000
