"""aiohttp.web in front of the handlers: the one adapter between its types and ours."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError
from multidict import CIMultiDict

from .api import error_response
from .errors import BodyTooLargeError, ClientGoneError
from .messages import Client, Headers, Request, Response

Handler = Callable[[Request, Client], Awaitable[Response | None]]
BACKLOG = 2048


class _StreamClient:
    """A waiting client behind aiohttp."""

    def __init__(self, request: web.BaseRequest, is_closing: bool) -> None:
        self._request = request
        self._is_closing = is_closing
        self._response: web.StreamResponse | None = None

    @property
    def is_committed(self) -> bool:
        return self._response is not None

    async def start(self, status: int, headers: Headers) -> None:
        response = web.StreamResponse(status=status, headers=CIMultiDict(headers))
        if self._is_closing:
            response.force_close()
        self._response = response
        try:
            await response.prepare(self._request)
        except (ClientConnectionResetError, ConnectionResetError):
            raise ClientGoneError from None

    async def write(self, data: bytes) -> None:
        assert self._response is not None
        try:
            await self._response.write(data)
        except (ClientConnectionResetError, ConnectionResetError):
            raise ClientGoneError from None

    async def finish(self) -> web.StreamResponse:
        assert self._response is not None
        try:
            await self._response.write_eof()
        except (ClientConnectionResetError, ConnectionResetError):
            raise ClientGoneError from None
        return self._response


class Front:
    """Serves a handler on a socket. ``body_bytes`` bounds request bodies."""

    def __init__(self, handler: Handler, body_bytes: int) -> None:
        self._handler = handler
        self.body_bytes = body_bytes
        self._is_closing = False
        self._listener: asyncio.Server | None = None
        # A handler must end when its client leaves, or the engine works for nobody.
        self._server = web.Server(
            self._handle,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
        )

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._server, sock=sock, backlog=BACKLOG)

    def close_connections(self) -> None:
        """Answer on, but close each connection after its answer."""
        self._is_closing = True

    async def stop(self, grace_seconds: float) -> None:
        """Stop accepting, give open requests ``grace_seconds``, then cut them."""
        if self._listener is not None:
            self._listener.close()
        # Idle keep-alive connections end now; waiting for them would take the whole grace.
        self._server.pre_shutdown()
        await self._server.shutdown(grace_seconds)

    def _request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=self.body_bytes
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        client = _StreamClient(request, self._is_closing)
        try:
            if request.headers.get("Expect", "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await request.read()
            headers = list(request.headers.items())
            ours = Request(request.method, request.path, headers, body)
            response = await self._handler(ours, client)
            if response is None:
                return await client.finish()
        except web.HTTPRequestEntityTooLarge:
            response = error_response(
                BodyTooLargeError(f"the request body exceeds {self.body_bytes} bytes")
            )
        except ClientGoneError:
            # Nothing can be sent; aiohttp only wants a response object to end the exchange.
            return web.Response(status=499)
        theirs = web.Response(
            status=response.status, headers=CIMultiDict(response.headers), body=response.body
        )
        if self._is_closing or response.status == 413:
            theirs.force_close()
        return theirs


def bind(host: str, port: int, *, shared: bool) -> socket.socket:
    """A bound socket; ``shared`` lets several processes listen on the same port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((host, port))
    sock.setblocking(False)
    return sock
