"""Judge: who scores by default, what the planner reads from the table, what makes it stale."""

import pytest

from cascade_operator import judge
from cascade_router import isotonic, policy
from tests.operator import samples

NAMES = ("small", "large")


def fitted(text: str) -> judge.Fitted:
    return judge.read(text, NAMES, "table")


@pytest.mark.parametrize(
    ("spec", "table", "expected"),
    [
        pytest.param({}, None, "LLM", id="no table"),
        pytest.param({}, samples.table(), "LLM", id="table without signals"),
        pytest.param({}, samples.table(signals=True), "Self", id="table with signals"),
        pytest.param({"judge": {"type": "LLM"}}, samples.table(signals=True), "LLM", id="stated"),
        pytest.param({"judge": {"type": "Self"}}, None, "Self", id="Self stated without table"),
        pytest.param(
            {}, samples.table(rows=judge.MIN_SIGNALS - 1, signals=True), "LLM", id="few signals"
        ),
    ],
)
def test_judge_is_self_once_the_table_carries_its_signal(
    spec: dict[str, object], table: str | None, expected: str
) -> None:
    chosen = judge.choose(samples.spec(**spec), fitted(table) if table is not None else None)
    assert chosen.type == expected


def test_a_signal_that_says_nothing_of_quality_makes_no_self_table() -> None:
    heading = "request_id," + ",".join(
        f"{n}.{f}" for n in NAMES for f in ("score", "signal", "input_tokens", "output_tokens")
    )
    rows = [f"r{i},{60 + i % 2},0.{i % 7},10,10,80,,10,10" for i in range(200)]
    assert fitted("\n".join([heading, *rows])).self_tables == {}


def test_self_scores_replace_the_tables_and_those_become_the_audit() -> None:
    spec, read = samples.spec(), fitted(samples.table(signals=True))
    columns = judge.columns(spec, read.table, judge.choose(spec, read))
    given = read.table.columns["small"]
    own = [policy.rounded(isotonic.apply(read.self_tables["small"], s or 0)) for s in given.signal]
    assert columns["small"].score == tuple(own)
    assert columns["small"].audit == given.score
    assert columns["large"].score == read.table.columns["large"].score


def test_llm_scores_are_planned_with_as_they_stand() -> None:
    spec, read = samples.spec(), fitted(samples.table())
    columns = judge.columns(spec, read.table, judge.choose(spec, read))
    assert columns["small"].score == read.table.columns["small"].score
    assert columns["small"].audit == ()


@pytest.mark.parametrize(
    ("fields", "model", "changes"),
    [
        pytest.param({}, {"engine": {"args": ["--enable-cache-report"]}}, True, id="engine arg"),
        pytest.param({}, {"engine": {"image": "other:1"}}, True, id="engine image"),
        pytest.param({}, {"precision": "FP8"}, True, id="precision"),
        pytest.param({}, {"maxGpus": 8}, False, id="max GPUs"),
        pytest.param({"qmin": 80}, {}, False, id="qmin"),
        pytest.param({"judge": {"rubric": "Be strict."}}, {}, True, id="rubric"),
        pytest.param({"judge": {"deadlineMilliseconds": 900}}, {}, False, id="judge deadline"),
        pytest.param({"judge": {"modelRef": "large"}}, {}, True, id="judging model"),
    ],
)
def test_table_is_stale_after_changes_that_change_scores_only(
    fields: dict[str, object], model: dict[str, object], changes: bool
) -> None:
    before = samples.spec()
    revisions = ",".join(f"{n}={judge.model_revision(before, n)}" for n in NAMES)
    template = judge.routed(before, "LLM").template_id
    read = fitted(samples.table(header=f"# template: {template}\n# models: {revisions}\n"))
    after = samples.spec([samples.model("small", **model), samples.model("large")], **fields)
    assert judge.stale_reason(before, read.table) == ""
    assert bool(judge.stale_reason(after, read.table)) is changes


def test_planner_is_told_who_pays_for_judging() -> None:
    spec = samples.spec()
    assert judge.planned(spec, "LLM").model == "large"
    assert judge.planned(spec, "Self").model is None
    stated = samples.spec(judge={"type": "LLM", "modelRef": "small"})
    assert judge.planned(stated, "LLM").model == "small"
