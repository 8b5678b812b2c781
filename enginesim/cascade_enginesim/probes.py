"""What probes, load balancers and Prometheus read: health, readiness, model, load, metrics."""

import asyncio
import time
from typing import Any

from aiohttp import web

from .boundary import SIMULATION, json_response
from .simulation import Simulation

HEALTH_POLL_SECONDS = 1.0
HEALTH_LIMIT_SECONDS = 20.0
"""Modelled seconds, as SGLang waits in ``/health``."""

VERSION = "0.5.23"


async def health(request: web.Request) -> web.StreamResponse:
    """A one-token generation, polled each modelled second; 503 while starting or stopping."""
    simulation = request.app[SIMULATION]
    if not simulation.is_healthy:
        return web.Response(status=503)
    engine = simulation.engine
    before = engine.progress
    ticket = engine.submit(f"HEALTH_CHECK_{simulation.new_rid()}", 1, 1)
    try:
        waited = 0.0
        while waited < HEALTH_LIMIT_SECONDS:
            await asyncio.sleep(HEALTH_POLL_SECONDS / engine.time_scale)
            waited += HEALTH_POLL_SECONDS
            if engine.progress > before:
                return web.Response(status=200)
    finally:
        engine.release(ticket)
    return web.Response(status=503)


async def ready(request: web.Request) -> web.StreamResponse:
    return web.Response(status=200 if request.app[SIMULATION].is_ready else 503)


async def ping(request: web.Request) -> web.StreamResponse:
    return web.Response(status=200 if request.app[SIMULATION].is_healthy else 503)


async def model_info(request: web.Request) -> web.StreamResponse:
    simulation = request.app[SIMULATION]
    launch = simulation.launch
    return json_response(
        {
            "model_path": launch.model_path,
            "served_model_name": launch.served_model_name,
            "tokenizer_path": launch.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": launch.weight_version,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "simulated": True,
            "simulated_architecture": simulation.machine.architecture_name,
        }
    )


async def server_info(request: web.Request) -> web.StreamResponse:
    simulation = request.app[SIMULATION]
    launch, machine = simulation.launch, simulation.machine
    return json_response(
        {
            "version": VERSION,
            "simulated": True,
            "model_path": launch.model_path,
            "served_model_name": launch.served_model_name,
            "tp_size": launch.tensor,
            "pp_size": launch.pipeline,
            "context_length": machine.context_length,
            "chunked_prefill_size": machine.chunk,
            "max_total_num_tokens": machine.kv_tokens,
            "simulated_gpu": machine.gpu,
            "simulated_time_scale": simulation.engine.time_scale,
        }
    )


def _card(simulation: Simulation) -> dict[str, Any]:
    name = simulation.launch.served_model_name
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": simulation.machine.context_length,
    }


async def models(request: web.Request) -> web.StreamResponse:
    return json_response({"object": "list", "data": [_card(request.app[SIMULATION])]})


async def one_model(request: web.Request) -> web.StreamResponse:
    simulation, name = request.app[SIMULATION], request.match_info["name"]
    if name == simulation.launch.served_model_name:
        return json_response(_card(simulation))
    return json_response(
        {
            "error": {
                "message": f"The model '{name}' does not exist",
                "type": "invalid_request_error",
                "param": "model",
                "code": "model_not_found",
            }
        },
        404,
    )


def _load(simulation: Simulation) -> dict[str, Any]:
    engine, machine = simulation.engine, simulation.machine
    batch = engine.batch
    return {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": len(batch.running),
        "num_waiting_reqs": batch.queued,
        "num_waiting_uncached_tokens": sum(s.input_tokens for s in batch.waiting),
        "num_used_tokens": batch.used,
        "num_total_tokens": batch.used + sum(s.input_tokens for s in batch.waiting),
        "max_total_num_tokens": machine.kv_tokens,
        "max_running_requests": machine.running_limit,
        "token_usage": batch.used / machine.kv_tokens,
        "gen_throughput": batch.tokens_per_second,
        "cache_hit_rate": 0.0,
        "utilization": min(1.0, batch.busy_seconds / max(engine.now(), 1e-9)),
    }


async def loads(request: web.Request) -> web.StreamResponse:
    simulation = request.app[SIMULATION]
    load = _load(simulation)
    if request.query.get("format") == "prometheus":
        rank = load.pop("dp_rank")
        lines = [
            f'# TYPE sglang_{name} gauge\nsglang_{name}{{dp_rank="{rank}"}} {value}'
            for name, value in load.items()
        ]
        return web.Response(text="\n".join(lines) + "\n", content_type="text/plain")
    return json_response(
        {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "version": VERSION,
            "accelerator": f"simulated {simulation.machine.gpu}",
            "num_accelerators": simulation.launch.tensor * simulation.launch.pipeline,
            "loads": [load],
        }
    )


async def exposition(request: web.Request) -> web.StreamResponse:
    simulation = request.app[SIMULATION]
    if not simulation.launch.enable_metrics:
        raise web.HTTPNotFound()
    return web.Response(body=simulation.metrics.exposition(), content_type="text/plain")
