"""The walk: ask a model, judge its answer, accept or escalate; the last model streams natively."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import answers, openai, policy, relay
from .answers import Answer
from .backends import Call
from .config import RoutedModel, RouterConfig
from .controls import Controls
from .errors import AnswerTooLargeError, OverloadedError, RouterError
from .messages import Client, Response
from .metrics import Metrics
from .openai import Ask
from .policy import Verdict
from .relay import Opened, Pinger, PingTimes
from .visits import Trace, Visit


class Backend(Protocol):
    """Reaches the engines of a model."""

    async def open(self, call: Call) -> Opened:
        """Send a call; raises ``RouterError`` when no head of a response came."""


class Judge(Protocol):
    """Scores answers."""

    def needs_logprobs(self, config: RouterConfig, model: RoutedModel) -> bool:
        """Whether the answer of ``model`` has to carry log-probabilities."""

    async def judge(
        self, config: RouterConfig, model: RoutedModel, ask: Ask, answer: Answer
    ) -> Verdict:
        """The verdict on an answer; does not raise for a judge that fails."""


class Step(enum.Enum):
    """How a visit ended when it gave no response to return."""

    SENT = "sent"
    ESCALATED = "escalated"


@dataclass(frozen=True, slots=True)
class Cascade:
    """What the walks of one process share; the plan comes with each request."""

    backend: Backend
    judge: Judge
    controls: Controls
    metrics: Metrics
    clock: Callable[[], float]
    pings: PingTimes

    async def respond(
        self, ask: Ask, config: RouterConfig, client: Client, trace: Trace
    ) -> Response | None:
        """Answer ``ask``; returns ``None`` when the answer went out through ``client``.

        Raises ``RouterError``; once ``client`` is committed its caller sends it as an event.
        """
        headers = [("x-cascade-plan", config.plan_id)]
        walk = _Walk(self, ask, config, client, trace, Pinger(client, self.pings, headers))
        try:
            result = await walk.run()
        finally:
            await walk.pinger.stop()
        return result if isinstance(result, Response) else None


@dataclass(slots=True)
class _Walk:
    """One request on its way. ``held`` is the last answer that was collected and not accepted."""

    shared: Cascade
    ask: Ask
    config: RouterConfig
    client: Client
    trace: Trace
    pinger: Pinger
    held: Answer | None = None

    async def run(self) -> Response | Step:
        models = self.config.models
        if self.ask.forced is not None:
            return await self._relay(next(m for m in models if m.name == self.ask.forced))
        last = len(models) - 1
        has_entered = False
        for index, model in enumerate(models):
            if index < last and self._threshold(model) == policy.NEVER_ACCEPTED:
                continue
            if has_entered and not self.shared.controls.take_escalation(model):
                return await self._without_escalation(model)
            if index == last:
                return await self._relay(model)
            has_entered = True
            if not policy.fits(self.ask, model.context_length):
                self.shared.metrics.escalations.labels(model.name, "context").inc()
                continue
            if self.ask.is_stream:
                self.pinger.start()
            result = await self._visit(index)
            if result is not Step.ESCALATED:
                return result
        raise AssertionError("the last model always ends the walk")

    async def _visit(self, index: int) -> Response | Step:
        """Collect and judge the answer of a model below the top."""
        model = self.config.models[index]
        visit = Visit(model.name)
        self.trace.visits.append(visit)
        try:
            answer = await self._collect(model, visit)
        except AnswerTooLargeError:
            return self._escalate(visit, "too_large")
        except RouterError as error:
            return await self._unavailable(visit, error.code, error)
        if answer.status >= 500:
            return await self._unavailable(visit, f"status_{answer.status}", answer)
        if answer.status != 200:
            visit.reason = f"status_{answer.status}"
            return await self._send(answer)
        verdict = await self._verdict(model, answer, visit)
        if verdict is not None and not self._accepts(index, verdict):
            self.held = answer
            return self._escalate(visit, verdict.reason or "score")
        visit.outcome = "accepted"
        self.trace.answered_by = model.name
        return await self._send(answer)

    async def _collect(self, model: RoutedModel, visit: Visit) -> Answer:
        is_judged = self._threshold(model) != policy.NEVER_JUDGED
        adds = is_judged and self.shared.judge.needs_logprobs(self.config, model)
        opened = await self.shared.backend.open(self._call(model, with_logprobs=adds))
        try:
            answer = await relay.collect(
                opened,
                model.name,
                self.ask,
                self.config.limits.answer_bytes,
                has_added_logprobs=adds,
            )
        finally:
            opened.close()
        self._count(visit, answer.prompt_tokens, answer.completion_tokens)
        return answer

    async def _verdict(self, model: RoutedModel, answer: Answer, visit: Visit) -> Verdict | None:
        if self._threshold(model) == policy.NEVER_JUDGED:
            return None
        verdict = await self.shared.judge.judge(self.config, model, self.ask, answer)
        visit.is_judged = True
        visit.score, visit.signal = verdict.score, verdict.signal
        metrics = self.shared.metrics
        if verdict.score is None:
            metrics.no_verdict.labels(model.name, verdict.reason).inc()
        else:
            metrics.judge_score.labels(model.name).observe(verdict.score)
        return verdict

    def _accepts(self, index: int, verdict: Verdict) -> bool:
        model, controls = self.config.models[index], self.shared.controls
        if verdict.score is not None:
            threshold = self._threshold(model)
            controls.observe(model, verdict.score)
            return policy.is_accepted(verdict.score, threshold)
        if verdict.is_unfit:
            return False
        if verdict.is_lost:
            return not controls.escalates_unjudged(self.config, index, verdict.signal)
        return self.config.judge.on_no_verdict == "Accept"

    def _escalate(self, visit: Visit, reason: str) -> Step:
        visit.outcome, visit.reason = "escalated", reason
        self.shared.metrics.escalations.labels(visit.model, reason).inc()
        return Step.ESCALATED

    # -- ends other than acceptance ------------------------------------------------------------

    async def _without_escalation(self, model: RoutedModel) -> Response | Step:
        if self.held is not None:
            return await self._degraded(self.held, "escalation_budget")
        self.shared.metrics.shed.labels("escalation_budget").inc()
        raise OverloadedError(
            f"{model.name}: its planned capacity is used up; try again later", retry_after=1
        )

    async def _unavailable(
        self, visit: Visit, reason: str, cause: RouterError | Answer
    ) -> Response | Step:
        """A model on the path cannot serve: skip it, return the held answer, or fail."""
        visit.reason = reason
        policy_name = self.config.when_unavailable
        if policy_name == "Skip" and visit.model != self.config.models[-1].name:
            self.shared.metrics.escalations.labels(visit.model, "unavailable").inc()
            return Step.ESCALATED
        if policy_name == "Answer" and self.held is not None:
            return await self._degraded(self.held, reason)
        if isinstance(cause, RouterError):
            raise cause
        return await self._send(cause)

    async def _degraded(self, answer: Answer, reason: str) -> Response | Step:
        """Return a collected answer although it was not accepted, and say so."""
        self.trace.degraded = reason
        self.trace.answered_by = answer.model
        for visit in self.trace.visits:
            if visit.model == answer.model:
                visit.outcome = "degraded"
        self.shared.metrics.degraded.labels(answer.model, reason).inc()
        return await self._send(answer)

    # -- the model that is not judged ----------------------------------------------------------

    async def _relay(self, model: RoutedModel) -> Response | Step:
        """Pass a model's answer through, byte for byte."""
        visit = Visit(model.name)
        self.trace.visits.append(visit)
        try:
            opened = await self.shared.backend.open(self._call(model, with_logprobs=False))
        except RouterError as error:
            return await self._unavailable(visit, error.code, error)
        try:
            await self.pinger.stop()
            if self.ask.is_stream and opened.status == 200:
                if relay.is_event_stream(opened.headers):
                    return await self._relay_frames(opened, visit)
            body = await opened.read(self.config.limits.answer_bytes)
        finally:
            opened.close()
        answer = Answer(model.name, opened.status, opened.headers, [body], False, False)
        if opened.status >= 500:
            return await self._unavailable(visit, f"status_{opened.status}", answer)
        if opened.status == 200:
            visit.outcome = "accepted"
            self.trace.answered_by = model.name
            answer.read_usage(relay.usage_of(body))
            self._count(visit, answer.prompt_tokens, answer.completion_tokens)
        return await self._send(answer)

    async def _relay_frames(self, opened: Opened, visit: Visit) -> Step:
        self.trace.answered_by = visit.model
        note: str | None = self.trace.note()
        if not self.client.is_committed:
            headers = openai.relayed_headers(opened.headers)
            await self.client.start(opened.status, [*headers, *self.trace.headers()])
            note = None
            seconds = self.shared.clock() - self.trace.started
            self.shared.metrics.first_token_seconds.labels(visit.model).observe(seconds)
        usage: dict[str, Any] = {}
        try:
            await relay.relay_frames(
                opened, self.client, self.ask, self.config.limits.answer_bytes, note, usage.update
            )
            visit.outcome = "accepted"
        finally:
            self._count(visit, usage.get("prompt_tokens"), usage.get("completion_tokens"))
        return Step.SENT

    # -- small parts ---------------------------------------------------------------------------

    def _threshold(self, model: RoutedModel) -> int:
        return self.shared.controls.threshold(model)

    def _call(self, model: RoutedModel, *, with_logprobs: bool) -> Call:
        body = self.ask.upstream_body(model.name, with_logprobs=with_logprobs)
        return Call(model.name, self.ask.path, body, self.ask.headers, self.config.timeouts)

    async def _send(self, answer: Answer) -> Response | Step:
        payload = answers.client_payload(answer, self.ask)
        await self.pinger.stop()
        headers, note = self.trace.headers(), self.trace.note()
        response = await relay.send(self.client, answer, payload, headers, note)
        return Step.SENT if response is None else response

    def _count(self, visit: Visit, prompt: Any, completion: Any) -> None:
        for kind, value in (("input", prompt), ("output", completion)):
            if isinstance(value, int):
                self.shared.metrics.tokens.labels(visit.model, "answer", kind).inc(value)
        visit.input_tokens = prompt if isinstance(prompt, int) else None
        visit.output_tokens = completion if isinstance(completion, int) else None
