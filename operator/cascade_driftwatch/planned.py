"""The plan in force, as far as traffic is compared with it: parsed out of the plan ConfigMap."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pydantic
from pydantic.alias_generators import to_camel

from cascade_operator import names

PLAN_KEY = "plan.json"
UNCALIBRATED = "Uncalibrated"


class Workload(pydantic.BaseModel):
    """The plan's ``workload``: rate in requests per second of modelled time, lengths in tokens at
    the first model, escalation as a fraction of a model's visitors, scores in points. Other fields
    of the plan are the planner's and pass unread."""

    model_config = pydantic.ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)

    rate: float = pydantic.Field(gt=0)
    n: int = 0
    effective_size: float | None = None
    input_deciles: tuple[float, ...] = ()
    output_deciles: tuple[float, ...] = ()
    escalation_ratio: dict[str, float] = {}
    mean_score: dict[str, float | None] = {}
    input_edges: tuple[float, ...] = ()

    @property
    def size(self) -> float:
        """Requests behind the planned distributions; 0 when they were only stated."""
        return self.effective_size if self.effective_size is not None else float(self.n)


class PlanError(ValueError):
    """A plan ConfigMap that cannot be read: says which part."""


@dataclasses.dataclass(frozen=True)
class PlanInForce:
    """``is_steered``: uncalibrated, so the router moves thresholds by itself and escalation and
    scores say nothing about the traffic."""

    revision: str
    is_steered: bool
    workload: Workload


def parse(config_map: Mapping[str, Any]) -> PlanInForce | None:
    """The plan in the ConfigMap ``<cascade>-plan``; ``None`` when it holds none yet.

    Raises ``PlanError``.
    """
    text = config_map.get("data", {}).get(PLAN_KEY)
    revision = config_map.get("metadata", {}).get("annotations", {}).get(names.LABEL_PLAN)
    if not text or not revision:
        return None
    try:
        document = json.loads(text)
        workload = Workload.model_validate(document["workload"])
    except pydantic.ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise PlanError(f"{PLAN_KEY}: workload.{place}: {fault['msg']}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise PlanError(f"{PLAN_KEY}: has no readable workload ({error!r})") from error
    return PlanInForce(revision, document.get("verdict") == UNCALIBRATED, workload)
