"""Settings: the chart's choices, read from the environment once at the start."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import OperatorError

T = TypeVar("T")

HTTP_PORT = 9090


class SettingsError(OperatorError):
    """A variable of the environment does not hold what it must: fix the chart's value."""


@dataclass(frozen=True)
class Settings:
    """Everything that the operator's process is told. Durations in seconds, memory in MiB.

    ``namespace`` and ``pod_name`` are the operator's own; ``watch_namespaces`` counts only when
    ``cluster_scoped`` is false; ``run_as_user`` ``None`` leaves the uid to the platform.
    """

    namespace: str
    pod_name: str
    cluster_scoped: bool = True
    watch_namespaces: tuple[str, ...] = ()
    engine_image: str = "lmsysorg/sglang:v0.5.23"
    engine_env: tuple[Mapping[str, Any], ...] = ()
    router_image: str = ""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    time_scale: float = 1.0
    run_as_user: int | None = 65532
    network_policies: bool = False
    network_policy_clients: tuple[Mapping[str, Any], ...] = ()
    network_policy_metrics: tuple[Mapping[str, Any], ...] = ()
    planning_timeout_seconds: float = 60.0
    planning_memory_mib: int = 1024
    lease_name: str = "cascade-operator"
    lease_duration_seconds: float = 30.0
    lease_renew_deadline_seconds: float = 20.0
    lease_retry_seconds: float = 5.0
    request_timeout_seconds: float = 8.0
    resync_seconds: float = 600.0
    drift_cooldown_seconds: float = 120.0
    drift_watch_enabled: bool = True
    log_level: str = "info"
    log_format: str = "json"
    http_port: int = HTTP_PORT

    def __post_init__(self) -> None:
        if not self.cluster_scoped and not self.watch_namespaces:
            raise SettingsError(
                "CASCADE_WATCH_NAMESPACES is empty in namespaced mode: list at least one namespace"
                " (chart value watchNamespaces)"
            )
        slack = self.lease_duration_seconds - self.lease_renew_deadline_seconds
        if self.request_timeout_seconds >= slack:
            # A request that is still under way must have ended before anybody else may lead.
            raise SettingsError(
                f"CASCADE_REQUEST_TIMEOUT_SECONDS is {self.request_timeout_seconds:g}: it must be "
                f"less than lease duration minus renew deadline ({slack:g})"
            )
        if self.time_scale <= 0:
            raise SettingsError(f"CASCADE_TIME_SCALE is {self.time_scale:g}: give more than 0")


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads the variables ``CASCADE_...``; absent ones keep their defaults.

    Raises ``SettingsError`` with the variable's name, its value and what is allowed.
    """
    given: dict[str, Any] = {}
    for name, read in READERS.items():
        text = environment.get(f"CASCADE_{name.upper()}")
        if text is not None:
            given[name] = _read(f"CASCADE_{name.upper()}", text, *read)
    for name in ("namespace", "pod_name"):
        if not given.get(name):
            raise SettingsError(f"CASCADE_{name.upper()} is missing: the chart sets it")
    return Settings(**given)


def _read(name: str, text: str, convert: Callable[[str], T], allowed: str) -> T:
    try:
        return convert(text)
    except (ValueError, TypeError, KeyError):
        raise SettingsError(f"{name} is {text!r}: give {allowed}") from None


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError(text)
    return value


def _strings(text: str) -> tuple[str, ...]:
    values = json.loads(text)
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ValueError(text)
    return tuple(values)


def _objects(text: str) -> tuple[dict[str, Any], ...]:
    values = json.loads(text)
    if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
        raise ValueError(text)
    return tuple(values)


def _one_of(*allowed: str) -> tuple[Callable[[str], str], str]:
    return (lambda text: {value: value for value in allowed}[text]), f"one of {', '.join(allowed)}"


STRING = (str, "a text")
BOOLEAN = (_boolean, "true or false")
SECONDS = (_positive, "seconds, more than 0")
STRINGS = (_strings, "a JSON list of texts")
OBJECTS = (_objects, "a JSON list of objects")

READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "namespace": STRING,
    "pod_name": STRING,
    "cluster_scoped": BOOLEAN,
    "watch_namespaces": STRINGS,
    "engine_image": STRING,
    "engine_env": OBJECTS,
    "router_image": STRING,
    "image_pull_policy": _one_of("Always", "IfNotPresent", "Never"),
    "image_pull_secrets": STRINGS,
    "time_scale": (float, "a decimal number, more than 0"),
    "run_as_user": (lambda text: int(text) if text else None, "a user id, or nothing"),
    "network_policies": BOOLEAN,
    "network_policy_clients": OBJECTS,
    "network_policy_metrics": OBJECTS,
    "planning_timeout_seconds": SECONDS,
    "planning_memory_mib": (int, "MiB, a whole number"),
    "lease_name": STRING,
    "lease_duration_seconds": SECONDS,
    "lease_renew_deadline_seconds": SECONDS,
    "lease_retry_seconds": SECONDS,
    "request_timeout_seconds": SECONDS,
    "resync_seconds": SECONDS,
    "drift_cooldown_seconds": SECONDS,
    "drift_watch_enabled": BOOLEAN,
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of("json", "console"),
    "http_port": (int, "a port number"),
}
"""Field of Settings -> how its variable is read, and what is allowed in words."""
