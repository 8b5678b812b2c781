"""Shapes of the OpenAI API: parsing requests, changing the few fields we may change, errors."""

import urllib.parse
from dataclasses import dataclass
from typing import Any

import orjson

from . import messages
from .config import ENGINE_CONTROL_FIELDS, RouterConfig
from .errors import ModelNotFoundError, RequestError, RouterError

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

ERROR_BYTES = 2**20
"""Bound on bodies that are read only to be dropped or passed on as an error."""
SIGNAL_TOP_LOGPROBS = 2
"""The self signal is the margin between the two likeliest tokens."""

_MEDIA_URLS = ("image_url", "video_url", "audio_url")
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "host",
        "content-length",
        "accept-encoding",
    }
)
_NOT_RELAYED = _HOP_BY_HOP | {"date", "server", "x-request-id"}


@dataclass(frozen=True, slots=True)
class Ask:
    """A client's request, parsed: what the cascade needs to know of it, and the body as given.

    ``forced``: name of the one model to ask, ``None`` for the cascade. ``client_top_logprobs``:
    how many alternatives per token the client asked for, ``None`` when it asked for no
    log-probabilities at all.
    """

    path: str
    body: dict[str, Any]
    headers: list[tuple[str, str]]
    request_id: str
    forced: str | None
    is_stream: bool
    wants_usage: bool
    client_top_logprobs: int | None
    max_tokens: int | None

    @property
    def is_chat(self) -> bool:
        """Whether this is a chat completion (else a text completion)."""
        return self.path == CHAT

    def upstream_body(self, model: str, *, with_logprobs: bool) -> bytes:
        """Body for ``model``: only model, stream options and log-probability fields differ."""
        changed: dict[str, Any] = {"model": model}
        if self.is_stream:
            options = self.body.get("stream_options")
            base = options if isinstance(options, dict) else {}
            changed["stream_options"] = {**base, "include_usage": True}
        if with_logprobs:
            wanted = max(SIGNAL_TOP_LOGPROBS, self.client_top_logprobs or 0)
            if self.is_chat:
                changed |= {"logprobs": True, "top_logprobs": wanted}
            else:
                changed["logprobs"] = wanted
        return orjson.dumps({**self.body, **changed})


def parse(request: messages.Request, config: RouterConfig, request_id: str) -> Ask:
    """Parse and check a completion request; raises ``RouterError`` naming the field."""
    body = _json_object(request.body)
    _refuse_engine_fields(body, config)
    is_stream = _optional(body, "stream", bool) or False
    options = _optional(body, "stream_options", dict) or {}
    if options and not is_stream:
        raise RequestError(
            "stream_options is only allowed when stream is true", param="stream_options"
        )
    n = _optional(body, "n", int)
    if n is not None and n < 1:
        raise RequestError(f"n: {n} is out of range: at least 1", param="n")
    if request.path == CHAT:
        if not isinstance(body.get("messages"), list) or not body["messages"]:
            raise RequestError("messages: a list of at least one message", param="messages")
        _refuse_remote_media(body["messages"], config)
        has_logprobs = _optional(body, "logprobs", bool) or False
        top = (_optional(body, "top_logprobs", int) or 0) if has_logprobs else None
    else:
        if "prompt" not in body:
            raise RequestError("prompt is required", param="prompt")
        top = _optional(body, "logprobs", int)
    max_tokens = _optional(body, "max_completion_tokens", int)
    if max_tokens is None:
        max_tokens = _optional(body, "max_tokens", int)
    return Ask(
        path=request.path,
        body=body,
        headers=_upstream_headers(request.headers, request_id),
        request_id=request_id,
        forced=_forced_model(body, config),
        is_stream=is_stream,
        wants_usage=bool(options.get("include_usage")),
        client_top_logprobs=top,
        max_tokens=max_tokens,
    )


def relayed_headers(headers: messages.Headers) -> list[tuple[str, str]]:
    """Response headers of an engine without those that belong to its own connection."""
    return [(k, v) for k, v in headers if k.lower() not in _NOT_RELAYED]


def error_body(error: RouterError) -> bytes:
    """The OpenAI error object."""
    return orjson.dumps(
        {
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def error_frame(error: RouterError) -> bytes:
    """The error as an event of a stream whose status has already been sent."""
    return b"data: " + error_body(error) + b"\n\n"


def models_body(config: RouterConfig, created: int) -> bytes:
    """``/v1/models`` from the plan: the cascade, then each model that may be forced."""
    names = [config.cascade]
    if config.allow_forced_model:
        names += [f"{config.cascade}/{model.name}" for model in config.models]
    entries = [
        {"id": n, "object": "model", "created": created, "owned_by": "cascade-operator"}
        for n in names
    ]
    return orjson.dumps({"object": "list", "data": entries})


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(f"the body must be a JSON object, not {_kind(value)}")
    return value


def _refuse_engine_fields(body: dict[str, Any], config: RouterConfig) -> None:
    for field in ENGINE_CONTROL_FIELDS:
        if field in body and field not in config.allowed_engine_fields:
            raise RequestError(
                f"{field}: this field steers the engine and is not allowed here; remove it",
                param=field,
            )


def _refuse_remote_media(conversation: list[Any], config: RouterConfig) -> None:
    """An engine fetches what a message names: only inline data and the hosts that are allowed."""
    for index, message in enumerate(conversation):
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            for kind in _MEDIA_URLS:
                given = part.get(kind) if isinstance(part, dict) else None
                url = given.get("url") if isinstance(given, dict) else given
                if isinstance(url, str) and not _may_fetch(url, config.allowed_image_hosts):
                    raise RequestError(
                        f"messages.{index}: {kind} {url[:80]!r} may not be fetched; send the data "
                        f"inline (data:...), allowed hosts: {list(config.allowed_image_hosts)}",
                        param=f"messages.{index}",
                    )


def _may_fetch(url: str, hosts: tuple[str, ...]) -> bool:
    if url.startswith("data:"):
        return True
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.hostname in hosts


def _forced_model(body: dict[str, Any], config: RouterConfig) -> str | None:
    name = body.get("model")
    if name == config.cascade:
        return None
    prefix = f"{config.cascade}/"
    if isinstance(name, str) and name.startswith(prefix):
        model = name.removeprefix(prefix)
        if any(m.name == model for m in config.models):
            if config.allow_forced_model:
                return model
            raise RequestError(
                f"model: asking one model ({name}) is switched off; ask {config.cascade}",
                param="model",
            )
    if name is not None and not isinstance(name, str):
        raise RequestError(f"model: must be a string, not {_kind(name)}", param="model")
    shown = "no model was named" if name is None else f"the model {name!r} does not exist"
    raise ModelNotFoundError(f"{shown}; ask {config.cascade!r}", param="model")


def _optional(body: dict[str, Any], field: str, kind: type) -> Any:
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {bool: "a boolean", int: "an integer", dict: "an object"}[kind]
        raise RequestError(f"{field}: must be {wanted}, not {_kind(value)}", param=field)
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), "null" if value is None else "a number")


def _upstream_headers(headers: messages.Headers, request_id: str) -> list[tuple[str, str]]:
    kept = [
        (key, value)
        for key, value in headers
        if (name := key.lower()) not in _HOP_BY_HOP
        and name not in ("x-request-id", "content-type")
        and not name.startswith("x-override-")
    ]
    return [*kept, ("content-type", "application/json"), ("x-request-id", request_id)]
