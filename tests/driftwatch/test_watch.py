"""A round: what is read, what is written, and that no cascade costs another."""

import dataclasses
from typing import Any

import pytest

from cascade_driftwatch import metrics, routers
from cascade_driftwatch.kube import KubeError
from cascade_driftwatch.settings import Settings
from cascade_driftwatch.watch import Watch
from cascade_router.window import Window
from tests.driftwatch import stand_ins, traffic
from tests.driftwatch.stand_ins import FakeApi, FakeRouters
from tests.driftwatch.traffic import STATIONARY

SHIFTED = dataclasses.replace(STATIONARY, requests=600.0, input_median=2000.0)


class Bench:
    """A watch between stand-ins, with a clock that the test turns."""

    def __init__(self, settings: Settings) -> None:
        self.api, self.routers, self.now = FakeApi(), FakeRouters(), 3600.0
        self.metrics = metrics.Metrics()
        self.watch = Watch(self.api, self.routers, settings, self.metrics, lambda: self.now)

    def reports(self, windows: list[Window], pod: str = "router-0") -> None:
        self.routers.reports[pod] = traffic.report(pod, windows, self.now)

    async def verdict(self) -> Any:
        await self.watch.round()
        return self.api.entries[-1]["verdict"]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"cascade_driftwatch_{name}", labels) or 0.0


@pytest.fixture
def bench() -> Bench:
    made = Bench(Settings())
    made.reports(traffic.row(STATIONARY, 12))
    return made


async def test_planned_traffic_is_stable_and_only_the_status_is_written(bench: Bench) -> None:
    assert await bench.verdict() == "Stable"
    path, body = bench.api.applied[0]
    assert path == (
        "/apis/cascade-operator.io/v1alpha1/namespaces/team-a/cascadeservices/chat/status"
    )
    assert set(body) == {"apiVersion", "kind", "metadata", "status"}
    assert set(body["status"]) == {"drift"}
    assert body["status"]["drift"]["observedPlan"] == "p1"


async def test_an_unchanged_verdict_is_written_once_per_window(bench: Bench) -> None:
    for _ in range(11):
        await bench.watch.round()
        bench.now += 30
    assert len(bench.api.applied) == 2
    assert bench.count("status_writes_total") == 2


async def test_a_drift_is_written_at_once_and_stays_one(bench: Bench) -> None:
    await bench.watch.round()
    bench.now += 600
    bench.reports(traffic.row(STATIONARY, 10, first=2) + traffic.row(SHIFTED, 2, first=12))
    assert await bench.verdict() == "Drifted"
    first = bench.api.entries[-1]
    for i in range(1, 6):
        bench.now += 300
        bench.reports(traffic.row(SHIFTED, 12, seed=i, first=2 + i))
        await bench.watch.round()
    assert {entry["since"] for entry in bench.api.entries[1:]} == {first["since"]}
    assert bench.count("verdict", namespace="team-a", cascade="chat", verdict="Drifted") == 1


@pytest.mark.parametrize(
    ("drift", "expected"),
    [({}, "Drifted"), ({"sampleSize": 1000}, "Stable")],
    ids=["default", "larger-than-the-windows"],
)
async def test_the_sample_size_of_the_spec_counts(
    bench: Bench, drift: dict[str, int], expected: str
) -> None:
    harder = dataclasses.replace(STATIONARY, escalation=0.7)
    bench.api.cascades[0]["spec"]["drift"] = drift
    bench.reports(traffic.row(harder, 12))
    assert await bench.verdict() == expected


async def test_windows_of_an_earlier_plan_are_ignored(bench: Bench) -> None:
    bench.api.config_maps["chat-plan"] = stand_ins.config_map(traffic.plan(revision="p2"))
    bench.reports(traffic.row(SHIFTED, 12))
    assert await bench.verdict() == "Unknown"
    assert bench.api.entries[-1]["observedPlan"] == "p2"
    assert "0 requests in 0 whole windows of plan p2" in bench.api.entries[-1]["message"]


async def test_nothing_is_concluded_during_a_hand_over(bench: Bench) -> None:
    bench.api.cascades[0]["status"]["conditions"][0]["status"] = "False"
    bench.reports(traffic.row(SHIFTED, 12))
    assert await bench.verdict() == "Unknown"
    assert "is being put in place" in bench.api.entries[-1]["message"]


async def test_windows_that_began_before_the_plan_was_applied_are_ignored(bench: Bench) -> None:
    condition = bench.api.cascades[0]["status"]["conditions"][0]
    condition["lastTransitionTime"] = "1970-01-01T00:55:00Z"
    bench.reports(traffic.row(SHIFTED, 11) + traffic.row(STATIONARY, 1, first=11))
    assert await bench.verdict() == "Stable"
    assert bench.api.entries[-1]["window"]["seconds"] == 300


async def test_an_applied_plan_is_watched_although_a_better_one_waits(bench: Bench) -> None:
    status = bench.api.cascades[0]["status"]
    status["conditions"][0] |= {"status": "False", "reason": "NeedsDowntime"}
    status["plan"] = {"applied": "p1", "revision": "p1"}
    assert await bench.verdict() == "Stable"


async def test_an_uncalibrated_plan_is_not_held_to_escalation(bench: Bench) -> None:
    steered = dataclasses.replace(traffic.plan(), is_steered=True)
    bench.api.config_maps["chat-plan"] = stand_ins.config_map(steered)
    bench.reports(traffic.row(dataclasses.replace(STATIONARY, escalation=0.9), 12))
    assert await bench.verdict() == "Stable"


@pytest.mark.parametrize(
    ("config_map", "said"),
    [
        pytest.param(None, "There is no plan yet", id="no-config-map"),
        pytest.param({"metadata": {}, "data": {}}, "There is no plan yet", id="no-plan"),
        pytest.param(
            {"metadata": {"annotations": {"cascade-operator.io/plan-revision": "p"}},
             "data": {"plan.json": "{"}},
            "plan.json: has no readable workload", id="no-json",
        ),
        pytest.param(
            {"metadata": {"annotations": {"cascade-operator.io/plan-revision": "p"}},
             "data": {"plan.json": '{"workload": {"rate": -1}}'}},
            "plan.json: workload.rate: ", id="bad-rate",
        ),
    ],
)  # fmt: skip
async def test_without_a_readable_plan_the_verdict_is_unknown_and_says_why(
    bench: Bench, config_map: Any, said: str
) -> None:
    bench.api.config_maps = {"chat-plan": config_map} if config_map else {}
    assert await bench.verdict() == "Unknown"
    assert said in bench.api.entries[-1]["message"]


async def test_without_a_ready_router_the_verdict_is_unknown(bench: Bench) -> None:
    bench.api.slices = []
    assert await bench.verdict() == "Unknown"
    assert bench.api.entries[-1]["message"] == "No router pod is ready."


async def test_one_silent_router_leaves_the_entry_as_it_is(bench: Bench) -> None:
    """Half the counts would look like half the rate."""
    bench.api.slices = [stand_ins.endpoint_slice({"router-0": "10.0.0.1", "router-1": "10.0.0.2"})]
    bench.routers.reports["router-1"] = routers.RouterError("router router-1: timed out")
    await bench.watch.round()
    assert bench.api.applied == []
    assert bench.count("look_failures_total", reason="router") == 1


async def test_windows_before_a_change_of_router_pods_are_ignored(bench: Bench) -> None:
    half = dataclasses.replace(STATIONARY, requests=150.0)
    both = stand_ins.endpoint_slice({"router-0": "10.0.0.1", "router-1": "10.0.0.2"})
    bench.api.slices = [both]
    for seed, pod in enumerate(("router-0", "router-1")):
        bench.reports(traffic.row(half, 12, seed), pod)
    assert await bench.verdict() == "Stable"
    bench.api.slices = [stand_ins.endpoint_slice({"router-0": "10.0.0.1"})]
    bench.now += 300
    assert await bench.verdict() == "Unknown"
    bench.now += 600
    bench.reports(traffic.row(half, 12) + traffic.row(STATIONARY, 2, first=13))
    assert await bench.verdict() == "Stable"


async def test_switched_off_the_entry_is_taken_away_once(bench: Bench) -> None:
    await bench.watch.round()
    bench.api.cascades[0]["spec"]["drift"] = {"mode": "Off"}
    await bench.watch.round()
    assert bench.api.applied[-1][1]["status"] == {}
    await bench.watch.round()
    assert len(bench.api.applied) == 2


@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(lambda api: api.cascades[0].pop("spec"), id="unreadable"),
        pytest.param(
            lambda api: api.failing.update({"/configmaps/bad-plan": KubeError("no", 500)}), id="500"
        ),
        pytest.param(
            lambda api: api.failing.update({"/cascadeservices/bad/": KubeError("no", 422)}),
            id="refused",
        ),
        pytest.param(
            lambda api: api.failing.update({"/configmaps/bad-plan": RuntimeError("odd")}),
            id="unexpected",
        ),
    ],
)
async def test_a_bad_cascade_costs_no_other_one(bench: Bench, break_it: Any) -> None:
    bench.api.cascades.insert(0, stand_ins.cascade("bad"))
    break_it(bench.api)
    await bench.watch.round()
    assert [body["metadata"]["name"] for _, body in bench.api.applied] == ["chat"]
    failures = sum(
        sample.value
        for family in bench.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "cascade_driftwatch_look_failures_total"
    )
    assert failures == 1


async def test_a_cascade_that_is_gone_leaves_no_series(bench: Bench) -> None:
    await bench.watch.round()
    bench.api.cascades = []
    await bench.watch.round()
    assert b'cascade="chat"' not in bench.metrics.exposition()


async def test_only_the_named_namespaces_are_listed() -> None:
    bench = Bench(Settings(namespaces=("team-a", "team-b")))
    bench.api.cascades = []
    await bench.watch.round()
    listed = [path for path, _ in bench.api.listed]
    assert "/apis/cascade-operator.io/v1alpha1/namespaces/team-b/cascadeservices" in listed
    assert "/apis/discovery.k8s.io/v1/namespaces/team-a/endpointslices" in listed
    assert not [path for path in listed if "/namespaces/" not in path]


@pytest.mark.parametrize(
    ("window_seconds", "time_scale", "pause"),
    [
        pytest.param(300, 1.0, 30.0, id="period"),
        pytest.param(20, 1.0, 10.0, id="half-a-short-window"),
        pytest.param(300, 60.0, 2.5, id="time-scaled"),
        pytest.param(300, 10_000.0, 0.25, id="never-a-hot-loop"),
    ],
)
async def test_looks_come_twice_per_window_at_least(
    window_seconds: int, time_scale: float, pause: float
) -> None:
    bench = Bench(Settings(time_scale=time_scale))
    bench.api.cascades = [stand_ins.cascade(windowSeconds=window_seconds)]
    bench.reports([])
    assert await bench.watch.round() == pytest.approx(pause)


async def test_a_faster_clock_scales_rates_before_they_are_compared() -> None:
    bench = Bench(Settings(time_scale=20.0))
    fast = [
        w.model_copy(update={"start": 3000 + w.start / 20, "seconds": 15.0})
        for w in traffic.row(STATIONARY, 12)
    ]
    bench.reports(fast)
    assert await bench.verdict() == "Stable"
    rate = float(bench.api.entries[-1]["window"]["ratePerMinute"])
    assert rate == pytest.approx(60, rel=0.1)


async def test_failures_of_the_api_lengthen_the_pause_and_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(Settings(period_seconds=10.0))
    bench.reports(traffic.row(STATIONARY, 12))
    bench.api.failing = {"/cascadeservices": KubeError("down")}
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            bench.api.failing = {}
        if len(pauses) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr("cascade_driftwatch.watch.asyncio.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        await bench.watch.run()
    assert pauses == [20.0, 40.0, 60.0, 60.0, 60.0, 10.0]
    assert bench.api.entries[-1]["verdict"] == "Stable"
    assert bench.count("api_failures_total") == 5
