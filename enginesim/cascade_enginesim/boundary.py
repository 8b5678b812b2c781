"""What surrounds every handler: keys, errors in SGLang's shape, the mark that all is simulated."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from .errors import RequestError
from .simulation import Phase, Simulation

SIMULATION = web.AppKey("simulation", Simulation)
MARK = ("x-simulated-engine", "true")

OPEN_PREFIXES = ("/health", "/ready", "/metrics")
ADMIN_PATHS = ("/abort_request", "/flush_cache", "/pause_generation", "/continue_generation")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def mark(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[MARK[0]] = MARK[1]


@web.middleware
async def boundary(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keys, errors in SGLang's shape, and counting, around every handler."""
    simulation = request.app[SIMULATION]
    status = 500
    try:
        refusal = _refusal(request, simulation)
        response = refusal if refusal is not None else await handler(request)
        status = response.status
    except RequestError as error:
        status = error.status
        response = error_response(error.status, error.message, error.kind)
    except web.HTTPException as error:
        status = error.status
        response = web.json_response({"detail": error.reason}, status=status)
    finally:
        simulation.metrics.answered(request.path, request.method, status)
    return response


def error_response(status: int, message: str, kind: str) -> web.Response:
    """SGLang's error body."""
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return json_response(body, status)


def json_response(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _refusal(request: web.Request, simulation: Simulation) -> web.Response | None:
    """SGLang's key rules: probes are open, an admin key owns the admin paths."""
    if request.method == "OPTIONS" or request.path.startswith(OPEN_PREFIXES):
        return None
    launch = simulation.launch
    is_admin = request.path in ADMIN_PATHS or request.path.startswith("/simulate/")
    wanted = launch.admin_api_key if is_admin and launch.admin_api_key else launch.api_key
    if wanted is None:
        return None
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), wanted.encode()):
        return None
    return json_response({"error": "Unauthorized"}, 401)


async def body_of(request: web.Request) -> Any:
    """The JSON body of a request that the engine may work on now."""
    simulation = request.app[SIMULATION]
    if simulation.phase is Phase.STARTING:
        raise RequestError(503, "The server is starting.", "ServiceUnavailable")
    if request.content_type != "application/json":
        raise RequestError(
            400, "Unsupported Media Type: Only 'application/json' is allowed", "Bad Request"
        )
    try:
        return orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"body: {error}", "Bad Request") from error
