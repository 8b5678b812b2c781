"""One simulated engine: its model, its load, its state between starting and stopping."""

import dataclasses
import enum
import random
from typing import Any

from cascade_solver.latency import steps

from . import command, faults, generation, machine, metrics, quality, settings
from .engine import Engine, Ticket


class Phase(enum.Enum):
    """Where the process is between its start and its end."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"


@dataclasses.dataclass
class Simulation:
    """What the handlers of the HTTP front share."""

    launch: command.Launch
    settings: settings.Settings
    machine: machine.Machine
    who: generation.Personality
    engine: Engine
    faults: faults.Faults
    metrics: metrics.Metrics
    ids: random.Random
    phase: Phase = Phase.STARTING
    is_paused: bool = False

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.UP and not self.is_paused and not self.faults.has("never-ready")

    @property
    def is_healthy(self) -> bool:
        return self.phase is Phase.UP and not self.faults.has("never-ready")

    def new_rid(self) -> str:
        return f"{self.ids.getrandbits(128):032x}"

    def account(self, ticket: Ticket, *, streamed: bool) -> dict[str, float]:
        """Books one sequence that is over; its times in modelled seconds since submission."""
        sequence = ticket.sequence
        if sequence.finished is None or sequence.first is None or sequence.started is None:
            self.metrics.aborted()
            return {}
        times = {
            "queued": sequence.started - sequence.ready,
            "first": sequence.first - ticket.submitted,
            "whole": sequence.finished - ticket.submitted,
        }
        self.metrics.finished(
            streamed=streamed,
            prompt=sequence.input_tokens,
            generated=sequence.generated,
            **times,
        )
        return times

    def metadata(self, times: dict[str, float]) -> dict[str, Any]:
        """Says that the answer is simulated, with its times in modelled seconds."""
        return {
            "weight_version": self.launch.weight_version,
            "simulated": True,
            "modelled_seconds": {name: round(value, 6) for name, value in times.items()},
        }


def build(launch: command.Launch, chosen: settings.Settings) -> Simulation:
    """Needs a running event loop. Raises ``SettingsError`` where the engine could not load."""
    built = machine.build(launch, chosen)
    points = chosen.quality
    if points is None:
        points = quality.default_points(built.parameters)
    engine = Engine(built, chosen.time_scale, steps.FRONT_END_SECONDS)
    return Simulation(
        launch=launch,
        settings=chosen,
        machine=built,
        who=generation.Personality(launch.model_path, points, chosen.seed),
        engine=engine,
        faults=faults.Faults(faults.parse(chosen.faults)),
        metrics=metrics.Metrics(engine, launch),
        # Request ids differ between replicas and restarts, so they are not drawn from the seed.
        ids=random.Random(),
    )
