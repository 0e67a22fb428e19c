"""Whisper and its relatives in this process, on vLLM's asynchronous engine."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from engine_bridge.embeddings import AudioEmbedding
from engine_bridge.engines.encoding import Intake, encoded_chunks
from engine_bridge.engines.loop_thread import LoopThread
from engine_bridge.engines.options import check_options
from engine_bridge.engines.protocol import ClipResult, DecodingOptions, EngineCapabilities, LanguageProbabilities
from engine_bridge.engines.vllm_clips import VllmClips
from engine_bridge.engines.vllm_files import is_folder, read_model_files, repository_of
from engine_bridge.engines.vllm_import import import_vllm
from engine_bridge.engines.vllm_worker import EXTENSION
from engine_bridge.errors import (
    EngineBridgeError,
    EngineDeadError,
    EngineError,
    EngineSpecError,
    EngineUnavailableError,
    UnsupportedOptionError,
)
from engine_bridge.features import HOP_FRAMES, log_mel_spectrogram
from engine_bridge.models.whisper import WHISPER

ROUNDS_IN_FLIGHT = 2
"""Batches of the scheduler that are submitted at once: one at work, one waiting."""

SHUTDOWN_SECONDS = 20
"""How long vLLM's processes may take to end before they are killed."""

MOST_IN_FLIGHT = 256
"""Clips that are submitted at once at the most; each holds its audio in memory."""

STATES_STRIDE = 2 * HOP_FRAMES
"""How far apart the states of Whisper's encoder are, in samples."""

TIMESTAMP_RULES = "engine_bridge.engines.vllm_timestamps:TimestampRules"
"""Where vLLM finds the rules, as it wants to be told."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, eq=False)
class _Clip:
    """What was submitted, for as long as it has no answer; without options only its language is asked for."""

    number: int
    samples: NDArray[np.float32]
    options: DecodingOptions | None
    seconds: float

    def __str__(self) -> str:
        asked = "language of " if self.options is None else ""
        return f"{asked}clip {self.number} ({self.seconds:.1f} s)"


class VllmEngine:
    """A model in vLLM, which runs in processes of its own and batches whatever is submitted.

    Cancelling a future aborts its request. When the engine dies, every clip without an answer fails with one and the
    same `EngineDeadError`, which lists them, and so does each later submission; `restart` starts the engine again and
    takes them up. With `restarts` it does so by itself, and futures outlive the engine.

    vLLM starts processes that import the main module again, so a script that opens this engine keeps its work under
    ``if __name__ == "__main__":``.

    Parameters
    ----------
    model : str
        A folder in Hugging Face's layout, a hub repository, or a size of Whisper: see `read_model_files`.
    restarts : int
        How often the engine is started again by itself after it died.
    **engine_args
        Arguments of vLLM's ``AsyncEngineArgs``, such as ``max_num_seqs``, ``dtype``, ``gpu_memory_utilization``,
        ``limit_mm_per_prompt`` or ``enable_mm_embeds``.

    Raises
    ------
    EngineSpecError
        If vLLM knows no argument of that name.
    ModelNotFoundError
        If no place holds the model.
    EngineUnavailableError
        If vLLM does not load here, is a release that is not supported, or cannot load the model.

    """

    def __init__(self, model: str, *, restarts: int = 0, **engine_args: Any) -> None:
        self._vllm = import_vllm()
        self._files = read_model_files(model)
        self._spec = f"vllm:{model}"
        self._arguments = {"disable_log_stats": True, "worker_extension_cls": EXTENSION, **engine_args}
        self._arguments["model"] = str(Path(model).expanduser()) if is_folder(model) else repository_of(model)
        self._restarts_left = restarts
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, _Clip] = {}
        self._unfinished: tuple[_Clip, ...] = ()
        self._death: EngineDeadError | None = None
        self._closed = False
        self._starts = 0
        self._reviving = asyncio.Lock()
        self._earlier_seconds: dict[str, float] = {}
        self._loop = LoopThread("auricle-vllm")
        try:
            self._loop.run(self._start)
            self._intake = Intake(
                self._spec,
                self._clips.info,
                engine_args.get("limit_mm_per_prompt"),
                enable_mm_embeds=bool(engine_args.get("enable_mm_embeds", False)),
            )
        except BaseException:
            self._loop.stop(self._shut_down)
            raise

    async def _start(self) -> None:
        """Start vLLM's processes; blocks the loop, in which nothing else can happen before it is done."""
        from vllm.v1.engine.async_llm import AsyncLLM

        self._client: Any = None
        try:
            arguments = self._vllm.AsyncEngineArgs(**self._arguments)
        except TypeError as error:
            raise EngineSpecError(f"{self._spec}: vLLM does not know the argument ({error}); check its name") from error
        except Exception as error:
            raise EngineUnavailableError(f"{self._spec}: vLLM refuses its arguments ({error}); change them") from error
        try:
            config = arguments.create_engine_config()
            has_rules = _add_timestamp_rules(config)
            self._client = AsyncLLM.from_vllm_config(config, disable_log_stats=arguments.disable_log_stats)
            self._clips = VllmClips(self._client, self._files, self._spec, has_timestamp_rules=has_rules)
        except EngineBridgeError:
            raise
        except Exception as error:
            raise EngineUnavailableError(
                f"{self._spec}: vLLM cannot start ({type(error).__name__}: {error}); its own messages above say why"
            ) from error
        self._starts += 1

    async def _shut_down(self) -> None:
        """End vLLM's processes; blocks the loop, whose sockets have to be closed in it."""
        client = getattr(self, "_client", None)
        if client is None:
            return
        if client.output_handler is not None:
            client.output_handler.cancel()  # it would tell of processes that ended as of an accident
            await asyncio.gather(client.output_handler, return_exceptions=True)
        client.shutdown(timeout=SHUTDOWN_SECONDS)
        client.engine_core.resources.ctx.destroy(linger=0)  # vLLM leaves it to the interpreter, which complains

    @property
    def spec(self) -> str:
        """The specification that opens this engine again."""
        return self._spec

    @property
    def description(self) -> str:
        """The version of vLLM, the device, the family and the type of its weights."""
        config = self._client.vllm_config
        kind = str(self._client.model_config.dtype).removeprefix("torch.")
        return f"vLLM {self._vllm.__version__}, {config.device_config.device_type}, {self._clips.info.family}, {kind}"

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the model can do in vLLM."""
        return self._clips.capabilities(embeddings=self._encodes)

    @property
    def _encodes(self) -> bool:
        return self._clips.info.family == WHISPER and self._arguments["worker_extension_cls"] == EXTENSION

    @property
    def preferred_in_flight(self) -> int:
        """Two of the scheduler's batches."""
        return min(MOST_IN_FLIGHT, ROUNDS_IN_FLIGHT * int(self._client.vllm_config.scheduler_config.max_num_seqs))

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; a dead engine that can be started again is not."""
        with self._lock:
            return self._closed

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError if the model cannot honour `options`."""
        check_options(self.spec, self.capabilities, options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits before a clip, and whether that is less than the whole."""
        return self._clips.processor.fit_prompt(text)

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip, shape (frames,), float32 in [-1, 1]; see `Engine.submit`.

        Raises EngineDeadError when the engine has died and was not started again.
        """
        self._intake.check_audio()
        self.check(options)
        return self._submit(samples, options)

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip by the model's first token."""
        if not self._clips.info.detects_language:
            raise UnsupportedOptionError(f"{self.spec} cannot detect languages: name the language")
        self._intake.check_audio()
        return self._submit(samples, None)

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[AudioEmbedding]:
        """Yield the encoder's states of each chunk, shape (1500, hidden size); only of Whisper models."""
        if not self._encodes:
            raise UnsupportedOptionError(f"{self.spec} does not give embeddings: vLLM gives those of Whisper alone")
        self._intake.check_audio()
        return encoded_chunks(
            chunks,
            lambda samples: self._run(lambda: self._encode(samples)),
            in_flight=ROUNDS_IN_FLIGHT,
            samples_per_state=STATES_STRIDE,
            model=self.spec,
        )

    def submit_embedding(self, embedding: AudioEmbedding, options: DecodingOptions) -> "Future[ClipResult]":
        """Refuse: vLLM's Whisper takes audio alone."""
        del embedding, options
        raise UnsupportedOptionError(
            f"{self.spec} does not take embeddings: its encoder is given audio alone; use embedded:MODEL for them"
        )

    def timings(self) -> Mapping[str, float]:
        """Seconds spent in preparing inputs and in the engine, added up over clips that overlap in time."""
        now = self._clips.timings()
        with self._lock:
            return {stage: seconds + self._earlier_seconds.get(stage, 0.0) for stage, seconds in now.items()}

    def restart(self) -> Sequence["Future[Any]"]:
        """Start a dead engine again and take up what it did not finish.

        Returns
        -------
        sequence of Future
            One for each clip that `EngineDeadError.unfinished` lists, in its order. Nothing where the engine lives.

        Raises
        ------
        EngineError
            If the engine is closed.
        EngineUnavailableError
            If it cannot be started.

        """
        with self._lock:
            if self._closed:
                raise EngineError(f"{self.spec} is closed: open another engine")
            if self._death is None:
                return ()
        self._loop.run(self._begin_again)
        with self._lock:
            unfinished, self._unfinished, self._death = self._unfinished, (), None
        return [self._submit(clip.samples, clip.options) for clip in unfinished]

    def close(self) -> None:
        """Abort what waits and end vLLM's processes."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.stop(self._shut_down)

    def _submit(self, samples: NDArray[np.float32], options: DecodingOptions | None) -> "Future[Any]":
        self._clips.check_clip(samples)
        with self._lock:
            clip = _Clip(next(self._numbers), samples, options, len(samples) / self._clips.info.sample_rate)
            future = self._run_locked(lambda: self._answer(clip))
            self._open[clip.number] = clip
        # Called at once if it is done, in this thread or the loop's; neither holds the lock then.
        future.add_done_callback(lambda _: self._settle(clip))
        return future

    def _settle(self, clip: _Clip) -> None:
        with self._lock:
            self._open.pop(clip.number, None)

    def _run(self, begin: Callable[[], Coroutine[Any, Any, _Answer]]) -> "Future[_Answer]":
        with self._lock:
            return self._run_locked(begin)

    def _run_locked(self, begin: Callable[[], Coroutine[Any, Any, _Answer]]) -> "Future[_Answer]":
        if self._closed:
            raise EngineError(f"{self.spec} is closed: open another engine")
        if self._death is not None:
            raise self._death
        return self._loop.submit(begin)

    async def _answer(self, clip: _Clip) -> Any:
        """Recognise a clip, again after each start where the engine is started again by itself."""
        while True:
            starts, clips = self._starts, self._clips
            try:
                if clip.options is None:
                    return await clips.languages(clip.samples)
                return await clips.recognise(clip.samples, clip.options)
            except EngineBridgeError:
                raise
            except Exception as error:
                if not self._client.errored and starts == self._starts:
                    raise EngineError(f"{self.spec} failed: {type(error).__name__}: {error}") from error
                await self._revive(starts, error)

    async def _encode(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        self._clips.check_clip(samples)
        starts = self._starts
        mels = int(self._files.setting("num_mel_bins", default=80))
        features = await asyncio.to_thread(log_mel_spectrogram, samples, mels)
        try:
            answers = await self._client.collective_rpc(
                "auricle_encode", args=(features.tobytes(), list(features.shape))
            )
        except Exception as error:
            if self._client.errored or starts != self._starts:
                await self._revive(starts, error)
            raise EngineError(f"{self.spec} failed: {type(error).__name__}: {error}") from error
        content, shape = answers[0]
        return np.frombuffer(content, dtype=np.float32).reshape(shape)

    async def _revive(self, starts: int, cause: Exception) -> None:
        """Start the engine again after its death, once for all clips, or raise the one error that they all get."""
        async with self._reviving:
            if self._starts != starts:
                return
            if self._death is None and self._restarts_left > 0:
                self._restarts_left -= 1
                await self._begin_again()
                return
            if self._death is None:
                with self._lock:
                    self._unfinished = tuple(self._open[number] for number in sorted(self._open))
                    self._death = _death(self.spec, self._unfinished)
                    self._death.__cause__ = cause
            raise self._death

    async def _begin_again(self) -> None:
        before = self._clips.timings()
        with self._lock:
            for stage, seconds in before.items():
                self._earlier_seconds[stage] = self._earlier_seconds.get(stage, 0.0) + seconds
        await self._shut_down()
        await self._start()


def _add_timestamp_rules(config: Any) -> bool:
    """Have vLLM apply Whisper's timestamp rules; return whether it will.

    Only its first model runner takes logits processors of this kind; where it uses the second there are no timestamps.
    """
    if config.use_v2_model_runner:
        return False
    config.model_config.logits_processors = [*(config.model_config.logits_processors or ()), TIMESTAMP_RULES]
    return True


def _death(spec: str, unfinished: Sequence[_Clip]) -> EngineDeadError:
    names = tuple(str(clip) for clip in unfinished)
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return EngineDeadError(
        f"{spec} died and left {len(names)} clips without an answer ({listed or 'none'}); "
        "call restart() to start it again and take them up, or open it with restarts=1",
        names,
    )
