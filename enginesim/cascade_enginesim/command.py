"""SGLang's command line, built from ``flags.json``: what a rendered command may say."""

import argparse
import dataclasses
import importlib.resources
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from .errors import SettingsError

FLAGS_FILE = "flags.json"
SIZES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SIZES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclasses.dataclass(frozen=True)
class Launch:
    """The flags that the simulation acts on; ``None`` where SGLang computes a default."""

    model_path: str
    served_model_name: str
    host: str = "127.0.0.1"
    port: int = 30000
    tensor: int = 1
    pipeline: int = 1
    quantization: str | None = None
    mem_fraction_static: float | None = None
    context_length: int | None = None
    chunked_prefill_size: int | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    max_queued_requests: int | None = None
    api_key: str | None = None
    admin_api_key: str | None = None
    enable_metrics: bool = False
    extra_metric_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    weight_version: str = "default"
    log_level: str = "info"


def known_flags() -> list[dict[str, Any]]:
    """The entries of ``flags.json``: names, dest, kind, and choices or nargs where they apply."""
    text = importlib.resources.files(__package__).joinpath(FLAGS_FILE).read_text()
    flags: list[dict[str, Any]] = json.loads(text)["flags"]
    return flags


def parser() -> argparse.ArgumentParser:
    """A parser that accepts and refuses what SGLang 0.5.23 does: exit 2 on a bad command line."""
    built = argparse.ArgumentParser(
        prog="sglang serve",
        description="Simulated SGLang engine: no GPU is used and no model is loaded.",
        argument_default=argparse.SUPPRESS,
    )
    for flag in known_flags():
        built.add_argument(*flag["names"], dest=flag["dest"], **_options(flag))
    return built


def _options(flag: dict[str, Any]) -> dict[str, Any]:
    if flag["kind"] == "switch":
        return {"action": "store_true"}
    if flag["kind"] == "boolean":
        return {"action": argparse.BooleanOptionalAction}
    kinds: dict[str, Callable[[str], Any]] = {
        "int": int, "float": float, "str": str, "json": json.loads, "size": size,
    }  # fmt: skip
    copied: dict[str, Any] = {
        key: flag[key] for key in ("choices", "nargs", "required") if key in flag
    }
    return {"type": kinds[flag["kind"]], **copied}


def size(text: str) -> int:
    """An integer with an optional SI or IEC suffix, as in ``64k`` or ``2Mi``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", text.strip())
    return int(float(match[1]) * SIZES[match[2]]) if match else int(text)


def parse(arguments: Sequence[str]) -> Launch:
    """Reads ``serve [MODEL] --flag ...``.

    Exits with 2 on what SGLang's parser refuses; raises ``SettingsError`` on what SGLang refuses
    after parsing, and on what this simulation cannot stand for.
    """
    rest = list(arguments)
    if not rest or rest.pop(0) != "serve":
        parser().error("the only subcommand simulated here is 'serve'")
    if rest and not rest[0].startswith("-"):
        rest.insert(0, "--model-path")
    values = vars(parser().parse_args(rest))
    _check(values)
    taken = {field.name for field in dataclasses.fields(Launch)} & values.keys()
    return Launch(
        **{
            "served_model_name": values["model_path"],
            "tensor": values.get("tp_size", 1),
            "pipeline": values.get("pp_size", 1),
            **{name: values[name] for name in taken},
        }
    )


def _check(values: dict[str, Any]) -> None:
    nodes, dp = values.get("nnodes", 1), values.get("dp_size", 1)
    world = values.get("tp_size", 1) * values.get("pp_size", 1)
    if world % nodes:
        raise SettingsError(
            f"--tp-size x --pp-size = {world} must be divisible by --nnodes {nodes}"
        )
    if nodes > 1:
        raise SettingsError(f"--nnodes {nodes}: only one node is simulated yet; use --nnodes 1")
    if dp > 1:
        raise SettingsError(
            f"--dp-size {dp}: replicas inside one server are not simulated; start {dp} servers"
        )
    if ":" in values.get("served_model_name", ""):
        raise SettingsError(
            f"--served-model-name {values['served_model_name']}: must not hold ':' "
            "(reserved for adapters)"
        )
    fraction = values.get("mem_fraction_static", 0.5)
    if not 0 < fraction < 1:
        raise SettingsError(f"--mem-fraction-static {fraction}: must lie between 0 and 1")
