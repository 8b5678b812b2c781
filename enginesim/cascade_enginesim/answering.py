"""Answers of the generation endpoints: submit to the engine, wait or stream, account."""

import asyncio
import dataclasses
import time
from typing import Any

import orjson
from aiohttp import web

from . import generation, protocol, replies
from .engine import Ticket
from .simulation import Simulation


@dataclasses.dataclass(frozen=True)
class _Choice:
    """One answer of a request: what it will say, and its place in the batch."""

    index: int
    answer: generation.Answer
    ticket: Ticket


async def answer(
    request: web.Request,
    simulation: Simulation,
    asked: list[protocol.Generation],
    broken_after: int | None,
) -> web.StreamResponse:
    """Answers one request (several prompts of /v1/completions give several choices).

    ``broken_after``: a fault; the connection is closed after that many tokens.
    """
    first = asked[0]
    rid = request.headers.get("x-override-rid") or first.rid or simulation.new_rid()
    reply = replies.Reply(first, rid, int(time.time()))
    lengths = [generation.prompt_tokens(prompt, simulation.machine) for prompt in asked]
    choices: list[_Choice] = []
    try:
        for prompt, length in zip(asked, lengths, strict=True):
            for number in range(prompt.n):
                choices.append(_submit(simulation, rid, prompt, length, number, len(choices)))
        if first.stream:
            return await _stream(request, simulation, reply, choices, sum(lengths), broken_after)
        return await _plain(request, simulation, reply, choices, sum(lengths), broken_after)
    finally:
        for choice in choices:
            simulation.engine.release(choice.ticket)


def _submit(
    simulation: Simulation,
    rid: str,
    prompt: protocol.Generation,
    length: int,
    number: int,
    index: int,
) -> _Choice:
    answered = generation.answer(prompt, simulation.who, length, simulation.machine, number)
    ticket = simulation.engine.submit(
        f"{rid}_{index}" if index else rid,
        length,
        len(answered.texts),
        streams=prompt.stream,
    )
    return _Choice(index, answered, ticket)


async def _plain(
    request: web.Request,
    simulation: Simulation,
    reply: replies.Reply,
    choices: list[_Choice],
    prompt_tokens: int,
    broken_after: int | None,
) -> web.StreamResponse:
    for choice in choices:
        await choice.ticket.finished()
    times = _accounted(simulation, choices, streamed=False)
    made = sum(choice.ticket.tokens for choice in choices)
    body = replies.whole(
        reply,
        [(c.answer, c.ticket.tokens, c.ticket.sequence.aborted) for c in choices],
        replies.usage(prompt_tokens, made),
        simulation.metadata(times),
    )
    encoded = orjson.dumps(body)
    if broken_after is None:
        return web.Response(body=encoded, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Length": str(len(encoded))})
    response.content_type = "application/json"
    await response.prepare(request)
    await response.write(encoded[: len(encoded) // 2])
    _hang_up(request)
    return response


async def _stream(
    request: web.Request,
    simulation: Simulation,
    reply: replies.Reply,
    choices: list[_Choice],
    prompt_tokens: int,
    broken_after: int | None,
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Cache-Control": "no-cache"})
    response.content_type = "text/event-stream"
    # The status is sent with the first token, so that a request in the queue can still fail.
    await choices[0].ticket.more(0)
    await response.prepare(request)
    parts = [_stream_choice(response, reply, choice, broken_after) for choice in choices]
    if len(parts) == 1:
        await parts[0]
    else:
        await asyncio.gather(*parts)
    if broken_after is not None:
        _hang_up(request)
        return response
    times = _accounted(simulation, choices, streamed=True)
    if reply.request.include_usage:
        made = sum(choice.ticket.tokens for choice in choices)
        used = replies.usage(prompt_tokens, made)
        await response.write(replies.accounting(reply, used, simulation.metadata(times)))
    await response.write(replies.DONE)
    await response.write_eof()
    return response


async def _stream_choice(
    response: web.StreamResponse, reply: replies.Reply, choice: _Choice, limit: int | None
) -> None:
    """Writes one choice's chunks, each with the tokens that came since the last one."""
    if reply.request.is_chat:
        await response.write(replies.opening(reply, choice.index))
    sent = 0
    while True:
        made = await choice.ticket.more(sent)
        if limit is not None:
            made = min(made, limit)
        if made > sent:
            await response.write(replies.piece(reply, choice.index, choice.answer, sent, made))
            sent = made
        if limit is not None and sent >= min(limit, len(choice.answer.texts)):
            return
        if choice.ticket.sequence.is_over and sent >= choice.ticket.tokens:
            break
    aborted = choice.ticket.sequence.aborted
    reason = "abort" if aborted else choice.answer.finish_reason
    await response.write(replies.closing(reply, choice.index, reason))


def _accounted(
    simulation: Simulation, choices: list[_Choice], *, streamed: bool
) -> dict[str, float]:
    """Books all choices; the times are those of the slowest."""
    booked = [simulation.account(choice.ticket, streamed=streamed) for choice in choices]
    return max(booked, key=lambda times: times.get("whole", 0.0))


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


async def score(
    request: web.Request, simulation: Simulation, lengths: list[int]
) -> dict[str, float]:
    """Prefills prompts of these lengths without generating; returns the slowest one's times."""
    rid = request.headers.get("x-override-rid") or simulation.new_rid()
    engine = simulation.engine
    tickets: list[Ticket] = []
    try:
        for index, length in enumerate(lengths):
            tickets.append(engine.submit(f"{rid}_{index}" if index else rid, length, 1))
        for ticket in tickets:
            await ticket.finished()
    finally:
        for ticket in tickets:
            engine.release(ticket)
    booked: list[dict[str, Any]] = [simulation.account(t, streamed=False) for t in tickets]
    return max(booked, key=lambda times: times.get("whole", 0.0))
