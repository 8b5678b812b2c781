"""A plan's text to a config or to the reason why it is refused."""

import hashlib

import orjson
import pydantic

from .config import SUPPORTED_VERSIONS, RouterConfig

_SHOWN_ERRORS = 3


class BadConfigError(Exception):
    """The text is no valid plan; the message names field, value and what is allowed."""


def digest(text: str) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse(text: str) -> RouterConfig:
    """Parse and check a plan document; raises ``BadConfigError``."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadConfigError(f"not JSON: {error}") from None
    version = value.get("schemaVersion", 1) if isinstance(value, dict) else None
    if version not in SUPPORTED_VERSIONS:
        raise BadConfigError(
            f"schemaVersion: {version!r} is not supported, only {list(SUPPORTED_VERSIONS)}"
        )
    try:
        return RouterConfig.model_validate(value)
    except pydantic.ValidationError as error:
        raise BadConfigError(_described(error)) from None


def _described(error: pydantic.ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False)
    shown = []
    for detail in details[:_SHOWN_ERRORS]:
        place = ".".join(str(part) for part in detail["loc"]) or "document"
        given = repr(detail["input"])
        given = f" (got {given[:60]})" if detail["loc"] else ""
        shown.append(f"{place}: {detail['msg']}{given}")
    more = len(details) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
