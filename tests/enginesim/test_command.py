"""The command line accepts and refuses what SGLang's does."""

import dataclasses

import pytest

from cascade_enginesim import command
from cascade_enginesim.errors import SettingsError
from tests.enginesim import processes

RENDERED = [
    "--model-path", "--served-model-name", "--host", "--port", "--tp-size", "--pp-size",
    "--mem-fraction-static", "--context-length", "--chunked-prefill-size", "--max-total-tokens",
    "--max-running-requests", "--max-queued-requests", "--quantization", "--revision", "--dtype",
    "--kv-cache-dtype", "--trust-remote-code", "--enable-metrics", "--api-key", "--ep-size",
    "--attn-dp-size", "--nnodes", "--node-rank", "--dist-init-addr", "--dist-timeout",
    "--watchdog-timeout", "--schedule-policy", "--reasoning-parser", "--tool-call-parser",
    "--extra-metric-labels", "--random-seed", "--load-format", "--download-dir", "--log-level",
    "--tokenizer-path", "--chat-template", "--log-requests", "--skip-server-warmup",
]  # fmt: skip


def test_every_flag_that_the_operator_may_render_is_known() -> None:
    known = {name for flag in command.known_flags() for name in flag["names"]}
    assert set(RENDERED) <= known


def test_every_known_flag_parses_with_a_value_of_its_kind() -> None:
    examples = {"int": "1", "float": "0.5", "str": "x", "json": "{}", "size": "64k"}
    line = []
    for flag in command.known_flags():
        line.append(flag["names"][-1])
        if flag["kind"] in examples:
            line.append(str(flag.get("choices", [examples[flag["kind"]]])[0]))
    values = vars(command.parser().parse_args(line))
    assert len(values) == len({flag["dest"] for flag in command.known_flags()})


def test_the_flags_are_read_as_given() -> None:
    launch = command.parse(
        ["serve", "org/model", "--tp", "2", "--pipeline-parallel-size", "4", "--enable-metrics",
         "--max-total-tokens", "64k", "--extra-metric-labels", '{"set": "a"}']
    )  # fmt: skip
    assert launch == dataclasses.replace(
        command.Launch("org/model", "org/model"),
        tensor=2,
        pipeline=4,
        enable_metrics=True,
        max_total_tokens=64_000,
        extra_metric_labels={"set": "a"},
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--no-such-flag"], "unrecognized arguments: --no-such-flag", id="unknown"),
        pytest.param(["--load-format", "zip"], "invalid choice: 'zip'", id="choice"),
        pytest.param(["--tp-size", "two"], "invalid int value: 'two'", id="type"),
        pytest.param(["--port"], "expected one argument", id="no-value"),
        pytest.param(["--extra-metric-labels", "{"], "invalid", id="json"),
    ],
)
def test_a_bad_command_line_exits_with_2(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        command.parse(["serve", "--model-path", "m", *flags])
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_the_process_itself_exits_with_2_on_an_unknown_flag() -> None:
    code, said = processes.exit_of("--replicas", "3")
    assert code == 2
    assert "unrecognized arguments: --replicas 3" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--nnodes", "2", "--tp-size", "2"], "only one node", id="nodes"),
        pytest.param(["--nnodes", "2", "--tp-size", "3"], "divisible by --nnodes", id="world"),
        pytest.param(["--dp-size", "2"], "start 2 servers", id="replicas-inside"),
        pytest.param(["--served-model-name", "a:b"], "must not hold ':'", id="name"),
        pytest.param(["--mem-fraction-static", "1.2"], "between 0 and 1", id="fraction"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_flag(flags: list[str], said: str) -> None:
    with pytest.raises(SettingsError, match=said.replace("(", r"\(")):
        command.parse(["serve", "--model-path", "m", *flags])


@pytest.mark.parametrize(
    ("model", "flags", "settings", "said"),
    [
        pytest.param(
            "meta-llama/Llama-3.1-70B-Instruct", [], {}, "leave no GPU memory", id="too-large"
        ),
        pytest.param(processes.MODEL, ["--tp-size", "3"], {}, "32 attention heads", id="heads"),
        pytest.param(
            processes.MODEL, ["--context-length", "999999"], {}, "limit is 131072", id="context"
        ),
        pytest.param(
            processes.MODEL, [], {"ENGINESIM_GPU": "abacus"}, "ENGINESIM_GPU=abacus", id="gpu"
        ),
        pytest.param(
            processes.MODEL, [], {"ENGINESIM_TIME_SCALE": "fast"},
            "ENGINESIM_TIME_SCALE=fast: must be a number", id="time-scale",
        ),
        pytest.param(
            processes.MODEL, [], {"ENGINESIM_FAULTS": "sulks"}, "fault 'sulks'", id="fault"
        ),
        pytest.param(
            processes.MODEL, [], {"ENGINESIM_ARCHITECTURE": "llm-9"},
            "ENGINESIM_ARCHITECTURE=llm-9", id="architecture",
        ),
    ],
)  # fmt: skip
def test_what_could_not_load_ends_the_process(
    model: str, flags: list[str], settings: dict[str, str], said: str
) -> None:
    code, message = processes.exit_of(*flags, model=model, **settings)
    assert code == 1
    assert said in message
