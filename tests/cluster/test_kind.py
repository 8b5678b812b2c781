"""The way by kind, with stand-ins for docker, kind, kubectl and helm that record their calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cascade_cluster import clusters, images, kind, wheelhouse
from cascade_cluster.images import Image
from cascade_cluster.instance import load
from cascade_cluster.settings import Settings
from cascade_cluster.wheelhouse import Sources, Wheelhouse

# Shell words only: the stand-ins are the only programs on PATH.
STAND_IN = """#!/bin/sh
call="${{0##*/}} $*"
echo "$call" >> "{log}"
case "$call" in
"docker info") exit {engine} ;;
"kind create"*) : > "{kubeconfig}" ;;
"kubectl config view"*) echo '{view}' ;;
esac
"""
VIEW = {"clusters": [{"cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"user": {}}]}


class Recorder:
    """Programs that only note how they were called."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.log, self._settings = folder / "bin", folder / "calls", settings
        self.folder.mkdir()
        self.log.touch()

    def add(self, *names: str, engine: int = 0) -> None:
        for name in names:
            program = self.folder / name
            kubeconfig = self._settings.clusters / "dev" / "kubeconfig"
            program.write_text(
                STAND_IN.format(
                    log=self.log, engine=engine, kubeconfig=kubeconfig, view=json.dumps(VIEW)
                )
            )
            program.chmod(0o755)

    def calls(self, *names: str) -> list[str]:
        lines = self.log.read_text().splitlines()
        return [line for line in lines if line.split()[0] in names]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "c", data=tmp_path / "d", install=False, kubeconfig=None)


@pytest.fixture
def recorder(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(tmp_path, settings)
    monkeypatch.setenv("PATH", str(recorder.folder))
    return recorder


def test_kind_is_chosen_where_an_engine_answers(recorder: Recorder) -> None:
    recorder.add("docker", "kind")
    assert clusters.choose_provider() == "kind"


def test_a_client_without_an_engine_is_not_enough(recorder: Recorder) -> None:
    recorder.add("docker", "kind", engine=1)
    assert clusters.choose_provider() == "local"


def test_an_engine_without_kind_is_not_enough(recorder: Recorder) -> None:
    recorder.add("docker")
    assert clusters.choose_provider() == "local"
    assert recorder.calls("docker") == []


def test_up_creates_a_cluster_with_workers_and_gives_them_gpus(
    recorder: Recorder, settings: Settings
) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    cluster = clusters.up(settings, "dev", "pods", nodes=2, gpus=4)
    folder = settings.clusters / "dev"
    assert recorder.calls("kind") == [
        f"kind delete cluster --name cascade-dev --kubeconfig {folder}/kubeconfig",
        f"kind create cluster --name cascade-dev --config {folder}/kind.json"
        f" --kubeconfig {folder}/kubeconfig --wait 180s",
    ]
    roles = [node["role"] for node in json.loads((folder / "kind.json").read_text())["nodes"]]
    assert roles == ["control-plane", "worker", "worker"]
    patches = sorted(call for call in recorder.calls("kubectl") if " patch " in call)
    assert [call.split()[3] for call in patches] == ["cascade-dev-worker", "cascade-dev-worker2"]
    assert all('"nvidia.com/gpu": "4"' in call for call in patches)
    assert cluster.kubeconfig == folder / "kubeconfig"
    assert cluster.url == "https://127.0.0.1:1"


def test_the_second_up_starts_nothing(recorder: Recorder, settings: Settings) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    clusters.up(settings, "dev", "api")
    before = recorder.calls("kind")
    clusters.up(settings, "dev", "api")
    assert recorder.calls("kind") == before


def test_down_deletes_the_cluster_and_the_folder(recorder: Recorder, settings: Settings) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    clusters.up(settings, "dev", "api")
    clusters.down(settings, "dev")
    assert recorder.calls("kind")[-1].startswith("kind delete cluster --name cascade-dev")
    assert not (settings.clusters / "dev").exists()


def test_images_are_built_by_docker_and_loaded_by_kind(
    recorder: Recorder, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.touch()
    image = Image("router", "cascade-operator/router:9", "key", dockerfile)
    wheels = Wheelhouse(settings.cache, tmp_path, Sources("", ""), tmp_path / "none.whl")
    monkeypatch.setattr(images, "describe", lambda base, sources: [image])
    monkeypatch.setattr(wheelhouse, "freeze", lambda cache: wheels)
    monkeypatch.setattr(Wheelhouse, "context", lambda self, target, *_: target.mkdir(parents=True))
    clusters.up_with_images(settings, "dev")
    context = settings.cache / "images" / ".context-router"
    assert recorder.calls("docker")[-1] == (
        f"docker build --tag cascade-operator/router:9 {context}"
    )
    assert recorder.calls("kind")[-1] == (
        "kind load docker-image --name cascade-dev cascade-operator/router:9"
    )


def test_archives_are_loaded_by_kind(recorder: Recorder, settings: Settings) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    clusters.up(settings, "dev", "pods")
    clusters.load_archive(settings, "dev", Path("/some/image.tar"))
    assert recorder.calls("kind")[-1] == (
        "kind load image-archive --name cascade-dev /some/image.tar"
    )


def test_a_cluster_of_the_user_is_used_and_never_touched(
    recorder: Recorder, tmp_path: Path, settings: Settings
) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    kubeconfig = tmp_path / "theirs"
    kubeconfig.touch()
    theirs = Settings(settings.cache, settings.data, install=False, kubeconfig=kubeconfig)
    assert clusters.up(theirs, "dev", "pods").kubeconfig == kubeconfig
    clusters.down(theirs, "dev")
    assert recorder.calls("docker", "kind") == []
    assert kubeconfig.exists()


@pytest.mark.parametrize(
    ("count", "names"),
    [(1, ["worker"]), (3, ["worker", "worker2", "worker3"]), (0, [])],
    ids=["one", "three", "none"],
)
def test_worker_names_follow_kind(
    recorder: Recorder, settings: Settings, count: int, names: list[str]
) -> None:
    recorder.add("docker", "kind", "kubectl", "helm")
    clusters.up(settings, "dev", "api")
    instance = load(settings.clusters / "dev")
    assert instance is not None
    instance.nodes = count
    assert kind.worker_names(instance) == [f"cascade-dev-{name}" for name in names]
