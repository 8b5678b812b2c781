"""Continuous batching of one replica in modelled time, by the planner's own rules.

The rules are those of latency-model.md section 5 (prefill first, KV admission, retraction of the
newest, jumps over decode steps in which nothing happens), advanced by arrivals as they come
instead of a list known beforehand. No clock, no I/O: time is what the caller says it is.
"""

import collections
import dataclasses
import math

from .machine import Machine

RATIO_START = 0.7
RATIO_FLOOR = 0.098
RATIO_DECAY = 0.001
RATIO_RISE = 0.2
BLOCKED_STEPS = 32
"""Constants of the planner's event simulation, which this package may not import."""


@dataclasses.dataclass(eq=False, slots=True)
class Sequence:
    """One request in the batch. Tokens as counts, times in modelled seconds.

    ``ready``: when the front end hands it to the scheduler. ``output_tokens`` is the length it
    will have; ``first`` and ``finished`` are set as they happen.
    """

    rid: str
    input_tokens: int
    output_tokens: int
    ready: float
    generated: int = 0
    started: float | None = None
    first: float | None = None
    finished: float | None = None
    aborted: bool = False

    @property
    def is_over(self) -> bool:
        return self.aborted or self.finished is not None


@dataclasses.dataclass(slots=True)
class _Step:
    """A prefill (``jump`` 0), or ``jump`` decode steps of ``seconds`` each, begun at ``start``."""

    start: float
    seconds: float
    jump: int
    members: list[Sequence]
    context: float = 0.0
    """Mean context at the start, tokens."""

    @property
    def end(self) -> float:
        return self.start + self.seconds * max(self.jump, 1)


@dataclasses.dataclass(slots=True)
class _Partial:
    sequence: Sequence
    done: int
    total: int


class Batch:
    """Queue, running batch and KV pool of one replica."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = 0.0
        self.used = 0
        self.retractions = 0
        self.waiting: collections.deque[Sequence] = collections.deque()
        self.running: dict[Sequence, None] = {}
        """In the order of admission: the last one is the newest."""
        self.busy_seconds = 0.0
        self._evicted: list[Sequence] = []
        self._partial: _Partial | None = None
        self._owed = 0
        self._ratio = RATIO_START
        self._step: _Step | None = None

    @property
    def queued(self) -> int:
        return len(self.waiting) + len(self._evicted)

    @property
    def active(self) -> int:
        """Requests that hold KV tokens or wait for them."""
        members = self._step.members if self._step and not self._step.jump else []
        return len(self.running) + len(members) + self.queued + (self._partial is not None)

    @property
    def tokens_per_second(self) -> float:
        """Generation rate of the step in flight, tokens per modelled second."""
        step = self._step
        return len(self.running) / step.seconds if step is not None and step.jump else 0.0

    def submit(self, sequence: Sequence) -> None:
        """Queues a sequence whose ``ready`` is not earlier than any queued before it."""
        self.waiting.append(sequence)
        self._cut(sequence.ready)

    def abort(self, sequence: Sequence, now: float) -> None:
        """Takes a sequence out; the step in flight still runs to its end without it."""
        if sequence.is_over:
            return
        sequence.aborted = True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence in self._evicted:
            self._evicted.remove(sequence)
        else:
            self._cut(now)

    def visible(self, sequence: Sequence, now: float) -> int:
        """Tokens that the sequence has produced by ``now``, within a jump too."""
        step = self._step
        if step is None or not step.jump or sequence.is_over or sequence not in self.running:
            return sequence.generated
        whole = int((now - step.start) / step.seconds + 1e-9)
        return sequence.generated + max(0, min(whole, step.jump))

    def next_event(self) -> float | None:
        """When the step in flight ends, or the next arrival is ready; ``None`` when idle."""
        if self._step is not None:
            return self._step.end
        return self.waiting[0].ready if self.waiting else None

    def next_token(self, now: float) -> float | None:
        """When the next token after ``now`` appears, for those who stream."""
        step = self._step
        if step is None or not step.jump:
            return self.next_event()
        whole = max(0, int((now - step.start) / step.seconds + 1e-9))
        return min(step.end, step.start + (whole + 1) * step.seconds)

    def advance(self, until: float) -> list[Sequence]:
        """Runs all steps that end by ``until``; returns the sequences that finished in them."""
        finished: list[Sequence] = []
        while True:
            if self._step is None and not self._begin(until):
                break
            assert self._step is not None
            if self._step.end > until:
                break
            step, self._step = self._step, None
            self.now = step.end
            self.busy_seconds += step.end - step.start
            finished += self._end_decode(step) if step.jump else self._end_prefill(step)
        return finished

    def _cut(self, at: float) -> None:
        """Ends a jump at the first step boundary at or after ``at``."""
        step = self._step
        if step is not None and step.jump > 1:
            boundary = math.ceil((at - step.start) / step.seconds - 1e-9)
            step.jump = min(step.jump, max(1, boundary))
            # A shorter jump has a smaller mean context; nobody has left or joined since its start.
            step.seconds = self._decode_seconds(len(self.running), step.context, step.jump)

    def _decode_seconds(self, size: int, context: float, jump: int) -> float:
        return self.machine.step.decode_step_seconds(size, context + 0.5 * jump)

    def _begin(self, until: float) -> bool:
        """Starts the next step; False when there is nothing to do by ``until``."""
        self._drop_aborted()
        step = self._prefill()
        if step is None and self.running:
            step = self._decode()
        if step is None and self.waiting and self.waiting[0].ready <= until:
            self.now = max(self.now, self.waiting[0].ready)
            step = self._prefill()
        self._step = step
        return step is not None

    def _drop_aborted(self) -> None:
        for sequence in [s for s in self.running if s.aborted]:
            del self.running[sequence]
            self._release(sequence)
        if self._partial is not None and self._partial.sequence.aborted:
            sequence = self._partial.sequence
            self.used -= self._partial.total
            self._owed -= sequence.output_tokens - sequence.generated
            self._partial = None

    def _release(self, sequence: Sequence) -> None:
        self.used -= sequence.input_tokens + sequence.generated - 1
        self._owed -= sequence.output_tokens - sequence.generated

    def _prefill(self) -> _Step | None:
        """Continues the partial request, then admits in order until the chunk is full."""
        budget, pairs, members = self.machine.chunk, 0.0, []
        partial = self._partial
        if partial is not None:
            take = min(budget, partial.total - partial.done)
            end = partial.done + take
            pairs += float(end) ** 2 - float(partial.done) ** 2
            budget -= take
            partial.done = end
            if end == partial.total:
                members.append(partial.sequence)
                self._partial = None
        while budget > 0 and self._partial is None:
            sequence = self._admit(len(members))
            if sequence is None:
                break
            need = sequence.input_tokens + sequence.generated
            take = min(budget, need)
            pairs += float(take) ** 2
            budget -= take
            if take < need:
                self._partial = _Partial(sequence, take, need)
            else:
                members.append(sequence)
        tokens = self.machine.chunk - budget
        if not tokens:
            return None
        return _Step(self.now, self.machine.step.prefill_step_seconds(tokens, pairs), 0, members)

    def _head(self) -> Sequence | None:
        if self._evicted:
            return self._evicted[-1]
        if self.waiting and self.waiting[0].ready <= self.now:
            return self.waiting[0]
        return None

    def _admit(self, in_step: int) -> Sequence | None:
        """The head of the queue, if a slot and enough KV tokens are free for it."""
        sequence = self._head()
        if sequence is None or len(self.running) + in_step >= self.machine.running_limit:
            return None
        need = sequence.input_tokens + sequence.generated
        own = sequence.output_tokens - sequence.generated
        wanted = self.used + need + self._ratio * (own + self._owed)
        if (self.running or in_step) and wanted > self.machine.kv_tokens:
            return None
        if self._evicted:
            self._evicted.pop()
        else:
            self.waiting.popleft()
        self.used += need
        self._owed += own
        if sequence.started is None:
            sequence.started = self.now
        return sequence

    def _end_prefill(self, step: _Step) -> list[Sequence]:
        finished = []
        for sequence in step.members:
            if sequence.first is None:
                sequence.first = step.end
            sequence.generated += 1
            self._owed -= 1
            if sequence.aborted:
                self._release(sequence)
            elif sequence.generated >= sequence.output_tokens:
                self._release(sequence)
                sequence.finished = step.end
                finished.append(sequence)
            else:
                self.running[sequence] = None
        return finished

    def _decode(self) -> _Step:
        """As many decode steps as nothing interrupts: a finish, an arrival, a full KV pool."""
        self._retract()
        size = len(self.running)
        jump = min(s.output_tokens - s.generated for s in self.running)
        if size > 1:
            jump = min(jump, max(1, (self.machine.kv_tokens - self.used) // size))
        is_blocked = self._head() is not None
        if is_blocked:
            jump = min(jump, BLOCKED_STEPS)
        context = self.used / size
        seconds = self._decode_seconds(size, context, jump)
        if self.waiting and not is_blocked:
            boundary = math.ceil((self.waiting[0].ready - self.now) / seconds)
            jump = min(jump, max(1, boundary))
            seconds = self._decode_seconds(size, context, jump)
        return _Step(self.now, seconds, jump, [], context)

    def _retract(self) -> None:
        """Evicts the newest until the next decode step fits; they go to the head of the queue."""
        while len(self.running) > 1 and self.used + len(self.running) > self.machine.kv_tokens:
            sequence, _ = self.running.popitem()
            self._release(sequence)
            self._evicted.append(sequence)
            self._ratio = min(1.0, self._ratio + RATIO_RISE)
            self.retractions += 1

    def _end_decode(self, step: _Step) -> list[Sequence]:
        size = len(self.running)
        self.used += step.jump * size
        self._owed -= step.jump * size
        self._ratio = max(RATIO_FLOOR, self._ratio - RATIO_DECAY * step.jump)
        finished = []
        for sequence in self.running:
            sequence.generated += step.jump
            if sequence.generated >= sequence.output_tokens and not sequence.aborted:
                sequence.finished = step.end
                finished.append(sequence)
        for sequence in finished:
            del self.running[sequence]
            self._release(sequence)
        return finished
