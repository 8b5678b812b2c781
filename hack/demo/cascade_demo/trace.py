"""Arrivals and lengths of a public trace, and prompts made up to fit them."""

import csv
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
    """One request to send: when (seconds from the start, model time), its body, its difficulty."""

    at: float
    body: dict[str, Any]
    difficulty: float


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


def denser(rows: Sequence[TraceRow], factor: int) -> list[TraceRow]:
    """``factor`` consecutive parts of the trace laid over each other: that many times the rate."""
    size = len(rows) // factor
    parts = [rows[i * size : (i + 1) * size] for i in range(factor)]
    moved = [
        TraceRow(row.arrival_seconds - part[0].arrival_seconds, row.input_tokens, row.output_tokens)
        for part in parts
        for row in part
    ]
    return sorted(moved, key=lambda row: row.arrival_seconds)


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


def requests(
    rows: Sequence[TraceRow],
    model: str,
    generator: random.Random,
    hardest: float = 0.0,
    first_index: int = 0,
) -> Iterator[Request]:
    """The trace as requests; difficulties are uniform between ``hardest`` and 1."""
    for offset, row in enumerate(rows):
        difficulty = hardest + (1 - hardest) * generator.random()
        index = first_index + offset
        yield Request(row.arrival_seconds, body(model, index, row, difficulty), difficulty)


def calibration_prompts(rows: Sequence[TraceRow], count: int, generator: random.Random) -> str:
    """JSON lines for ``cascade-router calibrate``: lengths of the trace, uniform difficulties."""
    import json

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
