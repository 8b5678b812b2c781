"""Reachability without downtime."""

import itertools
import random

import pytest

from cascade_solver import reach
from cascade_solver.problem import DeployedSet, Deployment


def sets(tensor: int, replicas: int) -> tuple[DeployedSet, ...]:
    return (
        DeployedSet(
            tensor=tensor, replicas=replicas, mem_fraction_static=0.8, chunked_prefill_size=8192
        ),
    )


def deployment(**models: tuple[int, int]) -> Deployment:
    return {name: sets(*shape) for name, shape in models.items()}


@pytest.mark.parametrize(
    ("current", "target", "pool", "reachable"),
    [
        (deployment(a=(1, 4), b=(4, 1)), deployment(a=(1, 4), b=(4, 1)), 8, True),
        (deployment(a=(1, 4), b=(4, 1)), deployment(a=(1, 2), b=(2, 3)), 8, True),
        (deployment(a=(4, 1), b=(4, 1)), deployment(a=(2, 2), b=(4, 1)), 8, False),
        (deployment(a=(4, 1), b=(4, 1)), deployment(a=(2, 2), b=(4, 1)), 10, True),
        (deployment(a=(4, 2)), deployment(a=(2, 4)), 8, True),
        (deployment(a=(8, 1)), deployment(a=(4, 2)), 8, False),
        (deployment(), deployment(a=(8, 1)), 8, True),
        (deployment(a=(1, 2)), deployment(a=(1, 9)), 8, False),
        (deployment(a=(2, 2), b=(2, 2)), deployment(a=(4, 1), b=(4, 1)), 8, False),
        (deployment(a=(2, 1), b=(2, 3)), deployment(a=(4, 1), b=(1, 4)), 8, True),
    ],
    ids=["same", "shrink-then-grow", "full", "spare", "own-shrinks", "alone-full", "first",
         "too-large", "second-swap-finds-no-room", "in-order"],
)  # fmt: skip
def test_moves(current: Deployment, target: Deployment, pool: int, reachable: bool) -> None:
    assert (reach.moves(current, target, pool) is not None) is reachable


def replay_moves(
    current: Deployment, steps: list[reach.Move], pool: int
) -> dict[tuple[str, reach.Identity], int]:
    """Carries the steps out and checks the invariants after each."""
    state = {(n, reach.identity(s)): s.replicas for n, ss in current.items() for s in ss}
    running = {name for name, _ in state}
    for step in steps:
        key = (step.model, step.shape)
        assert state.get(key, 0) == step.before
        state[key] = step.after
        used = sum(count * shape[0] * shape[1] for (_, shape), count in state.items())
        assert used <= pool
        for name in running:
            assert sum(count for (n, _), count in state.items() if n == name) >= 1
    return {key: count for key, count in state.items() if count}


def test_every_found_order_keeps_pool_and_floors_and_arrives() -> None:
    draw = random.Random(11)
    found = 0
    for _ in range(400):
        pool = draw.choice([8, 12, 16])
        names = ("a", "b", "c")[: draw.randint(1, 3)]

        def some(names: tuple[str, ...] = names) -> Deployment:
            return {n: sets(draw.choice([1, 2, 4]), draw.randint(1, 4)) for n in names}

        current, target = some(), some()
        if sum(s[0].gpus for s in current.values()) > pool:
            continue
        steps = reach.moves(current, target, pool)
        if steps is None:
            continue
        found += 1
        arrived = replay_moves(current, steps, pool)
        assert arrived == {(n, reach.identity(s)): s.replicas for n, (s,) in target.items()}
    assert found > 100


def breadth_first(current: Deployment, target: Deployment, pool: int) -> bool:
    """Any sequence of single-replica changes that never touches a replica both sides share."""
    goal = {(n, reach.identity(s)): s.replicas for n, (s,) in target.items()}
    start = {(n, reach.identity(s)): s.replicas for n, (s,) in current.items()}
    keys = sorted({*goal, *start})
    least = [min(start.get(k, 0), goal.get(k, 0)) for k in keys]
    most = [max(start.get(k, 0), goal.get(k, 0)) for k in keys]
    size = [k[1][0] * k[1][1] for k in keys]
    first = tuple(start.get(k, 0) for k in keys)
    last = tuple(goal.get(k, 0) for k in keys)
    seen, frontier = {first}, [first]
    while frontier:
        state = frontier.pop()
        if state == last:
            return True
        for i, change in itertools.product(range(len(keys)), (-1, 1)):
            count = state[i] + change
            after = (*state[:i], count, *state[i + 1 :])
            if not least[i] <= count <= most[i] or after in seen:
                continue
            alive = {k[0] for k, c in zip(keys, after, strict=True) if c}
            used = sum(c * s for c, s in zip(after, size, strict=True))
            if used <= pool and alive == set(current):
                seen.add(after)
                frontier.append(after)
    return False


def test_no_reachable_target_is_missed() -> None:
    draw = random.Random(4)
    outcomes = []
    for _ in range(300):
        pool = draw.choice([6, 8])
        current, target = (
            {n: sets(draw.choice([1, 2, 4]), draw.randint(1, 3)) for n in ("a", "b")}
            for _ in range(2)
        )
        if any(sum(s[0].gpus for s in d.values()) > pool for d in (current, target)):
            continue
        expected = breadth_first(current, target, pool)
        assert (reach.moves(current, target, pool) is not None) is expected
        outcomes.append(expected)
    assert {True, False} == set(outcomes)
