"""Requests and responses as the handlers see them, independent of the HTTP server in front."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = Sequence[tuple[str, str]]
"""Header fields in order; names are compared in lower case."""


def header(headers: Headers, name: str) -> str | None:
    """First value of ``name`` (lower case), or ``None``."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


@dataclass(frozen=True, slots=True)
class Request:
    """One request with its whole body."""

    method: str
    path: str
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """One response with its whole body."""

    status: int
    headers: Headers
    body: bytes


class Client(Protocol):
    """The way back to a client that waits for a stream."""

    @property
    def is_committed(self) -> bool:
        """Whether status and headers have been sent."""

    async def start(self, status: int, headers: Headers) -> None:
        """Send status and headers; raises ``ClientGoneError``."""

    async def write(self, data: bytes) -> None:
        """Send body bytes; raises ``ClientGoneError``."""
