"""Calibration: every model answers every prompt, the table can be resumed and is what it says."""

import asyncio
import base64
import csv
import gzip
import io
import json
import math
import os
import random
import sys
import time

import pytest

from cascade_router import calibrate, calibration_configmap, calibration_table, prompts, rubric
from cascade_router.config import JudgeConfig
from tests.router import backend
from tests.router.conftest import config_for

PAIRS = [[-0.1, -3.0], [-0.2, -2.0]]
SURE, UNSURE = (math.exp(first) - math.exp(second) for first, second in PAIRS)
SIGNAL = f"{UNSURE + 0.2 * (SURE - UNSURE):.6f}"
"""The 0.2 quantile of the two margins."""


def prompt_lines(count: int) -> str:
    return "\n".join(
        json.dumps({"id": f"p{i}", "messages": [{"role": "user", "content": f"q{i}"}],
                    "max_tokens": 9}) for i in range(count)
    )  # fmt: skip


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@pytest.fixture
async def plan(engine):
    answer = {"logprobs": backend.logprobs(PAIRS)}
    small = await engine(chat=backend.answers("small", **answer))
    large = await engine(
        chat=backend.answers("large", **answer), decisions=backend.decisions(80, 20)
    )
    made = config_for(
        {"small": [small], "large": [large]},
        models={"small": {"revision": "r1"}, "large": {"revision": "r2"}},
    )
    return made, small, large


async def fill(plan, text, store, **more):
    return await calibrate.run(
        plan,
        prompts.read_prompts(text.splitlines()),
        store,
        **{"concurrency": 4, "date": "2026-01-02T03:04:05+00:00", "rng": random.Random(0),
           "clock": time.monotonic, "say": lambda text: None, **more},
    )  # fmt: skip


async def test_table_has_header_columns_and_a_row_per_prompt(plan, tmp_path):
    config, small, large = plan
    path = tmp_path / "table.csv"
    assert await fill(config, prompt_lines(5), calibrate.FileStore(path)) == []
    lines = path.read_text().splitlines()
    assert lines[:5] == [
        "# judge: LLM by the next model",
        f"# template: {rubric.template_id(config.judge)}",
        "# models: small=r1,large=r2",
        "# date: 2026-01-02T03:04:05+00:00",
        "request_id,small.score,small.signal,small.input_tokens,small.output_tokens,small.audit,"
        "large.score,large.signal,large.input_tokens,large.output_tokens,large.audit",
    ]
    rows = rows_of(path.read_text())
    assert sorted(row["request_id"] for row in rows) == [f"p{i}" for i in range(5)]
    for row in rows:
        assert {row["small.score"], row["large.score"]} <= {"80", "20"}
        assert row["small.signal"] == SIGNAL
        assert (row["small.input_tokens"], row["small.output_tokens"]) == ("11", "5")
        assert row["small.audit"] == ""
    assert len(small.bodies("/v1/chat/completions")) == 5
    assert len(large.bodies("/v1/chat/completions")) == 5
    assert len(large.bodies("/v1/decisions")) == 10


async def test_resumed_run_asks_only_what_is_missing_and_drops_a_cut_line(plan, tmp_path):
    config, small, _ = plan
    path = tmp_path / "table.csv"
    await fill(config, prompt_lines(3), calibrate.FileStore(path))
    whole = path.read_text()
    path.write_text(whole + "p3,8")
    assert await fill(config, prompt_lines(6), calibrate.FileStore(path)) == []
    text = path.read_text()
    assert text.startswith(whole)
    assert sorted(r["request_id"] for r in rows_of(text)) == [f"p{i}" for i in range(6)]
    assert len(small.bodies("/v1/chat/completions")) == 6


@pytest.mark.parametrize(
    "change",
    [{"judge": JudgeConfig(rubric="another")}, {"models": {"small": {"revision": "r9"}}}],
    ids=["rubric", "revision"],
)
async def test_table_of_another_judge_or_model_is_not_continued(plan, tmp_path, change):
    config, small, large = plan
    path = tmp_path / "table.csv"
    await fill(config, prompt_lines(1), calibrate.FileStore(path))
    models = {"small": {"revision": "r1"}, "large": {"revision": "r2"}} | change.pop("models", {})
    other = config_for({"small": [small], "large": [large]}, models=models, **change)
    with pytest.raises(calibration_table.TableError, match="made differently"):
        await fill(other, prompt_lines(2), calibrate.FileStore(path))


async def test_table_is_scored_by_a_model_even_where_self_routes(plan, tmp_path):
    config, _, large = plan
    config = config.model_copy(update={"judge": JudgeConfig(type="Self", template_id="old")})
    path = tmp_path / "table.csv"
    await fill(config, prompt_lines(1), calibrate.FileStore(path))
    assert len(large.bodies("/v1/decisions")) == 2
    assert f"# template: {rubric.template_id(JudgeConfig())}" in path.read_text()


@pytest.mark.parametrize("policy, score", [("Escalate", "0"), ("Accept", "100")])
async def test_answer_without_a_verdict_gets_the_score_that_routes_alike(
    plan, tmp_path, policy, score
):
    config, _, large = plan
    large.scripts["/v1/decisions"] = backend.decisions(70, mass=0.1)
    config = config.model_copy(update={"judge": JudgeConfig(on_no_verdict=policy)})
    path = tmp_path / "table.csv"
    await fill(config, prompt_lines(1), calibrate.FileStore(path))
    [row] = rows_of(path.read_text())
    assert (row["small.score"], row["large.score"]) == (score, score)


async def test_passing_fault_is_tried_again_and_a_lasting_one_leaves_no_row(
    plan, tmp_path, monkeypatch
):
    monkeypatch.setattr(calibrate, "FIRST_PAUSE_SECONDS", 0.01)
    config, small, _ = plan
    good, calls = small.scripts["/v1/chat/completions"], 0

    async def flaky(exchange: backend.Exchange) -> None:
        nonlocal calls
        calls += 1
        text = exchange.request.json["messages"][0]["content"]
        if text == "q1" or calls == 1:
            await exchange.reply(500, b"{}")
        elif text == "q2":
            await exchange.reply(400, b'{"message":"too long"}')
        else:
            await good(exchange)

    small.scripts["/v1/chat/completions"] = flaky
    said: list[str] = []
    path = tmp_path / "table.csv"
    failures = await fill(
        config, prompt_lines(4), calibrate.FileStore(path), concurrency=1, say=said.append
    )
    assert [f.split(":")[0] for f in failures] == ["p1 at small"]
    assert sorted(r["request_id"] for r in rows_of(path.read_text())) == ["p0", "p3"]
    assert any("left out: p2 at small" in text and "too long" in text for text in said)


@pytest.mark.parametrize(
    "lines, told",
    [
        (["{"], "line 1: not JSON"),
        (['{"id": "", "messages": [1]}'], "line 1: id"),
        (['{"id": "a", "messages": []}'], "line 1: messages"),
        (['{"id": "a", "messages": [1], "max_tokens": 0}'], "line 1: max_tokens: 0"),
        (['{"id": "a", "messages": [1]}', "", '{"id": "a", "messages": [1]}'], "line 3: id 'a'"),
        ([""], "no prompt"),
    ],
)
def test_wrong_prompts_are_refused_with_line_and_field(lines, told):
    with pytest.raises(prompts.PromptError, match=told):
        prompts.read_prompts(lines)


def test_engines_are_reached_through_the_service_url_where_no_endpoint_is_given():
    config = config_for({"a": []}, models={"a": {"service": "s", "service_url": "http://a:30000"}})
    assert calibrate.calibrated(config).models[0].endpoints[0].url == "http://a:30000"
    with pytest.raises(calibrate.CalibrationError, match="a has neither serviceUrl nor endpoints"):
        calibrate.calibrated(config_for({"a": []}))


async def command(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cascade_router", *arguments, stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": "router"},
    )  # fmt: skip
    _, told = await process.communicate()
    return process.returncode or 0, told.decode()


async def test_command_makes_the_table_and_tells_its_outcome(plan, tmp_path):
    config, _, _ = plan
    (tmp_path / "router.json").write_text(config.model_dump_json(by_alias=True))
    (tmp_path / "prompts.jsonl").write_text(prompt_lines(8))
    arguments = ["calibrate", "--config", str(tmp_path / "router.json"), "--prompts",
                 str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "t.csv"),
                 "--limit", "3"]  # fmt: skip
    status, told = await command(*arguments)
    assert (status, "3 rows added" in told) == (0, True), told
    assert len(rows_of((tmp_path / "t.csv").read_text())) == 3
    (tmp_path / "prompts.jsonl").write_text("{")
    status, told = await command(*arguments)
    assert (status, "line 1: not JSON" in told) == (2, True), told


class FakeKube:
    """Keeps applied ConfigMaps: a fake for the API server's behaviour on one field manager."""

    def __init__(self) -> None:
        self.object: dict[str, object] = {}
        self.writes = 0

    async def get(self, path: str) -> dict[str, object]:
        if not self.object:
            raise calibration_configmap.KubeError("not found", 404)
        return self.object

    async def apply(self, path: str, body: dict[str, object], field_manager: str) -> None:
        self.object = dict(body)
        self.writes += 1

    async def close(self) -> None:
        pass


async def test_configmap_shows_the_table_only_when_it_is_complete(plan):
    config, _, _ = plan
    kube, clock = FakeKube(), iter(range(0, 1000, 3))

    def store() -> calibration_configmap.ConfigMapStore:
        return calibration_configmap.ConfigMapStore(kube, "ns", "t", "chat", lambda: next(clock))

    unfinished = store()
    text, _ = calibration_table.resume(await unfinished.load(), header := calibration_table.Header
                                       .of(config, "LLM by the next model", "d"))  # fmt: skip
    text += calibration_table.row("p0", [calibration_table.Cell(1, None, 2, 3)] * 2)
    await unfinished.save(text, text)
    await unfinished.close()
    assert list(kube.object["data"]) == ["table.csv.unfinished"]

    again = store()
    assert await fill(config, prompt_lines(3), again) == []
    await again.close()
    assert list(kube.object["data"]) == ["table.csv"]
    assert sorted(r["request_id"] for r in rows_of(kube.object["data"]["table.csv"])) == [
        "p0", "p1", "p2"]  # fmt: skip
    labels = kube.object["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "calibration"
    assert labels["cascade-operator.io/cascade"] == "chat"
    assert header.models == {"small": "r1", "large": "r2"}


def test_large_table_is_packed_and_read_back():
    rng = random.Random(3)
    text = "".join(f"{rng.random()}\n" for _ in range(50_000))
    body = calibration_configmap.configmap(
        {"name": "t", "namespace": "n"}, "chat", {"table.csv": text}
    )
    packed = body["binaryData"]["table.csv"]
    assert "data" not in body and len(packed) < 1_000_000
    assert gzip.decompress(base64.b64decode(packed)).decode() == text
    assert calibration_configmap.content(body, "table.csv") == text


def test_row_is_one_csv_line_whatever_the_id():
    row = calibration_table.row('a,"b"', [calibration_table.Cell(5, 0.25, 1, 2, 7)])
    assert next(csv.reader(io.StringIO(row))) == ['a,"b"', "5", "0.250000", "1", "2", "7"]
