"""Which of several equally good strategies is deployed."""

import dataclasses

import pytest

from cascade_solver import allocation, cost, deploy, pricing, replay
from cascade_solver.allocation import Chosen
from tests.solver import builders


def chosen(flagged_latency_share: float) -> tuple[pricing.Pricing, Chosen]:
    """Two single-GPU replicas of the small model, flagged for their KV room, at this share of the
    p95 of one replica on two GPUs."""
    problem = builders.problem()
    assert problem.calibration is not None
    data = replay.table(problem.calibration, ["small", "large"])
    p = pricing.Pricing(problem, data)
    found = allocation.allocate(p, (60,), replay.walk(data, (60,)), cost.mu(p))
    assert found is not None
    by_shape = {(s.shape.tensor, s.replicas): s for s in found.cells[0].strategies}
    firm = by_shape[2, 1]
    assert not firm.shape.low_confidence
    flagged = dataclasses.replace(
        by_shape[1, 2],
        shape=dataclasses.replace(by_shape[1, 2].shape, low_confidence=("KV room",)),
        latency=flagged_latency_share * firm.latency,
    )
    slow = dataclasses.replace(found.strategies[1], latency=10 * firm.latency)
    return p, dataclasses.replace(found, strategies=(flagged, slow))


@pytest.mark.parametrize(("share", "tensor"), [(0.95, 2), (0.85, 1)])
def test_an_unflagged_strategy_within_10_percent_is_preferred(share: float, tensor: int) -> None:
    p, given = chosen(share)
    assert deploy.prefer_confident(p, given).strategies[0].shape.tensor == tensor


def test_the_plan_does_not_get_slower_for_it() -> None:
    p, given = chosen(0.95)
    bottleneck = dataclasses.replace(given.strategies[1], latency=0.0)
    alone = dataclasses.replace(given, strategies=(given.strategies[0], bottleneck))
    assert deploy.prefer_confident(p, alone) == alone
