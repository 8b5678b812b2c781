"""Settings of the process, read once from the environment."""

import dataclasses
import json
from collections.abc import Mapping


class SettingsError(ValueError):
    """An environment that cannot be used: names the variable, its value and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How drift-watch runs; what it tests is in each cascade's ``spec.drift``.

    ``period_seconds``: longest wall time between two looks (CASCADE_DRIFT_PERIOD_SECONDS, 30).
    ``time_scale``: how much faster than modelled the traffic runs (CASCADE_TIME_SCALE, 1): windows
    are that much shorter, measured rates are divided by it.
    ``namespaces``: the only ones looked at (CASCADE_WATCH_NAMESPACES, a JSON list; empty: all).
    ``request_seconds``: limit of one call to the API or a router (CASCADE_REQUEST_TIMEOUT_SECONDS).
    ``http_port``: health and metrics (CASCADE_HTTP_PORT, 9090).
    """

    period_seconds: float = 30.0
    time_scale: float = 1.0
    namespaces: tuple[str, ...] = ()
    request_seconds: float = 5.0
    http_port: int = 9090
    log_level: str = "info"
    log_format: str = "json"


def load(environment: Mapping[str, str]) -> Settings:
    """Raises ``SettingsError``."""
    return Settings(
        period_seconds=_number(environment, "CASCADE_DRIFT_PERIOD_SECONDS", 30.0, 0.1, 3600),
        time_scale=_number(environment, "CASCADE_TIME_SCALE", 1.0, 0.001, 10_000),
        namespaces=_namespaces(environment.get("CASCADE_WATCH_NAMESPACES") or "[]"),
        request_seconds=_number(environment, "CASCADE_REQUEST_TIMEOUT_SECONDS", 5.0, 0.1, 300),
        http_port=int(_number(environment, "CASCADE_HTTP_PORT", 9090, 0, 65_535)),
        log_level=environment.get("CASCADE_LOG_LEVEL") or "info",
        log_format=environment.get("CASCADE_LOG_FORMAT") or "json",
    )


def _number(
    environment: Mapping[str, str], name: str, default: float, low: float, high: float
) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise SettingsError(f"{name}={text}: must be a number from {low:g} to {high:g}")
    return value


def _namespaces(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise SettingsError(f'CASCADE_WATCH_NAMESPACES={text}: must be a list such as ["team-a"]')
    return tuple(found)
