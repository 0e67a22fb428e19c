"""The engine inside a running vLLM server, reached through its engine client. Imports vLLM."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from vllm.exceptions import GracefulHTTPError

from engine_bridge.engines.http_balance import backoff
from engine_bridge.engines.options import check_options
from engine_bridge.engines.protocol import (
    ClipResult,
    DecodingOptions,
    EngineCapabilities,
    LanguageProbabilities,
)
from engine_bridge.engines.vllm_clips import VllmClips
from engine_bridge.engines.vllm_engine import MOST_IN_FLIGHT, ROUNDS_IN_FLIGHT
from engine_bridge.engines.vllm_files import read_model_files
from engine_bridge.errors import EngineBridgeError, EngineError, UnsupportedOptionError

PATIENCE_SECONDS = 600.0
"""How long a clip is offered to an engine whose queue is full."""

_Answer = TypeVar("_Answer")


class ServedEngine:
    """A server's own model, for recordings that come by request.

    Parameters
    ----------
    client : vllm.engine.protocol.EngineClient
        The server's way to its engine.
    loop : asyncio.AbstractEventLoop
        The server's event loop, in which the client works. Clips are submitted from other threads.
    name : str
        The model's name on the server.

    Raises
    ------
    EngineUnavailableError
        The model is of no family known here.
    ModelNotFoundError
        Its files are not at hand.

    """

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._model = str(client.model_config.model)
        self._spec = f"vllm-server:{name}"
        self._clips = VllmClips(client, read_model_files(self._model), self._spec)
        batch = int(client.vllm_config.scheduler_config.max_num_seqs)
        self._in_flight = min(MOST_IN_FLIGHT, ROUNDS_IN_FLIGHT * batch)

    @property
    def spec(self) -> str:
        """Where it runs; it opens no other engine."""
        return self._spec

    @property
    def description(self) -> str:
        """The family and the model."""
        return f"{self._clips.info.family} {self._model} inside a vLLM server"

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the model can do."""
        return self._clips.capabilities()

    @property
    def preferred_in_flight(self) -> int:
        """Two of the scheduler's batches."""
        return self._in_flight

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError if the model cannot honour `options`."""
        check_options(self._spec, self.capabilities, options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits before a clip, and whether that is less than the whole."""
        return self._clips.processor.fit_prompt(text)

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip, shape (frames,), from a thread that is not the event loop's."""
        self.check(options)
        return self._begin(samples, lambda: self._clips.recognise(samples, options))

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip by the model's first token."""
        if not self._clips.info.detects_language:
            raise UnsupportedOptionError(f"{self._spec} cannot detect languages: name the language")
        return self._begin(samples, lambda: self._clips.languages(samples))

    def timings(self) -> Mapping[str, float]:
        """Seconds that clips spent in each stage, added up."""
        return self._clips.timings()

    def close(self) -> None:
        """Do nothing: the engine is the server's."""

    def _begin(self, samples: NDArray[np.float32], ask: Callable[[], Awaitable[_Answer]]) -> "Future[_Answer]":
        self._clips.check_clip(samples)
        return asyncio.run_coroutine_threadsafe(self._answered(ask), self._loop)

    async def _answered(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Ask until the engine's queue takes a clip; cancelling this aborts its request."""
        end = self._loop.time() + PATIENCE_SECONDS
        attempts = 0
        while True:
            try:
                return await ask()
            except EngineBridgeError:
                raise
            except Exception as error:
                attempts += 1
                pause = backoff(attempts)
                if not isinstance(error, GracefulHTTPError) or self._loop.time() + pause > end:
                    raise EngineError(f"{self._spec} failed: {type(error).__name__}: {error}") from error
            await asyncio.sleep(pause)
