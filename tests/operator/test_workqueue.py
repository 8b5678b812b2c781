"""The work queue: each cascade once, never twice at a time, ever longer pauses after failures."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cascade_operator import errors, workqueue
from cascade_operator.workqueue import Key, WorkQueue

A, B = ("demo", "a"), ("demo", "b")


class Passes:
    """Notes passes; each waits for ``gate``."""

    def __init__(self) -> None:
        self.began: list[Key] = []
        self.ended: list[Key] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once: dict[Key, int] = {}
        self.most = 0
        self.error: Exception | None = None

    async def __call__(self, key: Key) -> None:
        self.began.append(key)
        self.at_once[key] = self.at_once.get(key, 0) + 1
        self.most = max(self.most, self.at_once[key])
        await self.gate.wait()
        self.at_once[key] -= 1
        self.ended.append(key)
        if self.error is not None:
            raise self.error


@pytest_asyncio.fixture
async def passes() -> Passes:
    return Passes()


@pytest_asyncio.fixture
async def queue(passes: Passes) -> AsyncIterator[WorkQueue]:
    found = WorkQueue(asyncio.get_running_loop().time, random.Random(0))
    task = asyncio.create_task(found.run(passes))
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(holds: object) -> None:
    assert callable(holds)
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


async def test_marks_before_a_pass_are_one_pass(queue: WorkQueue, passes: Passes) -> None:
    for _ in range(5):
        queue.add(A)
    queue.add(B)
    await until(lambda: len(passes.ended) == 2)
    await asyncio.sleep(2 * workqueue.SPACING_SECONDS)
    assert sorted(passes.began) == [A, B]


async def test_a_mark_during_a_pass_is_another_pass_afterwards(
    queue: WorkQueue, passes: Passes
) -> None:
    passes.gate.clear()
    queue.add(A)
    await until(lambda: passes.began == [A])
    queue.add(A)
    queue.add(B)
    await until(lambda: B in passes.began)  # the other one is not held up
    await asyncio.sleep(2 * workqueue.SPACING_SECONDS)
    assert passes.began.count(A) == 1
    passes.gate.set()
    await until(lambda: passes.ended.count(A) == 2)
    assert passes.most == 1


async def test_passes_of_one_cascade_are_spaced(queue: WorkQueue, passes: Passes) -> None:
    clock = asyncio.get_running_loop().time
    started = clock()
    for count in range(1, 4):
        queue.add(A)
        await until(lambda count=count: len(passes.ended) == count)
    assert clock() - started >= 2 * workqueue.SPACING_SECONDS


async def test_the_earlier_of_two_marks_counts(queue: WorkQueue, passes: Passes) -> None:
    queue.add(A, after=0.0)
    queue.add(A, after=60.0)
    await until(lambda: passes.ended == [A])


async def test_a_pass_that_ends_badly_stops_nobody(queue: WorkQueue, passes: Passes) -> None:
    passes.error = RuntimeError("a defect")
    queue.add(A)
    await until(lambda: passes.ended == [A])
    passes.error = None
    queue.add(B)
    queue.add(A)
    await until(lambda: len(passes.ended) == 3)


async def test_losing_the_lease_ends_the_queue(passes: Passes) -> None:
    queue = WorkQueue(asyncio.get_running_loop().time, random.Random(0))
    passes.error = errors.LeadershipLostError("lost")
    queue.add(A)
    with pytest.raises(errors.LeadershipLostError):
        await asyncio.wait_for(queue.run(passes), 5)


def test_pauses_grow_up_to_a_bound_and_start_anew_after_success() -> None:
    queue = WorkQueue(lambda: 0.0, random.Random(0))
    pauses = [queue.backoff(A) for _ in range(14)]
    assert pauses[0] <= workqueue.FIRST_BACKOFF_SECONDS
    assert all(b > a / 2 for a, b in itertools.pairwise(pauses))
    longest = workqueue.LONGEST_BACKOFF_SECONDS
    assert longest / 2 <= pauses[-1] <= longest
    queue.succeeded(A)
    assert queue.backoff(A) <= workqueue.FIRST_BACKOFF_SECONDS
