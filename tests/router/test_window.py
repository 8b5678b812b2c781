"""Windows for drift-watch: every request counted once, samples drawn evenly, processes merged."""

import asyncio
import random

import pytest

from cascade_router import sampler
from cascade_router.sampler import Recorder
from cascade_router.visits import Trace, Visit
from cascade_router.window import LENGTH_EDGES, Window
from tests.router import backend
from tests.router.conftest import config_for

TWO = {"small": [], "large": []}


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def recorder(clock: Clock, **changes: object) -> Recorder:
    made = Recorder(random.Random(1), clock, lambda model: 60)
    made.apply(config_for(dict(TWO), **changes))
    return made


def trace(*visits: Visit, answered: str | None = None, **more: object) -> Trace:
    given = {"plan_id": "p1", "arrival": 0.0, "started": 0.0, "forced": None, "request_id": "r"}
    return Trace(**(given | more), visits=list(visits), answered_by=answered)


def judged(score: int | None, tokens: int = 10, model: str = "small") -> Visit:
    return Visit(model, "accepted", score, 0.5, True, "", tokens, 20)


async def test_every_request_is_counted_once_with_its_outcome(engine, serve):
    scores = [90, 30, 30, 90, 30, 90]
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(*scores))
    router = await serve(config_for({"small": [small], "large": [large]}, input_edges=(8, 12)))
    for _ in scores:
        await router.chat()
    await router.chat(model="chat/small")
    large.scripts["/v1/chat/completions"] = backend.fails(400)
    large.scripts["/v1/decisions"] = backend.decisions(5, mass=0.1)
    await router.chat()
    [window] = router.worker.windows()
    small_seen, large_seen = window.models
    assert (window.requests, window.forced_requests, window.failed_requests) == (7, 1, 1)
    assert (small_seen.visits, small_seen.accepted, small_seen.escalated) == (7, 3, 4)
    assert (small_seen.no_verdict, small_seen.failed) == (1, 0)
    assert (large_seen.visits, large_seen.accepted, large_seen.failed) == (4, 3, 1)
    assert (small_seen.score_counts, small_seen.score_sum) == ((0, 0, 0, 3, 0, 0, 0, 0, 0, 3), 360)
    assert sum(window.input_counts) == window.input_counts[1] == 7  # 11 tokens lie in (8, 16]
    assert window.input_score_counts[1] == small_seen.score_counts
    assert len(window.samples) == window.samples_seen == 7
    assert [s.scores["small"] for s in window.samples] == [*scores, None]


@pytest.mark.parametrize(
    "tokens, bin_", [(8, 0), (9, 1), (131072, 22), (131073, 23)], ids=lambda v: str(v)
)
def test_length_bins_hold_their_upper_edge(tokens, bin_):
    made = recorder(Clock(0.0))
    made.finish(trace(judged(50, tokens), answered="small"))
    [window] = made.windows()
    assert window.input_counts[bin_] == 1
    assert len(window.input_counts) == len(LENGTH_EDGES) + 1


@pytest.mark.parametrize("tokens, row", [(99, 0), (100, 1), (199, 1), (200, 2)])
def test_joint_bins_hold_their_lower_edge_as_the_planner_counts(tokens, row):
    made = recorder(Clock(0.0), input_edges=(100, 200))
    made.finish(trace(judged(100, tokens), answered="small"))
    [window] = made.windows()
    assert window.input_score_counts[row] == (0,) * 9 + (1,)


def test_windows_line_up_with_the_clock_and_close_in_time():
    clock = Clock(1000.5)
    made = recorder(clock, window={"seconds": 10})
    made.arrive(False)
    for clock.now in (1009.9, 1010.0, 1035.0):
        made.arrive(False)
    spans = [(w.start, w.seconds, w.closed, w.requests) for w in made.windows()]
    assert spans == [
        (1000.5, 9.5, True, 2),
        (1010.0, 10.0, True, 1),
        (1030.0, 5.0, False, 1),
    ]


def test_late_outcome_counts_in_the_last_window_of_its_plan():
    clock = Clock(1000.0)
    made = recorder(clock)
    made.arrive(False)
    made.apply(config_for(dict(TWO), plan_id="p2"))
    made.finish(trace(judged(80), answered="small"))
    old, new = made.windows()
    assert (old.models[0].accepted, new.models[0].accepted) == (1, 0)


def test_reservoir_is_uniform_and_bounded():
    hits = [0] * 100
    for seed in range(400):
        made = Recorder(random.Random(seed), Clock(0.0), lambda model: None)
        made.apply(config_for(dict(TWO), window={"samples": 10}))
        for number in range(100):
            made.finish(trace(judged(50), answered="small", arrival=float(number)))
        [window] = made.windows()
        assert (len(window.samples), window.samples_seen) == (10, 100)
        for sample in window.samples:
            hits[int(sample.arrival)] += 1
    # 400 draws at 1/10 each: mean 40, standard deviation 6.
    assert min(hits[:20]) > 15 and max(hits) < 70
    assert abs(sum(hits[:50]) - sum(hits[50:])) < 250


def filled(number: int, clock: Clock, seed: int) -> tuple[Window, ...]:
    made = Recorder(random.Random(seed), clock, lambda model: 60)
    made.apply(config_for(dict(TWO), window={"samples": 50}, input_edges=(5,)))
    for _ in range(number):
        made.arrive(False)
        made.finish(trace(judged(10 * seed), answered="small"))
    return made.windows()


def test_windows_of_processes_add_up_and_samples_keep_their_weight():
    shares = []
    for seed in range(40):
        first, second = filled(900, Clock(1000.0), 1), filled(100, Clock(1000.2), 2)
        [merged] = sampler.merge([first, second], random.Random(seed))
        assert (merged.requests, merged.models[0].accepted, merged.samples_seen) == (1000,) * 3
        assert merged.models[0].score_sum == 900 * 10 + 100 * 20
        assert sum(merged.input_score_counts[1]) == 1000
        assert len(merged.samples) == 50
        shares.append(sum(s.scores["small"] == 10 for s in merged.samples) / 50)
    # Plain mixing of the two reservoirs would give one half.
    assert 0.75 < sum(shares) / len(shares) < 0.95


async def test_cancelled_request_is_counted_as_failed(engine, serve):
    only = await engine(chat=backend.hangs)
    router = await serve(config_for({"only": [only]}))
    asking = asyncio.ensure_future(router.chat())
    async with asyncio.timeout(5):
        while not only.received:
            await asyncio.sleep(0.01)
    asking.cancel()
    async with asyncio.timeout(5):
        while router.worker.windows()[0].failed_requests == 0:
            await asyncio.sleep(0.01)
    [window] = router.worker.windows()
    assert (window.requests, window.models[0].visits, window.models[0].failed) == (1, 1, 1)
