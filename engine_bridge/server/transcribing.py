"""Recordings of requests, each carried by a thread, on an engine that all share."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.source import Source
from audio.stream import open_stream
from engine_bridge.asking import beam_sizes
from engine_bridge.engines.protocol import (
    ClipResult,
    DecodingOptions,
    Engine,
    LanguageProbabilities,
)
from engine_bridge.engines.wrapped import WrappedEngine
from engine_bridge.errors import EngineError
from engine_bridge.prompts import compose_prompt
from engine_bridge.server.held import held_recording, inputs_of
from engine_bridge.server.metrics import ServerMetrics
from engine_bridge.server.problems import Problem
from engine_bridge.server.requests import SpeechRequest
from engine_bridge.transcript import Segment, Transcript
from engine_bridge.transcription import Transcription

RETRY_AFTER = 10
"""Seconds after which a server that is full is to be asked again."""

_LEAST_IN_FLIGHT = 4


class RequestEngine(WrappedEngine):
    """The part of a shared engine that one request has; all that it asked for can be cancelled at once.

    Parameters
    ----------
    engine : Engine
        The engine that all share.
    in_flight : int
        Clips that the request submits at once, so that others get their turn.

    """

    def __init__(self, engine: Engine, in_flight: int) -> None:
        super().__init__(engine)
        self._in_flight = in_flight
        self._lock = threading.Lock()
        self._open: set[Future[Any]] = set()
        self._is_cancelled = False

    @property
    def preferred_in_flight(self) -> int:
        """The request's share."""
        return self._in_flight

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip."""
        return self._kept(lambda: self._engine.submit(samples, options))

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip."""
        return self._kept(lambda: self._engine.detect_language(samples))

    def timings(self) -> Mapping[str, float]:
        """Nothing: the shared engine's seconds are not one request's."""
        return {}

    def close(self) -> None:
        """Cancel what is open; the shared engine stays."""
        self.cancel()

    def cancel(self) -> None:
        """Cancel all that was submitted, and refuse what comes."""
        with self._lock:
            self._is_cancelled = True
            waiting = list(self._open)
        for future in waiting:
            future.cancel()

    def _kept(self, ask: "Callable[[], Future[Any]]") -> "Future[Any]":
        with self._lock:
            if self._is_cancelled:
                raise EngineError("the request was cancelled")
            future = ask()
            self._open.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: "Future[Any]") -> None:
        with self._lock:
            self._open.discard(future)


class Running:
    """A recording under way: iterate for its segments, then ask for the `transcript`.

    For the event loop in which it was made.
    """

    def __init__(self, engine: RequestEngine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Segment | Transcript | BaseException] = asyncio.Queue()
        self._transcript: Transcript | None = None

    async def segments(self, pause: float | None = None) -> AsyncIterator[Segment | None]:
        """Yield the segments as they become known, and None whenever so many seconds bring none.

        Raises
        ------
        AudioError, EngineBridgeError
            What the recording or the engine failed with.

        """
        while True:
            try:
                async with asyncio.timeout(pause):
                    item = await self._items.get()
            except TimeoutError:
                yield None
                continue
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, Transcript):
                self._transcript = item
                return
            yield item

    async def transcript(self) -> Transcript:
        """Return the transcript, once there is one; raises what `segments` does."""
        async for _ in self.segments():
            pass
        assert self._transcript is not None  # noqa: S101 - the segments end with it
        return self._transcript

    @property
    def known_transcript(self) -> Transcript | None:
        """The transcript after the last segment has been read."""
        return self._transcript

    def cancel(self) -> None:
        """Give up: the engine is asked for nothing more."""
        self._engine.cancel()

    def put(self, item: Segment | Transcript | BaseException) -> None:
        """Hand over from the thread that carries the recording."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)


class Recordings:
    """Transcribes the recordings of requests on one engine.

    Parameters
    ----------
    engine : Engine
        Shared by all; it stays open.
    most : int
        Recordings at once.
    metrics : ServerMetrics
        Told of each recording.

    """

    def __init__(self, engine: Engine, most: int, metrics: ServerMetrics) -> None:
        self._engine = engine
        self._most = most
        self._metrics = metrics
        self._lock = threading.Lock()
        self._active: dict[threading.Thread, RequestEngine] = {}

    @property
    def engine(self) -> Engine:
        """The shared engine."""
        return self._engine

    def begin(self, request: SpeechRequest, task: str) -> Running:
        """Start on a recording.

        Parameters
        ----------
        request : SpeechRequest
            The recording and what is asked for.
        task : str
            "transcribe" or "translate".

        Raises
        ------
        Problem
            So many are under way already that this one has to come back later.
        UnsupportedOptionError
            The engine cannot do what is asked.

        """
        capabilities = self._engine.capabilities
        first, second = beam_sizes(capabilities, request.beam_size, request.temperature)
        options = DecodingOptions(
            language=request.language,
            task=task,
            beam_size=first,
            doubt_beam_size=second,
            temperature=request.temperature,
            # Text with timestamp tokens loses whole passages; times are estimated where words have none of their own.
            timestamps="align" if capabilities.word_times else "none",
        )
        self._engine.check(options)
        if "word" in request.granularities and not capabilities.word_times:
            message = "this model times no words: leave 'word' out, and segments carry estimated times"
            raise Problem(400, message, param="timestamp_granularities[]", code="unsupported_option")
        with self._lock:
            if len(self._active) >= self._most:
                message = (
                    f"{self._most} recordings are under way, which is all this server takes at once: try again later"
                )
                raise Problem(503, message, code="busy", retry_after=RETRY_AFTER)
            share = max(_LEAST_IN_FLIGHT, self._engine.preferred_in_flight // (len(self._active) + 1))
            engine = RequestEngine(self._engine, share)
            running = Running(engine)
            # A daemon, so that a server that is told to end does not wait for hours of audio.
            thread = threading.Thread(
                target=self._carry, args=(running, engine, request, options), name="auricle-recording", daemon=True
            )
            self._active[thread] = engine
        thread.start()
        return running

    def close(self) -> None:
        """Cancel what is under way, and wait until it has ended."""
        with self._lock:
            active = dict(self._active)
        for engine in active.values():
            engine.cancel()
        for thread in active:
            thread.join()

    def _carry(self, running: Running, engine: Engine, request: SpeechRequest, options: DecodingOptions) -> None:
        try:
            with (
                request.open_source() if request.open_source is not None else nullcontext() as sent,
                self._transcription(engine, request, options, sent) as transcription,
            ):
                for segment in transcription:
                    self._metrics.update_stages(self._engine)
                    running.put(segment)
                transcript = transcription.result()
                self._metrics.update_stages(self._engine)
                self._metrics.transcribed(transcript)
                running.put(transcript)
        except BaseException as error:  # noqa: BLE001 - raised again where the request is answered
            self._metrics.update_stages(self._engine)
            running.put(error)
        finally:
            with self._lock:
                del self._active[threading.current_thread()]

    def _transcription(
        self, engine: Engine, request: SpeechRequest, options: DecodingOptions, sent: Source | None
    ) -> Transcription:
        before, notices = compose_prompt(request.prompt, request.glossary, engine)
        settings = request.settings
        if request.uuid is not None:
            source, told = self._held(engine, request, request.uuid, sent)
            notices = (*notices, *told)
        elif sent is None:
            raise ValueError("a request has a recording or a uuid")
        else:
            source = sent
        stream = open_stream(
            source,
            engine.capabilities.sample_rate,
            backend=settings.audio_backend,
            limits=settings.limits,
            isolation=settings.isolation,
            timeline="container",
        )
        return Transcription(
            source.name,
            stream,
            engine,
            replace(options, prompt=before),
            owns_engine=True,
            on_progress=None,
            warnings=notices,
        )

    def _held(
        self, engine: Engine, request: SpeechRequest, uuid: str, sent: Source | None
    ) -> tuple[Source, tuple[str, ...]]:
        rate = engine.capabilities.sample_rate
        audio = held_recording(sent, request.settings, rate, uuid=uuid, owner=request.owner)
        self._metrics.update_cache(inputs_of(request.settings))
        return Source.of((audio.samples, audio.sample_rate)), audio.warnings
