"""The demo's steps in order; each asserts what it shows, so that it is a test as well."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from . import kube, report, steps, trace, traffic

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "01-two-models"
VALUES = Path(__file__).resolve().parent.parent / "values.yaml"
SYSTEM = "cascade-system"
NAMESPACE = "chat-demo"
CASCADE = "chat"
TIME_SCALE = 5.0
"""Model seconds per wall-clock second; arrivals, latencies and windows are sped up together."""
EXPECTED_RATE = 10.0
"""Requests per second that the example expects (600 a minute); the trace is sent at this rate."""
TRACE_SECONDS = 50.0
"""Model seconds of the trace that are sent before the shift."""
OVERRIDES: dict[str, dict[str, Any]] = {
    "drift": {"windowSeconds": 30, "cooldownSeconds": 60},
    "judge": {"deadlineMilliseconds": 5000},
    "router": {"timeouts": {"connectMilliseconds": 20_000}},
}
"""What the demo sets beside the example: windows of seconds, patience on a machine of 2 cores."""
CALIBRATION_PROMPTS = 400
CALIBRATION_CONCURRENCY = 96
"""More than the Job's default, which goes easy on live traffic; here there is none yet."""
ENGINES = "app.kubernetes.io/component=engine"
SEED = 20231116
QMIN_THAT_MOVES_GPUS = 60
"""Suggested at the end: with less to promise, the small model gets GPUs back."""
HARDEST = 0.3
"""After the shift, difficulties are uniform between this and 1, before it between 0 and 1."""


@dataclass
class Demo:
    """State that the steps share."""

    progress: steps.Progress
    cluster: Any
    api: kube.Kube
    tunnel: kube.Tunnel | None = None
    plans: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        if self.tunnel is None:
            raise steps.DemoError("the router is not reachable yet")
        return self.tunnel.url

    def cascade(self) -> dict[str, Any]:
        return self.api.cascade(CASCADE, NAMESPACE)

    def plan(self) -> dict[str, Any]:
        text = self.api.config_map(f"{CASCADE}-plan", NAMESPACE).get("plan.json")
        if text is None:
            raise steps.DemoError(f"ConfigMap {CASCADE}-plan holds no plan.json")
        found: dict[str, Any] = json.loads(text)
        return found


def install(demo: Demo) -> None:
    """Both charts, with values that name the simulated engine and its speed."""
    with demo.progress.step("Installing the operator with its Helm charts"):
        demo.cluster.helm(
            "upgrade", "--install", "cascade-operator-crds",
            str(ROOT / "charts/cascade-operator-crds"), "--namespace", SYSTEM, "--create-namespace",
        )  # fmt: skip
        demo.cluster.helm(
            "upgrade", "--install", "cascade-operator", str(ROOT / "charts/cascade-operator"),
            "--namespace", SYSTEM, "--values", str(VALUES),
        )  # fmt: skip
        # On a cluster that an earlier demo left, images may be new under the same tag.
        demo.cluster.kubectl("-n", SYSTEM, "rollout", "restart", "deployment")


def start_uncalibrated(demo: Demo) -> None:
    """``kubectl apply -f cascade.yaml``: Ready without any score known."""
    if demo.api.has_namespace(NAMESPACE):
        with demo.progress.step("Removing the cascade of an earlier demo"):
            demo.api.core.delete_namespace(NAMESPACE)
            demo.progress.wait("namespace", lambda: _gone(demo), 120)
    with demo.progress.step("Applying examples/01-two-models/cascade.yaml"):
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        demo.api.apply(manifest, NAMESPACE)
        manifest = yaml.safe_load((EXAMPLE / "cascade.yaml").read_text())
        steps.say(f"           with {json.dumps(OVERRIDES)}")
        for field, values in OVERRIDES.items():
            manifest["spec"][field] = manifest["spec"].get(field, {}) | values
        demo.api.apply(manifest, NAMESPACE)
        demo.progress.wait("cascade", lambda: _ready(demo.cascade()), 240)
    document = demo.plan()
    if document["verdict"] != "Uncalibrated":
        raise steps.DemoError(f"expected an uncalibrated start, got {document['verdict']}")
    report.plan(document)
    steps.say(f"  status says: {kube.condition(demo.cascade(), 'PlanReady').get('message')}")
    demo.plans.append(document)


def calibrate(demo: Demo) -> None:
    """The calibration Job: every model answers every prompt, the judge scores the answers."""
    generator = random.Random(SEED)
    prompts = trace.calibration_prompts(trace.read(), CALIBRATION_PROMPTS, generator)
    with demo.progress.step(f"Calibrating: {CALIBRATION_PROMPTS} prompts at every model"):
        demo.api.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"{CASCADE}-prompts"},
                "data": {"prompts.jsonl": prompts},
            },
            NAMESPACE,
        )
        job = ""
        for document in yaml.safe_load_all((EXAMPLE / "calibrate.yaml").read_text()):
            if document["kind"] == "Job":
                job = document["metadata"]["name"]
                container = document["spec"]["template"]["spec"]["containers"][0]
                container["command"].append(f"--concurrency={CALIBRATION_CONCURRENCY}")
            demo.api.apply(document, NAMESPACE)
        demo.progress.wait("calibration Job", lambda: _job(demo, job), 180)
    with demo.progress.step("Planning again with the calibration table"):
        demo.progress.wait("plan", lambda: _planned(demo, "Feasible"), 120)
        demo.progress.wait("cascade", lambda: _ready(demo.cascade()), 180)
    document = demo.plan()
    steps.say("\nThe plan")
    report.plan(document)
    steps.say("\nThe pods that realise it")
    report.pods(demo.api.pods(NAMESPACE, ENGINES))
    _assert_pods_follow(demo, document)
    demo.plans.append(document)


def ask(demo: Demo) -> None:
    """One request that the smallest model answers, one that is escalated."""
    with demo.progress.step("Asking"):
        easy, hard = asyncio.run(_easy_and_hard(demo.url))
    report.answer("answered by the smallest model (an easy question)", easy)
    report.answer("escalated (a hard question)", hard)


def traffic_and_shift(demo: Demo) -> None:
    """Public arrivals and lengths, then longer and harder requests until GPUs have moved."""
    rows = trace.at_rate(trace.read(), EXPECTED_RATE)
    phase = trace.Phase(rows)
    tallies = [traffic.Tally(), traffic.Tally()]
    requests = trace.requests(phase, CASCADE, random.Random(SEED + 1))
    with traffic.background(demo.url, requests, TIME_SCALE, tallies):
        title = f"Sending {TRACE_SECONDS:.0f} s of a public trace, {TIME_SCALE:.0f} times as fast"
        with demo.progress.step(title):
            time.sleep(TRACE_SECONDS / TIME_SCALE)
        phase.rows, phase.hardest, phase.number = trace.longer(rows), HARDEST, 1
        # Slow answers are escalated ones: counting before they are in would flatter the ratio.
        demo.progress.wait("answers", lambda: _answered(tallies[0]), 30, every=0.2)
        report.visits(demo.plan(), tallies[0], TIME_SCALE)
        _assert_visits(demo.plan(), tallies[0])
        _replan_for_the_shift(demo)
        _assert_pods_follow(demo, demo.plan())
    for tally in tallies:
        _assert_none_failed(tally)
    answered = sum(tally.answered for tally in tallies)
    steps.say(f"  {answered} requests were answered in all, none failed")


def _replan_for_the_shift(demo: Demo) -> None:
    before = demo.plan()
    with demo.progress.step("Traffic shifts: longer and harder requests"):
        demo.progress.wait("drift-watch", lambda: _drifted(demo.cascade()), 90)
        steps.say(f"  drift: {demo.cascade()['status']['drift'].get('message')}")
    with demo.progress.step("The operator plans again and moves GPUs"):
        demo.progress.wait("plan", lambda: _moved(before, demo.plan()), 120)
        demo.progress.wait("cascade", lambda: _ready(demo.cascade()), 180)
    after = demo.plan()
    report.change(before, after)
    for reason in demo.cascade()["status"]["plan"].get("reasons", []):
        steps.say(f"  {reason}")
    demo.plans.append(after)


def next_commands(kubeconfig: Path) -> None:
    """Three commands worth trying next."""
    prefix = f"export KUBECONFIG={kubeconfig}"
    patch = f'\'{{"spec":{{"qmin":{QMIN_THAT_MOVES_GPUS}}}}}\''
    steps.say("\nThe cluster is left running. Worth trying next:")
    steps.say(f"  export PATH={kubeconfig.parent / 'bin'}:$PATH   # kubectl and helm")
    steps.say(f"  {prefix}")
    steps.say(f"  kubectl -n {NAMESPACE} get csc {CASCADE} -o wide")
    steps.say(f"  kubectl -n {NAMESPACE} patch csc {CASCADE} --type merge -p {patch}   # GPUs move")
    steps.say(f"  kubectl -n {NAMESPACE} get pods -w")
    steps.say("  make demo-down   # stops and removes everything")


def _gone(demo: Demo) -> tuple[bool, str]:
    left = demo.api.has_namespace(NAMESPACE)
    return not left, "going" if left else "gone"


def _ready(cascade: dict[str, Any]) -> tuple[bool, str]:
    ready = kube.condition(cascade, "Ready")
    plan = cascade.get("status", {}).get("plan", {})
    applied = bool(plan.get("revision")) and plan.get("applied") == plan.get("revision")
    stalled = kube.condition(cascade, "Stalled")
    if stalled.get("status") == "True":
        raise steps.DemoError(f"stalled: {stalled.get('reason')}: {stalled.get('message')}")
    if kube.is_true(cascade, "Ready") and applied:
        return True, "Ready, plan applied"
    reconciling = kube.condition(cascade, "Reconciling")
    words = reconciling.get("message") or ready.get("message") or "not seen by the operator yet"
    return False, str(words)


def _job(demo: Demo, name: str) -> tuple[bool, str]:
    succeeded, failed = demo.api.job(name, NAMESPACE)
    if failed:
        raise steps.DemoError(f"calibration Job {name} failed: kubectl logs job/{name}")
    return succeeded, "complete" if succeeded else "running"


def _planned(demo: Demo, verdict: str) -> tuple[bool, str]:
    found = demo.plan()["verdict"]
    return found == verdict, f"verdict {found}"


def _drifted(cascade: dict[str, Any]) -> tuple[bool, str]:
    verdict = cascade.get("status", {}).get("drift", {}).get("verdict", "Unknown")
    return verdict == "Drifted", f"verdict {verdict}"


def _answered(tally: traffic.Tally) -> tuple[bool, str]:
    left = tally.in_flight()
    return left == 0, "all in" if left == 0 else "the last ones are under way"


def _moved(before: dict[str, Any], after: dict[str, Any]) -> tuple[bool, str]:
    gpus = {m["name"]: m["gpusUsed"] for m in after["models"]}
    old = {m["name"]: m["gpusUsed"] for m in before["models"]}
    return gpus != old, ", ".join(f"{name} {count} GPUs" for name, count in gpus.items())


def _assert_visits(plan: dict[str, Any], tally: traffic.Tally) -> None:
    for model in plan["models"]:
        predicted, measured = model["visitRatio"], tally.visit_ratio(model["name"])
        if abs(predicted - measured) > 0.12:
            raise steps.DemoError(
                f"{model['name']}: predicted visit ratio {predicted:.2f}, measured {measured:.2f}"
            )


def _assert_none_failed(tally: traffic.Tally) -> None:
    if tally.failures:
        raise steps.DemoError(f"{len(tally.failures)} requests failed, first: {tally.failures[0]}")


def _assert_pods_follow(demo: Demo, document: dict[str, Any]) -> None:
    found: dict[str, int] = {}
    for pod in demo.api.pods(NAMESPACE, ENGINES):
        if pod.metadata.deletion_timestamp is None:
            limits = pod.spec.containers[0].resources.limits
            model = pod.metadata.labels["cascade-operator.io/model"]
            found[model] = found.get(model, 0) + int(limits["nvidia.com/gpu"])
    planned = {m["name"]: m["gpusUsed"] for m in document["models"]}
    if found != planned:
        raise steps.DemoError(f"pods hold {found} GPUs, the plan says {planned}")


async def _easy_and_hard(url: str) -> tuple[traffic.Answer, traffic.Answer]:
    row = trace.TraceRow(0.0, 400, 60)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        client = traffic.Client(url, session)
        first = await _first(client, row, 0.02, lambda a: len(a.path) == 1)
        second = await _first(client, row, 0.98, lambda a: len(a.path) > 1)
        return first, second


async def _first(
    client: traffic.Client,
    row: trace.TraceRow,
    difficulty: float,
    wanted: Callable[[traffic.Answer], bool],
) -> traffic.Answer:
    for index in range(20):
        body = trace.body(CASCADE, 2_000_000 + index, row, difficulty)
        answer = await client.ask(trace.Request(0.0, body))
        if answer.status != 200:
            raise steps.DemoError(f"HTTP {answer.status}: {answer.text[:300]}")
        if wanted(answer):
            return answer
    raise steps.DemoError(f"no request of difficulty {difficulty} took the expected path")
