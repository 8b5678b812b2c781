"""The calibration table as text: CSV with a comment header, one row per prompt, resumable."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from . import rubric
from .config import RouterConfig

ID_COLUMN = "request_id"
FIELDS = ("score", "signal", "input_tokens", "output_tokens", "audit")
MAX_ROWS = 20_000


class TableError(ValueError):
    """A table cannot be continued; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one model did with one prompt. Scores in points; ``None`` stays empty."""

    score: int
    signal: float | None
    input_tokens: int
    output_tokens: int
    audit: int | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """Who made the table: judge, template, models with revisions, date (ISO 8601)."""

    judge: str
    template: str
    models: Mapping[str, str]
    date: str

    @classmethod
    def of(cls, config: RouterConfig, judge_name: str, date: str) -> "Header":
        """The header of tables made with this plan's judge."""
        revisions = {m.name: m.revision for m in config.models}
        return cls(judge_name, rubric.template_id(config.judge), revisions, date)

    def lines(self) -> list[str]:
        """The comment block."""
        models = ",".join(f"{name}={revision}" for name, revision in self.models.items())
        return [
            f"# judge: {self.judge}",
            f"# template: {self.template}",
            f"# models: {models}",
            f"# date: {self.date}",
        ]


def heading(header: Header) -> list[str]:
    """Column names in the order of the cascade."""
    return [ID_COLUMN, *(f"{model}.{field}" for model in header.models for field in FIELDS)]


def start(header: Header) -> str:
    """Comment block and heading of a new table."""
    return "\n".join([*header.lines(), _line(heading(header))]) + "\n"


def row(request_id: str, cells: Sequence[Cell]) -> str:
    """One row, line end included; ``cells`` in the order of the cascade."""
    values = [request_id]
    for cell in cells:
        values += [
            str(cell.score),
            "" if cell.signal is None else f"{cell.signal:.6f}",
            str(cell.input_tokens),
            str(cell.output_tokens),
            "" if cell.audit is None else str(cell.audit),
        ]
    return _line(values) + "\n"


def resume(text: str, header: Header) -> tuple[str, set[str]]:
    """What is whole of an unfinished table, and the ids it has; raises ``TableError``.

    A last line without its end was cut by a crash and is dropped. A table made by another judge,
    template or model is refused: its rows cannot stand beside new ones.
    """
    whole = text[: text.rfind("\n") + 1]
    if not whole.strip():
        return start(header), set()
    comments, rows = _split(whole)
    wanted = [line for line in header.lines() if not line.startswith("# date:")]
    for line in wanted:
        key = line.partition(":")[0]
        found = next((c for c in comments if c.startswith(f"{key}:")), f"{key}: (absent)")
        if found != line:
            raise TableError(
                f"the table was made differently: it says {found!r}, this run {line!r}; "
                "move it away to begin a new one"
            )
    if not rows or rows[0] != heading(header):
        raise TableError("the table has other columns than this plan; move it away")
    return whole, {r[0] for r in rows[1:] if r}


def _split(text: str) -> tuple[list[str], list[list[str]]]:
    lines = text.splitlines()
    comments = [line for line in lines if line.startswith("#")]
    body: Iterable[str] = (line for line in lines if not line.startswith("#"))
    return comments, list(csv.reader(body))


def _line(values: Sequence[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(values)
    return out.getvalue()
