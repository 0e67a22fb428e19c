"""The endpoints, for any ASGI server: mounted beside others, or as an app alone."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, Engine
from engine_bridge.server.answers import MEDIA_TYPES, Events, document, text_answer, verbose_document
from engine_bridge.server.metrics import CONTENT_TYPE, ServerMetrics
from engine_bridge.server.problems import Problem, problem_of
from engine_bridge.server.requests import SpeechRequest, read_form, speech_request
from engine_bridge.server.settings import ServerSettings
from engine_bridge.server.transcribing import Recordings, Running
from engine_bridge.transcript import Transcript

KEEP_ALIVE_SECONDS = 15.0
"""A streamed answer says something at least this often, so that nothing in between takes it for dead."""

_log = logging.getLogger(__name__)


class SpeechEndpoints:
    """Answers requests for transcriptions and translations.

    Parameters
    ----------
    engine : Engine
        Recognises; it stays open.
    models : sequence of str
        The names by which requests may ask for it; the first is the usual one.
    settings : ServerSettings
        What requests may cost and ask for.
    metrics : ServerMetrics
        Counts requests and recordings.

    """

    def __init__(self, engine: Engine, models: Sequence[str], settings: ServerSettings, metrics: ServerMetrics) -> None:
        self._models = tuple(models)
        self._settings = settings
        self._metrics = metrics
        self._recordings = Recordings(engine, settings.max_recordings, metrics)

    @property
    def models(self) -> tuple[str, ...]:
        """The names by which requests may ask for the engine."""
        return self._models

    async def transcriptions(self, request: Request) -> Response:
        """Answer ``POST /v1/audio/transcriptions``."""
        return await self._answered(request, TRANSCRIBE)

    async def translations(self, request: Request) -> Response:
        """Answer ``POST /v1/audio/translations``."""
        return await self._answered(request, TRANSLATE)

    def close(self) -> None:
        """Cancel what is under way, and wait until it has ended."""
        self._recordings.close()

    async def _answered(self, request: Request, task: str) -> Response:
        self._metrics.asked(task)
        try:
            return await self._answer(request, task)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets one JSON object
            problem = problem_of(error)
            self._metrics.refused(problem)
            return JSONResponse(problem.body, problem.status, headers=problem.headers)

    async def _answer(self, request: Request, task: str) -> Response:
        form = await read_form(request, self._settings)
        try:
            asked = speech_request(form, self._settings, request.headers.get("authorization"))
            model = self._model(asked.model)
            running = self._recordings.begin(asked, task)
        except BaseException:
            await form.close()
            raise
        # From here on the upload is closed by the thread that reads it.
        if not asked.is_streamed:
            return _response(await _unless_left(request, running), asked, task)
        events = self._events(running, Events(model, task))
        # The first piece of news decides the status: a recording that cannot be read is no 200.
        first = await anext(events)
        return StreamingResponse(_with_first(first, events), media_type=Events.MEDIA_TYPE)

    def _model(self, asked: str | None) -> str:
        if asked is None:
            return self._models[0]
        if asked not in self._models:
            known = ", ".join(self._models)
            raise Problem(404, f"there is no model {asked!r}: use {known}", param="model", code="model_not_found")
        return asked

    async def _events(self, running: Running, events: Events) -> AsyncGenerator[str]:
        has_begun = False
        try:
            async for segment in running.segments(KEEP_ALIVE_SECONDS):
                event = Events.KEEP_ALIVE if segment is None else events.delta(segment)
                if event is not None:
                    has_begun = True
                    yield event
            transcript = running.known_transcript
            if transcript is not None:
                yield events.done(transcript)
            yield Events.DONE
        except Exception as error:
            if not has_begun:
                raise
            problem = problem_of(error)
            self._metrics.refused(problem)
            yield Events.failed(problem.body)
            yield Events.DONE
        except (GeneratorExit, asyncio.CancelledError):
            if running.known_transcript is None:
                self._metrics.refused(_left_early())
            raise
        finally:
            running.cancel()


async def _with_first(first: str, events: AsyncGenerator[str]) -> AsyncIterator[str]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


async def _unless_left(request: Request, running: Running) -> Transcript:
    """Return the transcript; when the client leaves before, the work on it ends."""
    work = asyncio.ensure_future(running.transcript())
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            _log.info("a client left before its recording was done")
            raise _left_early()
        return work.result()
    finally:
        leaving.cancel()
        work.cancel()
        running.cancel()


def _left_early() -> Problem:
    return Problem(499, "the client left", code="cancelled")


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _response(transcript: Transcript, asked: SpeechRequest, task: str) -> Response:
    if asked.response_format == "json":
        return JSONResponse(document(transcript))
    if asked.response_format == "verbose_json":
        return JSONResponse(verbose_document(transcript, task, asked.temperature, asked.granularities))
    return Response(text_answer(transcript, asked.response_format), media_type=MEDIA_TYPES[asked.response_format])


def create_app(engine: Engine, models: Sequence[str], settings: ServerSettings | None = None) -> Starlette:
    """Return an app with ``/v1/audio/transcriptions`` and ``/translations``, ``/v1/models``, ``/health``, ``/metrics``.

    Parameters
    ----------
    engine : Engine
        Recognises; it stays open when the app ends.
    models : sequence of str
        The names by which requests may ask for it.
    settings : ServerSettings, optional
        What requests may cost and ask for; those for strangers by default.

    """
    metrics = ServerMetrics()
    endpoints = SpeechEndpoints(engine, models, settings or ServerSettings(), metrics)

    async def listed(request: Request) -> Response:
        del request
        data = [{"id": name, "object": "model", "owned_by": "auricle"} for name in endpoints.models]
        return JSONResponse({"object": "list", "data": data})

    async def health(request: Request) -> Response:
        del request
        return Response()

    async def counted(request: Request) -> Response:
        del request
        metrics.update_stages(engine)
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        yield
        await asyncio.to_thread(endpoints.close)

    return Starlette(
        routes=[
            Route("/v1/audio/transcriptions", endpoints.transcriptions, methods=["POST"]),
            Route("/v1/audio/translations", endpoints.translations, methods=["POST"]),
            Route("/v1/models", listed, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
            Route("/metrics", counted, methods=["GET"]),
        ],
        lifespan=lifespan,
    )
