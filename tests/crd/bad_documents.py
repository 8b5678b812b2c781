"""Documents that must be refused, each with the words that the refusal must hold."""

from dataclasses import dataclass
from typing import Any

from tests.crd.documents import ABSENT

SERVER, PARSE = "server", "parse"
MODEL = {"source": {"huggingFace": {"id": "Qwen/Qwen3-4B"}}}


@dataclass(frozen=True)
class Bad:
    """``changes`` of the minimal document; ``words``: field path, value, what is allowed.

    ``by`` is who refuses it: the API server at once, or ``spec.parse`` (condition Stalled).
    """

    id: str
    changes: dict[str, Any]
    words: tuple[str, ...]
    by: str = SERVER


def _argument(flag: str, *words: str) -> Bad:
    path = "spec.models[0].engine.args[0]"
    name = flag.lstrip("-").partition("=")[0]
    return Bad(
        f"args-{name}", {"spec.models.0.engine": {"args": [flag]}}, (path, f"'{flag}'", *words)
    )


def _resource(part: str) -> Bad:
    return Bad(
        f"gpu-in-{part}",
        {"spec.models.0.engine": {"resources": {part: {"nvidia.com/gpu": "1"}}}},
        (f"spec.models[0].engine.resources.{part}", "nvidia.com/gpu", "cpu, memory"),
    )


def _too_large(path: str, field: str, value: int, most: int) -> Bad:
    words = (field, str(value), f"less than or equal to {most}")
    return Bad(f"{field.removeprefix('spec.')}-too-large", {path: value}, words)


def _too_small(path: str, field: str, value: int, least: int) -> Bad:
    words = (field, str(value), f"greater than or equal to {least}")
    return Bad(f"{field.removeprefix('spec.')}-too-small", {path: value}, words)


def _not_one_of(path: str, field: str, value: str, *allowed: str) -> Bad:
    words = (field, f'Unsupported value: "{value}"', *(f'"{each}"' for each in allowed))
    return Bad(f"{field.removeprefix('spec.')}-enum", {path: value}, words)


def _later(path: str, value: Any, field: str, shown: str, advice: str) -> Bad:
    identity = "-".join(["later", field.removeprefix("spec."), shown.strip('"')])
    return Bad(identity, {path: value}, (field, shown, advice), PARSE)


NAMES = [
    Bad(
        "cascade-name-too-long",
        {"metadata.name": "a" * 33},
        ("metadata.name", "a" * 33, "at most 32 lower-case letters"),
    ),
    Bad(
        "cascade-name-with-dot",
        {"metadata.name": "chat.eu"},
        ("metadata.name", '"chat.eu"', "at most 32"),
    ),
    Bad(
        "cascade-name-digit-first",
        {"metadata.name": "4chat"},
        ('"4chat"', "starting with a letter"),
    ),
    Bad(
        "model-name-upper-case",
        {"spec.models.0.name": "Small"},
        ("spec.models[0].name", '"Small"', "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    ),
    Bad(
        "model-name-too-long",
        {"spec.models.0.name": "m" * 25},
        ("spec.models[0].name", "Too long: may not be more than 24"),
    ),
    Bad(
        "model-name-router",
        {"spec.models.0.name": "router"},
        ("spec.models[0].name", "'router'", "choose another name"),
    ),
    Bad(
        "model-name-ends-in-pods",
        {"spec.models.0.name": "my-pods"},
        ("spec.models[0].name", "'my-pods'", "choose another name"),
    ),
    Bad(
        "model-names-not-unique",
        {"spec.models.1.name": "small"},
        ("spec.models[1]", "Duplicate value", '"small"'),
    ),
    Bad("model-without-name", {"spec.models.0.name": ABSENT}, ("spec.models[0].name", "Required")),
]

MODELS = [
    Bad("no-models", {"spec.models": []}, ("spec.models", "0", "at least 1 items")),
    Bad(
        "nine-models",
        {"spec.models": [{"name": f"m{i}", **MODEL} for i in range(9)]},
        ("spec.models", "9", "must have at most 8 items"),
    ),
    Bad("models-absent", {"spec.models": ABSENT}, ("spec.models", "Required value")),
    Bad("source-absent", {"spec.models.0.source": ABSENT}, ("spec.models[0].source", "Required")),
    Bad(
        "source-empty",
        {"spec.models.0.source": {}},
        ("spec.models[0].source", "set exactly one of source.huggingFace and source.claim"),
    ),
    Bad(
        "source-two",
        {"spec.models.0.source.claim": {"name": "weights"}},
        ("spec.models[0].source", "set exactly one of source.huggingFace and source.claim"),
    ),
    Bad(
        "hugging-face-id-without-owner",
        {"spec.models.0.source.huggingFace.id": "llama"},
        ("spec.models[0].source.huggingFace.id", '"llama"', "should match"),
    ),
    Bad(
        "claim-without-architecture",
        {"spec.models.0.source": {"claim": {"name": "weights"}}},
        ("spec.models[0].architecture", "a model from a claim needs architecture.name"),
    ),
    Bad(
        "claim-path-leaves-volume",
        {
            "spec.models.0.source": {"claim": {"name": "weights", "path": "a/../../b"}},
            "spec.models.0.architecture": {"name": "llama-3.1-8b"},
        },
        ("spec.models[0].source.claim.path", "'a/../../b'", "without '..'"),
    ),
    Bad(
        "claim-path-absolute",
        {
            "spec.models.0.source": {"claim": {"name": "weights", "path": "/srv"}},
            "spec.models.0.architecture": {"name": "llama-3.1-8b"},
        },
        ("spec.models[0].source.claim.path", '"/srv"', "should match"),
    ),
    Bad(
        "architecture-two-ways",
        {"spec.models.0.architecture": {"name": "x", "configRef": {"name": "y"}}},
        ("spec.models[0].architecture", "set exactly one of architecture.name"),
    ),
    Bad(
        "architecture-a-string",
        {"spec.models.0.architecture": "llama-3-8b"},
        ("spec.models[0].architecture", '"string"', "must be of type object"),
    ),
    Bad(
        "unknown-architecture-by-id",
        {"spec.models.0.source.huggingFace.id": "acme/secret-9b"},
        (
            "spec.models[0].source.huggingFace.id",
            '"acme/secret-9b"',
            "set spec.models[0].architecture.name to the base model",
            "meta-llama/Llama-3.1-8B-Instruct",
        ),
        PARSE,
    ),
    Bad(
        "unknown-architecture-by-name",
        {"spec.models.0.architecture": {"name": "secret-9b"}},
        ("spec.models[0].architecture.name", '"secret-9b"', "known are"),
        PARSE,
    ),
    _not_one_of("spec.models.0.precision", "spec.models[0].precision", "bf16", "BF16", "FP8"),
    _too_small("spec.models.0.minReplicas", "spec.models[0].minReplicas", 0, 1),
    _too_small("spec.models.0.maxGpus", "spec.models[0].maxGpus", 0, 1),
    _too_large(
        "spec.models.0.startupBudgetSeconds", "spec.models[0].startupBudgetSeconds", 99999, 28800
    ),
    _too_small("spec.models.0.kvTokens", "spec.models[0].kvTokens", 0, 1),
    Bad(
        "max-gpus-below-the-floor",
        {"spec.models.0.maxGpus": 2, "spec.models.0.minReplicas": 3},
        ("spec.models[0].maxGpus", "is 2", "must hold minReplicas 3"),
    ),
    Bad(
        "unknown-field-of-a-model",
        {"spec.models.0.replicas": 3},
        ('unknown field "spec.models[0].replicas"',),
    ),
]

PINS = [
    Bad(
        "tensor-three",
        {"spec.models.0.pins": {"tensor": 3}},
        ("spec.models[0].pins.tensor", "Unsupported value: 3", '"1", "2", "4", "8", "16"'),
    ),
    Bad(
        "tensor-beyond-a-node",
        {"spec.models.1.pins": {"tensor": 8}, "spec.gpuPool.0.gpusPerNode": 4},
        ("spec.models[1].pins.tensor", "is 8", "at most 4"),
        PARSE,
    ),
    Bad(
        "pins-do-not-fill-nodes",
        {"spec.models.1.pins": {"tensor": 4, "pipeline": 3}},
        ("spec.models", "large: 4 x 3", "must fit a node of [8] GPUs"),
    ),
    Bad(
        "pins-larger-than-the-pool",
        {"spec.models.1.pins": {"tensor": 4, "replicas": 4}},
        ("spec.models", "large: 16", "the pool allows at most 12"),
    ),
    Bad(
        "pinned-replicas-below-the-floor",
        {"spec.models.0.pins": {"replicas": 1}, "spec.models.0.minReplicas": 2},
        ("spec.models[0].pins.replicas", "is 1", "at least minReplicas 2"),
    ),
    _too_large("spec.models.0.pins.pipeline", "spec.models[0].pins.pipeline", 9, 8),
    Bad(
        "threshold-of-the-last-model",
        {"spec.planPolicy": {"pins": {"thresholds": [{"model": "large", "score": 50}]}}},
        ("spec.planPolicy.pins.thresholds", '["large"]', "any of spec.models but the last"),
    ),
    Bad(
        "threshold-above-101",
        {"spec.planPolicy": {"pins": {"thresholds": [{"model": "small", "score": 102}]}}},
        ("spec.planPolicy.pins.thresholds[0].score", "102", "less than or equal to 101"),
    ),
    Bad(
        "gpus-of-an-unknown-model",
        {"spec.planPolicy": {"pins": {"gpus": [{"model": "huge", "count": 4}]}}},
        ("spec.planPolicy.pins.gpus", '["huge"]', '["small", "large"]'),
    ),
    Bad(
        "pinned-gpus-above-the-pool",
        {
            "spec.planPolicy": {
                "pins": {"gpus": [{"model": "small", "count": 8}, {"model": "large", "count": 8}]}
            }
        },
        ("spec.planPolicy.pins.gpus", "16 GPUs", "at most 12"),
    ),
]

ENGINE = [
    _argument("--tp-size=4", "decided by the planner", "pins.tensor"),
    _argument("--pp-size", "decided by the planner"),
    _argument("--dp-size=2", "decided by the planner"),
    _argument("--mem-fraction-static=0.9", "decided by the planner"),
    _argument("--chunked-prefill-size=512", "decided by the planner"),
    _argument("--nnodes=2", "decided by the planner"),
    _argument("--port=1", "set by the operator"),
    _argument("--model-path=x", "set by the operator", "source"),
    _argument("--served-model-name=x", "set by the operator"),
    Bad(
        "args-api-key",
        {"spec.models.0.engine": {"args": ["--api-key=s3cret"]}},
        ("spec.models[0].engine.args[0]", "a secret may not stand in an argument", "remove it"),
    ),
    Bad(
        "token-in-plain-text",
        {"spec.models.0.engine": {"env": [{"name": "HF_TOKEN", "value": "hf_x"}]}},
        ("spec.models[0].engine.env[0].value", "use valueFrom.secretKeyRef"),
    ),
    Bad(
        "env-two-values",
        {
            "spec.models.0.engine": {
                "env": [
                    {
                        "name": "A",
                        "value": "1",
                        "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}},
                    }
                ]
            }
        },
        ("spec.models[0].engine.env[0]", "at most one of value and valueFrom"),
    ),
    Bad(
        "env-twice",
        {
            "spec.models.0.engine": {
                "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
            }
        },
        ("spec.models[0].engine.env[1]", "Duplicate value", '"A"'),
    ),
    Bad(
        "env-name-with-dash",
        {"spec.models.0.engine": {"env": [{"name": "A-B"}]}},
        ("spec.models[0].engine.env[0].name", '"A-B"', "should match"),
    ),
    _resource("requests"),
    _resource("limits"),
    Bad(
        "memory-in-words",
        {"spec.models.0.engine": {"resources": {"requests": {"memory": "lots"}}}},
        ("spec.models[0].engine.resources.requests.memory", '"lots"', "should match"),
    ),
    Bad(
        "toleration-exists-with-value",
        {
            "spec.models.0.scheduling": {
                "tolerations": [{"key": "gpu", "operator": "Exists", "value": "x"}]
            }
        },
        ("spec.models[0].scheduling.tolerations[0].value", "'x'", "operator Exists takes none"),
    ),
    Bad(
        "toleration-without-key",
        {"spec.models.0.scheduling": {"tolerations": [{"effect": "NoSchedule"}]}},
        ("spec.models[0].scheduling.tolerations[0].operator", "say so with operator Exists"),
    ),
    Bad(
        "shared-memory-zero",
        {"spec.models.0.storage": {"sharedMemoryGibibytes": 0}},
        ("spec.models[0].storage.sharedMemoryGibibytes", "0", "greater than or equal to 1"),
    ),
]

POOL = [
    Bad("pool-absent", {"spec.gpuPool": ABSENT}, ("spec.gpuPool", "Required value")),
    Bad("pool-empty", {"spec.gpuPool": []}, ("spec.gpuPool", "0", "at least 1 items")),
    Bad(
        "gpu-type-absent",
        {"spec.gpuPool.0.gpuType": ABSENT},
        ("spec.gpuPool[0].gpuType", "Required value"),
    ),
    Bad(
        "gpu-type-unknown",
        {"spec.gpuPool.0.gpuType": "H1000"},
        ("spec.gpuPool[0].gpuType", '"H1000"', "known are", "A100-80GB", "H100"),
        PARSE,
    ),
    _too_small("spec.gpuPool.0.limit", "spec.gpuPool[0].limit", -1, 0),
    _too_large("spec.gpuPool.0.gpusPerNode", "spec.gpuPool[0].gpusPerNode", 65, 64),
    Bad(
        "limit-a-string",
        {"spec.gpuPool.0.limit": "12"},
        ("spec.gpuPool[0].limit", '"string"', "must be of type integer"),
    ),
    Bad(
        "resource-name-without-domain",
        {"spec.gpuPool.0.resourceName": "gpu"},
        ("spec.gpuPool[0].resourceName", '"gpu"', "should match"),
    ),
    Bad(
        "price-a-number",
        {"spec.gpuPool.0.pricePerHour": 2.5},
        ("spec.gpuPool[0].pricePerHour", '"number"', "must be of type string"),
    ),
    Bad(
        "price-negative",
        {"spec.gpuPool.0.pricePerHour": "-1"},
        ("spec.gpuPool[0].pricePerHour", '"-1"', "should match"),
    ),
    Bad(
        "pool-name-twice",
        {"spec.gpuPool.1": {"gpuType": "H200"}},
        ("spec.gpuPool[1]", "Duplicate value", '"default"'),
    ),
    Bad(
        "two-pools",
        {"spec.gpuPool.1": {"gpuType": "H200", "name": "b"}},
        ("spec.gpuPool", '["default", "b"]', "give exactly one"),
        PARSE,
    ),
    Bad(
        "node-selector-a-list",
        {"spec.gpuPool.0.nodeSelector": ["a"]},
        ("spec.gpuPool[0].nodeSelector", '"array"', "must be of type object"),
    ),
]

GOALS = [
    Bad("qmin-absent", {"spec.qmin": ABSENT}, ("spec.qmin", "Required value")),
    _too_large("spec.qmin", "spec.qmin", 101, 100),
    _too_small("spec.qmin", "spec.qmin", -1, 0),
    Bad("qmin-a-string", {"spec.qmin": "75"}, ("spec.qmin", '"string"', "of type integer")),
    Bad("qmin-a-fraction", {"spec.qmin": 75.5}, ("spec.qmin", '"number"', "of type integer")),
    Bad("spec-absent", {"spec": ABSENT}, ("spec", "Required value")),
    Bad("unknown-field", {"spec.qMin": 3}, ('unknown field "spec.qMin"',)),
    _not_one_of("spec.objective.type", "spec.objective.type", "Fastest", "Bottleneck", "Cost"),
    Bad(
        "cost-without-price",
        {"spec.objective": {"type": "Cost"}},
        ("spec.gpuPool", "objective.type Cost needs a price", "pricePerHour"),
    ),
    _not_one_of("spec.planPolicy.mode", "spec.planPolicy.mode", "Manual", "Automatic", "Propose"),
    Bad(
        "paused-a-string",
        {"spec.planPolicy": {"paused": "yes"}},
        ("spec.planPolicy.paused", '"string"', "must be of type boolean"),
    ),
    Bad(
        "step-deadline-too-short",
        {"spec.rollout": {"stepDeadlineSeconds": 5}},
        ("spec.rollout.stepDeadlineSeconds", "5", "greater than or equal to 30"),
    ),
    Bad(
        "stable-rounds-zero",
        {"spec.search": {"stableRounds": 0}},
        ("spec.search.stableRounds", "0", "greater than or equal to 1"),
    ),
    Bad(
        "requests-zero",
        {"spec.workload": {"requestsPerMinute": 0}},
        ("spec.workload.requestsPerMinute", "0", "greater than or equal to 1"),
    ),
    Bad(
        "p95-below-mean",
        {"spec.workload": {"inputTokens": {"mean": 500, "p95": 100}}},
        ("spec.workload.inputTokens.p95", "is 100", "at least mean 500"),
    ),
    Bad(
        "lengths-without-p95",
        {"spec.workload": {"outputTokens": {"mean": 500}}},
        ("spec.workload.outputTokens.p95", "Required value"),
    ),
    Bad(
        "calibration-key-with-slash",
        {"spec.workload": {"calibrationRef": {"name": "t", "key": "a/b"}}},
        ("spec.workload.calibrationRef.key", '"a/b"', "should match"),
    ),
    _not_one_of("spec.judge.type", "spec.judge.type", "Oracle", "Self", "LLM"),
    Bad(
        "judge-is-no-model",
        {"spec.judge": {"type": "LLM", "modelRef": "huge"}},
        ("spec.judge.modelRef", '"huge"', '["small", "large"]'),
    ),
    Bad(
        "model-ref-of-self",
        {"spec.judge": {"type": "Self", "modelRef": "large"}},
        ("spec.judge.modelRef", "'large'", "set judge.type to LLM"),
    ),
    Bad(
        "label-mass-above-100",
        {"spec.judge": {"labelMassMinPercent": 150}},
        ("spec.judge.labelMassMinPercent", "150", "less than or equal to 100"),
    ),
    Bad(
        "router-without-pods",
        {"spec.router": {"replicas": 0}},
        ("spec.router.replicas", "0", "greater than or equal to 1"),
    ),
    Bad(
        "engine-field-unknown",
        {"spec.router": {"allowedEngineFields": ["seed"]}},
        ("spec.router.allowedEngineFields[0]", '"seed"', '"cache_salt"'),
    ),
    Bad(
        "image-host-a-url",
        {"spec.router": {"allowedImageHosts": ["https://a.example/x"]}},
        ("spec.router.allowedImageHosts[0]", '"https://a.example/x"', "should match"),
    ),
    Bad(
        "window-too-short",
        {"spec.drift": {"windowSeconds": 1}},
        ("spec.drift.windowSeconds", "1", "greater than or equal to 5"),
    ),
    Bad("drift-off-as-boolean", {"spec.drift": {"mode": False}}, ("spec.drift.mode", '"boolean"')),
]

LATER = [
    _later(
        "spec.models.1.pins",
        {"tensor": 2, "pipeline": 2},
        "spec.models[1].pins.pipeline",
        "is 2",
        "set it to 1",
    ),
    _later(
        "spec.models.0.architecture",
        {"configRef": {"name": "own"}},
        "spec.models[0].architecture.configRef",
        '"own/config.json"',
        "set architecture.name",
    ),
    _later(
        "spec.models.0.storage",
        {"type": "PerPod"},
        "spec.models[0].storage.type",
        '"PerPod"',
        "set it to Ephemeral",
    ),
    _later(
        "spec.models.0.storage",
        {"storageClassName": "fast"},
        "spec.models[0].storage.storageClassName",
        '"fast"',
        "no effect yet; remove it",
    ),
    _later(
        "spec.gpuPool.0.profileRef",
        {"name": "measured"},
        "spec.gpuPool[0].profileRef",
        '"measured"',
        "no effect yet; remove it",
    ),
    _later(
        "spec.objective",
        {"type": "EndToEnd"},
        "spec.objective.type",
        '"EndToEnd"',
        "set it to Bottleneck",
    ),
    _later(
        "spec.objective",
        {"latencySloMilliseconds": 900},
        "spec.objective.latencySloMilliseconds",
        "is 900",
        "no effect yet; remove it",
    ),
    _later(
        "spec.slo",
        {"ttftP95Milliseconds": 400},
        "spec.slo.ttftP95Milliseconds",
        "is 400",
        "no effect yet; remove it",
    ),
    _later(
        "spec.slo",
        {"e2eP95Milliseconds": 400},
        "spec.slo.e2eP95Milliseconds",
        "is 400",
        "no effect yet",
    ),
    _later(
        "spec.search",
        {"timeLimitSeconds": 9},
        "spec.search.timeLimitSeconds",
        "is 9",
        "no effect yet; remove it",
    ),
    _later(
        "spec.search",
        {"qualityPenaltyFactor": 9},
        "spec.search.qualityPenaltyFactor",
        "is 9",
        "no effect yet; remove it",
    ),
    _later(
        "spec.search",
        {"lengthStepPercent": 9},
        "spec.search.lengthStepPercent",
        "is 9",
        "no effect yet; remove it",
    ),
    _later("spec.judge", {"type": "Reward"}, "spec.judge.type", '"Reward"', "use Self or LLM"),
    _later("spec.judge", {"type": "External"}, "spec.judge.type", '"External"', "use Self or LLM"),
]

ALL = [*NAMES, *MODELS, *PINS, *ENGINE, *POOL, *GOALS, *LATER]
