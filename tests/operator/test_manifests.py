"""Manifests: flags and GPU limits follow the plan, names change exactly with their inputs."""

import importlib.resources
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cascade_operator import manifests, names
from cascade_operator.rendering import engine
from cascade_operator.spec import CascadeSpec, parse
from cascade_solver import plan as plans
from tests.operator import samples

PLANNED = samples.planned_set()
PROFILE_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


def stateful_set(
    spec: CascadeSpec | None = None,
    planned: plans.PlannedSet = PLANNED,
    replicas: int = 2,
    **settings: Any,
) -> dict[str, Any]:
    return manifests.render_set(
        spec or samples.spec(),
        samples.settings(**settings),
        "small",
        planned,
        replicas,
        samples.OWNER,
    )


def pod(rendered: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = rendered["spec"]["template"]["spec"]
    return found


def container(rendered: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod(rendered)["containers"][0]
    return found


def flags(arguments: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for position, argument in enumerate(arguments):
        if argument.startswith("--"):
            flag, separator, value = argument.partition("=")
            follows = "".join(arguments[position + 1 : position + 2])
            has_value = bool(follows) and not follows.startswith("--")
            found[flag] = value if separator else follows if has_value else None
    return found


@pytest.mark.parametrize(
    "planned",
    [
        pytest.param(samples.planned_set(tensor=1, replicas=4), id="4 x TP1"),
        pytest.param(samples.planned_set(tensor=8, mem_fraction_static=0.9), id="TP8, 0.9"),
        pytest.param(samples.planned_set(tensor=2, pipeline=2), id="TP2 x PP2"),
        pytest.param(samples.planned_set(chunked_prefill_size=2048), id="small chunks"),
    ],
)
def test_flags_and_gpu_limits_equal_the_plan(planned: plans.PlannedSet) -> None:
    rendered = stateful_set(planned=planned, replicas=planned.replicas)
    given = flags(container(rendered)["args"])
    assert given["--tp-size"] == str(planned.tensor)
    assert given["--pp-size"] == str(planned.pipeline)
    assert given["--mem-fraction-static"] == f"{planned.mem_fraction_static:g}"
    assert given["--chunked-prefill-size"] == str(planned.chunked_prefill_size)
    gpus = str(planned.tensor * planned.pipeline)
    assert container(rendered)["resources"]["limits"]["nvidia.com/gpu"] == gpus
    assert container(rendered)["resources"]["requests"]["nvidia.com/gpu"] == gpus
    assert rendered["spec"]["replicas"] == planned.replicas


def known_flags() -> dict[str, Any]:
    text = importlib.resources.files("cascade_enginesim").joinpath("flags.json").read_text()
    return {name: flag for flag in json.loads(text)["flags"] for name in flag["names"]}


def test_every_rendered_flag_is_one_of_sglang() -> None:
    known = known_flags()
    claim = samples.model("small", source={"claim": {"name": "weights", "path": "llama/8b"}},
                          architecture={"name": samples.SMALL})  # fmt: skip
    revision = {"huggingFace": {"id": samples.SMALL, "revision": "main"}}
    hub = samples.model("small", source=revision)
    for chosen in (claim, hub):
        spec = samples.spec([chosen, samples.model("large")])
        for flag, value in flags(engine.arguments(spec.model("small"), PLANNED)).items():
            assert flag in known, f"SGLang has no {flag}"
            assert (value is None) == (known[flag]["kind"] == "switch"), flag


@pytest.mark.parametrize(
    ("source", "path"),
    [
        pytest.param({"huggingFace": {"id": samples.SMALL}}, samples.SMALL, id="hub"),
        pytest.param({"claim": {"name": "weights"}}, "/weights", id="claim's root"),
        pytest.param({"claim": {"name": "weights", "path": "a/b"}}, "/weights/a/b", id="claim"),
    ],
)
def test_engine_loads_from_the_stated_source(source: dict[str, Any], path: str) -> None:
    chosen = samples.model("small", source=source, architecture={"name": samples.SMALL})
    rendered = stateful_set(samples.spec([chosen, samples.model("large")]))
    assert flags(container(rendered)["args"])["--model-path"] == path
    mounts = {m["name"]: m for m in container(rendered)["volumeMounts"]}
    assert ("weights" in mounts) == ("claim" in source)
    if "claim" in source:
        assert mounts["weights"]["readOnly"] is True


def test_user_arguments_and_variables_come_last_and_win() -> None:
    env = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        {"name": "A", "value": "user"},
        {"name": "HOME", "value": "/elsewhere"},
    ]
    chosen = samples.model("small", engine={"args": ["--enable-cache-report"], "env": env})
    rendered = stateful_set(
        samples.spec([chosen, samples.model("large")]),
        engine_env=({"name": "A", "value": "chart"}, {"name": "B", "value": "chart"}),
    )
    given = {v["name"]: v for v in container(rendered)["env"]}
    assert container(rendered)["args"][-1] == "--enable-cache-report"
    assert [given[n].get("value") for n in ("A", "B", "HOME")] == ["user", "chart", "/elsewhere"]
    assert given["HF_TOKEN"] == env[0]
    assert len(given) == len(container(rendered)["env"])


def test_scheduling_is_passed_on_and_the_pools_selector_added() -> None:
    taint = {"key": "team", "operator": "Exists", "effect": "NoSchedule"}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "rack", "labelSelector": {"matchLabels": {"noisy": "yes"}}}]}}  # fmt: skip
    scheduling = {
        "priorityClassName": "serving",
        "tolerations": [taint],
        "affinity": anti,
        "topologySpread": [{"topologyKey": "zone", "maxSkew": 2}],
    }
    pool = [{"gpuType": "H100", "limit": 8, "nodeSelector": {"gpu": "h100"}}]
    chosen = samples.model("small", scheduling=scheduling)
    found = pod(stateful_set(samples.spec([chosen, samples.model("large")], gpuPool=pool)))
    assert found["priorityClassName"] == "serving"
    assert taint in found["tolerations"]
    assert found["affinity"].items() >= anti.items()
    assert found["nodeSelector"] == {"gpu": "h100"}
    spread = found["topologySpreadConstraints"][0]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("zone", 2)
    assert spread["labelSelector"]["matchLabels"][names.LABEL_MODEL] == "small"


def test_startup_budget_is_the_startup_probes_and_liveness_outlasts_a_busy_engine() -> None:
    chosen = samples.model("small", startupBudgetSeconds=601)
    found = container(stateful_set(samples.spec([chosen, samples.model("large")])))
    startup, liveness = found["startupProbe"], found["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 601
    assert startup["httpGet"]["path"] == found["readinessProbe"]["httpGet"]["path"] == "/ready"
    # SGLang answers /health after at most SGLANG_HEALTH_CHECK_TIMEOUT, 20 s.
    assert liveness["httpGet"]["path"] == "/health"
    assert liveness["periodSeconds"] >= liveness["timeoutSeconds"] > 20


def test_set_is_parallel_replaced_on_delete_and_never_token_bearing() -> None:
    rendered = stateful_set()
    assert rendered["spec"]["podManagementPolicy"] == "Parallel"
    assert rendered["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert rendered["spec"]["serviceName"] == "chat-small-pods"
    assert pod(rendered)["automountServiceAccountToken"] is False


def test_shape_annotation_reads_back_as_the_planned_set() -> None:
    rendered = stateful_set(replicas=3)
    shape = json.loads(rendered["metadata"]["annotations"][names.ANNOTATION_SHAPE])
    assert plans.PlannedSet.model_validate({**shape, "replicas": PLANNED.replicas}) == PLANNED
    version = rendered["metadata"]["annotations"][names.ANNOTATION_RENDER_VERSION]
    assert int(version) == manifests.RENDER_VERSION


def test_nothing_that_may_change_later_stands_in_the_pod_template() -> None:
    rendered = stateful_set()
    template = rendered["spec"]["template"]["metadata"]
    assert rendered["metadata"]["labels"][names.LABEL_VERSION] == "v0.5.23"
    assert set(template) == {"labels"}
    assert not {names.LABEL_VERSION, names.LABEL_PLAN} & set(template["labels"])
    assert stateful_set(replicas=1)["spec"]["template"] == rendered["spec"]["template"]


def changed_model(**fields: Any) -> CascadeSpec:
    return samples.spec([samples.model("small", **fields), samples.model("large")])


IDENTITY_CHANGES = [
    ("tensor", samples.spec(), samples.planned_set(tensor=4)),
    ("pipeline", samples.spec(), samples.planned_set(pipeline=2)),
    ("GPU type", samples.spec(), samples.planned_set(gpu_type="H200")),
    ("memory fraction", samples.spec(), samples.planned_set(mem_fraction_static=0.9)),
    ("chunk size", samples.spec(), samples.planned_set(chunked_prefill_size=4096)),
    ("weights", changed_model(source={"huggingFace": {"id": samples.SMALL, "revision": "v2"}}),
     PLANNED),
    ("engine arg", changed_model(engine={"args": ["--enable-cache-report"]}), PLANNED),
    ("engine image", changed_model(engine={"image": "mirror/sglang:1"}), PLANNED),
    ("engine env", changed_model(engine={"env": [{"name": "A", "value": "1"}]}), PLANNED),
    ("resources", changed_model(engine={"resources": {"requests": {"cpu": "8"}}}), PLANNED),
    ("toleration", changed_model(scheduling={"tolerations": [{"operator": "Exists"}]}), PLANNED),
    ("shared memory", changed_model(storage={"sharedMemoryGibibytes": 32}), PLANNED),
    ("startup budget", changed_model(startupBudgetSeconds=600), PLANNED),
    ("resource name", samples.spec(gpuPool=[{"gpuType": "H100", "resourceName": "x.io/gpu"}]),
     PLANNED),
    ("node selector", samples.spec(gpuPool=[{"gpuType": "H100", "nodeSelector": {"a": "b"}}]),
     PLANNED),
]  # fmt: skip
IDENTITY_KEEPS = [
    ("replicas", samples.spec(), samples.planned_set(replicas=5)),
    ("KV tokens", samples.spec(), samples.planned_set(kv_tokens=1)),
    ("saturation rate", samples.spec(), samples.planned_set(saturation_rate=1.5)),
    ("confidence note", samples.spec(), samples.planned_set(low_confidence=("derived",))),
    ("qmin", samples.spec(qmin=90), PLANNED),
    ("pool limit", samples.spec(gpuPool=[{"gpuType": "H100", "limit": 16}]), PLANNED),
    ("workload", samples.spec(workload={"requestsPerMinute": 600}), PLANNED),
    ("router", samples.spec(router={"replicas": 3}), PLANNED),
    ("judge", samples.spec(judge={"type": "LLM", "rubric": "Be strict."}), PLANNED),
    ("max GPUs", changed_model(maxGpus=8), PLANNED),
    ("a default written out", changed_model(startupBudgetSeconds=1800, engine={"args": []}),
     PLANNED),
    ("another model", samples.spec(
        [samples.model("small"), samples.model("large", engine={"image": "x:1"})]), PLANNED),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "planned"), [
    pytest.param(spec, planned, id=name) for name, spec, planned in IDENTITY_CHANGES
])  # fmt: skip
def test_set_gets_a_new_name_when_its_pods_would_differ(
    spec: CascadeSpec, planned: plans.PlannedSet
) -> None:
    before = manifests.set_identity(samples.spec(), "small", PLANNED)
    assert manifests.set_identity(spec, "small", planned) != before
    assert stateful_set(spec, planned)["spec"]["template"] != stateful_set()["spec"]["template"]


@pytest.mark.parametrize(("spec", "planned"), [
    pytest.param(spec, planned, id=name) for name, spec, planned in IDENTITY_KEEPS
])  # fmt: skip
def test_set_keeps_its_name_and_template_when_its_pods_would_not_differ(
    spec: CascadeSpec, planned: plans.PlannedSet
) -> None:
    before = manifests.set_identity(samples.spec(), "small", PLANNED)
    assert manifests.set_identity(spec, "small", planned) == before
    assert stateful_set(spec, planned)["spec"]["template"] == stateful_set()["spec"]["template"]


def test_a_new_operator_rolls_no_engine() -> None:
    spec = samples.spec()
    old = manifests.set_identity(spec, "small", PLANNED, render_version=1)
    newer = manifests.set_identity(spec, "small", PLANNED, render_version=2)
    assert old != newer
    other_image = stateful_set(engine_image="lmsysorg/sglang:v9")["metadata"]["name"]
    assert other_image == stateful_set()["metadata"]["name"]


def test_defaults_are_no_part_of_a_name_so_that_later_fields_roll_nothing() -> None:
    inputs = engine.identity(samples.spec(), "small", PLANNED, render_version=1)
    assert [inputs[part] for part in ("engine", "scheduling", "storage")] == [{}, {}, {}]


def test_names_fit_for_the_longest_cascade_and_model() -> None:
    long = samples.model("m" * 24)
    raw = samples.body([long, samples.model("large")])
    raw["metadata"]["name"] = "c" * 32
    name = manifests.set_identity(parse(raw), "m" * 24, PLANNED)
    assert len(name) <= names.MAX_SET_NAME


def cascade_objects(spec: CascadeSpec | None = None, **settings: Any) -> list[dict[str, Any]]:
    given = samples.settings(**settings)
    return manifests.render_cascade(spec or samples.spec(), given, samples.OWNER)


def by_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [o for o in objects if o["kind"] == kind]


def test_objects_that_stand_as_long_as_the_cascade() -> None:
    listed = [f"{o['kind']}/{o['metadata']['name']}" for o in cascade_objects()]
    assert listed == [
        "Service/chat-small-pods",
        "Service/chat-small",
        "Service/chat-large-pods",
        "Service/chat-large",
        "ServiceAccount/chat-router",
        "Role/chat-router",
        "RoleBinding/chat-router",
        "Service/chat-router",
        "Deployment/chat-router",
    ]


def everything() -> Iterator[dict[str, Any]]:
    spec = samples.spec(router={"replicas": 2})
    yield from cascade_objects(spec, network_policies=True)
    yield stateful_set(spec)


def test_every_object_dies_with_the_cascade_and_tells_what_it_is() -> None:
    for rendered in everything():
        meta = rendered["metadata"]
        assert meta["ownerReferences"] == [samples.OWNER]
        assert meta["namespace"] == "demo"
        assert meta["labels"][names.LABEL_CASCADE] == "chat"
        assert meta["labels"][names.LABEL_MANAGED_BY] == names.FIELD_MANAGER
        assert meta["labels"][names.LABEL_COMPONENT] in ("engine", "router")


def test_pods_meet_the_restricted_profile() -> None:
    found = [o["spec"]["template"]["spec"] for o in everything() if "template" in o.get("spec", {})]
    assert len(found) == 2
    for pod_spec in found:
        assert pod_spec["securityContext"]["runAsNonRoot"] is True
        assert pod_spec["securityContext"]["runAsUser"] != 0
        assert pod_spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod_spec)
        kinds = {key for volume in pod_spec["volumes"] for key in volume if key != "name"}
        assert kinds <= PROFILE_VOLUMES
        for each in pod_spec["containers"]:
            context = each["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            writable = {m["mountPath"] for m in each["volumeMounts"] if not m.get("readOnly")}
            assert context["readOnlyRootFilesystem"] and "/tmp" in writable


def test_user_id_is_left_to_the_platform_when_it_assigns_one() -> None:
    context = pod(stateful_set(run_as_user=None))["securityContext"]
    assert context["runAsNonRoot"] is True
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(context)


def test_router_may_read_its_plan_and_endpoints_and_acknowledge_and_nothing_else() -> None:
    rules = by_kind(cascade_objects(), "Role")[0]["rules"]
    granted = {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ["*"])
    }
    assert granted == {
        ("", "configmaps", "get", "chat-router"),
        ("", "configmaps", "watch", "chat-router"),
        *(("discovery.k8s.io", "endpointslices", verb, "*") for verb in ("get", "list", "watch")),
        *(("coordination.k8s.io", "leases", verb, "*") for verb in ("create", "get", "patch")),
    }


def test_router_follows_the_spec_and_is_found_by_drift_watch() -> None:
    spec = samples.spec(
        router={"replicas": 3, "processes": 4, "resources": {"limits": {"memory": "1Gi"}}}
    )
    objects = cascade_objects(spec)
    deployment = by_kind(objects, "Deployment")[0]
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    given = flags(container(deployment)["args"])
    assert (given["--configmap"], given["--processes"]) == ("chat-router", "4")
    assert container(deployment)["resources"]["limits"] == {"memory": "1Gi"}
    service = next(s for s in by_kind(objects, "Service") if s["metadata"]["name"] == "chat-router")
    assert service["metadata"]["labels"][names.LABEL_COMPONENT] == "router"
    assert {p["name"]: p["port"] for p in service["spec"]["ports"]} == {"api": 8000, "admin": 9090}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_router_starts_before_there_is_a_plan() -> None:
    volumes = pod(by_kind(cascade_objects(), "Deployment")[0])["volumes"]
    plan = next(v for v in volumes if v["name"] == "plan")
    assert plan["configMap"] == {"name": "chat-router", "optional": True}


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1)])
def test_disruption_budget_exists_only_where_it_blocks_no_drain(
    replicas: int, budgets: int
) -> None:
    spec = samples.spec(router={"replicas": replicas})
    assert len(by_kind(cascade_objects(spec), "PodDisruptionBudget")) == budgets


@pytest.mark.parametrize(
    ("replicas", "guarded"),
    [({}, []), ({"small": 1, "large": 1}, []), ({"small": 3, "large": 1}, ["chat-small"])],
)
def test_a_drain_takes_the_replicas_of_a_model_one_by_one(
    replicas: dict[str, int], guarded: list[str]
) -> None:
    objects = manifests.render_cascade(samples.spec(), samples.settings(), samples.OWNER, replicas)
    budgets = by_kind(objects, "PodDisruptionBudget")
    assert [b["metadata"]["name"] for b in budgets] == guarded
    template = stateful_set()["spec"]["template"]["metadata"]["labels"]
    for budget in budgets:
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"]["matchLabels"].items() <= template.items()


def test_the_longest_accepted_answer_fits_in_the_grace_of_router_and_engine() -> None:
    spec = samples.spec(router={"timeouts": {"totalSeconds": 900}})
    deployment = by_kind(cascade_objects(spec), "Deployment")[0]
    given = flags(container(deployment)["args"])
    assert float(given["--grace-seconds"]) == 900
    assert (
        pod(deployment)["terminationGracePeriodSeconds"]
        >= 900 + float(given["--linger-seconds"]) + 10
    )
    engine = pod(stateful_set())
    sleep = engine["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    longest = samples.spec().router.timeouts.total_seconds
    assert engine["terminationGracePeriodSeconds"] >= longest + sleep + 15


def test_services_select_the_engine_pods_of_their_model() -> None:
    template = stateful_set()["spec"]["template"]["metadata"]["labels"]
    services = {s["metadata"]["name"]: s["spec"] for s in by_kind(cascade_objects(), "Service")}
    assert services["chat-small"]["selector"].items() <= template.items()
    assert not services["chat-large"]["selector"].items() <= template.items()
    assert services["chat-small-pods"]["clusterIP"] == "None"
    assert services["chat-small-pods"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in services["chat-small"]


def test_pull_secrets_and_policy_reach_every_pod() -> None:
    chosen: dict[str, Any] = {
        "image_pull_secrets": ("registry",), "image_pull_policy": "Always"
    }  # fmt: skip
    deployment = by_kind(cascade_objects(**chosen), "Deployment")[0]
    for rendered in (deployment, stateful_set(**chosen)):
        assert pod(rendered)["imagePullSecrets"] == [{"name": "registry"}]
        assert container(rendered)["imagePullPolicy"] == "Always"
