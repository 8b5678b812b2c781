"""The router's configuration for a plan in force: thresholds, sets, judge, budgets, windows."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from cascade_router import config
from cascade_solver import plan as plans
from cascade_solver.latency import catalogue

from . import judge, names
from .plan_record import PlanRecord
from .spec import CascadeSpec

CONTEXT_FLAG = "--context-length"
BURST_SECONDS = 5.0
"""Escalations that may come at once: so many seconds of what the next model can carry."""
MIN_WINDOW_SECONDS = 0.5


class TimeSettings(Protocol):
    """How much faster than real hardware the simulated one runs; 1 outside of demos."""

    @property
    def time_scale(self) -> float: ...


def build(
    spec: CascadeSpec,
    record: PlanRecord,
    sets_in_service: Mapping[str, Sequence[tuple[str, float]]],
    leaving_pods: Mapping[str, Sequence[str]],
    settings: TimeSettings,
    thresholds: Mapping[str, int] | None = None,
) -> config.RouterConfig:
    """The document for the plan in ``record``.

    ``sets_in_service``: model -> (set name, requests per second of one replica); ``thresholds``
    replace those of the plan for the models they name (interim thresholds of a hand-over); what
    differs from the plan is not steered either. Models are those of the plan: a model that the
    spec has added meanwhile joins with the plan that knows it.
    """
    override = dict(thresholds or {})
    return config.RouterConfig(
        cascade=spec.name,
        namespace=spec.namespace,
        plan_id=record.revision,
        models=tuple(
            _model(
                spec,
                record,
                index,
                tuple(sets_in_service.get(planned.name, ())),
                tuple(leaving_pods.get(planned.name, ())),
                settings,
                override,
            )
            for index, planned in enumerate(record.plan.models)
        ),
        judge=_judge(spec, record),
        timeouts=_timeouts(spec),
        limits=config.Limits(
            body_bytes=spec.router.limits.body_mebibytes * 2**20,
            answer_bytes=spec.router.limits.answer_mebibytes * 2**20,
            admitted_requests=spec.router.limits.admitted_requests,
        ),
        window=config.WindowConfig(
            seconds=max(MIN_WINDOW_SECONDS, spec.drift.window_seconds / settings.time_scale),
            samples=spec.drift.sample_size,
        ),
        when_unavailable=spec.router.when_unavailable,
        allowed_engine_fields=spec.router.allowed_engine_fields,
        allowed_image_hosts=spec.router.allowed_image_hosts,
        allow_forced_model=spec.router.forced_models == "Allow",
        input_edges=record.plan.workload.input_edges,
    )


def text(document: config.RouterConfig) -> str:
    """The canonical bytes: equal documents give equal text, and so the same digest."""
    return document.model_dump_json(by_alias=True)


def _model(
    spec: CascadeSpec,
    record: PlanRecord,
    index: int,
    sets: Sequence[tuple[str, float]],
    leaving: tuple[str, ...],
    settings: TimeSettings,
    override: Mapping[str, int],
) -> config.RoutedModel:
    planned = record.plan.models[index]
    name = planned.name
    is_last = index == len(record.plan.models) - 1
    service = names.serving_service(spec.name, name)
    rate = None if index == 0 else _escalations(planned, spec, settings)
    known = name in spec.model_names
    threshold = None if is_last else override.get(name, planned.threshold)
    return config.RoutedModel(
        name=name,
        threshold=threshold,
        steer_quantile=planned.steer_quantile if threshold == planned.threshold else None,
        context_length=_context_length(spec, name) if known else None,
        revision=judge.model_revision(spec, name) if known else "",
        service=service,
        service_url=f"http://{service}.{spec.namespace}.svc:{names.ENGINE_PORT}",
        sets=tuple(config.EngineSet(name=set_name, weight=weight) for set_name, weight in sets),
        leaving_pods=tuple(sorted(leaving)),
        visit_ratio=min(1.0, planned.visit_ratio),
        escalations_per_second=rate,
        escalation_burst=max(1.0, rate * BURST_SECONDS) if rate is not None else 10.0,
        self_table=record.self_tables.get(name),
    )


def _escalations(planned: plans.ModelPlan, spec: CascadeSpec, settings: TimeSettings) -> float:
    """Requests per second of wall time that one router pod may pass on to this model: its share
    of what the planned replicas carry at saturation."""
    capacity = sum(s.replicas * s.saturation_rate for s in planned.sets)
    return capacity * settings.time_scale / spec.router.replicas


def _context_length(spec: CascadeSpec, name: str) -> int | None:
    """Tokens a request may have: the user's engine argument, else the architecture's."""
    model = spec.model(name)
    arguments = list(model.engine.args)
    for position, argument in enumerate(arguments):
        flag, separator, value = argument.partition("=")
        if flag == CONTEXT_FLAG:
            given = value if separator else "".join(arguments[position + 1 : position + 2])
            return int(given) if given.isdigit() and int(given) > 0 else None
    known = model.architecture_name
    return catalogue.architecture(known).context_length if known is not None else None


def _judge(spec: CascadeSpec, record: PlanRecord) -> config.JudgeConfig:
    """The judge that the thresholds were planned with; its model must be one that is planned."""
    routed = judge.routed(spec, record.judge_type)
    planned = {m.name for m in record.plan.models}
    return routed if routed.model in planned else routed.model_copy(update={"model": None})


def _timeouts(spec: CascadeSpec) -> config.Timeouts:
    given = spec.router.timeouts
    return config.Timeouts(
        connect=given.connect_milliseconds / 1000,
        first_byte=float(given.first_byte_seconds),
        idle=float(given.idle_seconds),
        total=float(given.total_seconds),
    )
