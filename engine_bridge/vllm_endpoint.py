"""Our endpoints in the place of vLLM's. Imports vLLM."""

import asyncio
from argparse import Namespace
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from vllm.logger import init_logger

from engine_bridge.server.app import SpeechEndpoints
from engine_bridge.server.metrics import process_metrics
from engine_bridge.server.problems import Problem
from engine_bridge.vllm_media import settings_of
from engine_bridge.vllm_served import ServedEngine

_STATE = "auricle_endpoints"

_log = init_logger("vllm.auricle")  # one of vLLM's own, so that it is shown


def attach(app: FastAPI) -> None:
    """Add the routes; vLLM drops its own of the same path and method."""

    async def create_transcription(request: Request) -> Response:
        endpoints = _endpoints(request)
        return _starting() if endpoints is None else await endpoints.transcriptions(request)

    async def create_translation(request: Request) -> Response:
        endpoints = _endpoints(request)
        return _starting() if endpoints is None else await endpoints.translations(request)

    app.add_api_route("/v1/audio/transcriptions", create_transcription, methods=["POST"], response_model=None)
    app.add_api_route("/v1/audio/translations", create_translation, methods=["POST"], response_model=None)


async def initialise(client: Any, state: Any, args: Namespace) -> None:
    """Open the engine on the server's client, and keep the endpoints in the app's state."""
    model_config = client.model_config
    multimodal = model_config.get_multimodal_config()
    settings = settings_of(
        (multimodal.media_io_kwargs or {}).get("audio"), args.allowed_media_domains, args.allowed_local_media_path
    )
    names = [path.name for path in state.openai_serving_models.base_model_paths]
    loop = asyncio.get_running_loop()
    engine = await asyncio.to_thread(ServedEngine, client, loop, names[0])
    setattr(state, _STATE, SpeechEndpoints(engine, names, settings, process_metrics()))
    _log.info("auricle answers /v1/audio/transcriptions and /v1/audio/translations: %s", engine.description)


def _endpoints(request: Request) -> SpeechEndpoints | None:
    endpoints: SpeechEndpoints | None = getattr(request.app.state, _STATE, None)
    return endpoints


def _starting() -> Response:
    problem = Problem(503, "the server is starting: try again in a moment", code="starting", retry_after=5)
    return JSONResponse(problem.body, problem.status, headers=problem.headers)
