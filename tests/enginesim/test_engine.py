"""Tickets between the batch and those who wait for it."""

import asyncio

import pytest

from cascade_enginesim import command, machine, settings
from cascade_enginesim.engine import Engine
from tests.enginesim.processes import MODEL


@pytest.fixture
async def engine() -> Engine:
    """Real speed: an answer of 5,000 tokens takes half a minute."""
    built = machine.build(command.Launch(MODEL, MODEL), settings.Settings())
    return Engine(built, time_scale=1.0, front_end_seconds=0.01)


async def test_tokens_that_were_told_are_never_taken_back_by_an_abort(engine: Engine) -> None:
    """The batch books tokens at the end of a run of steps, the waiting side sees them earlier."""
    tickets = [engine.submit(f"r{i}", 20, 5000, streams=True) for i in range(2)]
    seen = [await ticket.more(5) for ticket in tickets]
    engine.abort("", every=True)
    for ticket, before in zip(tickets, seen, strict=True):
        assert ticket.sequence.aborted
        assert await asyncio.wait_for(ticket.more(before), 1.0) >= before
    await asyncio.sleep(0.05)
    engine.release(tickets[0])
    assert all(ticket.tokens >= before for ticket, before in zip(tickets, seen, strict=True))


async def test_tokens_arrive_while_they_are_made(engine: Engine) -> None:
    ticket = engine.submit("r", 20, 5000, streams=True)
    counts = [0]
    for _ in range(5):
        counts.append(await ticket.more(counts[-1]))
    assert counts == sorted(set(counts))
    assert counts[-1] < 5000
    engine.release(ticket)


async def test_a_released_ticket_leaves_the_engine_idle(engine: Engine) -> None:
    ticket = engine.submit("r", 20, 5000)
    assert not engine.is_idle
    engine.release(ticket)
    engine.release(ticket)
    assert engine.is_idle
    await asyncio.sleep(0.1)
    assert engine.batch.active == 0


async def test_an_abort_ends_the_waiting_for_a_plain_answer(engine: Engine) -> None:
    ticket = engine.submit("abc", 20, 5000)
    asyncio.get_running_loop().call_later(0.05, engine.abort, "ab")
    await asyncio.wait_for(ticket.finished(), 1.0)
    assert ticket.sequence.aborted
