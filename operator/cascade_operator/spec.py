"""parse: a CascadeService as the API server gives it -> CascadeSpec, or every fault in it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from cascade_solver import errors as solver_errors
from cascade_solver.latency import catalogue, gpus

from . import spec_fields
from .errors import Fault, SpecError

CascadeSpec = spec_fields.CascadeSpec
Model = spec_fields.Model
Pool = spec_fields.Pool


def parse(body: Mapping[str, Any], *, namespaced: bool = False) -> CascadeSpec:
    """Checks a CascadeService and returns its intent.

    ``namespaced``: the operator may not read nodes, so the pool must say its size itself. Raises
    ``SpecError`` with every fault: malformed fields, fields whose effect comes later, unknown
    architectures and GPU types, contradictions.
    """
    metadata = body.get("metadata") or {}
    try:
        # JSON, because the strict reader takes a list for a tuple only there.
        intent = spec_fields.Spec.model_validate_json(
            json.dumps(body.get("spec") or {}, default=str)
        )
    except pydantic.ValidationError as error:
        raise SpecError([_malformed(each) for each in error.errors()]) from None
    spec = CascadeSpec.model_construct(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        **dict(intent),
    )
    faults = [
        *_unknown_names(spec),
        *_later(spec),
        *_contradictions(spec),
        *(_undeclared(spec) if namespaced else ()),
    ]
    if faults:
        raise SpecError(faults)
    return spec


def _malformed(error: Any) -> Fault:
    path = "spec"
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    match error["type"]:
        case "missing":
            return Fault(path, None, "it is required")
        case "extra_forbidden":
            return Fault(path, error["input"], "there is no such field; remove it")
        case _:
            return Fault(path, error["input"], error["msg"][0].lower() + error["msg"][1:])


def _unknown_names(spec: CascadeSpec) -> Iterator[Fault]:
    """Architectures and GPU types that the planner's catalogue does not hold."""
    for index, model in enumerate(spec.models):
        name = model.architecture_name
        if name is None:
            continue
        try:
            catalogue.entry(name)
        except solver_errors.UnknownArchitectureError as error:
            path, advice = f"spec.models[{index}].architecture.name", "known are"
            if model.architecture is None:
                path = f"spec.models[{index}].source.huggingFace.id"
                advice = f"set spec.models[{index}].architecture.name to the base model; known are"
            yield Fault(path, name, f"{advice} {', '.join(error.known)}")
    for index, pool in enumerate(spec.gpu_pool):
        try:
            gpus.gpu(pool.gpu_type)
        except solver_errors.UnknownGpuError as error:
            path = f"spec.gpuPool[{index}].gpuType"
            yield Fault(path, pool.gpu_type, f"known are {', '.join(error.known)}")


def _later(spec: CascadeSpec) -> Iterator[Fault]:
    """Fields of the schema that have no effect yet: refused, never ignored in silence."""
    for index, model in enumerate(spec.models):
        yield from _later_in_model(f"spec.models[{index}]", model)
    if len(spec.gpu_pool) > 1:
        names = [pool.name for pool in spec.gpu_pool]
        yield Fault("spec.gpuPool", names, "several pools are not planned yet; give exactly one")
    for index, pool in enumerate(spec.gpu_pool):
        if pool.profile_ref is not None:
            yield _not_yet(f"spec.gpuPool[{index}].profileRef", pool.profile_ref.name)
    if spec.objective.type != "Bottleneck":
        yield Fault(
            "spec.objective.type", spec.objective.type, "not planned yet; set it to Bottleneck"
        )
    if spec.judge.type in ("Reward", "External"):
        yield Fault("spec.judge.type", spec.judge.type, "not built yet; use Self or LLM")
    absent_for_now = {
        "spec.objective.latencySloMilliseconds": spec.objective.latency_slo_milliseconds,
        "spec.slo.ttftP95Milliseconds": spec.slo.ttft_p95_milliseconds,
        "spec.slo.e2eP95Milliseconds": spec.slo.e2e_p95_milliseconds,
        "spec.search.timeLimitSeconds": spec.search.time_limit_seconds,
        "spec.search.qualityPenaltyFactor": spec.search.quality_penalty_factor,
        "spec.search.lengthStepPercent": spec.search.length_step_percent,
    }
    for path, value in absent_for_now.items():
        if value is not None:
            yield _not_yet(path, value)


def _later_in_model(path: str, model: Model) -> Iterator[Fault]:
    if model.pins.pipeline > 1:
        yield Fault(
            f"{path}.pins.pipeline",
            model.pins.pipeline,
            "pipeline parallelism is not deployed yet; remove it or set it to 1",
        )
    if model.architecture is not None and model.architecture.config_ref is not None:
        reference = model.architecture.config_ref
        yield Fault(
            f"{path}.architecture.configRef",
            f"{reference.name}/{reference.key}",
            "not read yet; set architecture.name to the base model",
        )
    if model.storage.type != "Ephemeral":
        yield Fault(
            f"{path}.storage.type",
            model.storage.type,
            "not built yet; set it to Ephemeral, or use source.claim for shared weights",
        )
    if model.storage.storage_class_name is not None:
        yield _not_yet(f"{path}.storage.storageClassName", model.storage.storage_class_name)


def _not_yet(path: str, value: object) -> Fault:
    return Fault(path, value, "this field has no effect yet; remove it")


def _contradictions(spec: CascadeSpec) -> Iterator[Fault]:
    """What the schema's rules cannot see, or what an older schema let through."""
    names = list(spec.model_names)
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Fault(f"spec.models[{index}].name", name, "model names must be unique; rename it")
    judge = spec.judge
    if judge.model_ref is not None and judge.model_ref not in names:
        allowed = f"set it to one of spec.models: {', '.join(names)}"
        yield Fault("spec.judge.modelRef", judge.model_ref, allowed)
    for pinned_threshold in spec.plan_policy.pins.thresholds:
        if pinned_threshold.model not in names[:-1]:
            allowed = f"only models before the last have a threshold: {', '.join(names[:-1])}"
            yield Fault("spec.planPolicy.pins.thresholds", pinned_threshold.model, allowed)
    for pinned_gpus in spec.plan_policy.pins.gpus:
        if pinned_gpus.model not in names:
            allowed = f"pin only models of spec.models: {', '.join(names)}"
            yield Fault("spec.planPolicy.pins.gpus", pinned_gpus.model, allowed)
    per_node = spec.gpu_pool[0].gpus_per_node if spec.gpu_pool else None
    for index, model in enumerate(spec.models):
        tensor = model.pins.tensor
        if tensor is not None and per_node is not None and tensor > per_node:
            allowed = f"a replica over several nodes is not deployed yet; at most {per_node}"
            yield Fault(f"spec.models[{index}].pins.tensor", tensor, allowed)


def _undeclared(spec: CascadeSpec) -> Iterator[Fault]:
    """Namespaced mode: what nodes would have said must stand in the spec."""
    for index, pool in enumerate(spec.gpu_pool):
        for name, value in (("limit", pool.limit), ("gpusPerNode", pool.gpus_per_node)):
            if value is None:
                yield Fault(
                    f"spec.gpuPool[{index}].{name}",
                    None,
                    "the operator runs in namespaced mode and may not read nodes; set it",
                )
