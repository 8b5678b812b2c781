"""The hand-over keeps to the pool and never leaves a reachable model without a Ready replica."""

import dataclasses
import random
from collections.abc import Mapping

import pytest

from cascade_operator import ledger, moves, situation, step, transition
from cascade_operator.observation import PoolView, SetView
from tests.operator.world import World

RULES = situation.Rules(step_deadline_seconds=50.0)
MODELS = ("small", "medium", "large")
SEEDS = range(80)


def target(plan_id: str, **models: tuple[int, int] | tuple[int, int, str]) -> situation.Target:
    """``small=(replicas, gpus)`` or ``(replicas, gpus, revision)``, in the order of asking."""
    sets = []
    for model, (replicas, gpus, *revision) in models.items():
        name = f"chat-{model}-{gpus}{''.join(revision) or 'a'}"
        sets.append(situation.TargetSet(name, model, replicas, gpus))
    return situation.Target(plan_id=plan_id, models=tuple(models), sets=tuple(sets))


def thresholds(wanted: situation.Target) -> dict[str, int]:
    return {model: 60 for model in wanted.models[:-1]}


class Watchdog:
    """Looks at the world after every event and every single write."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_installed = False
        self.served: set[str] = set()
        self.trail: list[str] = []
        world.check = self.check

    def check(self, event: str) -> None:
        self.trail.append(event)
        story = "\n".join(self.trail[-12:])
        assert self.world.committed() <= self.world.limit, f"over the pool after:\n{story}"
        reachable = self.world.reachable()
        self.served |= {m for m in reachable if self.world.seen_ready(m)}
        self.is_installed = self.is_installed or (bool(reachable) and set(reachable) <= self.served)
        for model in reachable:
            if self.is_installed or model in self.served:
                assert self.world.ready(model), (
                    f"{model} is reachable and not Ready after:\n{story}"
                )


def converge(world: World, wanted: situation.Target, passes: int = 120) -> step.Step:
    for _ in range(passes):
        found = world.operate(wanted, thresholds(wanted))
        if found.settled or found.kind == "Blocked":
            return found
        world.settle()
        world.clock += 1.0
    raise AssertionError(f"no end after {passes} passes: {found}")


def random_target(draws: random.Random, limit: int, plan_id: str) -> situation.Target:
    """One to three models that fit the pool, each of a random shape and revision."""
    while True:
        count = draws.choice((1, 2, 2, 3, 3))
        chosen = {
            model: (draws.randint(1, 4), draws.choice((1, 1, 2, 4)), draws.choice("ab"))
            for model in MODELS[:count]
        }
        wanted = target(plan_id, **chosen)
        if wanted.gpus <= limit:
            return wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_any_history_stays_in_the_pool_and_keeps_models_served(seed: int) -> None:
    draws = random.Random(seed)
    limit = draws.randint(4, 12)
    world = World(limit, RULES, draws, router_pods=draws.choice((1, 2)))
    Watchdog(world)
    wanted = random_target(draws, limit, "plan-0")
    for change in range(1, 5):
        for _ in range(draws.randint(1, 40)):
            world.happen(draws.randint(0, 6))
            world.operate(wanted, thresholds(wanted))
        stuck = [p for s in world.sets.values() for p in s.pods.values() if draws.random() < 0.1]
        for pod in stuck:
            pod.stuck = True
        wanted = random_target(draws, limit, f"plan-{change}")
        for _ in range(draws.randint(0, 20)):
            world.happen(draws.randint(0, 6))
            world.operate(wanted, thresholds(wanted))
        for pod in stuck:
            pod.stuck = False
    last = converge(world, wanted)
    if last.settled:
        assert world.running() == {s.name: s.replicas for s in wanted.sets}
        assert set(world.sets) == {s.name for s in wanted.sets}
    else:
        assert last.blocked_reason == "NeedsDowntime"
        assert_no_legal_move(world, wanted)


def test_a_pod_whose_containers_have_ended_is_waited_for_not_reported_as_blocked() -> None:
    world = World(12, RULES, random.Random(1))
    before, after = (
        target("p1", small=(1, 2), large=(5, 2)),
        target("p2", small=(1, 2), large=(1, 8)),
    )
    assert converge(world, before).settled
    found = [world.operate(after, thresholds(after))]
    while not found[-1].settled:
        assert len(found) < 5000
        world.happen(1)
        found.append(world.operate(after, thresholds(after)))
    assert {"AwaitGone", "Grow"} <= {f.kind for f in found}
    assert [f.message for f in found if f.kind == "Blocked"] == []


@pytest.mark.long
def test_thousands_of_histories() -> None:
    for seed in range(1000, 5000):
        test_any_history_stays_in_the_pool_and_keeps_models_served(seed)


def assert_no_legal_move(world: World, wanted: situation.Target) -> None:
    """Blocked is right only when all that may leave would not make room for one replica: all but
    one replica of every other model, and what the receiver's plan does not keep."""
    first = situation.Situation(world.observe(), wanted, RULES).deficits[0]
    spare = world.limit - world.committed()
    for model in {s.model for s in world.sets.values()}:
        sets = [(n, s) for n, s in world.sets.items() if s.model == model and s.replicas]
        keeps = [min(s.replicas, dict(kept(wanted)).get(n, 0)) for n, s in sets]
        if model == first.model:
            leaving = [s.gpus for (n, s), k in zip(sets, keeps, strict=True)
                       for _ in range(s.replicas - k)]  # fmt: skip
            spare += sum(leaving) - (0 if any(keeps) else max(leaving, default=0))
        else:
            spare += sum(s.held() for _, s in sets) - max((s.gpus for _, s in sets), default=0)
    assert spare < first.gpus_per_pod


def kept(wanted: situation.Target) -> list[tuple[str, int]]:
    return [(s.name, s.replicas) for s in wanted.sets]


CHANGES: dict[str, tuple[int, situation.Target, situation.Target]] = {
    "first install": (4, target("p0"), target("p1", small=(2, 1), large=(1, 2))),
    "gpus move": (
        6,
        target("p1", small=(4, 1), large=(1, 2)),
        target("p2", small=(2, 1), large=(2, 2)),
    ),
    "other shape": (5, target("p1", small=(4, 1)), target("p2", small=(2, 2))),
    "other argument, pool full": (
        4,
        target("p1", small=(2, 1), large=(1, 2)),
        target("p1", small=(2, 1, "b"), large=(1, 2)),
    ),
    "other argument, one replica, borrowed room": (
        3,
        target("p1", small=(2, 1), large=(1, 1)),
        target("p1", small=(2, 1), large=(1, 1, "b")),
    ),
    "model removed, pool full": (
        4,
        target("p1", small=(1, 1), medium=(1, 1), large=(1, 2)),
        target("p2", small=(2, 1), large=(1, 2)),
    ),
    "model added": (
        5,
        target("p1", small=(3, 1), large=(1, 2)),
        target("p2", small=(1, 1), medium=(1, 2), large=(1, 2)),
    ),
    "model added, another one shrinks its shape, all through one borrowed GPU": (
        6,
        target("p1", small=(1, 4), medium=(2, 1)),
        target("p2", small=(1, 1), medium=(2, 1), large=(2, 1)),
    ),
    "two models swap their sizes through one borrowed GPU": (
        7,
        target("p1", small=(1, 1), medium=(1, 4), large=(2, 1)),
        target("p2", small=(1, 4), medium=(1, 1), large=(2, 1)),
    ),
    "smaller": (
        6,
        target("p1", small=(4, 1), large=(1, 2)),
        target("p2", small=(1, 1), large=(1, 2)),
    ),
}


@pytest.mark.parametrize(("limit", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_change_reaches_its_target(
    limit: int, before: situation.Target, after: situation.Target
) -> None:
    world = installed(limit, before)
    last = converge(world, after)
    assert last.settled
    assert world.running() == {s.name: s.replicas for s in after.sets}


def installed(limit: int, wanted: situation.Target, rules: situation.Rules = RULES) -> World:
    world = World(limit, rules, random.Random(0))
    Watchdog(world)
    if wanted.models:
        assert converge(world, wanted).settled
    return world


def test_the_order_of_a_hand_over() -> None:
    world = installed(6, target("p1", small=(4, 1), large=(1, 2)))
    world.is_immortal = True
    after = target("p2", small=(2, 1), large=(2, 2))
    kinds: list[str] = []
    while kinds[-1:] != ["Settled"]:
        kinds.append(world.operate(after, thresholds(after)).kind)
        assert len(kinds) < 20, kinds
        if kinds[-1] in ("RouteAway", "Publish"):
            world.reload("router-0")
        elif kinds[-1] == "Drain":
            world.finish_requests("router-0")
        else:
            world.advance()
    assert kinds == [
        "RouteAway", "Drain", "Shrink", "AwaitGone", "Grow", "AwaitReady", "Publish", "Settled",
    ]  # fmt: skip


def quiet(world: World, wanted: situation.Target) -> step.Step:
    return transition.next_step(world.observe(), wanted, world.rules)


def test_the_highest_ordinals_leave_first() -> None:
    world = installed(4, target("p1", small=(4, 1)))
    found = quiet(world, target("p2", small=(2, 1)))
    assert found.leaving_pods == {"small": ("chat-small-1a-2", "chat-small-1a-3")}


def test_thresholds_of_the_plan_are_published_only_when_its_capacity_is_ready() -> None:
    world = installed(6, target("p1", small=(4, 1), large=(1, 2)))
    after = target("p2", small=(2, 1), large=(2, 2))
    seen = []
    for _ in range(60):
        found = world.operate(after, thresholds(after))
        seen.append((found.publish, world.ready("large")))
        if found.settled:
            break
        world.happen(8)
    assert all(ready == 2 for publish, ready in seen if publish == "final")
    assert seen[-1] == ("final", 2)


def test_nothing_grows_while_a_pod_is_terminating() -> None:
    world = installed(4, target("p1", small=(3, 1), large=(1, 1)))
    for pod in world.sets["chat-small-1a"].pods.values():
        pod.stuck = True
    after = target("p2", small=(1, 1), large=(3, 1))
    for _ in range(40):
        found = world.operate(after, thresholds(after))
        world.settle()
    assert found.kind == "AwaitGone"
    assert found.blocking_pod == "chat-small-1a-1"
    assert world.sets["chat-large-1a"].replicas == 1
    assert not found.deadline_passed
    world.clock += 60
    assert quiet(world, after).deadline_passed


def test_a_replica_that_never_gets_ready_is_named_and_replaced_by_a_better_plan() -> None:
    world = installed(3, target("p1", small=(1, 1)))
    world.broken_sets.add("chat-small-2a")
    bad = target("p2", small=(1, 2))
    for _ in range(20):
        found = world.operate(bad, thresholds(bad))
        world.settle()
    assert (found.kind, found.blocking_pod) == ("AwaitReady", "chat-small-2a-0")
    good = target("p3", small=(1, 2, "b"))
    assert converge(world, good).settled
    assert world.running() == {"chat-small-2b": 1}


def test_a_paused_cascade_starts_nothing() -> None:
    world = installed(6, target("p1", small=(4, 1), large=(1, 2)))
    text = world.text
    world.rules = dataclasses.replace(RULES, is_paused=True)
    after = target("p2", small=(2, 1), large=(2, 2))
    for _ in range(5):
        found = world.operate(after, thresholds(after))
        world.settle()
    assert found.kind == "Held"
    assert "planPolicy.paused" in found.message
    assert world.running() == {"chat-small-1a": 4, "chat-large-2a": 1}
    assert world.text == text
    world.rules = RULES
    assert converge(world, after).settled


def test_without_room_and_without_donors_downtime_is_named_not_taken() -> None:
    world = installed(2, target("p1", small=(1, 1), large=(1, 1)))
    after = target("p1", small=(1, 1, "b"), large=(1, 1))
    found = converge(world, after)
    assert (found.kind, found.blocked_reason) == ("Blocked", "NeedsDowntime")
    assert "rollout.allowDowntime" in found.message
    assert world.running() == {"chat-small-1a": 1, "chat-large-1a": 1}


def test_a_model_keeps_the_replicas_that_its_spec_names_also_during_a_move() -> None:
    world = installed(3, target("p1", small=(2, 1), large=(1, 1)))
    after = target("p1", small=(2, 1, "b"), large=(1, 1))
    world.rules = dataclasses.replace(RULES, floors={"small": 2})
    assert converge(world, after).blocked_reason == "NeedsDowntime"
    assert world.ready("small") == 2
    world.rules = RULES
    assert converge(world, after).settled


def test_declared_downtime_first_stops_reaching_the_model() -> None:
    rules = dataclasses.replace(RULES, allow_downtime=True)
    world = installed(2, target("p1", small=(1, 1), large=(1, 1)), rules)
    after = target("p1", small=(1, 1), large=(1, 1, "b"))
    assert converge(world, after).settled  # the watchdog looks at every event on the way
    assert world.running() == {"chat-small-1a": 1, "chat-large-1b": 1}
    assert world.reachable() == ["small", "large"] * (len(world.reachable()) // 2)


def test_a_move_is_capped() -> None:
    rules = dataclasses.replace(RULES, max_gpus_per_move=2)
    world = World(8, rules, random.Random(0))
    wanted = target("p1", small=(4, 1), large=(2, 2))
    assert sum(quiet(world, wanted).replicas.values()) == 2
    most = 0
    for _ in range(200):
        before = world.committed()
        found = world.operate(wanted, thresholds(wanted))
        most = max(most, world.committed() - before)
        if found.settled:
            break
        world.settle()
    assert found.settled
    assert most == 2


def test_a_lower_limit_is_met_although_another_pod_is_not_ready() -> None:
    world = installed(6, target("p1", small=(4, 1), large=(1, 2)))
    world.check = lambda event: None
    world.sets["chat-large-2a"].pods[0].ready = False
    world.sets["chat-large-2a"].pods[0].broken = True
    world.settle()
    world.limit = 4
    after = target("p2", small=(2, 1), large=(1, 2))
    for _ in range(10):
        world.operate(after, thresholds(after))
        world.settle()
    assert world.committed() == 4


def test_a_lost_pod_is_reported_and_not_waited_for() -> None:
    world = installed(4, target("p1", small=(3, 1), large=(1, 1)))
    pod = world.sets["chat-small-1a"].pods[0]
    pod.lost, pod.ready = True, False
    world.settle()
    found = quiet(world, target("p1", small=(3, 1), large=(1, 1)))
    assert found.settled
    assert found.lost_pods == ("chat-small-1a-0",)


def test_a_settled_cascade_stays_as_it_is() -> None:
    wanted = target("p1", small=(2, 1), large=(1, 2))
    world = installed(4, wanted)
    before = (world.text, world.marker, world.running())
    for _ in range(5):
        found = world.operate(wanted, thresholds(wanted))
        world.happen(5)
    assert found.settled
    assert (world.text, world.marker, world.running()) == before


def test_until_the_router_confirms_the_step_is_not_settled() -> None:
    wanted = target("p1", small=(1, 1), large=(1, 1))
    world = installed(2, wanted)
    world.is_immortal = True
    after = target("p2", small=(1, 1), large=(1, 1))
    assert world.operate(after, {"small": 90}).kind == "Publish"
    found = world.operate(after, {"small": 90})
    assert (found.kind, found.blocking_pod) == ("Publish", "router-0")
    world.clock += 60
    assert world.operate(after, {"small": 90}).deadline_passed
    world.settle()
    assert world.operate(after, {"small": 90}).settled


# -- mutants: each breaks one rule, and the property above must notice ---------------------------


def credited_at_once(pool: PoolView, sets: tuple[SetView, ...]) -> int:
    """A ledger that believes a lower replica count (grow before shrink)."""
    return pool.limit - sum(view.replicas * view.gpus_per_pod for view in sets)


def without_floors(board: moves.Board, least: int, enough: int) -> Mapping[str, int] | None:
    return ORIGINAL_DONORS(dataclasses.replace(board, floors={}), least, enough)


ORIGINAL_DONORS = moves.donors


def mutate_ledger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger, "free", credited_at_once)
    rules = tuple(rule for rule in transition.RULES if rule is not transition.await_gone)
    patch.setattr(transition, "RULES", rules)


def mutate_order(patch: pytest.MonkeyPatch) -> None:
    """Grows by what the plan frees, before it is free."""
    patch.setattr(ledger, "free", lambda pool, sets: 1000)


def mutate_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moves, "donors", without_floors)


MUTANTS = {
    "an unfinished shrink is credited": mutate_ledger,
    "grow before shrink": mutate_order,
    "no floor": mutate_floor,
}


@pytest.mark.parametrize("mutate", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_caught(mutate: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(mutate)
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match=r"over the pool|not Ready after"):
        for seed in range(40):
            test_any_history_stays_in_the_pool_and_keeps_models_served(seed)


def test_a_plan_that_is_larger_than_the_pool_stops_without_going_back_and_forth() -> None:
    world = installed(12, target("p1", small=(1, 2), large=(2, 4)))
    after = target("p2", small=(4, 2), large=(2, 4))
    last = converge(world, after)
    assert (last.kind, last.blocked_reason) == ("Blocked", "InsufficientGPUs")
    before = world.running()
    assert before == {"chat-small-2a": 2, "chat-large-4a": 2}
    for _ in range(5):
        world.operate(after, thresholds(after))
        world.settle()
        assert world.running() == before
