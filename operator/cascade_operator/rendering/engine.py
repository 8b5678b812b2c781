"""Engine sets: one StatefulSet of SGLang servers for each model and shape, and their Services."""

import json
import math
from collections.abc import Mapping
from typing import Any

from cascade_solver import plan as plans

from .. import names, spec, spec_fields
from . import metadata
from .settings import RenderSettings

PRESTOP_SECONDS = 2
"""The router stops sending before a planned deletion; this covers evictions, until the change of
the EndpointSlice has reached it."""
GRACE_SECONDS = 1800 + PRESTOP_SECONDS + 15
"""SGLang finishes running answers after SIGTERM and exits when idle: the longest answer that the
router waits for by default, the preStop sleep and a margin. A constant, because a change of the
router's time-outs must not roll engines."""
STARTUP_PERIOD_SECONDS = 2
CACHE = "/cache"
WEIGHTS = "/weights"
CACHE_ENV = {
    "HOME": f"{CACHE}/home",
    "HF_HOME": f"{CACHE}/huggingface",
    "XDG_CACHE_HOME": f"{CACHE}/xdg",
    "TRITON_CACHE_DIR": f"{CACHE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/torchinductor",
    "TORCH_EXTENSIONS_DIR": f"{CACHE}/torch_extensions",
    "CUDA_CACHE_PATH": f"{CACHE}/cuda",
}


def identity(
    cascade: spec.CascadeSpec, model: str, planned: plans.PlannedSet, render_version: int
) -> dict[str, Any]:
    """What makes two sets of one model different: planned and user-set inputs of the template.

    Chart settings stay out, so that a new operator or another default image rolls no engine.
    """
    chosen = cascade.model(model)
    pool = cascade.pool
    return {
        "renderVersion": render_version,
        "planned": {
            "tensor": planned.tensor,
            "pipeline": planned.pipeline,
            "gpuType": planned.gpu_type,
            "memFractionStatic": _decimal(planned.mem_fraction_static),
            "chunkedPrefillSize": planned.chunked_prefill_size,
        },
        "source": _given(chosen.source),
        "engine": _given(chosen.engine),
        "scheduling": _given(chosen.scheduling),
        "storage": _given(chosen.storage),
        "startupBudgetSeconds": chosen.startup_budget_seconds,
        "pool": {"resourceName": pool.resource_name, "nodeSelector": dict(pool.node_selector)},
    }


def stateful_set(
    cascade: spec.CascadeSpec,
    settings: RenderSettings,
    model: str,
    planned: plans.PlannedSet,
    replicas: int,
    owner: Mapping[str, Any],
    render_version: int,
) -> dict[str, Any]:
    """The set of one (model, shape, GPU type). Only ``replicas`` ever changes afterwards."""
    name = names.engine_set(cascade.name, model, identity(cascade, model, planned, render_version))
    image = cascade.model(model).engine.image or settings.engine_image
    own = {names.LABEL_MODEL: model, names.LABEL_SET: name}
    object_labels = metadata.labels(cascade.name, names.COMPONENT_ENGINE, own)
    meta = metadata.metadata(
        name, cascade.namespace, object_labels | metadata.version_label(image), owner
    )
    meta["annotations"] = {
        names.ANNOTATION_SHAPE: json.dumps(shape(planned), sort_keys=True),
        names.ANNOTATION_RENDER_VERSION: str(render_version),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": {
            "serviceName": names.headless_service(cascade.name, model),
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {names.LABEL_SET: name}},
            "template": {
                "metadata": {"labels": object_labels},
                "spec": _pod(cascade, settings, model, planned, image),
            },
        },
    }


def shape(planned: plans.PlannedSet) -> dict[str, Any]:
    """The planned set as its annotation holds it: what the template fixes, not how many."""
    return planned.model_dump(mode="json", by_alias=True, exclude={"replicas"})


def disruption_budget(
    cascade: spec.CascadeSpec, model: str, owner: Mapping[str, Any]
) -> dict[str, Any]:
    """A node drain takes the model's replicas one by one."""
    labels = {names.LABEL_MODEL: model}
    selector = metadata.selector(cascade.name, names.COMPONENT_ENGINE, **labels)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata.metadata(
            names.serving_service(cascade.name, model),
            cascade.namespace,
            metadata.labels(cascade.name, names.COMPONENT_ENGINE, labels),
            owner,
        ),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector}},
    }


def services(
    cascade: spec.CascadeSpec, model: str, owner: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Headless Service of the sets (addresses before readiness) and the one that serves."""
    selector = metadata.selector(cascade.name, names.COMPONENT_ENGINE, **{names.LABEL_MODEL: model})
    object_labels = metadata.labels(
        cascade.name, names.COMPONENT_ENGINE, {names.LABEL_MODEL: model}
    )
    port = {"name": "http", "port": names.ENGINE_PORT, "targetPort": "http", "protocol": "TCP"}

    def service(name: str, service_spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata.metadata(name, cascade.namespace, object_labels, owner),
            "spec": {"selector": selector, "ports": [port], **service_spec},
        }

    return [
        service(
            names.headless_service(cascade.name, model),
            {"clusterIP": "None", "publishNotReadyAddresses": True},
        ),
        service(names.serving_service(cascade.name, model), {"type": "ClusterIP"}),
    ]


def _pod(
    cascade: spec.CascadeSpec,
    settings: RenderSettings,
    model: str,
    planned: plans.PlannedSet,
    image: str,
) -> dict[str, Any]:
    chosen = cascade.model(model)
    pool = cascade.pool
    container = {
        "name": "engine",
        "image": image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["sglang", "serve"],
        "args": arguments(chosen, planned),
        "env": environment(chosen, settings),
        "ports": [{"name": "http", "containerPort": names.ENGINE_PORT, "protocol": "TCP"}],
        "resources": _resources(chosen, pool.resource_name, planned.tensor * planned.pipeline),
        **_probes(chosen.startup_budget_seconds),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRESTOP_SECONDS}}},
        "securityContext": metadata.container_security(),
        "volumeMounts": _mounts(chosen),
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": metadata.pod_security(settings.run_as_user),
        **metadata.pull_secrets(settings.image_pull_secrets),
        "containers": [container],
        "volumes": _volumes(chosen),
        **_scheduling(cascade, chosen),
    }


def arguments(model: spec_fields.Model, planned: plans.PlannedSet) -> list[str]:
    """Arguments of ``sglang serve``: the plan's, the operator's, then the user's own."""
    hub = model.source.hugging_face
    claim = model.source.claim
    if hub is not None:
        weights = ["--model-path", hub.id]
        weights += ["--revision", hub.revision] if hub.revision else []
    else:
        path = claim.path if claim is not None and claim.path != "." else ""
        weights = ["--model-path", f"{WEIGHTS}/{path}".rstrip("/")]
    return [
        *weights,
        "--served-model-name", model.name,
        "--host", "0.0.0.0",
        "--port", str(names.ENGINE_PORT),
        "--tp-size", str(planned.tensor),
        "--pp-size", str(planned.pipeline),
        "--mem-fraction-static", _decimal(planned.mem_fraction_static),
        "--chunked-prefill-size", str(planned.chunked_prefill_size),
        "--enable-metrics",
        *model.engine.args,
    ]  # fmt: skip


def environment(model: spec_fields.Model, settings: RenderSettings) -> list[dict[str, Any]]:
    """Variables by name, later sources first in effect: operator, chart, user."""
    merged: dict[str, dict[str, Any]] = {
        name: {"name": name, "value": value} for name, value in CACHE_ENV.items()
    }
    for variable in settings.engine_env:
        merged[variable["name"]] = dict(variable)
    for variable in model.engine.env:
        merged[variable["name"]] = dict(variable)
    return list(merged.values())


def _resources(model: spec_fields.Model, resource_name: str, gpus: int) -> dict[str, Any]:
    count = {resource_name: str(gpus)}
    given = model.engine.resources or spec_fields.Resources()
    return {
        "requests": {**(given.requests or {}), **count},
        "limits": {**(given.limits or {}), **count},
    }


def _probes(startup_budget_seconds: int) -> dict[str, Any]:
    """Probes of a single-node engine: ``/ready`` is a flag, ``/health``
    generates a token and may take 20 s on a busy engine."""
    ready = {"path": "/ready", "port": "http"}
    failures = math.ceil(startup_budget_seconds / STARTUP_PERIOD_SECONDS)
    return {
        "startupProbe": {
            "httpGet": ready,
            "timeoutSeconds": 3,
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "failureThreshold": failures,
        },
        "readinessProbe": {
            "httpGet": ready,
            "timeoutSeconds": 3,
            "periodSeconds": 5,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "timeoutSeconds": 25,
            "periodSeconds": 30,
            "failureThreshold": 4,
        },
    }


def _mounts(model: spec_fields.Model) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "cache", "mountPath": CACHE},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if model.source.claim is not None:
        mounts.append({"name": "weights", "mountPath": WEIGHTS, "readOnly": True})
    return mounts


def _volumes(model: spec_fields.Model) -> list[dict[str, Any]]:
    size = model.storage.size_gibibytes
    volumes: list[dict[str, Any]] = [
        {"name": "cache", "emptyDir": {"sizeLimit": f"{size}Gi"} if size else {}},
        {"name": "tmp", "emptyDir": {}},
        {
            "name": "shm",
            "emptyDir": {
                "medium": "Memory",
                "sizeLimit": f"{model.storage.shared_memory_gibibytes}Gi",
            },
        },
    ]
    claim = model.source.claim
    if claim is not None:
        volumes.append(
            {
                "name": "weights",
                "persistentVolumeClaim": {"claimName": claim.name, "readOnly": True},
            }
        )
    return volumes


def _scheduling(cascade: spec.CascadeSpec, model: spec_fields.Model) -> dict[str, Any]:
    pool = cascade.pool
    chosen = model.scheduling
    tainted = {"key": pool.resource_name, "operator": "Exists", "effect": "NoSchedule"}
    packing = {
        "weight": 50,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {
                "matchLabels": metadata.selector(cascade.name, names.COMPONENT_ENGINE)
            },
        },
    }
    fields: dict[str, Any] = {
        "tolerations": [tainted, *(dict(t) for t in chosen.tolerations if dict(t) != tainted)],
        "affinity": {
            **(chosen.affinity or {}),
            # Packed nodes keep whole nodes free for replicas of many GPUs.
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [packing]},
        },
    }
    if pool.node_selector:
        fields["nodeSelector"] = dict(pool.node_selector)
    if chosen.priority_class_name:
        fields["priorityClassName"] = chosen.priority_class_name
    if chosen.topology_spread:
        own = metadata.selector(
            cascade.name, names.COMPONENT_ENGINE, **{names.LABEL_MODEL: model.name}
        )
        fields["topologySpreadConstraints"] = [
            {
                "topologyKey": constraint.topology_key,
                "maxSkew": constraint.max_skew,
                "whenUnsatisfiable": constraint.when_unsatisfiable,
                "labelSelector": {"matchLabels": own},
            }
            for constraint in chosen.topology_spread
        ]
    return fields


def _given(section: spec_fields.Section) -> dict[str, Any]:
    """What the user set. Defaults stay out: a field that a later operator adds changes no name."""
    return section.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _decimal(fraction: float) -> str:
    """A fraction as SGLang's flag takes it, without binary noise."""
    return f"{fraction:.4g}"
