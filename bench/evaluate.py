"""Benchmarks of the evaluation: time of one ``cost``, and the plan beside uniform allocation."""

import functools
import sys

from bench import solver
from cascade_solver import cost
from cascade_solver.plan import Plan
from cascade_solver.problem import Problem
from cascade_solver.solve import solve

GPUS = 32
RATE = 20.0
"""Requests per second at the cascade."""


def uniform_allocation(problem: Problem, plan: Plan) -> Plan:
    """The ablation of science.md section 3: floor(N/C) GPUs for each model, the remainder to the
    last one, at the plan's thresholds; shapes as good as those GPUs allow."""
    names = [model.name for model in problem.models]
    share, rest = divmod(problem.pools[0].gpus, len(names))
    gpus = dict.fromkeys(names, share) | {names[-1]: share + rest}
    ablated = {"pinned_gpus": gpus, "pinned_thresholds": plan.thresholds()}
    return solve(problem.model_copy(update=ablated))


def latency(problem: Problem, plan: Plan, deployed: Plan) -> float:
    """L in seconds of a deployment under the plan's thresholds."""
    found = cost.cost(problem, plan.thresholds(), deployed.deployment())
    if found.latency_p95_seconds is None:
        raise SystemExit(f"overloaded: {', '.join(found.overloaded)}; lower the benchmark's rate")
    return found.latency_p95_seconds


def main() -> int:
    """Prints two JSON lines."""
    problem = solver.problem(GPUS, RATE)
    plan = solve(problem)
    work = functools.partial(cost.cost, problem, plan.thresholds(), plan.deployment())
    solver.report("cost_3x32_ms", [1000 * s for s in solver.seconds(work)], "ms", None)
    uniform = latency(problem, plan, uniform_allocation(problem, plan))
    ours = latency(problem, plan, plan)
    solver.report("uniform_allocation_vs_plan", [ours], "s", uniform)
    return 0


if __name__ == "__main__":
    sys.exit(main())
