"""The judge of a cascade: which one scores, with which tables, and who the table was made by."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from cascade_router import config as router_config
from cascade_router import isotonic, policy, rubric
from cascade_solver import problem as problems

from . import calibration, names
from .spec import CascadeSpec

JudgeType = Literal["Self", "LLM"]

MIN_SIGNALS = 50
"""Rows with a signal that a model needs before its self table is trusted."""
MIN_SPAN = 10.0
"""Points between the lowest and the highest score of a self table: below it the signal says
nothing about quality, and routing by it would be routing at random."""


@dataclasses.dataclass(frozen=True)
class Judge:
    """Who scores answers. ``tables``: model -> map from its raw self signal to points."""

    type: JudgeType
    tables: Mapping[str, router_config.SelfTable]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A calibration table with the self tables that its signals allow."""

    table: calibration.Table
    self_tables: Mapping[str, router_config.SelfTable]


@functools.lru_cache(maxsize=4)
def read(text: str, models: tuple[str, ...], reference: str) -> Fitted:
    """Parses and fits a table; raises ``calibration.CalibrationError``.

    Kept for the last few texts: a pass without changes must not read 20,000 rows again.
    """
    table = calibration.parse(text, models, reference)
    return Fitted(table, self_tables(table, models[:-1]))


def self_tables(
    table: calibration.Table, models: Sequence[str]
) -> dict[str, router_config.SelfTable]:
    """Isotonic tables of the models that are judged, fitted on audited points where there are
    any, else on the table's own scores; a model with too few or useless signals has none."""
    fitted = {}
    for name in models:
        given = table.columns[name]
        targets = given.audit if any(a is not None for a in given.audit) else given.score
        pairs = [
            (signal, float(target))
            for signal, target in zip(given.signal, targets, strict=True)
            if signal is not None and target is not None
        ]
        if len(pairs) < MIN_SIGNALS:
            continue
        found = isotonic.fit([p[0] for p in pairs], [p[1] for p in pairs])
        if found.score[-1] - found.score[0] >= MIN_SPAN:
            fitted[name] = found
    return fitted


def choose(spec: CascadeSpec, fitted: Fitted | None) -> Judge:
    """The judge that the spec names; absent: Self once the table carries its signal, else LLM."""
    tables = fitted.self_tables if fitted is not None else {}
    if spec.judge.type in ("LLM", "Self"):
        return Judge(spec.judge.type, tables)
    judged = spec.model_names[:-1]
    has_signal = bool(judged) and all(name in tables for name in judged)
    return Judge("Self" if has_signal else "LLM", tables)


def columns(
    spec: CascadeSpec, table: calibration.Table, judge: Judge
) -> dict[str, problems.ModelColumns]:
    """The table as the planner reads it: ``score`` is what this judge would give.

    With the self judge, the scores of another judge in the table serve as audit where no audited
    points exist; a row without signal scores 0, because the live judge escalates it.
    """
    return {name: _columns(table.columns[name], name, judge) for name in spec.model_names}


def _columns(given: calibration.Columns, name: str, judge: Judge) -> problems.ModelColumns:
    score: tuple[int, ...] = given.score
    audit: tuple[int | None, ...] = given.audit
    if judge.type == "Self":
        audit = tuple(s if a is None else a for a, s in zip(audit, score, strict=True))
    if judge.type == "Self" and name in judge.tables:
        own = judge.tables[name]
        score = tuple(
            0 if signal is None else policy.rounded(isotonic.apply(own, signal))
            for signal in given.signal
        )
    return problems.ModelColumns(
        score=score,
        input_tokens=given.input_tokens,
        output_tokens=given.output_tokens,
        audit=audit if any(a is not None for a in audit) else (),
    )


def planned(spec: CascadeSpec, judge_type: JudgeType) -> problems.Judge:
    """What judging costs in the plan. The planner knows one judging model: by default the second,
    which judges the answers of the first, most of all."""
    if judge_type == "Self" or len(spec.models) == 1:
        return problems.Judge(type="Self")
    return problems.Judge(type="LLM", model=spec.judge.model_ref or spec.models[1].name)


def routed(spec: CascadeSpec, judge_type: JudgeType) -> router_config.JudgeConfig:
    """The judge as the router runs it."""
    known = spec.judge.model_ref if spec.judge.model_ref in spec.model_names else None
    config = router_config.JudgeConfig(
        type=judge_type,
        model=known,
        rubric=spec.judge.rubric or "",
        label_mass_min_percent=spec.judge.label_mass_min_percent,
        deadline_milliseconds=spec.judge.deadline_milliseconds,
        on_no_verdict=spec.judge.on_no_verdict,
    )
    return config.model_copy(update={"template_id": rubric.template_id(config)})


def model_revision(spec: CascadeSpec, model: str) -> str:
    """Identity of a model's weights and engine: a table made with another one is stale.

    Covers what the user set, not the chart's default image: a new operator voids no table.
    """
    chosen = spec.model(model)
    parts = [
        chosen.source.model_dump(mode="json", exclude_defaults=True),
        chosen.served_precision,
        chosen.engine.image,
        list(chosen.engine.args),
    ]
    return names.digest(parts, 10)


def stale_reason(spec: CascadeSpec, table: calibration.Table) -> str:
    """Why the table no longer describes these models and their judge; empty when it does."""
    templates = {routed(spec, kind).template_id for kind in get_args(JudgeType)}
    revisions = {name: model_revision(spec, name) for name in spec.model_names}
    return table.stale_reason(templates, revisions)
