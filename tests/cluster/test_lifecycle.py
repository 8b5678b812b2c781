"""Clusters come and go: nothing is left of one, and others do not notice."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade_cluster import clusters, control_plane, fixed_folders, local, processes, teardown
from cascade_cluster.commands import wait_until
from cascade_cluster.errors import ClusterError
from cascade_cluster.instance import Instance, load
from cascade_cluster.network import Network
from cascade_cluster.settings import Settings, from_environment


@pytest.fixture
def settings() -> Settings:
    settings = from_environment()
    if settings.kubeconfig is not None or clusters.choose_provider() != "local":
        pytest.skip("another provider starts the clusters here")
    return settings


@pytest.fixture
def names(settings: Settings) -> Iterator[list[str]]:
    """Two names of the test's own, cleaned whatever happens."""
    made = [f"test-life-{os.getpid()}-{secrets.token_hex(2)}" for _ in range(2)]
    yield made
    for name in made:
        clusters.down(settings, name)


def running(settings: Settings, name: str) -> Instance:
    instance = load(settings.clusters / name)
    assert instance is not None and local.is_running(instance)
    return instance


def crash(process: processes.Process) -> None:
    """Kills a component; a killed process still runs for a moment, and would pass for healthy."""
    os.kill(process.pid, signal.SIGKILL)
    wait_until(
        "the end of the killed process",
        lambda: not processes.is_alive(process),
        timeout_seconds=10,
    )


def traces(instance: Instance, containers: list[str]) -> list[str]:
    """What is left of a cluster on this host."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    left = [f"process {process.pid}" for process in teardown.remains(instance.folder)]
    left += [f"process {each.name}" for each in instance.processes if processes.is_alive(each)]
    left += [f"mount {line}" for line in mounts if str(instance.folder) in line]
    left += [str(path) for path in [instance.folder] if path.exists()]
    if instance.network is not None:
        device = Path("/sys/class/net", Network(instance.network).device)
        left += [str(device)] if device.exists() else []
        table = Path("/proc/net/route").read_text()
        # The table writes addresses backwards, in hexadecimal.
        left += ["route"] if f"0000{instance.network:02X}0A" in table else []
    for container in containers:
        left += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{container}")]
    return left


@pytest.mark.api
def test_a_cluster_whose_api_server_was_killed_is_replaced(
    settings: Settings, names: list[str]
) -> None:
    clusters.up(settings, names[0], "api")
    first = running(settings, names[0])
    crash(first.process("kube-apiserver"))
    assert not any("up," in line for line in clusters.status(settings) if names[0] in line)
    cluster = clusters.up(settings, names[0], "api")
    second = running(settings, names[0])
    assert cluster.kubectl("get", "namespace", "default", "-o", "name").strip()
    assert not any(processes.is_alive(process) for process in first.processes)
    clusters.down(settings, names[0])
    assert traces(second, []) == []
    clusters.down(settings, names[0])


@pytest.mark.api
def test_a_run_that_died_before_it_wrote_its_record_is_cleaned(
    settings: Settings, names: list[str]
) -> None:
    clusters.up(settings, names[0], "api")
    first = running(settings, names[0])
    (first.folder / "instance.json").write_text("{")
    clusters.up(settings, names[0], "api")
    assert not any(processes.is_alive(process) for process in first.processes)


@pytest.mark.api
def test_a_component_that_cannot_start_is_shown_with_its_log(
    settings: Settings, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["kube-apiserver", "--no-such-flag"]
    monkeypatch.setattr(control_plane, "api_arguments", lambda *_: words)
    with pytest.raises(ClusterError, match="unknown flag: --no-such-flag"):
        clusters.up(settings, names[0], "api")
    folder = settings.clusters / names[0]
    assert (folder / "logs" / "kube-apiserver.log").exists()
    assert teardown.remains(folder) == []


@pytest.mark.api
def test_another_level_under_the_same_name_is_refused(settings: Settings, names: list[str]) -> None:
    clusters.up(settings, names[0], "api")
    with pytest.raises(ClusterError, match="runs already, at level api"):
        clusters.up(settings, names[0], "kwok")


@pytest.mark.pods
def test_two_clusters_run_side_by_side_and_leave_nothing(
    settings: Settings, names: list[str]
) -> None:
    handles = [clusters.up(settings, name, "pods", nodes=1) for name in names]
    first, second = (running(settings, name) for name in names)
    assert first.network != second.network
    for handle in handles:
        handle.kubectl(
            "create", "deployment", "p", "--image=cascade-operator/pause:1", "--replicas=2"
        )
        handle.kubectl("rollout", "status", "deployment/p", "--timeout=60s")
    tasks = {
        instance.folder: [
            path.name
            for path in instance.folder.glob("node-*/state/io.containerd.runtime.v2.task/k8s.io/*")
        ]
        for instance in (first, second)
    }
    assert all(len(containers) == 4 for containers in tasks.values())

    # A crash of one is no affair of the other.
    crash(first.process("kube-apiserver"))
    clusters.up(settings, names[0], "pods", nodes=1)
    replacement = running(settings, names[0])
    left = traces(first, tasks[first.folder])
    assert [trace for trace in left if trace.startswith("/sys/fs")] == []
    handles[1].kubectl("rollout", "status", "deployment/p", "--timeout=5s")

    clusters.down(settings, names[0])
    assert traces(replacement, []) == []
    handles[1].kubectl("rollout", "status", "deployment/p", "--timeout=5s")
    clusters.down(settings, names[1])
    assert traces(second, tasks[second.folder]) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_user_can_remove_a_cluster_while_root_runs_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "made-folders").touch()
    monkeypatch.setattr(fixed_folders, "MADE", state / "made-folders")
    os.seteuid(65534)
    try:
        fixed_folders.remove_unused()
    finally:
        os.seteuid(0)
    assert (state / "made-folders").exists()
