"""HTTP front: SGLang's routes for generation, scoring and administration."""

import orjson
import structlog
from aiohttp import web

from . import answering, decisions, faulty, probes, protocol, tokens
from .boundary import SIMULATION, body_of, boundary, json_response, mark
from .errors import RequestError, SettingsError
from .simulation import Simulation

log = structlog.get_logger()


def application(simulation: Simulation) -> web.Application:
    """SGLang's routes that this engine simulates."""
    app = web.Application(middlewares=[boundary], client_max_size=256 * 2**20)
    app[SIMULATION] = simulation
    app.on_response_prepare.append(mark)
    get, post = app.router.add_get, app.router.add_post
    for path in ("/health", "/health_generate"):
        get(path, probes.health)
    get("/ready", probes.ready)
    get("/ping", probes.ping)
    for path in ("/model_info", "/get_model_info"):
        get(path, probes.model_info)
    for path in ("/server_info", "/get_server_info"):
        get(path, probes.server_info)
    get("/v1/models", probes.models)
    get("/v1/models/{name:.+}", probes.one_model)
    get("/v1/loads", probes.loads)
    get("/metrics", probes.exposition)
    post("/v1/chat/completions", chat_completions)
    post("/v1/completions", completions)
    post("/v1/decisions", decide)
    post("/abort_request", abort_request)
    post("/pause_generation", pause)
    post("/continue_generation", unpause)
    app.router.add_route("*", "/flush_cache", flush_cache)
    get("/simulate/faults", show_faults)
    post("/simulate/faults", set_faults)
    return app


async def chat_completions(request: web.Request) -> web.StreamResponse:
    simulation = request.app[SIMULATION]
    asked = protocol.chat(await body_of(request), simulation.launch.served_model_name)
    return await _generate(request, [asked])


async def completions(request: web.Request) -> web.StreamResponse:
    simulation = request.app[SIMULATION]
    asked = protocol.completions(await body_of(request), simulation.launch.served_model_name)
    return await _generate(request, asked)


async def _generate(request: web.Request, asked: list[protocol.Generation]) -> web.StreamResponse:
    met = await faulty.act(request)
    if met.replacement is not None:
        return met.replacement
    return await answering.answer(request, request.app[SIMULATION], asked, met.broken_after)


async def decide(request: web.Request) -> web.StreamResponse:
    """One prefill per question; the answer is the judge's, see ``quality.judge``."""
    simulation = request.app[SIMULATION]
    asked = decisions.parse(await body_of(request))
    met = await faulty.act(request)
    if met.replacement is not None:
        return met.replacement
    lengths = [
        tokens.count(decisions.prompt_of(asked, question)) + tokens.TEMPLATE_TOKENS_PER_MESSAGE
        for question in asked.questions
    ]
    longest, limit = max(lengths), simulation.machine.context_length
    if longest >= limit:
        raise RequestError(
            400,
            f"the prompt has {longest} tokens, which does not fit the context length of {limit} "
            "tokens",
        )
    times = await answering.score(request, simulation, lengths)
    answers = {
        question.id: decisions.answer(
            asked,
            question,
            seed=simulation.who.seed,
            judge_name=simulation.who.name,
            points=simulation.who.points,
        )
        for question in asked.questions
    }
    return json_response(
        {
            "object": "decisions",
            "model": asked.model,
            "prompt_format_version": decisions.PROMPT_FORMAT_VERSION,
            "answers": answers,
            "usage": {
                "prompt_tokens": sum(lengths),
                "total_tokens": sum(lengths),
                "completion_tokens": 0,
                "reasoning_tokens": 0,
            },
            "metadata": simulation.metadata(times),
        }
    )


async def abort_request(request: web.Request) -> web.StreamResponse:
    """Aborts by prefix of the request id, as SGLang's scheduler does."""
    body = await body_of(request)
    if not isinstance(body, dict):
        raise RequestError(400, "body: must be a JSON object", "Bad Request")
    rid = body.get("rid") or ""
    aborted = request.app[SIMULATION].engine.abort(str(rid), bool(body.get("abort_all")))
    log.info("abort requested", rid=rid, aborted=aborted)
    return web.Response(status=200)


async def pause(request: web.Request) -> web.StreamResponse:
    request.app[SIMULATION].is_paused = True
    return json_response({"status": "ok", "message": "Generation paused successfully."})


async def unpause(request: web.Request) -> web.StreamResponse:
    request.app[SIMULATION].is_paused = False
    return json_response({"status": "ok", "message": "Generation continued successfully."})


async def flush_cache(request: web.Request) -> web.StreamResponse:
    return web.Response(text="Cache flushed: the simulated engine keeps none.\n")


async def show_faults(request: web.Request) -> web.StreamResponse:
    active = request.app[SIMULATION].faults.active
    return json_response({kind: {"value": f.value, "left": f.left} for kind, f in active.items()})


async def set_faults(request: web.Request) -> web.StreamResponse:
    """Body ``{"faults": "429*3, slow=2"}`` replaces the faults in force."""
    try:
        body = orjson.loads(await request.read())
        request.app[SIMULATION].faults.replace(str(body["faults"]))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise RequestError(400, 'body: must be {"faults": "KIND[=VALUE][*COUNT], ..."}') from error
    except SettingsError as error:
        raise RequestError(400, str(error)) from error
    return await show_faults(request)
