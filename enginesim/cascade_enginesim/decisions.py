"""The scoring endpoint ``/v1/decisions``: request, prompt and answers as in SGLang 0.5.23."""

import json
import math
from typing import Annotated, Any, Literal

import pydantic

from . import quality
from .errors import RequestError

PROMPT_FORMAT_VERSION = 1

Text = str | dict[str, Any] | list[Any]


def _nonblank(value: Text) -> Text:
    if not (value.strip() if isinstance(value, str) else value):
        raise ValueError("must not be blank")
    return value


Required = Annotated[Text, pydantic.AfterValidator(_nonblank)]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Option(_Strict):
    name: str
    description: Text | None = None


class ChoiceQuestion(_Strict):
    id: Annotated[str, pydantic.AfterValidator(_nonblank)]
    type: Literal["choice"]
    question: Required
    options: list[Option] = pydantic.Field(min_length=2, max_length=26)


class ScoreQuestion(_Strict):
    id: Annotated[str, pydantic.AfterValidator(_nonblank)]
    type: Literal["score"]
    question: Required
    levels: list[Required] = pydantic.Field(min_length=2, max_length=10)


class YesNoQuestion(_Strict):
    id: Annotated[str, pydantic.AfterValidator(_nonblank)]
    type: Literal["yes_no"]
    question: Required
    yes: Text | None = None
    no: Text | None = None


Question = Annotated[
    ChoiceQuestion | ScoreQuestion | YesNoQuestion, pydantic.Field(discriminator="type")
]


class Request(_Strict):
    """Body of ``/v1/decisions``; unknown members are refused, as SGLang does."""

    input: Required
    images: list[Any] = []
    questions: list[Question] = pydantic.Field(min_length=1)
    temperature: float = pydantic.Field(default=1.0, gt=0, allow_inf_nan=False)
    chat_template_kwargs: dict[str, Any] = {}
    prompt_format_version: int | None = None
    return_prompt_token_ids: bool = False
    model: str = "default"


def parse(body: Any) -> Request:
    """Raises ``RequestError`` 400 with each fault's place."""
    try:
        request = Request.model_validate(body)
    except pydantic.ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        )
        raise RequestError(400, faults, "Bad Request") from error
    version = request.prompt_format_version
    if version not in (None, PROMPT_FORMAT_VERSION):
        raise RequestError(
            400,
            f"prompt_format_version {version} is not served, this server "
            f"uses version {PROMPT_FORMAT_VERSION}",
        )
    if request.images:
        raise RequestError(400, "/v1/decisions images require a model with multimodal input")
    names = [question.id for question in request.questions]
    if len(set(names)) != len(names):
        raise RequestError(400, f"questions: ids must differ, got {names}", "Bad Request")
    return request


def text_of(value: Text | None) -> str:
    """The text that reaches the prompt: JSON values compactly, strings as they are."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def prompt_of(request: Request, question: Question) -> str:
    """What is prefilled for one question, input first."""
    lines = [text_of(request.input), text_of(question.question)]
    if isinstance(question, ScoreQuestion):
        lines += [f"{i}: {text_of(level)}" for i, level in enumerate(question.levels)]
    elif isinstance(question, ChoiceQuestion):
        lines += [f"{option.name}: {text_of(option.description)}" for option in question.options]
    return "\n".join(lines)


def answer(
    request: Request, question: Question, *, seed: int, judge_name: str, points: float
) -> dict[str, Any]:
    """The answer to one question; see ``quality.judge`` for what the judge sees."""
    text = text_of(request.input)
    if isinstance(question, ScoreQuestion):
        names = [str(i) for i in range(len(question.levels))]
    elif isinstance(question, ChoiceQuestion):
        names = [option.name for option in question.options]
    else:
        names = ["no", "yes"]
    found, mass = quality.judge(seed, judge_name, points, text, len(names))
    found = quality.sharpened(found, request.temperature)
    given: dict[str, Any] = {
        "type": question.type,
        "probabilities": dict(zip(names, found, strict=True)),
        "label_mass": mass,
    }
    if isinstance(question, ScoreQuestion):
        given["score"] = math.fsum(i * p for i, p in enumerate(found))
    elif isinstance(question, ChoiceQuestion):
        given["choice"] = names[found.index(max(found))]
    return given
