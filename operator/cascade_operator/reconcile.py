"""The pass: one cascade, from what stands in the cluster to the next writes and its status."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from . import (
    childplan,
    errors,
    events,
    handover,
    metrics,
    observe,
    plan_record,
    planning,
)
from .apply import Writer
from .conditions import summarise
from .kube import CONFIG_MAP, Body, Kube
from .observation import Observation
from .observe import Caches
from .settings import Settings
from .spec import CascadeSpec, parse
from .step import Step

Key = tuple[str, str]
"""(namespace, name) of a cascade."""

FIRST_RETRY_SECONDS = 10.0
LONGEST_RETRY_SECONDS = 600.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Result:
    """When the cascade needs its next pass (seconds from now; ``None``: when something happens),
    and whether this one failed and should be tried again with growing pauses."""

    again_after: float | None = None
    has_failed: bool = False


@dataclass
class Outcome:
    """What one pass has found and done so far; the status is written from it in any case."""

    observation: Observation
    spec: CascadeSpec | None = None
    faults: tuple[errors.Fault, ...] = ()
    decision: planning.Decision | None = None
    record: plan_record.PlanRecord | None = None
    step: Step | None = None
    errors: list[Exception] = field(default_factory=list)
    happenings: list[events.Happening] = field(default_factory=list)
    again_after: float | None = None


@dataclass
class _Failure:
    """A problem that could not be solved: the same one is not tried again before its time."""

    revision: str
    error: errors.PlanningError
    retry_at: float | None
    attempts: int = 1


class Reconciler:
    """Runs passes. Passes of different cascades may overlap, passes of one never do."""

    def __init__(
        self,
        api: Kube,
        caches: Caches,
        writer: Writer,
        recorder: events.Recorder,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._caches = caches
        self._writer = writer
        self._recorder = recorder
        self._settings = settings
        self._clock = clock
        self._planner = asyncio.Lock()
        self._pools: dict[str, asyncio.Lock] = {}
        self._failures: dict[Key, _Failure] = {}
        self._planning: dict[Key, tuple[int, asyncio.Event]] = {}

    async def reconcile(self, key: Key) -> Result:
        """One level-based pass; it may run at any time and any number of times.

        Raises only ``LeadershipLostError``: every other failure ends in the status.
        """
        body = self._caches.cascades.get(*key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(key)
            return Result()
        outcome = await self._look(body)
        requests = self._writer.requests
        started = time.monotonic()
        if outcome.spec is not None:
            try:
                plan = await self._plan(key, body, outcome)
                async with self._pool(outcome.spec):
                    await self._move(body, outcome, plan)
            except (errors.PlanningError, errors.ClusterApiError) as error:
                outcome.errors.append(error)
            except _Superseded:
                return Result(again_after=0.0)
        moved = self._writer.requests > requests
        await self._tell(key, outcome)
        metrics.PASS_SECONDS.observe(time.monotonic() - started)
        return self._result(outcome, moved)

    def newer_spec(self, key: Key, generation: int) -> None:
        """Stops the planning child of an older spec."""
        planning_now = self._planning.get(key)
        if planning_now is not None and planning_now[0] != generation:
            planning_now[1].set()

    # -- the steps of a pass ------------------------------------------------------------------

    async def _look(self, body: Body) -> Outcome:
        """Parse and observe."""
        try:
            parsed = parse(body, namespaced=not self._settings.cluster_scoped)
        except errors.SpecError as error:
            bare = observe.observe(self._caches, body, None, None, self._clock())
            return Outcome(bare, faults=error.faults)
        return Outcome(await self._observe(body, parsed), spec=parsed)

    async def _observe(self, body: Body, parsed: CascadeSpec) -> Observation:
        table = await self._calibration(parsed)
        return observe.observe(self._caches, body, parsed, table, self._clock())

    async def _calibration(self, parsed: CascadeSpec) -> Body | None:
        """The table's ConfigMap: from the cache when it carries the cascade's label."""
        name, _ = observe.calibration_reference(parsed)
        cached = self._caches.config_maps.get(parsed.namespace, name)
        if cached is not None:
            return cached
        try:
            return await self._api.get(CONFIG_MAP.path(parsed.namespace, name))
        except errors.NotFoundError:
            return None

    async def _plan(self, key: Key, body: Body, outcome: Outcome) -> Any:
        """Decides whether to plan, and does so in a child process. Returns the plan, if any."""
        assert outcome.spec is not None
        outcome.record = plan_record.read(outcome.observation).record
        decision = planning.decide(outcome.spec, outcome.observation, self._settings)
        outcome.decision = decision
        if not isinstance(decision, planning.NeedPlan):
            self._failures.pop(key, None)
            return None
        if decision.plan is not None:
            return decision.plan
        failure = self._failures.get(key)
        if failure is None or failure.revision != decision.revision:
            # Planning may take a minute: say at once what is being done.
            await self._tell(key, outcome)
        elif failure.retry_at is None or self._clock() < failure.retry_at:
            outcome.errors.append(failure.error)
            return None
        return await self._solve(key, outcome, decision)

    async def _solve(self, key: Key, outcome: Outcome, need: planning.NeedPlan) -> Any:
        generation = outcome.observation.generation
        cancel = asyncio.Event()
        self._planning[key] = (generation, cancel)
        try:
            async with self._planner:
                if cancel.is_set():
                    raise _Superseded
                return await self._child(key, need, cancel)
        except asyncio.CancelledError:
            if cancel.is_set():
                raise _Superseded from None
            raise
        except errors.PlanningError as error:
            self._failures[key] = self._failed(key, need.revision, error)
            outcome.errors.append(error)
            return None
        finally:
            del self._planning[key]

    async def _child(self, key: Key, need: planning.NeedPlan, cancel: asyncio.Event) -> Any:
        started = time.monotonic()
        result = "error"
        try:
            plan = await childplan.solve(
                need.problem,
                self._settings.planning_timeout_seconds,
                self._settings.planning_memory_mib,
                cancel,
            )
            result = "ok"
            self._failures.pop(key, None)
            return plan
        finally:
            seconds = time.monotonic() - started
            metrics.PLAN_SECONDS.labels(result).observe(seconds)
            log.info(
                "planned",
                cascade="/".join(key),
                revision=need.revision,
                why=need.why,
                result=result,
                seconds=round(seconds, 2),
            )

    def _failed(self, key: Key, revision: str, error: errors.PlanningError) -> _Failure:
        """An infeasible problem stays infeasible; a planner that failed is tried again, ever more
        seldom."""
        before = self._failures.get(key)
        attempts = before.attempts + 1 if before and before.revision == revision else 1
        pause = min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (attempts - 1))
        may_pass = isinstance(error, errors.PlanningFailedError)
        return _Failure(revision, error, self._clock() + pause if may_pass else None, attempts)

    async def _move(self, body: Body, outcome: Outcome, plan: Any) -> None:
        """Adopts the plan and takes the next step of the hand-over, with the pool for itself."""
        assert outcome.spec is not None
        body = self._current(body)
        outcome.observation = await self._observe(body, outcome.spec)
        stored = plan_record.read(outcome.observation)
        if plan is not None:
            stored = self._concluded(outcome, plan)
        outcome.record = stored.record
        await handover.take(self._writer, outcome, stored, self._settings)

    def _current(self, body: Body) -> Body:
        """The cascade as it is now; planning and waiting for the pool may have taken a while."""
        metadata = body["metadata"]
        latest = self._caches.cascades.get(metadata["namespace"], metadata["name"])
        if latest is None or latest["metadata"]["generation"] != metadata["generation"]:
            raise _Superseded
        return latest

    def _concluded(self, outcome: Outcome, plan: Any) -> plan_record.Stored:
        """The plan enters into force only if it still answers what is observed now: another
        cascade may have taken GPUs while this one planned."""
        assert outcome.spec is not None
        need = planning.decide(outcome.spec, outcome.observation, self._settings)
        before = outcome.decision
        assert isinstance(before, planning.NeedPlan)
        if not isinstance(need, planning.NeedPlan) or need.revision != before.revision:
            raise _Superseded
        outcome.decision = need
        was = plan_record.read(outcome.observation)
        stored = planning.conclude(outcome.spec, outcome.observation, need, plan)
        outcome.happenings += _adoption(was, stored, need.why)
        return stored

    async def _tell(self, key: Key, outcome: Outcome) -> None:
        """Summarise: status and events, whatever the pass came to."""
        body = self._caches.cascades.get(*key)
        if body is None:
            return
        observation = outcome.observation
        status = summarise(
            outcome.spec,
            outcome.faults,
            observation,
            outcome.record,
            outcome.decision,
            outcome.step,
            outcome.errors,
            self._clock(),
            self._settings.drift_watch_enabled,
        )
        before = body.get("status") or {}
        outcome.happenings += events.transitions(before, status)
        try:
            await self._writer.status(body, status)
        except errors.NotFoundError:
            return  # the cascade was deleted meanwhile
        except errors.ClusterApiError as error:
            # The schema may be older than the operator (422): the work goes on without status.
            outcome.errors.append(error)
        for happening in outcome.happenings:
            await self._recorder.post(body, happening)
        outcome.happenings.clear()

    # -- around a pass ------------------------------------------------------------------------

    def _result(self, outcome: Outcome, moved: bool) -> Result:
        if any(isinstance(error, errors.ClusterApiError) for error in outcome.errors):
            return Result(has_failed=True)
        now = self._clock()
        waits = [outcome.again_after]
        if isinstance(outcome.decision, planning.KeepPlan):
            waits.append(outcome.decision.retry_after)
        if outcome.step is not None:
            if outcome.step.recheck_at is not None:
                waits.append(outcome.step.recheck_at - now)
            if moved and not outcome.step.settled:
                # Nothing that was written here wakes us: look again at what follows from it.
                waits.append(0.0)
        failure = self._failures.get((outcome.observation.namespace, outcome.observation.name))
        if failure is not None and failure.retry_at is not None:
            waits.append(failure.retry_at - now)
        due = [max(0.0, wait) for wait in waits if wait is not None]
        return Result(again_after=min(due, default=None))

    def _pool(self, parsed: CascadeSpec) -> asyncio.Lock:
        """One hand-over at a time decides over the GPUs of one resource."""
        return self._pools.setdefault(parsed.pool.resource_name, asyncio.Lock())

    def _forget(self, key: Key) -> None:
        self._failures.pop(key, None)
        for gauge in (metrics.COMMITTED_GPUS, metrics.STEP_STALLED):
            try:
                gauge.remove(*key)
            except KeyError:
                continue  # it never came to a hand-over


class _Superseded(Exception):
    """What this pass was about has changed: begin a new one."""


def _adoption(
    before: plan_record.Stored, after: plan_record.Stored, why: str
) -> list[events.Happening]:
    old = before.record.revision if before.record is not None else None
    if after.record is not None and after.record.revision != old:
        words = "; ".join((f"plan {after.record.revision}: {why}", *after.record.reasons))
        return [events.Happening(events.PLAN_CHANGED, words)]
    if after.proposal is not None and after.proposal != before.proposal:
        words = f"plan {after.proposal.revision} waits for approval: {why}"
        return [events.Happening(events.PLAN_PROPOSED, words)]
    return []
