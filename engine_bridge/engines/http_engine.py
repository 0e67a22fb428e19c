"""Recognition by OpenAI-compatible servers, over HTTP."""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from audio.positions import samples_from_seconds, seconds_from_samples
from audio.split import split_audio
from engine_bridge.engines.http_answers import Refused, TooMuch, WrongFormat
from engine_bridge.engines.http_client import HttpClient
from engine_bridge.engines.http_languages import LANGUAGE_NAMES, language_code
from engine_bridge.engines.http_requests import (
    FLAC,
    WAV,
    ClipRequest,
    chat_request,
    chat_result,
    encode_clip,
    transcription_request,
    transcription_result,
)
from engine_bridge.engines.http_spec import CHAT, TRANSCRIPTIONS, parse_http_spec
from engine_bridge.engines.loop_thread import LoopThread
from engine_bridge.engines.options import check_options
from engine_bridge.engines.protocol import ClipResult, DecodingOptions, EngineCapabilities, LanguageProbabilities
from engine_bridge.errors import EngineError, EngineSpecError, EngineUnavailableError, UnsupportedOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_RATE = 16_000
"""Samples per second that clips are sent at: the rate of Whisper and of nearly every other speech model."""

PROMPT_BYTES = 600
"""Bytes of a prompt that are sent. Whisper keeps 223 tokens before a clip; a server's tokens are not known here, and
text of any language takes two bytes or more for each."""

SHORTEST_PIECE = 1.0
"""Seconds of the shortest clip that is still taken apart when a server calls it too long."""

_SEARCHED = 0.25  # share of a piece's end that is searched for a quiet place to cut
_QUIET_SECONDS = 0.1
_SAFETY = 0.98  # of a limit that a server names: it may round up what it counts
_PROBE_SECONDS = 1.0
_PROBE_LEVEL = 1e-3  # full scale: not digital silence, which some servers take for an error


class HttpEngine:
    """A model that servers share, by the API of OpenAI: transcriptions, translations, or chat with audio.

    A clip that a server cannot take now is sent again: after 408, 429, 5xx and broken connections, with exponential
    backoff, until `deadline_seconds` have passed. Servers that fail are left out and tried again; the others go on.
    How many requests each has at once adapts to it. What servers refuse for its size is sent in pieces cut at quiet
    places, and so is whatever is as long from then on.

    The key is taken from the environment variable AURICLE_API_KEY, or else OPENAI_API_KEY.

    Parameters
    ----------
    spec : str or sequence of str
        Addresses and model: see `parse_http_spec`.
    model : str, optional
        The model's name on the servers; that of the address, or the only one they have, by default.
    api : {"transcriptions", "chat"}
        Chat is for models that only chat. What such a model writes is up to it; nothing there is timed.
    languages : sequence of str, optional
        ISO 639-1 codes that the model recognises. By default English alone for a model whose name ends in ``.en``,
        else those of Whisper.
    max_clip_seconds : float
        The longest clip to send.
    max_concurrency : int
        Requests that one server has at once, at the most.
    deadline_seconds : float
        How long a clip is tried for; long enough for a server to be started again.
    request_seconds : float
        How long one answer may take before the request counts as lost.
    open_seconds : float
        How long to wait for a first server when opening.

    Raises
    ------
    EngineSpecError
        An address cannot be understood, or the servers have no such model; the message lists those they have.
    EngineUnavailableError
        No server answers, or it refuses the key.

    """

    def __init__(
        self,
        spec: str | Sequence[str],
        *,
        model: str | None = None,
        api: str = TRANSCRIPTIONS,
        languages: Sequence[str] | None = None,
        max_clip_seconds: float = 30.0,
        max_concurrency: int = 32,
        deadline_seconds: float = 900.0,
        request_seconds: float = 600.0,
        open_seconds: float = 10.0,
    ) -> None:
        address = parse_http_spec(spec)
        settings = address.settings
        api = settings.get("api", api)
        if api not in (TRANSCRIPTIONS, CHAT):
            raise EngineSpecError(f"there is no api {api!r}: use {TRANSCRIPTIONS} or {CHAT}")
        languages = settings.get("languages", languages)
        most = int(settings.get("max_concurrency", max_concurrency))
        self._is_chat = api == CHAT
        self._longest = self._max_clip_seconds = float(settings.get("max_clip_seconds", max_clip_seconds))
        self._prompt_bytes = PROMPT_BYTES
        self._container = FLAC
        self._in_flight = most * len(address.endpoints)
        self._lock = threading.Lock()
        self._closed = False
        self._seconds = {"encode": 0.0}
        self._thread = LoopThread("auricle-http")
        self._client = HttpClient(
            address.endpoints,
            _api_key(),
            most=most,
            deadline=float(settings.get("deadline_seconds", deadline_seconds)),
            request_seconds=request_seconds,
        )
        try:
            self._model = self._thread.run(lambda: self._client.find_model(model or address.model, open_seconds))
            self._languages: tuple[str, ...] = tuple(languages or _languages_of(self._model))
            self._spec = _spec_text(spec, address.model, self._model)
            self._capabilities = self._thread.run(self._examine)
        except BaseException:
            self.close()
            raise

    @property
    def spec(self) -> str:
        """The addresses and the model; the key is no part of it."""
        return self._spec

    @property
    def description(self) -> str:
        """The servers, the model and the API."""
        servers = ", ".join(endpoint.url for endpoint in self._client.balancer.endpoints)
        return f"{self._model} at {servers} ({CHAT if self._is_chat else TRANSCRIPTIONS})"

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the model can do through its servers, as far as they tell."""
        return self._capabilities

    @property
    def preferred_in_flight(self) -> int:
        """As many as all servers together may have at once."""
        return self._in_flight

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError, naming the option, if the servers cannot honour `options`."""
        check_options(self._spec, self._capabilities, options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return the last words of a prompt that servers are sent, and whether that is less than the whole."""
        return _last_words(text, self._prompt_bytes)

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip, shape (frames,), float32 at 16 kHz. Cancelling the future cancels the request."""
        self.check(options)
        return self._begin(samples, lambda: self._recognise(samples, options))

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip; servers give no probability, so it is 1."""
        if not self._capabilities.detects_language:
            raise UnsupportedOptionError(f"{self._spec} cannot detect languages: name the language")
        return self._begin(samples, lambda: self._detect(samples))

    def timings(self) -> Mapping[str, float]:
        """Seconds spent encoding clips, waiting for a place at a server, and waiting for answers."""
        with self._lock:
            return {**self._seconds, **self._client.seconds}

    def close(self) -> None:
        """Cancel what is under way and close the connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._thread.stop(self._client.close)

    def _begin(self, samples: NDArray[np.float32], begin: "Callable[[], Any]") -> "Future[Any]":
        longest = samples_from_seconds(self._max_clip_seconds, SAMPLE_RATE)
        if samples.ndim != 1 or len(samples) > longest:
            raise ValueError(f"a clip has shape (frames,) with at most {longest} frames, not {samples.shape}")
        with self._lock:
            if self._closed:
                raise EngineError(f"{self._spec} is closed: open it again")
            return self._thread.submit(begin)

    async def _examine(self) -> EngineCapabilities:
        """Find out what the servers can do by asking them for a second of next to nothing."""
        timestamps = detects = False
        if not self._is_chat:
            noise = np.random.default_rng(0).standard_normal(samples_from_seconds(_PROBE_SECONDS, SAMPLE_RATE))
            clip = (_PROBE_LEVEL * noise).astype(np.float32)
            language = self._languages[0] if len(self._languages) == 1 else None
            options = DecodingOptions(language=language, timestamps="tokens")
            try:
                answer = await self._client.send(await self._request(clip, options), attempts=1)
            except EngineError as error:
                if isinstance(error.__cause__, Refused) and error.__cause__.status in (401, 403):
                    raise EngineUnavailableError(f"{error}: set AURICLE_API_KEY to the server's key") from error
            else:
                timestamps = isinstance(answer.get("segments"), list)
                told = answer.get("language")
                detects = len(self._languages) > 1 and isinstance(told, str) and language_code(told) is not None
        return EngineCapabilities(
            sample_rate=SAMPLE_RATE,
            max_clip_seconds=self._max_clip_seconds,
            languages=self._languages,
            detects_language=detects,
            translates=len(self._languages) > 1,
            timestamps=timestamps,
            word_times=False,
            beam_search=False,
        )

    async def _recognise(self, samples: NDArray[np.float32], options: DecodingOptions) -> ClipResult:
        if options.language is None:
            options = replace(options, language=await self._spoken_language(samples))
        return await self._in_pieces(samples, options)

    async def _spoken_language(self, samples: NDArray[np.float32]) -> str | None:
        """Return the language to name: servers that detect it for each request do so only where none is named."""
        if len(self._languages) == 1:
            return self._languages[0]
        if not self._capabilities.detects_language:
            return None
        return (await self._detect(samples))[0][0]

    async def _detect(self, samples: NDArray[np.float32]) -> LanguageProbabilities:
        language = (await self._in_pieces(samples, DecodingOptions(timestamps="tokens"))).language
        if language is None or language not in self._languages:
            raise EngineError(f"{self._spec} named no language that is known ({language}): name the language")
        return ((language, 1.0),)

    async def _in_pieces(self, samples: NDArray[np.float32], options: DecodingOptions) -> ClipResult:
        """Recognise a clip as a whole or, where servers call it too long, in pieces that follow on one another."""
        pieces = self._pieces(samples)
        if len(pieces) > 1:
            starts = accumulate((len(piece) for piece in pieces[:-1]), initial=0)
            results = await asyncio.gather(*(self._in_pieces(piece, options) for piece in pieces))
            return _joined(
                [
                    (seconds_from_samples(start, SAMPLE_RATE), result)
                    for start, result in zip(starts, results, strict=True)
                ]
            )
        try:
            return await self._ask(samples, options)
        except EngineError as error:
            if not self._adapts(error.__cause__, samples, options):
                raise
        if options.prompt:
            options = replace(options, prompt=_last_words(options.prompt, self._prompt_bytes)[0] or None)
        return await self._in_pieces(samples, options)

    def _pieces(self, samples: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        if len(samples) <= samples_from_seconds(self._longest, SAMPLE_RATE):
            return [samples]
        return split_audio(
            samples, SAMPLE_RATE, self._longest, _SEARCHED * self._longest, round(_QUIET_SECONDS * SAMPLE_RATE)
        )

    def _adapts(self, cause: BaseException | None, samples: NDArray[np.float32], options: DecodingOptions) -> bool:
        """Learn from a refusal, and return whether another attempt makes sense."""
        if isinstance(cause, WrongFormat) and self._container == FLAC:
            self._container = WAV
            return True
        if not isinstance(cause, TooMuch):
            return False
        if cause.is_tokens and options.prompt:
            self._prompt_bytes = min(self._prompt_bytes, len(options.prompt.encode()) // 2)
            return True
        seconds = seconds_from_samples(len(samples), SAMPLE_RATE)
        if seconds <= SHORTEST_PIECE:
            return False
        allowed = seconds / 2
        if cause.seconds is not None and cause.seconds < seconds:
            allowed = _SAFETY * cause.seconds
        elif cause.size is not None:
            allowed = max(allowed / 4, min(_SAFETY * seconds, seconds * _SAFETY * cause.size / self._size(samples)))
        self._longest = max(SHORTEST_PIECE / 2, min(self._longest, allowed))
        return True

    def _size(self, samples: NDArray[np.float32]) -> int:
        return len(encode_clip(samples, SAMPLE_RATE, self._container))

    async def _ask(self, samples: NDArray[np.float32], options: DecodingOptions) -> ClipResult:
        seconds = seconds_from_samples(len(samples), SAMPLE_RATE)
        answer = await self._client.send(await self._request(samples, options))
        try:
            return (chat_result if self._is_chat else transcription_result)(answer, seconds, options)
        except Refused as refusal:
            raise EngineError(f"{self._spec}: the server {refusal}") from refusal

    async def _request(self, samples: NDArray[np.float32], options: DecodingOptions) -> ClipRequest:
        start = time.perf_counter()
        container = self._container
        data = await asyncio.to_thread(encode_clip, samples, SAMPLE_RATE, container)
        with self._lock:
            self._seconds["encode"] += time.perf_counter() - start
        make = chat_request if self._is_chat else transcription_request
        return make(data, container, self._model, options)


def _joined(results: list[tuple[float, ClipResult]]) -> ClipResult:
    """Return the results of pieces, with their starts in seconds, as the result of the whole."""
    segments = tuple(
        replace(segment, start=segment.start + start, end=segment.end + start)
        for start, result in results
        for segment in result.segments
    )
    texts = [result for _, result in results if result.segments]
    likely = [each.average_log_probability for each in texts if each.average_log_probability is not None]
    silent = [each.no_speech_probability for _, each in results if each.no_speech_probability is not None]
    return ClipResult(
        segments=segments,
        language=results[0][1].language,
        average_log_probability=sum(likely) / len(likely) if likely else None,
        no_speech_probability=min(silent) if silent else None,
    )


def _last_words(text: str, most: int) -> tuple[str, bool]:
    """Return as many whole words from the end of a text as fit into so many bytes, and whether that is not all."""
    if len(text.encode()) <= most:
        return text, False
    kept = text.encode()[-most:].decode("utf-8", "ignore") if most else ""
    whole = text[: len(text) - len(kept)]
    if kept and not kept[0].isspace() and not whole[-1:].isspace():
        kept = kept.partition(" ")[2] if " " in kept else kept
    return kept.strip(), True


def _languages_of(model: str) -> tuple[str, ...]:
    return ("en",) if model.lower().endswith(".en") else tuple(LANGUAGE_NAMES)


def _api_key() -> str | None:
    return os.environ.get("AURICLE_API_KEY") or os.environ.get("OPENAI_API_KEY") or None


def _spec_text(spec: str | Sequence[str], named: str | None, model: str) -> str:
    text = spec if isinstance(spec, str) else ",".join(spec)
    return text if named == model else f"{text.partition('#')[0]}#{model}"
