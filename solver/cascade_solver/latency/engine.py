"""Event simulation of one replica at iteration level (latency-model.md section 5, P = 1)."""

import dataclasses
from typing import Any

import numpy as np

from ..arrays import Floats, Ints
from . import steps
from .compiled import compiled

RATIO_START = 0.7
RATIO_FLOOR = 0.098
RATIO_DECAY = 0.001
RATIO_RISE = 0.2
"""Share of the outstanding output that admission reserves, as the engine adapts it."""

BLOCKED_STEPS = 32
"""Decode steps between two admission attempts while the head of the queue does not fit."""

RUNNING_LIMIT = 2048


@dataclasses.dataclass(frozen=True)
class Replica:
    """One replica as the simulation needs it; ``kv_tokens`` and ``chunk`` in tokens."""

    batch_axis: Floats
    context_axis: Floats
    token_axis: Floats
    decode: Floats
    prefill: Floats
    attention: float
    kv_tokens: int
    chunk: int


def replica(model: steps.StepModel, kv_tokens: int, chunk: int) -> Replica:
    """A replica with these step times, KV pool and chunked prefill size."""
    return Replica(
        batch_axis=np.array(steps.BATCH_AXIS, dtype=np.float64),
        context_axis=np.array(steps.CONTEXT_AXIS, dtype=np.float64),
        token_axis=np.array(steps.TOKEN_AXIS, dtype=np.float64),
        decode=np.array(model.decode, dtype=np.float64),
        prefill=np.array(model.prefill, dtype=np.float64),
        attention=model.attention,
        kv_tokens=kv_tokens,
        chunk=chunk,
    )


@dataclasses.dataclass(frozen=True)
class Run:
    """Times in seconds, one entry per request: arrival, first token, last token."""

    arrival: Floats
    first: Floats
    finish: Floats
    retractions: int
    kv_blocked: bool
    """Whether a request ever had to wait because KV tokens were short."""


def simulate(
    machine: Replica,
    arrival: Floats,
    inputs: Ints,
    outputs: Ints,
    *,
    concurrency: int = 0,
    skip_ahead: bool = True,
) -> Run:
    """Runs the requests through one replica.

    ``arrival``: sorted seconds, open loop. ``concurrency`` > 0: closed loop instead, request k
    arrives when request k - concurrency finishes, and ``arrival`` only gives the size.
    """
    arrived = np.zeros_like(arrival) if concurrency else arrival.copy()
    first = np.zeros_like(arrival)
    finish = np.zeros_like(arrival)
    retractions, blocked = _simulate(
        machine.batch_axis,
        machine.context_axis,
        machine.token_axis,
        machine.decode,
        machine.prefill,
        machine.attention,
        machine.kv_tokens,
        machine.chunk,
        arrived,
        inputs,
        outputs,
        concurrency,
        skip_ahead,
        first,
        finish,
    )
    return Run(arrived, first, finish, int(retractions), bool(blocked))


@compiled
def _cell(axis: Any, value: float) -> int:
    """Index of the cell that holds ``value``; the axes are short, so a bisection by hand."""
    low, high = 0, axis.size - 2
    while low < high:
        middle = (low + high + 1) // 2
        if axis[middle] <= value:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def _decode_seconds(
    batch_axis: Any, context_axis: Any, table: Any, batch: float, context: float
) -> float:
    """``StepModel.decode_seconds`` plus the host gap."""
    i = _cell(batch_axis, batch)
    u = max(0.0, (batch - batch_axis[i]) / (batch_axis[i + 1] - batch_axis[i]))
    j = _cell(context_axis, context)
    v = max(0.0, (context - context_axis[j]) / (context_axis[j + 1] - context_axis[j]))
    low = table[i, j] + v * (table[i, j + 1] - table[i, j])
    high = table[i + 1, j] + v * (table[i + 1, j + 1] - table[i + 1, j])
    gap = steps.DECODE_GAP_SECONDS + steps.DECODE_GAP_PER_REQUEST_SECONDS * batch
    return float(low + u * (high - low) + gap)


@compiled
def _prefill_seconds(token_axis: Any, table: Any, tokens: float) -> float:
    """The table part of ``StepModel.prefill_seconds`` plus the host gap."""
    i = _cell(token_axis, tokens)
    u = max(0.0, (tokens - token_axis[i]) / (token_axis[i + 1] - token_axis[i]))
    return float(table[i] + u * (table[i + 1] - table[i]) + steps.PREFILL_GAP_SECONDS)


@compiled
def _push(heap: Any, keys: Any, size: int, request: int) -> None:
    """Adds a request to the binary heap ordered by finishing decode step."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if keys[heap[parent]] <= keys[request]:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = request


@compiled
def _pop(heap: Any, keys: Any, size: int) -> int:
    """Removes and returns the request that finishes first."""
    top = heap[0]
    last = heap[size - 1]
    size -= 1
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[last] <= keys[heap[child]]:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = last
    return int(top)


@compiled
def _simulate(
    batch_axis: Any, context_axis: Any, token_axis: Any, decode: Any, prefill: Any,
    attention: float, kv_tokens: int, chunk: int,
    arrival: Any, inputs: Any, outputs: Any, concurrency: int, skip_ahead: bool,
    first: Any, finish: Any,
) -> tuple[int, bool]:  # fmt: skip
    """The loop of section 5. Keeps sums over the running batch instead of visiting its members:
    ``used`` KV tokens (a prefill holds all of its own at once), ``owed`` output tokens."""
    n = arrival.size
    released = min(concurrency, n) if concurrency > 0 else n
    generated = np.zeros(n, np.int64)
    finish_step = np.zeros(n, np.int64)
    start_tokens = np.zeros(n, np.int64)
    running = np.zeros(n, np.bool_)
    admitted = np.empty(2 * n, np.int64)
    evicted = np.empty(n, np.int64)
    heap = np.empty(n, np.int64)
    batch = np.empty(min(n, RUNNING_LIMIT), np.int64)
    n_admitted, n_evicted, n_heap, n_running = 0, 0, 0, 0
    head, done, retractions, step = 0, 0, 0, 0
    used, owed = 0, 0
    partial, partial_done, partial_total = -1, 0, 0
    ratio, now, was_blocked = RATIO_START, 0.0, False

    while done < n:
        # Prefill first: continue the partial request, then admit from the queue.
        budget, n_batch, pairs = chunk, 0, 0.0
        waits_for_kv, waits_for_slot = False, False
        if partial >= 0:
            take = min(budget, partial_total - partial_done)
            end = partial_done + take
            pairs += float(end) * end - float(partial_done) * partial_done
            budget -= take
            partial_done = end
            if partial_done == partial_total:
                batch[n_batch] = partial
                n_batch += 1
                partial = -1
        while budget > 0 and partial < 0:
            from_evicted = n_evicted > 0
            if from_evicted:
                request = evicted[n_evicted - 1]
            elif head < released and arrival[head] <= now:
                request = head
            else:
                break
            if n_running + n_batch >= RUNNING_LIMIT:
                waits_for_slot = True
                break
            need = inputs[request] + generated[request]
            own = outputs[request] - generated[request]
            is_empty = n_running == 0 and n_batch == 0
            if not is_empty and used + need + ratio * (own + owed) > kv_tokens:
                waits_for_kv, was_blocked = True, True
                break
            if from_evicted:
                n_evicted -= 1
            else:
                head += 1
            used += need
            owed += own
            take = min(budget, need)
            pairs += float(take) * take
            budget -= take
            if take < need:
                partial, partial_done, partial_total = request, take, need
            else:
                batch[n_batch] = request
                n_batch += 1

        if budget < chunk:
            now += _prefill_seconds(token_axis, prefill, float(chunk - budget))
            now += attention * pairs
            for b in range(n_batch):
                request = batch[b]
                if generated[request] == 0:
                    first[request] = now
                generated[request] += 1
                owed -= 1
                if generated[request] == outputs[request]:
                    finish[request] = now
                    used -= inputs[request] + generated[request] - 1
                    done += 1
                    if concurrency > 0 and released < n:
                        arrival[released] = now
                        released += 1
                    continue
                start_tokens[request] = inputs[request] + generated[request] - 1 - step
                finish_step[request] = step + outputs[request] - generated[request]
                running[request] = True
                n_running += 1
                if n_admitted == admitted.size:
                    n_admitted = _compact(admitted, n_admitted, running)
                admitted[n_admitted] = request
                n_admitted += 1
                _push(heap, finish_step, n_heap, request)
                n_heap += 1
            continue

        if n_running == 0:
            now = max(now, arrival[head])
            continue

        # Retract the newest until the next decode step fits.
        while n_running > 1 and used + n_running > kv_tokens:
            n_admitted -= 1
            request = admitted[n_admitted]
            while not running[request]:
                n_admitted -= 1
                request = admitted[n_admitted]
            running[request] = False
            n_running -= 1
            tokens = start_tokens[request] + step
            generated[request] = tokens - inputs[request] + 1
            used -= tokens
            owed -= outputs[request] - generated[request]
            evicted[n_evicted] = request
            n_evicted += 1
            retractions += 1
            was_blocked = True
            ratio = min(1.0, ratio + RATIO_RISE)
            n_heap = _remove(heap, finish_step, n_heap, request)
            waits_for_kv = True

        # Jump to the next event: a finish, an arrival, KV overflow, or an admission attempt.
        jump = 1
        if skip_ahead:
            jump = finish_step[heap[0]] - step
            if n_running > 1:
                jump = min(jump, max(1, (kv_tokens - used) // n_running))
            if waits_for_kv:
                jump = min(jump, BLOCKED_STEPS)
        context = used / n_running
        seconds = _decode_seconds(
            batch_axis, context_axis, decode, float(n_running), context + 0.5 * jump
        )
        is_waiting = waits_for_kv or waits_for_slot
        if jump > 1 and not is_waiting and head < released:
            gap = arrival[head] - now
            if gap < jump * seconds:
                jump = max(1, int(np.ceil(gap / seconds)))
                seconds = _decode_seconds(
                    batch_axis, context_axis, decode, float(n_running), context + 0.5 * jump
                )
        now += jump * seconds
        step += jump
        used += jump * n_running
        owed -= jump * n_running
        ratio = max(RATIO_FLOOR, ratio - RATIO_DECAY * jump)
        while n_heap > 0 and finish_step[heap[0]] == step:
            request = _pop(heap, finish_step, n_heap)
            n_heap -= 1
            running[request] = False
            n_running -= 1
            generated[request] = outputs[request]
            used -= start_tokens[request] + step
            finish[request] = now
            done += 1
            if concurrency > 0 and released < n:
                arrival[released] = now
                released += 1
    return retractions, was_blocked


@compiled
def _compact(admitted: Any, size: int, running: Any) -> int:
    """Drops finished requests from the order of admission; evicted ones have left it already."""
    kept = 0
    for i in range(size):
        if running[admitted[i]]:
            admitted[kept] = admitted[i]
            kept += 1
    return kept


@compiled
def _remove(heap: Any, keys: Any, size: int, request: int) -> int:
    """Takes an evicted request out of the heap; evictions are rare, so the heap is rebuilt."""
    kept = 0
    for i in range(size):
        if heap[i] != request:
            moved = heap[i]
            _push(heap, keys, kept, moved)
            kept += 1
    return kept
