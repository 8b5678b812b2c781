"""Calibration table: what is read, what is refused with row and column, what makes it stale."""

import pytest

from cascade_operator import calibration
from cascade_solver.problem import MAX_CALIBRATION_ROWS as MAX_ROWS
from tests.operator import samples

HEADING = "request_id,small.score,small.input_tokens,small.output_tokens"
WHERE = "chat-calibration/table.csv"


def read(text: str) -> calibration.Table:
    return calibration.parse(text, ("small",), WHERE)


def test_cells_of_the_asked_models_become_columns() -> None:
    text = (
        "request_id,small.score,small.signal,small.input_tokens,small.output_tokens,small.audit,"
        "old.score,old.input_tokens,old.output_tokens\n"
        "a,70,0.25,100,20,,x,x,x\nb,0,,1,1,55,x,x,x\n"
    )
    assert read(text).columns == {
        "small": calibration.Columns(
            score=(70, 0),
            signal=(0.25, None),
            input_tokens=(100, 1),
            output_tokens=(20, 1),
            audit=(None, 55),
        )
    }


def test_comment_block_is_the_header() -> None:
    text = (
        "# judge: LLM large\n# template: abc\n# models: small=r1,large=r2\n# date: 2026-11-30\n"
        f"{HEADING}\na,1,1,1\n"
    )
    assert read(text).header == calibration.Header(
        judge="LLM large", template="abc", date="2026-11-30", models={"small": "r1", "large": "r2"}
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", ["empty", "request_id"], id="empty file"),
        pytest.param(f"{HEADING}\n", ["no row"], id="heading only"),
        pytest.param("id;small.score\n", ["column 1", "'id;small.score'"], id="wrong separator"),
        pytest.param(
            "request_id,small.score,small.input_tokens\na,1,1\n",
            ["model small", "small.output_tokens"],
            id="missing column",
        ),
        pytest.param(f"{HEADING},small.points\n", ["'small.points'"], id="unknown column"),
        pytest.param(f"{HEADING},small.score\n", ["small.score", "twice"], id="double column"),
        pytest.param(
            f"{HEADING}\na,1,1,1\nb,101,1,1\n",
            ["row 2", "line 3", "request_id b", "column small.score", "'101'", "0 to 100"],
            id="score too high",
        ),
        pytest.param(f"{HEADING}\na,7.5,1,1\n", ["small.score", "'7.5'"], id="score no integer"),
        pytest.param(f"{HEADING}\na,,1,1\n", ["row 1", "small.score", "''"], id="score missing"),
        pytest.param(
            f"{HEADING}\na,1,0,1\n", ["small.input_tokens", "'0'", "from 1"], id="no token"
        ),
        pytest.param(f"{HEADING}\na,1,1,{'9' * 5000}\n", ["small.output_tokens"], id="huge number"),
        pytest.param(
            f"{HEADING},small.signal\na,1,1,1,inf\n", ["small.signal", "'inf'"], id="infinite"
        ),
        pytest.param(f"{HEADING}\na,1,1\n", ["row 1", "3 cells", "4"], id="short row"),
        pytest.param(
            f"{HEADING}\na,1,1,1\na,1,1,1\n", ["row 2", "request_id", "repeats row 1"], id="repeat"
        ),
        pytest.param(f'{HEADING}\n"{"x" * 200_000}",1,1,1\n', ["line 2"], id="cell too long"),
        pytest.param(
            "\n".join([HEADING, *(f"r{i},1,1,1" for i in range(MAX_ROWS + 1))]),
            [str(MAX_ROWS)],
            id="too many rows",
        ),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_table_row_column_and_value(text: str, words: list[str]) -> None:
    with pytest.raises(calibration.CalibrationError) as caught:
        read(text)
    message = str(caught.value)
    assert WHERE in message
    assert [word for word in words if word not in message] == []


def test_line_numbers_count_the_comment_block() -> None:
    with pytest.raises(calibration.CalibrationError, match=r"row 1 \(line 4"):
        read(f"# judge: x\n# date: y\n{HEADING}\na,1,1,bad\n")


def test_a_broken_file_does_not_fill_the_status_with_faults() -> None:
    rows = "".join(f"r{i},bad,bad,bad\n" for i in range(1000))
    with pytest.raises(calibration.CalibrationError) as caught:
        read(f"{HEADING}\n{rows}")
    assert len(caught.value.faults) < calibration.MAX_FAULTS + len(HEADING.split(","))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("", [], id="made by hand: nothing to compare"),
        pytest.param("# template: t1\n# models: small=r1\n", [], id="same"),
        pytest.param("# template: t9\n", ["template t9"], id="other template"),
        pytest.param("# models: small=r0\n", ["model small", "r0 -> r1"], id="other weights"),
        pytest.param("# models: gone=r0\n", [], id="other model only"),
    ],
)
def test_table_is_stale_when_judge_or_model_changed(header: str, expected: list[str]) -> None:
    table = read(f"{header}{HEADING}\na,1,1,1\n")
    reason = table.stale_reason({"t1", "t2"}, {"small": "r1"})
    assert bool(reason) == bool(expected)
    assert [word for word in expected if word not in reason] == []


def test_the_sample_table_is_read_whole() -> None:
    table = calibration.parse(samples.table(rows=30), ("small", "large"), WHERE)
    assert {len(columns.score) for columns in table.columns.values()} == {30}
