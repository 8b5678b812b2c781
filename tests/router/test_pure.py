"""Small pure parts: isotonic fit, steering, buckets, breaker, frames, slices, acknowledgement."""

import itertools
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_router import acknowledgement, isotonic, metrics, policy, rubric, slices, sse
from cascade_router.balance import Pool, Replica
from cascade_router.breaker import CLOSED, HALF_OPEN, OPEN, Breaker
from cascade_router.budgets import RetryBudget, TokenBucket
from cascade_router.config import JudgeConfig, SelfTable
from cascade_router.control import WorkerState
from cascade_router.steering import KEPT_SCORES, MIN_SCORES, Steering

SIGNALS = st.floats(0, 1, allow_nan=False)
POINTS = st.integers(0, 100)


class TestIsotonic:
    @given(st.lists(st.tuples(SIGNALS, POINTS), min_size=2, max_size=60))
    def test_fit_rises_stays_in_range_and_beats_its_neighbours(self, pairs):
        signals, targets = [p[0] for p in pairs], [float(p[1]) for p in pairs]
        table = isotonic.fit(signals, targets)
        values = [isotonic.apply(table, s) for s in sorted(signals)]
        assert all(a <= b + 1e-9 for a, b in itertools.pairwise(values))
        assert min(targets) - 1e-9 <= values[0] and values[-1] <= max(targets) + 1e-9

    def test_rising_data_are_kept_and_a_fall_is_pooled(self):
        table = isotonic.fit([0.1, 0.2, 0.3, 0.4], [10, 50, 30, 90])
        assert table == SelfTable(signal=(0.1, 0.25, 0.4), score=(10, 40, 90))

    def test_equal_signals_are_one_point(self):
        table = isotonic.fit([0.5, 0.5, 0.9], [0, 100, 80])
        assert table == SelfTable(signal=(0.5, 0.9), score=(50, 80))

    def test_falling_data_give_a_flat_table(self):
        table = isotonic.fit([0.0, 1.0], [90, 10])
        assert table == SelfTable(signal=(0.0, 1.0), score=(50, 50))

    def test_many_points_are_thinned_to_what_a_table_may_hold(self):
        table = isotonic.fit([i / 1000 for i in range(1000)], [i / 10 for i in range(1000)])
        assert len(table.signal) == isotonic.MAX_POINTS
        assert isotonic.apply(table, 0.5) == pytest.approx(50, abs=0.5)

    @pytest.mark.parametrize("signal, score", [(0.0, 20), (0.3, 20), (0.5, 40), (1.0, 60)])
    def test_apply_is_linear_between_points_and_constant_outside(self, signal, score):
        table = SelfTable(signal=(0.3, 0.7), score=(20, 60))
        assert isotonic.apply(table, signal) == pytest.approx(score)

    @pytest.mark.parametrize("signals, targets", [([1.0], [1.0]), ([1.0, 2.0], [1.0])])
    def test_unpaired_or_too_few_are_refused(self, signals, targets):
        with pytest.raises(ValueError, match="pair"):
            isotonic.fit(signals, targets)


class TestSteering:
    def test_starts_where_told_until_there_are_enough_scores(self):
        steering = Steering(0.5, 77)
        for _ in range(MIN_SCORES - 1):
            steering.observe(10)
        assert steering.threshold == 77
        steering.observe(10)
        assert steering.threshold != 77

    @pytest.mark.parametrize("quantile", [0.25, 0.5, 2 / 3, 0.9])
    def test_keeps_the_share_below_and_follows_a_shift(self, quantile):
        rng, steering = random.Random(5), Steering(quantile, 50)
        for low, high in ((0, 60), (40, 100)):
            for _ in range(KEPT_SCORES):
                steering.observe(rng.randint(low, high))
            expected = low + quantile * (high - low)
            assert abs(steering.threshold - expected) < 6

    @pytest.mark.parametrize("quantile, threshold", [(0.4, 1), (0.6, 51)])
    def test_with_all_scores_equal_takes_the_nearer_end(self, quantile, threshold):
        steering = Steering(quantile, 10)
        for _ in range(50):
            steering.observe(50)
        assert steering.threshold == threshold


class TestBudgets:
    def test_bucket_gives_its_burst_then_its_rate(self):
        bucket = TokenBucket.full(2.0, 3.0, now=0.0)
        assert [bucket.take(0.0) for _ in range(4)] == [True] * 3 + [False]
        assert [bucket.take(0.5), bucket.take(0.5)] == [True, False]
        assert sum(bucket.take(100.0) for _ in range(10)) == 3

    def test_bucket_without_a_rate_is_unlimited_and_with_zero_is_not_refilled(self):
        assert all(TokenBucket.full(None, 1.0, 0.0).take(0.0) for _ in range(100))
        bucket = TokenBucket.full(0.0, 1.0, 0.0)
        assert [bucket.take(0.0), bucket.take(1e9)] == [True, False]

    def test_retries_are_a_share_of_the_requests(self):
        budget, spent = RetryBudget(), 0
        for _ in range(1000):
            budget.earn()
            spent += budget.take()
        assert spent <= 1000 * 0.1 + 11


class TestBreaker:
    def test_opens_on_consecutive_failures_only(self):
        breaker = Breaker()
        for _ in range(4):
            breaker.fail(0.0)
        breaker.succeed()
        for _ in range(4):
            breaker.fail(0.0)
        assert breaker.state(0.0) == CLOSED
        breaker.fail(0.0)
        assert (breaker.state(0.5), breaker.state(1.0)) == (OPEN, HALF_OPEN)

    def test_half_open_admits_one_probe_that_cannot_block_for_ever(self):
        breaker = Breaker()
        for _ in range(5):
            breaker.fail(0.0)
        assert breaker.admits(1.0)
        breaker.begin(1.0)
        assert not breaker.admits(1.1)
        assert breaker.admits(11.1)

    def test_neutral_answer_gives_the_probe_back_and_failure_waits_longer(self):
        breaker = Breaker()
        for _ in range(5):
            breaker.fail(0.0)
        breaker.begin(1.0)
        breaker.release()
        assert breaker.admits(1.1)
        breaker.begin(1.1)
        breaker.fail(1.1)
        assert (breaker.admits(3.0), breaker.admits(3.2)) == (False, True)


class TestBalance:
    def test_ties_are_split_at_random_and_load_decides_otherwise(self):
        replicas = [Replica("m", f"p{i}", "", "http://h:1") for i in range(3)]
        pool, rng = Pool(replicas), random.Random(2)
        picked = [pool.choose(rng, 0.0).pod for _ in range(3000)]
        assert all(900 < picked.count(f"p{i}") < 1100 for i in range(3))
        replicas[0].in_flight = 5
        assert pool.choose(rng, 0.0, replicas[1]) is replicas[2]

    def test_excluded_and_broken_replicas_are_not_chosen(self):
        replicas = [Replica("m", f"p{i}", "", "http://h:1") for i in range(2)]
        for _ in range(5):
            replicas[0].breakers["answer"].fail(0.0)
        pool, rng = Pool(replicas), random.Random(2)
        assert {pool.choose(rng, 0.1).pod for _ in range(50)} == {"p1"}
        assert pool.choose(rng, 0.1, replicas[1]) is None
        assert pool.choose(rng, 0.1, replicas[1], "judge") is replicas[0]
        assert Pool(()).choose(rng, 0.0) is None


class TestFrames:
    @given(
        st.lists(
            st.sampled_from([b"data: a", b"\n", b"\r\n", b"\r", b"\n\n", b": c"]), max_size=30
        ),
        st.randoms(use_true_random=False),
    )
    def test_any_cut_gives_the_same_bytes_in_order(self, parts, rng):
        whole, buffer, out, at = b"".join(parts), sse.FrameBuffer(10_000), [], 0
        while at < len(whole):
            step = rng.randint(1, 4)
            out += buffer.feed(whole[at : at + step])
            at += step
        assert b"".join(out) + buffer.rest == whole

    def test_frames_end_at_blank_lines_only(self):
        buffer = sse.FrameBuffer(100)
        assert buffer.feed(b"data: a\n") == []
        assert buffer.feed(b"\ndata: b\r\n\r\nda") == [b"data: a\n\n", b"data: b\r\n\r\n"]
        assert buffer.rest == b"da"

    def test_frame_without_end_is_bounded(self):
        with pytest.raises(sse.FrameTooLargeError):
            sse.FrameBuffer(10).feed(b"x" * 11)

    @pytest.mark.parametrize(
        "frame, data",
        [
            (b"data: a\n\n", b"a"),
            (b"data:a\ndata: b\n\n", b"a\nb"),
            (b": ping\n\n", None),
            (b"event: x\r\ndata: y\r\n\r\n", b"y"),
        ],
    )
    def test_data_of_a_frame(self, frame, data):
        assert sse.data_of(frame) == data


@pytest.mark.parametrize(
    "probabilities, points",
    [([0, 0, 0, 0, 1], 100), ([1, 0, 0, 0, 0], 0), ([0, 0.98, 0.02, 0, 0], 26), ([0.2] * 5, 50)],
    ids=["best", "worst", "half-up", "even"],
)
def test_points_are_the_expected_level_rounded_half_up(probabilities, points):
    assert policy.points(probabilities) == points


def test_template_id_changes_with_what_the_judge_is_asked():
    judges = [JudgeConfig(), JudgeConfig(rubric="x"), JudgeConfig(type="Self"),
              JudgeConfig(model="m"), JudgeConfig(template_id="fixed")]  # fmt: skip
    assert len({rubric.template_id(j) for j in judges}) == 5
    assert rubric.template_id(judges[-1]) == "fixed"
    assert rubric.template_id(JudgeConfig(deadline_milliseconds=9)) == rubric.template_id(judges[0])


def endpoint_slice(service, *endpoints, port=30000):
    return {
        "metadata": {"name": "x", "labels": {slices.LABEL_SERVICE: service}},
        "ports": [{"port": port}],
        "endpoints": [
            {"addresses": [address], "conditions": conditions,
             "targetRef": {"kind": "Pod", "name": pod, "uid": f"u-{pod}"}}
            for pod, address, conditions in endpoints
        ],
    }  # fmt: skip


def test_slices_give_ready_endpoints_by_service_and_merge_moving_ones():
    found = slices.endpoints(
        [
            endpoint_slice("a", ("p1", "10.0.0.1", {"ready": True}), ("p2", "10.0.0.2", {})),
            endpoint_slice("a", ("p3", "10.0.0.3", {"ready": False, "serving": True})),
            endpoint_slice("a", ("p1", "10.0.0.1", {"ready": False})),
            endpoint_slice("b", ("p4", "fd00::1", {"ready": True}), port=8000),
        ]
    )
    assert [(e.pod, e.uid, e.address, e.ready) for e in found["a"]] == [
        ("p1", "u-p1", "http://10.0.0.1:30000", True),
        ("p2", "u-p2", "http://10.0.0.2:30000", True),
        ("p3", "u-p3", "http://10.0.0.3:30000", False),
    ]
    assert found["b"][0].address == "http://[fd00::1]:8000"


def state(digest="d1", error="", idle=()):
    return WorkerState(digest=digest, plan_id="p1", reload_error=error, idle_leaving=idle)


@pytest.mark.parametrize(
    "states, refusals, wanted, drained",
    [
        ([state()], {}, "d1", ()),
        ([state(), None], {}, "d1", None),
        ([], {}, "d1", None),
        ([state(), state("d0")], {}, "d1", None),
        ([state("d0"), state("d0")], {}, "d1", None),
        ([state(error="bad")], {"d2": "bad"}, "d2", ()),
        ([state()], {"d2": "bad"}, "d2", None),
        ([state(idle=("x", "y")), state(idle=("y",))], {}, "d1", ("uid-y",)),
        ([state(idle=("y", "unknown"))], {}, "d1", ("uid-y",)),
    ],
    ids=["agrees", "one-not-started", "none", "differ", "lag", "all-refused", "not-yet-refused",
         "idle-in-all", "never-seen"],
)  # fmt: skip
def test_acknowledged_once_all_processes_agree(states, refusals, wanted, drained):
    uids = {"x": "uid-x", "y": "uid-y"}
    got = acknowledgement.agreed(states, "chat", uids, refusals, wanted)
    assert (None if got is None else got.drained) == drained


def test_metrics_of_processes_are_added_and_states_take_the_greatest():
    dumps = []
    for number in (1, 2):
        one = metrics.Metrics()
        one.requests.labels("m", "ok").inc(number)
        one.in_flight.labels("m", "p").set(number)
        one.breaker.labels("m", "p").set(number)
        one.judge_score.labels("m").observe(15)
        dumps.append(one.dump())
    text = metrics.exposition(dumps).decode()
    assert 'cascade_router_requests_total{model="m",outcome="ok"} 3.0' in text
    assert 'cascade_router_in_flight{model="m",pod="p"} 3.0' in text
    assert 'cascade_router_breaker_state{model="m",pod="p"} 2.0' in text
    assert 'cascade_router_judge_score_bucket{le="20.0",model="m"} 2.0' in text


@pytest.mark.parametrize("module", ["config", "window", "isotonic", "policy", "rubric"])
def test_what_the_operator_reads_needs_no_http_library(module):
    code = f"import sys, cascade_router.{module}; print('aiohttp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": "router"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
