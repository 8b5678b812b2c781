"""JSON lines between the supervisor and a worker, over one Unix socket pair.

To a worker: ``config`` (text), ``services`` (endpoints by Service), ``report`` (id), ``drain``
(linger and grace seconds). To the supervisor: ``state`` (what the worker runs, sent on change),
``report`` (id, metrics, windows).
"""

import asyncio
import socket
from typing import Any

import orjson
from pydantic import Field

from .document import Document

LINE_BYTES = 64 * 2**20


class WorkerState(Document):
    """What one worker runs. ``idle_leaving``: leaving pods with nothing in flight there."""

    digest: str = ""
    plan_id: str = ""
    reload_error: str = ""
    idle_leaving: tuple[str, ...] = ()
    is_ready: bool = False
    waits_for: tuple[str, ...] = Field(default=())


class Channel:
    """One end of the socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, sock: socket.socket) -> "Channel":
        """A channel over a connected socket."""
        sock.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=LINE_BYTES)
        return cls(reader, writer)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; one to an end that is gone is lost."""
        if not self._writer.is_closing():
            self._writer.write(orjson.dumps({"type": kind, **fields}) + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, ``None`` when the other end is gone."""
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError):
            return None
        if not line.endswith(b"\n"):
            return None
        message: dict[str, Any] = orjson.loads(line)
        return message

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
