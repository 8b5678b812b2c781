"""The entry in status.drift: what it says, in the types that the schema allows."""

import dataclasses
import pathlib
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from cascade_driftwatch import detect, report, verdict
from cascade_router.window import Window
from tests.driftwatch import traffic
from tests.driftwatch.traffic import STATIONARY

CRD = pathlib.Path(__file__).parents[2] / "crds" / "cascadeservices.yaml"
SHIFTED_WINDOWS = 3
JOINT = tuple((3,) * 10 for _ in range(5))


def schema() -> dict[str, Any]:
    crd = yaml.safe_load(CRD.read_text())
    version = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    drift: dict[str, Any] = version["properties"]["status"]["properties"]["drift"]
    return _closed(drift)


def _closed(node: dict[str, Any]) -> dict[str, Any]:
    """The API server prunes unknown fields without a word; here they are faults."""
    closed = {**node}
    if "properties" in node:
        closed["properties"] = {k: _closed(v) for k, v in node["properties"].items()}
        closed["additionalProperties"] = False
    if "items" in node:
        closed["items"] = _closed(node["items"])
    return closed


def floats_in(value: Any, place: str = "drift") -> list[str]:
    if isinstance(value, float):
        return [place]
    if isinstance(value, dict):
        return [f for key, item in value.items() for f in floats_in(item, f"{place}.{key}")]
    if isinstance(value, list):
        return [f for i, item in enumerate(value) for f in floats_in(item, f"{place}[{i}]")]
    return []


def entry(windows: list[Window], previous: dict[str, Any] | None = None) -> dict[str, Any]:
    now = windows[-1].start + windows[-1].seconds
    found = verdict.find(previous or {}, traffic.plan(), windows, detect.Limits(), now)
    return report.entry(found, now, 1.0)


def shifted() -> dict[str, Any]:
    other = dataclasses.replace(
        STATIONARY, requests=600.0, input_median=2000.0, escalation=0.7, score=50.0
    )
    windows = traffic.row(STATIONARY, 4) + traffic.row(other, SHIFTED_WINDOWS, first=4)
    return entry([w.model_copy(update={"input_score_counts": JOINT}) for w in windows])


def stable() -> dict[str, Any]:
    return entry(traffic.row(STATIONARY, 4))


def unknown() -> dict[str, Any]:
    return report.entry(verdict.unknown({}, None, 1000.0, "There is no plan yet."), 1000.0, 1.0)


@pytest.mark.parametrize("made", [shifted, stable, unknown], ids=["drifted", "stable", "unknown"])
def test_an_entry_fits_the_schema_and_holds_no_float(made: Any) -> None:
    body = made()
    jsonschema.Draft7Validator(schema()).validate(body)
    assert floats_in(body) == []


def test_a_drift_says_in_words_what_convinced_it() -> None:
    body = shifted()
    assert body["verdict"] == "Drifted"
    message = body["message"]
    assert "The traffic left plan p1: " in message
    assert "requests/min against 60 planned (cusum-up " in message
    assert "prompts of " in message and "tokens in the middle against" in message
    assert "small passes on " in message and "planned (z " in message
    assert "small scores " in message


def silenced(share: float) -> list[Window]:
    """Planned traffic whose judge left this share of the first model's answers unjudged."""

    def silence(window: Window) -> Window:
        small, large = window.models
        lost = small.model_copy(update={"no_verdict": round(share * small.visits)})
        return window.model_copy(update={"models": (lost, large)})

    return [silence(w) for w in traffic.row(STATIONARY, 4)]


def test_a_judge_that_gives_too_few_verdicts_is_named_with_its_share() -> None:
    body = entry(silenced(0.34))
    assert body["verdict"] == "Stable"
    assert "The judge gave no verdict for 34 % of small's answers" in body["message"]
    assert not [t for t in body["tests"] if t["name"] in ("escalation/small", "score/small")]


@pytest.mark.parametrize("share", [0.0, 0.09], ids=["none", "few"])
def test_a_judge_that_gives_nearly_all_verdicts_is_not_mentioned(share: float) -> None:
    body = entry(silenced(share))
    assert "no verdict" not in body["message"]
    assert [t for t in body["tests"] if t["name"] == "escalation/small"]


def test_the_tests_are_listed_with_their_numbers() -> None:
    tests = {test["name"]: test for test in shifted()["tests"]}
    assert set(tests) == {
        "rate/cusum-up", "rate/cusum-down", "inputTokens/ks", "inputTokens/psi",
        "outputTokens/ks", "outputTokens/psi", "escalation/small", "score/small",
    }  # fmt: skip
    assert tests["rate/cusum-up"]["fired"] and not tests["rate/cusum-down"]["fired"]
    for test in tests.values():
        beyond = abs(float(test["statistic"])) > float(test["threshold"])
        assert beyond == test["fired"]


def test_the_window_carries_what_a_new_plan_needs() -> None:
    window = shifted()["window"]
    assert float(window["ratePerMinute"]) == pytest.approx(120, rel=0.1)
    assert len(window["inputDeciles"]) == len(window["outputDeciles"]) == 9
    assert len(window["inputEdges"]) == 4
    assert (
        window["inputScoreCounts"][0]["counts"] == [9] * 10
        or len(window["inputScoreCounts"][0]["counts"]) == 10
    )
    small, large = window["models"]
    assert float(small["escalationPercent"]) == pytest.approx(70, abs=6)
    assert float(small["meanScore"]) == pytest.approx(50, abs=4)
    assert "escalationPercent" not in large and "meanScore" not in large


def test_a_histogram_in_other_bins_than_the_plans_is_left_out() -> None:
    window = stable()["window"]
    assert "inputScoreCounts" not in window and "inputEdges" not in window


def test_rates_are_in_modelled_time() -> None:
    windows = traffic.row(STATIONARY, 3)
    found = verdict.find({}, traffic.plan(), windows, detect.Limits(), 900.0)
    rates = [
        float(report.entry(found, 900.0, scale)["window"]["ratePerMinute"]) for scale in (1.0, 10.0)
    ]
    assert rates[0] == pytest.approx(10 * rates[1], rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "seconds_later", "due"),
    [
        pytest.param({}, 299, False, id="same-within-a-window"),
        pytest.param({}, 300, True, id="a-window-later"),
        pytest.param({"verdict": "Drifted"}, 1, True, id="verdict"),
        pytest.param({"observedPlan": "p2"}, 1, True, id="plan"),
        pytest.param({"since": "2026-01-01T00:00:00Z"}, 1, True, id="another-drift"),
        pytest.param({"message": "other words"}, 1, False, id="words-only"),
    ],
)
def test_an_entry_is_written_at_a_change_else_once_per_window(
    changes: dict[str, str], seconds_later: float, due: bool
) -> None:
    before = stable()
    now = verdict.parse_time(before["lastUpdate"]) + seconds_later
    assert report.is_due(before, {**before, **changes}, now, 300.0) is due


def test_the_first_entry_is_always_due() -> None:
    assert report.is_due({}, stable(), 0.0, 300.0)


def test_times_come_back_as_they_were_written() -> None:
    assert verdict.parse_time(report.timestamp(1_800_000_000.9)) == 1_800_000_000
    assert verdict.parse_time(None) == verdict.parse_time("yesterday") == 0.0
