"""Arrivals and lengths of a public trace, and prompts made up to fit them."""

import csv
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACE = Path(__file__).resolve().parent.parent / "data" / "azure_llm_2023_conv_head.csv"

MAX_INPUT_TOKENS = 6000
"""Longer prompts of the trace are cut here: the example's models take 8,192 tokens."""


@dataclass(frozen=True)
class TraceRow:
    """One request of the trace: seconds from its start, prompt and output tokens."""

    arrival_seconds: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Request:
    """One request to send: when (seconds from the start, model time), its body, its phase."""

    at: float
    body: dict[str, Any]
    phase: int = 0


def read(path: Path = TRACE) -> list[TraceRow]:
    """All rows of the shipped trace, in order of arrival."""
    with path.open(newline="") as file:
        return [
            TraceRow(
                float(row["arrival_seconds"]),
                max(1, min(MAX_INPUT_TOKENS, int(row["input_tokens"]))),
                max(1, int(row["output_tokens"])),
            )
            for row in csv.DictReader(file)
        ]


def at_rate(rows: Sequence[TraceRow], per_second: float, parts: int = 4) -> list[TraceRow]:
    """The trace at another mean rate: ``parts`` of it laid over each other, then stretched.

    Laying parts over each other keeps neighbouring requests independent; stretching alone would
    make quiet minutes of the trace last longer.
    """
    size = len(rows) // parts
    laid = sorted(
        (row.arrival_seconds - rows[i * size].arrival_seconds, row.input_tokens, row.output_tokens)
        for i in range(parts)
        for row in rows[i * size : (i + 1) * size]
    )
    # The parts are not equally long: only the time that all of them cover has an even rate.
    covered = min(
        rows[(i + 1) * size - 1].arrival_seconds - rows[i * size].arrival_seconds
        for i in range(parts)
    )
    kept = [row for row in laid if row[0] <= covered]
    stretch = len(kept) / per_second / covered
    return [TraceRow(at * stretch, inputs, outputs) for at, inputs, outputs in kept]


def longer(rows: Sequence[TraceRow], share: float = 0.5) -> list[TraceRow]:
    """The ``share`` of rows with the longest answers, at the arrival times of all rows in turn."""
    kept = sorted(rows, key=lambda r: r.output_tokens, reverse=True)[: int(len(rows) * share)]
    chosen = {id(r) for r in kept}
    lengths = [r for r in rows if id(r) in chosen]
    return [
        TraceRow(row.arrival_seconds, lengths[i % len(lengths)].input_tokens,
                 lengths[i % len(lengths)].output_tokens)
        for i, row in enumerate(rows)
    ]  # fmt: skip


def message(index: int, row: TraceRow, difficulty: float) -> str:
    """A short prompt that tells the simulated engine how long and how hard it stands for."""
    return (
        f"Question {index}: how would you plan this? "
        f"[difficulty={difficulty:.3f}] [input={row.input_tokens}] [tokens={row.output_tokens}]"
    )


def body(model: str, index: int, row: TraceRow, difficulty: float) -> dict[str, Any]:
    """An OpenAI chat request of the row's lengths."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": message(index, row, difficulty)}],
        "max_tokens": row.output_tokens,
    }


@dataclass
class Phase:
    """What kind of requests is sent now; whoever runs the traffic may change it meanwhile."""

    rows: Sequence[TraceRow]
    hardest: float = 0.0
    """Difficulties are uniform between this and 1."""
    number: int = 0


def requests(phase: Phase, model: str, generator: random.Random) -> Iterator[Request]:
    """The trace as requests, over and over, with lengths and difficulties of the current phase."""
    base, index = 0.0, 0
    times = [row.arrival_seconds for row in phase.rows]
    while True:
        for place, at in enumerate(times):
            row = phase.rows[place % len(phase.rows)]
            difficulty = phase.hardest + (1 - phase.hardest) * generator.random()
            yield Request(base + at, body(model, index, row, difficulty), phase.number)
            index += 1
        base += times[-1]


def calibration_prompts(rows: Sequence[TraceRow], count: int, generator: random.Random) -> str:
    """JSON lines for ``cascade-router calibrate``: lengths of the trace, uniform difficulties."""
    lines = []
    for index, row in enumerate(generator.sample(list(rows), count)):
        chat = body("", 1_000_000 + index, row, generator.random())
        line = {
            "id": f"c{index:04d}",
            "messages": chat["messages"],
            "max_tokens": row.output_tokens,
        }
        lines.append(json.dumps(line))
    return "\n".join(lines) + "\n"
