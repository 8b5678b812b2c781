"""Whether a deployment can be reached from the running one without downtime."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from .problem import DeployedSet, Deployment

Identity = tuple[int, int, float, int]
"""What makes two sets the same: replicas of equal identity never roll."""


def identity(deployed: DeployedSet) -> Identity:
    return (
        deployed.tensor,
        deployed.pipeline,
        deployed.mem_fraction_static,
        deployed.chunked_prefill_size,
    )


@dataclasses.dataclass(frozen=True)
class Move:
    """One step: a set of a model goes from one replica count to another."""

    model: str
    shape: Identity
    before: int
    after: int

    @property
    def gpus(self) -> int:
        """GPUs taken (positive) or freed (negative)."""
        return (self.after - self.before) * self.shape[0] * self.shape[1]


State = dict[tuple[str, Identity], int]


def moves(
    current: Deployment, target: Deployment, pool: int, floors: Mapping[str, int] | None = None
) -> list[Move] | None:
    """An order of steps from ``current`` to ``target``, or ``None`` when there is none.

    At each step the committed GPUs stay within ``pool`` and every model that runs keeps
    ``floors[model]`` (default 1) ready replicas. Replicas that both deployments have are not
    touched. Sets shrink first; a model that changes its shape starts its new floor beside the old
    one, then drops the old set; what is left grows last. Which model changes first is searched.
    """
    start, goal = _state(current), _state(target)
    keep = {name: (floors or {}).get(name, 1) for name in current}
    if _gpus(goal) > pool:
        return None
    changing = tuple(n for n in current if n in target and _changes(n, start, goal))
    # First without taking capacity from the models that are about to change.
    for is_frugal in (False, True):
        state, steps = _shrink(start, goal, changing if is_frugal else (), changing, keep)
        swapped = _swap(changing, state, goal, keep, pool)
        if swapped is not None:
            state, swaps = swapped
            return steps + swaps + _grow(state, goal)
    return None


def _shrink(
    start: State,
    goal: State,
    to_floor: tuple[str, ...],
    changing: tuple[str, ...],
    keep: Mapping[str, int],
) -> tuple[State, list[Move]]:
    """Surviving sets go down to their goal; those of ``to_floor`` to what must keep serving."""
    state, steps = dict(start), []
    for key, count in start.items():
        model = key[0]
        least = goal.get(key, 0)
        if model in changing:
            least = min(count, keep[model]) if model in to_floor else count
        if least < count:
            steps.append(Move(model, key[1], count, least))
            state[key] = least
    return state, steps


def _grow(state: State, goal: State) -> list[Move]:
    return [
        Move(key[0], key[1], state.get(key, 0), count)
        for key, count in goal.items()
        if state.get(key, 0) < count
    ]


def _state(deployment: Deployment) -> State:
    return {
        (name, identity(s)): s.replicas
        for name, sets in deployment.items()
        for s in sets
        if s.replicas
    }


def _gpus(state: State) -> int:
    return sum(count * shape[0] * shape[1] for (_, shape), count in state.items())


def _changes(model: str, start: State, goal: State) -> bool:
    """Whether no replica of the model survives as it is."""
    running = {key for key in start if key[0] == model}
    return bool(running) and not any(key in goal for key in running)


def _swap(
    changing: tuple[str, ...], state: State, goal: State, keep: Mapping[str, int], pool: int
) -> tuple[State, list[Move]] | None:
    """Replaces the sets of the changing models one model at a time, in the first order found."""
    if not changing:
        return state, []
    for model in changing:
        after = dict(state)
        steps: list[Move] = []
        for key in (k for k in goal if k[0] == model):
            after[key] = min(goal[key], keep[model])
            steps.append(Move(model, key[1], 0, after[key]))
        if _gpus(after) > pool:
            continue
        for key in [k for k in after if k[0] == model and k not in goal]:
            steps.append(Move(model, key[1], after.pop(key), 0))
        rest = tuple(other for other in changing if other != model)
        done = _swap(rest, after, goal, keep, pool)
        if done is not None:
            return done[0], steps + done[1]
    return None


def orders(models: Sequence[int], at_most: int) -> Iterator[tuple[int, ...]]:
    """Which models may change their shape, and in which order; fewest changes first."""
    for count in range(min(len(models), at_most) + 1):
        yield from itertools.permutations(models, count)
