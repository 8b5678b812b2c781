"""Drives the batch by the clock: modelled time is wall time times the time scale.

The event loop is woken only when something happens in the batch, and at most every few
milliseconds while tokens stream; a wake-up moves through as many steps as have passed.
"""

import asyncio

from . import batch
from .errors import RequestError
from .machine import Machine

GRANULARITY_SECONDS = 0.005
"""Shortest wall time between two wake-ups for streamed tokens."""
GRANULARITY_PER_STREAM_SECONDS = 0.0002
"""Added per stream, so that many streams cost longer groups instead of more CPU."""


class Ticket:
    """One submitted sequence, seen from the request that waits for it."""

    def __init__(self, sequence: batch.Sequence, submitted: float) -> None:
        self.sequence = sequence
        self.submitted = submitted
        """Modelled seconds at submission, before the front end's share."""
        self.tokens = 0
        """Tokens known to the waiting side."""
        self._changed = asyncio.Event()

    def tell(self, tokens: int) -> None:
        """``tokens`` exist by now; what was once told is never taken back."""
        if tokens > self.tokens or self.sequence.is_over:
            self.tokens = max(self.tokens, tokens)
            self._changed.set()

    async def more(self, sent: int) -> int:
        """Waits until more than ``sent`` tokens exist or the sequence is over; their number."""
        while self.tokens <= sent and not self.sequence.is_over:
            self._changed.clear()
            await self._changed.wait()
        return self.tokens

    async def finished(self) -> None:
        while not self.sequence.is_over:
            self._changed.clear()
            await self._changed.wait()


class Engine:
    """The running simulation of one replica. Needs a running event loop."""

    def __init__(self, machine: Machine, time_scale: float, front_end_seconds: float) -> None:
        self.machine = machine
        self.batch = batch.Batch(machine)
        self.time_scale = time_scale
        self.progress = 0
        """Grows whenever tokens appear: what a health check waits for."""
        self._front_end_seconds = front_end_seconds
        self._loop = asyncio.get_running_loop()
        self._epoch = self._loop.time()
        self._tickets: dict[batch.Sequence, Ticket] = {}
        self._streams: set[Ticket] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._last_tick = 0.0

    def now(self) -> float:
        """Modelled seconds since the start."""
        return (self._loop.time() - self._epoch) * self.time_scale

    @property
    def is_idle(self) -> bool:
        return not self._tickets

    def submit(
        self, rid: str, input_tokens: int, output_tokens: int, *, streams: bool = False
    ) -> Ticket:
        """Queues one sequence. Raises ``RequestError`` 503 when the queue is full."""
        limit = self.machine.queue_limit
        if limit is not None and self.batch.queued >= limit:
            raise RequestError(503, "The request queue is full.", "ServiceUnavailable")
        now = self.now()
        self._move(now)
        sequence = batch.Sequence(rid, input_tokens, output_tokens, now + self._front_end_seconds)
        ticket = Ticket(sequence, now)
        self._tickets[sequence] = ticket
        if streams:
            self._streams.add(ticket)
        self.batch.submit(sequence)
        self._schedule()
        return ticket

    def release(self, ticket: Ticket) -> None:
        """Ends the caller's interest: aborts what still runs. Safe to call twice."""
        self._abort(ticket)
        self._tickets.pop(ticket.sequence, None)
        self._streams.discard(ticket)
        self._schedule()

    def abort(self, rid: str, every: bool = False) -> int:
        """Aborts all sequences whose id begins with ``rid`` (all of them with ``every``)."""
        found = [
            ticket
            for ticket in self._tickets.values()
            if not ticket.sequence.is_over
            and (every or (rid and ticket.sequence.rid.startswith(rid)))
        ]
        for ticket in found:
            self._abort(ticket)
        self._schedule()
        return len(found)

    def _abort(self, ticket: Ticket) -> None:
        if not ticket.sequence.is_over:
            now = self.now()
            self._move(now)
            made = self.batch.visible(ticket.sequence, now)
            self.batch.abort(ticket.sequence, now)
            ticket.tell(made)

    def _move(self, now: float) -> None:
        """Runs the batch up to now and tells those who wait."""
        before = self.batch.now
        for sequence in self.batch.advance(now):
            ticket = self._tickets.get(sequence)
            if ticket is not None:
                ticket.tell(sequence.generated)
        for ticket in self._streams:
            ticket.tell(self.batch.visible(ticket.sequence, now))
        if self.batch.now > before:
            self.progress += 1

    def _tick(self) -> None:
        self._timer = None
        self._last_tick = self._loop.time()
        self._move(self.now())
        self._schedule()

    def _schedule(self) -> None:
        """Sets the one timer to the next moment at which somebody has to be told something."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self.now()
        moment = self.batch.next_token(now) if self._streams else self.batch.next_event()
        if moment is None:
            return
        wall = self._loop.time()
        granularity = GRANULARITY_SECONDS + GRANULARITY_PER_STREAM_SECONDS * len(self._streams)
        at = wall + (moment - now) / self.time_scale
        if self._streams:
            at = max(at, self._last_tick + granularity)
        self._timer = self._loop.call_at(max(at, wall), self._tick)
