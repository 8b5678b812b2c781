"""The example's calibration Job and the parts that it joins: router, operator, prompts."""

from typing import Any

import pytest
import yaml

from cascade_operator import names
from cascade_router import __main__, calibrate, calibration_configmap, config, prompts
from tests.crd.conftest import ROOT

FOLDER = ROOT / "examples" / "01-two-models"
CASCADE = yaml.safe_load((FOLDER / "cascade.yaml").read_text())["metadata"]["name"]
OBJECTS: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((FOLDER / "calibrate.yaml").read_text())
}
TEMPLATE = OBJECTS["Job"]["spec"]["template"]
(CONTAINER,) = TEMPLATE["spec"]["containers"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the command line hands to ``calibrate``."""
    found: list[Any] = []

    def record(args: Any) -> int:
        found.append(args)
        return 0

    monkeypatch.setattr(calibrate, "main", record)
    program, *arguments = CONTAINER["command"]
    assert program == "/opt/venv/bin/cascade-router"
    assert __main__.main(arguments) == 0
    return found[0]


def _mounted(path: str) -> str:
    """The ConfigMap whose folder holds the path."""
    (mount,) = [m for m in CONTAINER["volumeMounts"] if path.startswith(m["mountPath"] + "/")]
    (volume,) = [v for v in TEMPLATE["spec"]["volumes"] if v["name"] == mount["name"]]
    return str(volume["configMap"]["name"])


def test_it_reads_the_routers_plan_and_writes_where_the_operator_looks(seen: Any) -> None:
    assert seen.config.name == config.CONFIG_KEY
    assert _mounted(str(seen.config)) == names.router(CASCADE)
    assert seen.prompts.name == "prompts.jsonl"
    assert _mounted(str(seen.prompts)) == f"{CASCADE}-prompts"
    assert seen.configmap == names.calibration(CASCADE)
    assert calibration_configmap.KEY == names.CALIBRATION_KEY


def test_it_may_write_that_config_map_and_nothing_else() -> None:
    create, by_name = OBJECTS["Role"]["rules"]
    assert (create["resources"], create["verbs"]) == (["configmaps"], ["create"])
    assert by_name["resourceNames"] == [names.calibration(CASCADE)]
    assert by_name["verbs"] == ["get", "patch"]
    assert TEMPLATE["spec"]["serviceAccountName"] == OBJECTS["ServiceAccount"]["metadata"]["name"]


def test_its_pods_carry_the_labels_that_network_policies_let_in() -> None:
    wanted = {
        names.LABEL_CASCADE: CASCADE,
        names.LABEL_COMPONENT: names.COMPONENT_CALIBRATION,
    }
    assert wanted.items() <= TEMPLATE["metadata"]["labels"].items()


def test_the_prompts_can_be_read() -> None:
    with (FOLDER / "prompts.jsonl").open() as lines:
        read = prompts.read_prompts(lines)
    assert len(read) >= 20
