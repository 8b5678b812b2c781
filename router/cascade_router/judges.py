"""Judges: free checks first, then the answer's own certainty or a model that scores it."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import orjson

from . import isotonic, openai, policy, rubric
from .answers import Answer, Choice
from .backends import Call, OpenCall
from .config import RoutedModel, RouterConfig
from .errors import RouterError
from .metrics import Metrics
from .openai import Ask
from .policy import Verdict

DECISIONS = "/v1/decisions"
MAX_INPUT_BYTES = 2**20
"""An answer and conversation above this are not sent to a judge: no verdict."""
FALLBACK_SECONDS = 60.0
"""How long an engine without ``/v1/decisions`` is asked by chat completion before trying again."""
LOST_SECONDS = 5.0
"""After a judge was lost, answers carry log-probabilities for this long, so that the self signal
can keep the planned ratio."""
_DIGIT_TOP_LOGPROBS = 20


class Opener(Protocol):
    """Opens calls to engines."""

    async def open(self, call: Call) -> OpenCall:
        """Send a call; raises ``RouterError``."""


class NoVerdictError(Exception):
    """The judge gave no score; ``is_lost`` when it could not be asked at all."""

    def __init__(self, reason: str, *, is_lost: bool, label_mass: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_lost = is_lost
        self.label_mass = label_mass


class LlmJudge:
    """One ``score`` question of five levels to a model of the cascade."""

    def __init__(self, opener: Opener, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._opener = opener
        self._metrics = metrics
        self._clock = clock
        self._digits_until: dict[str, float] = {}

    async def score(
        self, config: RouterConfig, model: str, ask: Ask, choice: Choice, deadline: float
    ) -> tuple[int, float]:
        """Points and label mass; raises ``NoVerdictError``. ``deadline`` in seconds."""
        document = judged_document(ask, choice)
        if len(orjson.dumps(document)) > MAX_INPUT_BYTES:
            raise NoVerdictError("too_long", is_lost=False)
        try:
            async with asyncio.timeout(deadline):
                probabilities, mass = await self._ask(config, model, ask, document)
        except TimeoutError:
            raise NoVerdictError("deadline", is_lost=True) from None
        except RouterError as error:
            raise NoVerdictError(error.code, is_lost=True) from None
        self._metrics.label_mass.labels(model).observe(mass)
        if mass < config.judge.label_mass_min_percent / 100:
            raise NoVerdictError("label_mass", is_lost=False, label_mass=mass)
        return policy.points(probabilities), mass

    async def _ask(
        self, config: RouterConfig, model: str, ask: Ask, document: dict[str, Any]
    ) -> tuple[list[float], float]:
        if self._clock() >= self._digits_until.get(model, 0.0):
            body = decisions_body(config, model, document)
            status, reply = await self._call(config, model, ask, DECISIONS, body)
            if status == 200:
                return _parsed(read_decision, reply)
            if status != 404:
                raise _refusal(status)
            self._digits_until[model] = self._clock() + FALLBACK_SECONDS
        body = digits_body(config, model, document)
        status, reply = await self._call(config, model, ask, openai.CHAT, body)
        if status != 200:
            raise _refusal(status)
        return _parsed(read_digits, reply)

    async def _call(
        self, config: RouterConfig, model: str, ask: Ask, path: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        headers = [h for h in ask.headers if h[0].lower() in ("authorization", "traceparent")]
        headers += [("content-type", "application/json"), ("x-request-id", ask.request_id)]
        call = Call(model, path, body, headers, config.timeouts, "judge")
        opened = await self._opener.open(call)
        try:
            raw = await opened.read(openai.ERROR_BYTES)
        finally:
            opened.close("judge")
        try:
            reply = orjson.loads(raw)
        except orjson.JSONDecodeError:
            reply = None
        if not isinstance(reply, dict):
            reply = {}
        usage = reply.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("prompt_tokens"), int):
            self._metrics.tokens.labels(model, "judge", "input").inc(usage["prompt_tokens"])
        return opened.status, reply


class LiveJudge:
    """The composition that routes live traffic, and that makes calibration tables."""

    def __init__(self, opener: Opener, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._llm = LlmJudge(opener, metrics, clock)
        self._metrics = metrics
        self._clock = clock
        self._lost_until = 0.0

    def needs_logprobs(self, config: RouterConfig, model: RoutedModel) -> bool:
        """Whether the answer of ``model`` has to carry log-probabilities."""
        if config.judge.type == "Self":
            return True
        return model.self_table is not None and self._clock() < self._lost_until

    async def judge(
        self,
        config: RouterConfig,
        model: RoutedModel,
        ask: Ask,
        answer: Answer,
        deadline: float | None = None,
    ) -> Verdict:
        """Score an answer; with ``n`` choices the worst counts.

        ``deadline`` in seconds overrides the plan's.
        """
        reason = policy.unfit(ask, answer)
        if reason is not None:
            return Verdict(None, "check", reason, is_unfit=True, signal=answer.signal)
        if config.judge.type == "Self":
            return self_verdict(model, answer)
        started = self._clock()
        seconds = deadline or config.judge.deadline_milliseconds / 1000
        name = judge_model(config, model)
        try:
            scores = await _all(
                [self._llm.score(config, name, ask, c, seconds) for c in answer.choices]
            )
        except NoVerdictError as error:
            if error.is_lost:
                self._lost_until = self._clock() + LOST_SECONDS
            return Verdict(None, "llm", error.reason, error.is_lost, label_mass=error.label_mass,
                           signal=answer.signal)  # fmt: skip
        finally:
            self._metrics.judge_seconds.labels(model.name).observe(self._clock() - started)
        score, mass = min(scores)
        return Verdict(score, "llm", label_mass=mass, signal=answer.signal)


def judge_model(config: RouterConfig, model: RoutedModel) -> str:
    """Who judges ``model``: the configured judge, else the next model, the last by itself."""
    if config.judge.model is not None:
        return config.judge.model
    names = [m.name for m in config.models]
    return names[min(names.index(model.name) + 1, len(names) - 1)]


def self_verdict(model: RoutedModel, answer: Answer) -> Verdict:
    """Score by the answer's own certainty: through the isotonic table, else 100 x signal."""
    signal = answer.signal
    if signal is None:
        return Verdict(None, "self", "no_logprobs", is_lost=True)
    return Verdict(self_score(model, signal), "self", signal=signal)


def self_score(model: RoutedModel, signal: float) -> int:
    """The raw self signal (0 to 1) in points."""
    table = model.self_table
    raw = 100.0 * signal if table is None else isotonic.apply(table, signal)
    return policy.rounded(raw)


def judged_document(ask: Ask, choice: Choice) -> dict[str, Any]:
    """Conversation, tool names and answer as one JSON value: data, never instructions."""
    if ask.is_chat:
        conversation = [_message(m) for m in ask.body["messages"]]
    else:
        conversation = [{"role": "user", "content": ask.body["prompt"]}]
    document: dict[str, Any] = {"conversation": conversation, "answer": choice.judged_text}
    tools = [_tool_name(t) for t in ask.body.get("tools") or ()]
    if tools:
        document["tools"] = tools
    if choice.has_tool_calls:
        document["calls_tools"] = True
    return document


def decisions_body(config: RouterConfig, model: str, document: dict[str, Any]) -> bytes:
    """Body of ``POST /v1/decisions`` (SGLang 0.5.23)."""
    question = {
        "id": rubric.QUESTION_ID,
        "type": "score",
        "question": rubric.text(config.judge),
        "levels": list(rubric.LEVELS),
    }
    return orjson.dumps(
        {
            "model": model,
            "input": document,
            "questions": [question],
            "temperature": 1.0,
            "prompt_format_version": rubric.PROMPT_FORMAT_VERSION,
        }
    )


def digits_body(config: RouterConfig, model: str, document: dict[str, Any]) -> bytes:
    """The same question as a chat completion of one token, for engines without decisions."""
    levels = [f"{i}: {level}" for i, level in enumerate(rubric.LEVELS)]
    lines = [orjson.dumps(document).decode(), "", f"Question: {rubric.text(config.judge)}"]
    content = "\n".join([*lines, *levels, "Answer with the number of one level only."])
    return orjson.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": _DIGIT_TOP_LOGPROBS,
            "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
        }
    )


def read_decision(reply: dict[str, Any]) -> tuple[list[float], float]:
    """Probabilities of the levels and label mass of a decisions reply."""
    answer = reply["answers"][rubric.QUESTION_ID]
    given = answer["probabilities"]
    return [float(given[str(i)]) for i in range(policy.LEVEL_COUNT)], float(answer["label_mass"])


def read_digits(reply: dict[str, Any]) -> tuple[list[float], float]:
    """Probabilities of the digits 0 to 4 among the first token's alternatives."""
    top = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    masses = [0.0] * policy.LEVEL_COUNT
    for entry in top:
        token = entry["token"].strip()
        if len(token) == 1 and token in "01234":
            masses[int(token)] += math.exp(entry["logprob"])
    total = sum(masses)
    if total <= 0.0:
        raise NoVerdictError("label_mass", is_lost=False, label_mass=0.0)
    return [m / total for m in masses], total


async def _all(
    calls: list[Coroutine[Any, Any, tuple[int, float]]],
) -> list[tuple[int, float]]:
    """Await all together; the first failure cancels the others and is raised by itself."""
    if len(calls) == 1:
        return [await calls[0]]
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _parsed(
    read: Callable[[dict[str, Any]], tuple[list[float], float]], reply: dict[str, Any]
) -> tuple[list[float], float]:
    try:
        probabilities, mass = read(reply)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise NoVerdictError("unparsable", is_lost=False) from None
    if not math.isfinite(mass + sum(probabilities)) or min(probabilities) < 0:
        raise NoVerdictError("unparsable", is_lost=False)
    return probabilities, mass


def _refusal(status: int) -> NoVerdictError:
    """A 4xx says that this prompt cannot be judged; all else says that the judge is lost."""
    is_lost = status >= 500 or status == 429
    return NoVerdictError(f"status_{status}", is_lost=is_lost)


def _message(message: Any) -> Any:
    """A message without the bytes of images and other media, which a judge does not see."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    parts = [
        part
        if isinstance(part, dict) and part.get("type") == "text"
        else {"type": part.get("type") if isinstance(part, dict) else "unknown"}
        for part in message["content"]
    ]
    return {**message, "content": parts}


def _tool_name(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None
