"""Planning in a child process: real plans, errors by kind, limits, and no child left behind."""

import asyncio
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cascade_operator import childplan, errors, planning
from cascade_operator.spec import parse
from cascade_solver import plan as plans
from cascade_solver import problem as problems
from tests.operator import samples

ROOT = Path(__file__).parents[2]
PATIENCE = 10.0
EXAMPLES = sorted((ROOT / "examples").glob("*/cascade*.yaml"))
MEMORY_MIB = 1024
UNKNOWN = problems.Model(name="small", architecture="no-such-model")


async def solve(
    problem: problems.Problem, timeout: float = 60.0, memory_mib: int = MEMORY_MIB
) -> plans.Plan:
    return await childplan.solve(problem, timeout, memory_mib, asyncio.Event())


def stated(**fields: Any) -> problems.Problem:
    return planning.build_problem(samples.spec(**fields), samples.observation())


def children() -> set[str]:
    """Process ids of this process's children, zombies included."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.parent.name)
async def test_examples_are_planned_as_they_stand(path: Path) -> None:
    bodies = [d for d in yaml.safe_load_all(path.read_text()) if d["kind"] == "CascadeService"]
    for body in bodies:
        body["metadata"].setdefault("namespace", "demo")
        spec = parse(body)
        limit = spec.pool.limit if spec.pool.limit is not None else 16
        pool = samples.pool(limit=limit, nodes=samples.nodes(8, 8))
        view = dataclasses.replace(samples.observation(), pool=pool, name=spec.name)
        plan = await solve(planning.build_problem(spec, view))
        assert [m.name for m in plan.models] == list(spec.model_names)
        assert sum(m.gpus_used for m in plan.models) <= limit
        assert plan.verdict == "Uncalibrated"


async def test_calibrated_problem_meets_qmin() -> None:
    view = samples.observation(calibration=samples.calibrated(samples.table()))
    plan = await solve(planning.build_problem(samples.spec(), view))
    assert plan.verdict == "Feasible"
    assert plan.quality.predicted is not None and plan.quality.predicted >= 75


@pytest.mark.parametrize(
    ("problem", "error", "words"),
    [
        pytest.param(
            stated(gpuPool=[{"gpuType": "H100", "limit": 2}]).model_copy(
                update={"pools": (problems.Pool(gpu_type="H100", gpus=1, gpus_per_node=8),)}
            ),
            errors.InsufficientGpusError,
            "1",
            id="one GPU for two models",
        ),
        pytest.param(
            stated().model_copy(
                update={"pools": (problems.Pool(gpu_type="H100", gpus=8, gpus_per_node=1),)}
            ),
            errors.InfeasibleError,
            "large",
            id="model that fits no node",
        ),
        pytest.param(
            stated().model_copy(update={"models": (UNKNOWN, stated().models[1])}),
            errors.UnknownModelError,
            "no-such-model",
            id="unknown architecture",
        ),
        pytest.param(
            stated().model_copy(
                update={"pools": (problems.Pool(gpu_type="H9000", gpus=8, gpus_per_node=8),)}
            ),
            errors.UnknownModelError,
            "H9000",
            id="unknown GPU type",
        ),
        pytest.param(
            stated().model_copy(update={"pinned_thresholds": {"large": 50}}),
            errors.PlanningFailedError,
            "pinnedThresholds",
            id="problem that the planner refuses",
        ),
    ],
)
async def test_errors_are_typed_by_what_the_user_can_do(
    problem: problems.Problem, error: type[errors.PlanningError], words: str
) -> None:
    with pytest.raises(error) as caught:
        await solve(problem)
    assert words in str(caught.value)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child never answers: whatever ends it is the limit under test."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(childplan, "MODULE", "tests.operator.endless")


@pytest.mark.usefixtures("endless")
async def test_time_limit_ends_the_child() -> None:
    before = children()
    with pytest.raises(errors.PlanningFailedError, match=r"longer than 0\.3 s.*timeoutSeconds"):
        await asyncio.wait_for(solve(stated(), timeout=0.3), PATIENCE)
    assert children() == before


async def test_memory_limit_ends_the_child() -> None:
    with pytest.raises(errors.PlanningFailedError, match=r"out of memory.*planning\.memoryMiB"):
        await solve(stated(), memory_mib=40)


@pytest.mark.usefixtures("endless")
async def test_newer_spec_ends_the_child_at_once() -> None:
    before = children()
    cancel = asyncio.Event()
    task = asyncio.ensure_future(childplan.solve(stated(), 60.0, MEMORY_MIB, cancel))
    while children() == before:
        await asyncio.sleep(0.01)
    cancel.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert children() == before


@pytest.mark.usefixtures("endless")
async def test_cancelled_caller_leaves_no_child() -> None:
    before = children()
    task = asyncio.ensure_future(solve(stated()))
    while children() == before:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE)
    assert children() == before


async def test_crash_is_told_in_the_childs_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(childplan, "MODULE", "cascade_operator.no_such_module")
    with pytest.raises(errors.PlanningFailedError, match="no_such_module"):
        await solve(stated())
