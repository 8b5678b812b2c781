"""Settings of the simulation, read once from the environment; flags belong to ``command``."""

import dataclasses
from collections.abc import Mapping

from .errors import SettingsError


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the simulated engine behaves beyond what SGLang's own flags say.

    ``time_scale``: modelled seconds per second of wall time (ENGINESIM_TIME_SCALE, default 1).
    ``gpu``: catalogue name of the GPU type whose step times are used (ENGINESIM_GPU, H100).
    ``startup_seconds``: wall seconds until ready, answers are 503 before
    (ENGINESIM_STARTUP_SECONDS, default 0).
    ``quality``: mean points (0-100) of its answers over prompts of all difficulties
    (ENGINESIM_QUALITY; default: from the size of the model).
    ``seed``: seed of every draw (ENGINESIM_SEED, default 0). All engines of one cascade need the
    same one: the judge reads with it what an answer is worth.
    ``architecture``: catalogue name to simulate when the model path says nothing, as with weights
    on a volume (ENGINESIM_ARCHITECTURE).
    ``faults``: faults active from the start, see ``faults.parse`` (ENGINESIM_FAULTS).
    """

    time_scale: float = 1.0
    gpu: str = "H100"
    startup_seconds: float = 0.0
    quality: float | None = None
    seed: int = 0
    architecture: str | None = None
    faults: str = ""


def load(environment: Mapping[str, str]) -> Settings:
    """Raises ``SettingsError`` with the variable, its value and what is allowed."""
    quality = environment.get("ENGINESIM_QUALITY", "")
    return Settings(
        time_scale=_number(environment, "ENGINESIM_TIME_SCALE", 1.0, low=0.001, high=10_000),
        gpu=environment.get("ENGINESIM_GPU") or "H100",
        startup_seconds=_number(environment, "ENGINESIM_STARTUP_SECONDS", 0.0, low=0, high=86_400),
        quality=_number(environment, "ENGINESIM_QUALITY", 0, low=0, high=100) if quality else None,
        seed=int(_number(environment, "ENGINESIM_SEED", 0, low=0, high=2**31)),
        architecture=environment.get("ENGINESIM_ARCHITECTURE") or None,
        faults=environment.get("ENGINESIM_FAULTS", ""),
    )


def _number(
    environment: Mapping[str, str], name: str, default: float, *, low: float, high: float
) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise SettingsError(f"{name}={text}: must be a number from {low:g} to {high:g}")
    return value
