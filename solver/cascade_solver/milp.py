"""GPU allocation for fixed thresholds as a mixed-integer program (science.md 1.5)."""

import contextlib
import dataclasses
import functools
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import highspy
import pulp

SLACK = 1e-9
"""Relative slack on the optimal L while ties are broken, above the solver's rounding."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One way to deploy a model: GPUs used and its p95 in seconds (finite)."""

    gpus: int
    latency: float


@dataclasses.dataclass(frozen=True)
class Limit:
    """A linear constraint: the coefficients of the chosen options sum to at most ``bound``.

    ``coefficients[i][o]`` belongs to option o of model i.
    """

    name: str
    coefficients: tuple[tuple[float, ...], ...]
    bound: float


@dataclasses.dataclass(frozen=True)
class Allocation:
    """The chosen option of every model, L in seconds, and what the solver said."""

    chosen: tuple[int, ...]
    latency: float
    status: str


def gpu_limit(options: Sequence[Sequence[Option]], gpus: int) -> Limit:
    """The pool: allocations sum to N, what is left over stays idle."""
    coefficients = tuple(tuple(float(o.gpus) for o in row) for row in options)
    return Limit("gpus", coefficients, float(gpus))


def allocate(
    options: Sequence[Sequence[Option]], limits: Sequence[Limit], weights: Sequence[float]
) -> Allocation | None:
    """Minimises L = max_i l_i over one option per model under the limits.

    Ties are broken by lower sum_i weights_i * l_i, then by fewer GPUs. ``None`` when no choice
    meets the limits. One thread and a fixed seed: same program, same answer.
    """
    if any(not row for row in options):
        return None
    first = _Program(options, limits)
    first.minimise_latency()
    if not first.solve():
        return None
    best = max(row[o].latency for row, o in zip(options, first.chosen(), strict=True))
    # Options above the optimal L cannot take part in a tie: left out, not forbidden.
    kept = [
        [o for o, option in enumerate(row) if option.latency <= best * (1.0 + SLACK)]
        for row in options
    ]
    second = _Program(
        [[options[i][o] for o in row] for i, row in enumerate(kept)],
        [_restrict(limit, kept) for limit in limits],
    )
    second.minimise_ties(weights)
    second.solve()
    chosen = tuple(kept[i][o] for i, o in enumerate(second.chosen()))
    latency = max(options[i][o].latency for i, o in enumerate(chosen))
    return Allocation(chosen, latency, second.status)


def _restrict(limit: Limit, kept: Sequence[Sequence[int]]) -> Limit:
    coefficients = tuple(tuple(limit.coefficients[i][o] for o in row) for i, row in enumerate(kept))
    return dataclasses.replace(limit, coefficients=coefficients)


class _Program:
    """x[i][o] = 1 when model i takes option o."""

    def __init__(self, options: Sequence[Sequence[Option]], limits: Sequence[Limit]) -> None:
        self._options = options
        self._program = pulp.LpProblem("allocation", pulp.LpMinimize)
        self._x = [
            [self._program.add_variable(f"x_{i}_{o}", cat="Binary") for o in range(len(row))]
            for i, row in enumerate(options)
        ]
        self.status = ""
        for row in self._x:
            self._program += pulp.lpSum(row) == 1
        for limit in limits:
            self._program += (
                pulp.lpSum(
                    c * x
                    for coefficients, row in zip(limit.coefficients, self._x, strict=True)
                    for c, x in zip(coefficients, row, strict=True)
                    if c
                )
                <= limit.bound
            )

    def minimise_latency(self) -> None:
        """L bounds the slowest model."""
        bound = self._program.add_variable("L", lowBound=0)
        self._program.setObjective(bound)
        for options, row in zip(self._options, self._x, strict=True):
            self._program += bound >= pulp.lpSum(
                option.latency * x for option, x in zip(options, row, strict=True)
            )

    def minimise_ties(self, weights: Sequence[float]) -> None:
        """Weighted sum of latencies; GPUs count so little that they only break its ties."""
        scale = max((o.latency for row in self._options for o in row), default=0.0) or 1.0
        self._program.setObjective(
            pulp.lpSum(
                (weight * option.latency / scale + 1e-7 * option.gpus) * x
                for weight, options, row in zip(weights, self._options, self._x, strict=True)
                for option, x in zip(options, row, strict=True)
            )
        )

    def solve(self) -> bool:
        """Whether an optimal solution was found."""
        _send_banner_to_stderr()
        solver = pulp.HiGHS(
            msg=False,
            threads=1,
            gapRel=0.0,
            gapAbs=0.0,
            random_seed=0,
            mip_feasibility_tolerance=1e-9,
        )
        self.status = pulp.LpStatus[self._program.solve(solver)]
        return self.status == "Optimal"

    def chosen(self) -> tuple[int, ...]:
        return tuple(max(range(len(row)), key=lambda o: _value(row[o])) for row in self._x)


@functools.cache
def _send_banner_to_stderr() -> None:
    """HiGHS greets once per process on file descriptor 1, and no option stops it: a document
    written to standard output would begin with it."""
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # no standard output, nothing to protect
        kept = os.dup(1)
        os.dup2(2, 1)
        greeter: Any = highspy.Highs
        greeter()
        os.dup2(kept, 1)
        os.close(kept)


def _value(variable: pulp.LpVariable) -> float:
    value = variable.value()
    return -math.inf if value is None else float(value)
