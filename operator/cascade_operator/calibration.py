"""Calibration table: a CSV, checked and turned into columns."""

import csv
import dataclasses
import io
import math
from collections.abc import Collection, Mapping, Sequence

from cascade_solver import problem as problems

FIELDS = ("score", "signal", "input_tokens", "output_tokens", "audit")
REQUIRED = ("score", "input_tokens", "output_tokens")
ID_COLUMN = "request_id"
MAX_FAULTS = 5
"""Faults named in one error; a file with a wrong separator would name every cell otherwise."""
MAX_TOKENS = 10_000_000


class CalibrationError(ValueError):
    """The table cannot be used; ``faults`` name row, column, value and what is allowed."""

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


@dataclasses.dataclass(frozen=True)
class Header:
    """The comment block in front of the table (``# key: value``); absent keys are empty.

    ``models``: model name -> revision of its weights and engine at the time of calibration.
    """

    judge: str = ""
    template: str = ""
    date: str = ""
    models: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Columns:
    """One model's columns, all of one length. Scores and audits in points (0 to 100), signals in
    the raw unit of the self judge, lengths in tokens; ``None`` where a cell is empty."""

    score: tuple[int, ...]
    signal: tuple[float | None, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    audit: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """A checked table: ``columns`` holds exactly the models that were asked for."""

    header: Header
    columns: Mapping[str, Columns]

    def stale_reason(self, templates: Collection[str], revisions: Mapping[str, str]) -> str:
        """Why this table no longer describes the cascade, in words; empty when it does.

        ``templates``: identities of the judges that may have scored it; ``revisions``: those of
        the models now. What the header leaves out (a table made by hand) cannot be compared and
        counts as equal.
        """
        changes = []
        if self.header.template and self.header.template not in templates:
            changes.append(f"the judge's template {self.header.template} is no longer in use")
        for name, now in revisions.items():
            then = self.header.models.get(name, "")
            if then and then != now:
                changes.append(f"weights or engine of model {name} changed ({then} -> {now})")
        return "; ".join(changes)


def parse(text: str, models: Sequence[str], reference: str) -> Table:
    """Reads the table for ``models``; columns of other models are skipped.

    ``reference`` ("name/key") opens every error, so that the reader knows which ConfigMap to fix.
    """
    comments, body, first_line = _split(text)
    rows = csv.reader(io.StringIO(body))
    try:
        heading = [cell.strip() for cell in next(rows, [])]
        faults = _heading_faults(heading, models)
        reader = _Reader(heading, models)
        for row in rows if not faults else ():
            if row:
                reader.add(row, first_line + rows.line_num - 1)
    except csv.Error as error:
        line = first_line + rows.line_num - 1
        raise CalibrationError([f"{reference}: line {line} is no CSV: {error}"]) from error
    faults = faults or reader.finish()
    if faults:
        raise CalibrationError([f"{reference}: {fault}" for fault in faults])
    return Table(header=_header(comments), columns=reader.columns())


def _split(text: str) -> tuple[list[str], str, int]:
    """Comment lines, the CSV below them, and the number of its first line in the file."""
    lines = text.lstrip("\ufeff").splitlines(keepends=True)
    count = 0
    while count < len(lines) and (lines[count].startswith("#") or not lines[count].strip()):
        count += 1
    return lines[:count], "".join(lines[count:]), count + 1


def _header(comments: Sequence[str]) -> Header:
    pairs = {}
    for line in comments:
        key, separator, value = line.lstrip("# ").partition(":")
        if separator:
            pairs[key.strip().lower()] = value.strip()
    revisions = {}
    for item in pairs.get("models", "").split(","):
        name, separator, revision = item.strip().partition("=")
        if separator:
            revisions[name] = revision
    return Header(
        judge=pairs.get("judge", ""),
        template=pairs.get("template", ""),
        date=pairs.get("date", ""),
        models=revisions,
    )


def _heading_faults(heading: Sequence[str], models: Sequence[str]) -> list[str]:
    if not heading:
        return [f"the table is empty; its first row must name {ID_COLUMN} and the columns"]
    faults = []
    if heading[0] != ID_COLUMN:
        faults.append(f"column 1 is {heading[0]!r}; it must be {ID_COLUMN}")
    double = sorted({name for name in heading if heading.count(name) > 1})
    if double:
        faults.append(f"column {double[0]} stands twice in the heading")
    for name in heading[1:]:
        if name.rpartition(".")[2] not in FIELDS:
            faults.append(f"column {name!r}: allowed are <model>.{{{','.join(FIELDS)}}}")
    for model in models:
        missing = [f"{model}.{field}" for field in REQUIRED if f"{model}.{field}" not in heading]
        if missing:
            faults.append(f"model {model} has no column {' or '.join(missing)}")
    return faults[:MAX_FAULTS]


class _Reader:
    """Collects cells and faults row by row."""

    def __init__(self, heading: Sequence[str], models: Sequence[str]) -> None:
        self._width = len(heading)
        self._wanted = [
            (index, name.rpartition(".")[0], name.rpartition(".")[2])
            for index, name in enumerate(heading)
            if name.rpartition(".")[0] in models
        ]
        self._models = models
        self._cells: dict[tuple[str, str], list[float | None]] = {
            (model, field): [] for _, model, field in self._wanted
        }
        self._seen: dict[str, int] = {}
        self._row = 0
        self._faults: list[str] = []

    def add(self, row: Sequence[str], line: int) -> None:
        self._row += 1
        if len(self._faults) >= MAX_FAULTS:
            return
        identity = row[0].strip()
        where = f"row {self._row} (line {line}, {ID_COLUMN} {identity or 'empty'})"
        if len(row) != self._width:
            self._faults.append(f"{where} has {len(row)} cells, the heading has {self._width}")
            return
        if not identity or identity in self._seen:
            told = f"repeats row {self._seen[identity]}" if identity else "is empty"
            self._faults.append(f"{where}, column {ID_COLUMN} {told}; every row needs its own")
        self._seen[identity] = self._row
        for index, model, field in self._wanted:
            try:
                self._cells[model, field].append(_cell(row[index].strip(), field))
            except ValueError as error:
                self._faults.append(f"{where}, column {model}.{field}: {error}")

    def finish(self) -> list[str]:
        """All faults found, in the order of the file."""
        if not self._row:
            self._faults.append("the table has a heading but no row")
        elif self._row > problems.MAX_CALIBRATION_ROWS:
            limit = problems.MAX_CALIBRATION_ROWS
            self._faults.append(f"{self._row} rows; at most {limit} are read: sample them")
        return self._faults

    def columns(self) -> dict[str, Columns]:
        return {model: self._columns(model) for model in self._models}

    def _columns(self, model: str) -> Columns:
        empty: list[float | None] = [None] * self._row
        signal = self._cells.get((model, "signal"), empty)
        return Columns(
            score=self._integers(model, "score"),
            signal=tuple(signal),
            input_tokens=self._integers(model, "input_tokens"),
            output_tokens=self._integers(model, "output_tokens"),
            audit=tuple(
                None if v is None else int(v) for v in self._cells.get((model, "audit"), empty)
            ),
        )

    def _integers(self, model: str, field: str) -> tuple[int, ...]:
        return tuple(int(v) for v in self._cells[model, field] if v is not None)


def _cell(text: str, field: str) -> float | None:
    """One cell as a number; raises ``ValueError`` that says what it was and what is allowed."""
    if not text and field not in REQUIRED:
        return None
    if field == "signal":
        return _decimal(text)
    low, high = (1, MAX_TOKENS) if field.endswith("tokens") else (0, 100)
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TOKENS))
    if not digits or not low <= int(text) <= high:
        raise ValueError(f"{text[:40]!r} is not an integer from {low} to {high}")
    return int(text)


def _decimal(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is not a decimal number")
    return value
