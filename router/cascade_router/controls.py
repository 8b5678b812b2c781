"""What holds the walk within the plan: live thresholds, escalation buckets, planned ratios."""

import random
from collections.abc import Callable

from . import judges, policy, rubric
from .budgets import TokenBucket
from .config import RoutedModel, RouterConfig
from .steering import Steering


class Controls:
    """State of one process that outlives a plan: it follows each new one without starting over.

    ``processes``: how many workers share the planned escalation rate.
    """

    def __init__(self, rng: random.Random, clock: Callable[[], float], processes: int) -> None:
        self._rng = rng
        self._clock = clock
        self._processes = processes
        self._buckets: dict[str, TokenBucket] = {}
        self._steering: dict[str, tuple[str, Steering]] = {}
        self._kept_ratio: dict[str, Steering] = {}

    def apply(self, config: RouterConfig) -> None:
        """Follow a new plan."""
        now = self._clock()
        for index, model in enumerate(config.models):
            rate = model.escalations_per_second
            share = None if rate is None else rate / self._processes
            bucket = self._buckets.get(model.name)
            if bucket is None:
                self._buckets[model.name] = TokenBucket.full(share, model.escalation_burst, now)
            else:
                bucket.resize(share, model.escalation_burst, now)
            self._apply_steering(config, model)
            if index + 1 < len(config.models):
                ratio = escalated_share(config, index)
                kept = self._kept_ratio.get(model.name)
                if kept is None or kept.quantile != ratio:
                    self._kept_ratio[model.name] = Steering(ratio, model.threshold or 0)

    def threshold(self, model: RoutedModel) -> int:
        """The threshold in force; only for a model that has one."""
        assert model.threshold is not None
        steered = self._steering.get(model.name)
        if steered is None or model.steer_quantile is None:
            return model.threshold
        return steered[1].threshold

    def observe(self, model: RoutedModel, score: int) -> None:
        """A live score: a steered threshold follows it."""
        steered = self._steering.get(model.name)
        if steered is not None:
            steered[1].observe(score)

    def take_escalation(self, model: RoutedModel) -> bool:
        """Take one escalation into ``model``; False when its planned capacity is used up."""
        bucket = self._buckets.get(model.name)
        return bucket is None or bucket.take(self._clock())

    def escalates_unjudged(self, config: RouterConfig, index: int, signal: float | None) -> bool:
        """Keep the planned visit ratio without the judge: by the self signal, else at random."""
        model = config.models[index]
        if signal is not None and model.self_table is not None:
            kept = self._kept_ratio[model.name]
            score = judges.self_score(model, signal)
            kept.observe(score)
            return not policy.is_accepted(score, kept.threshold)
        return self._rng.random() < escalated_share(config, index)

    def _apply_steering(self, config: RouterConfig, model: RoutedModel) -> None:
        if model.threshold is None or model.steer_quantile is None:
            self._steering.pop(model.name, None)
            return
        identity = f"{rubric.template_id(config.judge)}/{model.revision}/{model.steer_quantile}"
        kept = self._steering.get(model.name)
        if kept is None or kept[0] != identity:
            start = Steering(model.steer_quantile, model.threshold)
            self._steering[model.name] = (identity, start)


def escalated_share(config: RouterConfig, index: int) -> float:
    """Planned share of this model's visitors that go on to the next model that is asked."""
    later = config.models[index + 1 :]
    following = next((m for m in later if m.threshold != policy.NEVER_ACCEPTED), later[-1])
    here = config.models[index].visit_ratio
    return min(1.0, following.visit_ratio / here) if here > 0 else 1.0
