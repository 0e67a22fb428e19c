"""The engine inside a running vLLM server, reached through its engine client. Imports vLLM."""

import asyncio
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vllm import SamplingParams
from vllm.exceptions import GracefulHTTPError
from vllm.renderers.inputs.preprocess import parse_model_prompt
from vllm.sampling_params import RequestOutputKind

from audio.positions import samples_from_seconds, seconds_from_samples
from engine_bridge.engines.http_balance import backoff
from engine_bridge.engines.options import check_options
from engine_bridge.engines.protocol import (
    TRANSLATE,
    ClipResult,
    DecodingOptions,
    EngineCapabilities,
    LanguageProbabilities,
)
from engine_bridge.errors import EngineError, EngineUnavailableError, UnsupportedOptionError
from engine_bridge.models import EngineInput, Generated, ModelFiles, find_audio_model

PATIENCE_SECONDS = 600.0
"""How long a clip is offered to an engine whose queue is full."""

_ROUNDS_IN_FLIGHT = 2  # batches submitted at once: one at work, one waiting
_MOST_IN_FLIGHT = 256


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
        The model is of no family known here, or its files are not at hand.

    """

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._client = client
        self._loop = loop
        self._name = name
        self._config = client.model_config
        files = ModelFiles.read(_folder(self._config), str(self._config.model))
        family = find_audio_model(files)
        self._info = family.describe(files)
        self._processor = family.processor(self._info, files, _Tokenizer(client.renderer.get_tokenizer(), files.name))
        in_flight = _ROUNDS_IN_FLIGHT * int(client.vllm_config.scheduler_config.max_num_seqs)
        self._in_flight = min(_MOST_IN_FLIGHT, in_flight)
        self._lock = Lock()
        self._seconds = {"engine": 0.0}

    @property
    def spec(self) -> str:
        """Where it runs; it opens no other engine."""
        return f"vllm-server:{self._name}"

    @property
    def description(self) -> str:
        """The family and the model."""
        return f"{self._info.family} {self._config.model} inside a vLLM server"

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the model can do."""
        return EngineCapabilities(
            sample_rate=self._info.sample_rate,
            max_clip_seconds=self._info.max_clip_seconds,
            languages=self._info.languages,
            detects_language=self._info.detects_language,
            translates=TRANSLATE in self._info.tasks,
            timestamps=self._info.timestamps,
            word_times=False,
            beam_search=False,
        )

    @property
    def preferred_in_flight(self) -> int:
        """Two of the scheduler's batches."""
        return self._in_flight

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError if the model cannot honour `options`."""
        check_options(self.spec, self.capabilities, options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits before a clip, and whether that is less than the whole."""
        return self._processor.fit_prompt(text)

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip, shape (frames,), from a thread that is not the event loop's."""
        self.check(options)
        self._check_clip(samples)
        return asyncio.run_coroutine_threadsafe(self._recognise(samples, options), self._loop)

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip by the model's first token."""
        if not self._info.detects_language:
            raise UnsupportedOptionError(f"{self.spec} cannot detect languages: name the language")
        self._check_clip(samples)
        return asyncio.run_coroutine_threadsafe(self._detect(samples), self._loop)

    def timings(self) -> Mapping[str, float]:
        """Seconds that clips spent in the engine, added up."""
        with self._lock:
            return dict(self._seconds)

    def close(self) -> None:
        """Do nothing: the engine is the server's."""

    def _check_clip(self, samples: NDArray[np.float32]) -> None:
        longest = samples_from_seconds(self._info.max_clip_seconds, self._info.sample_rate)
        if samples.ndim != 1 or len(samples) > longest:
            raise ValueError(f"a clip has shape (frames,) with at most {longest} frames, not {samples.shape}")

    async def _recognise(self, samples: NDArray[np.float32], options: DecodingOptions) -> ClipResult:
        language = options.language
        if language is None and self._info.detects_language:
            ((language, _), *_) = await self._detect(samples)
        elif language is None and len(self._info.languages) == 1:
            language = self._info.languages[0]
        options = replace(options, language=language)
        entry = self._processor.prepare([_heard(samples, self._info.sample_rate)], options)
        room = int(self._config.max_model_len) - entry.positions
        output = await self._generate(
            entry, SamplingParams(temperature=options.temperature, max_tokens=max(1, room), logprobs=0)
        )
        tokens = tuple(output.token_ids)
        seconds = seconds_from_samples(len(samples), self._info.sample_rate)
        total = output.cumulative_logprob
        return ClipResult(
            segments=self._processor.segments(Generated(output.text, tokens), seconds, options),
            language=language,
            average_log_probability=None if total is None or not tokens else min(0.0, float(total) / len(tokens)),
        )

    async def _detect(self, samples: NDArray[np.float32]) -> LanguageProbabilities:
        processor: Any = self._processor  # of a family that detects languages, which has these two methods
        tokens: Mapping[int, str] = processor.language_tokens()
        entry = processor.prepare_detection([_heard(samples, self._info.sample_rate)])
        most = int(self._config.max_logprobs)
        parameters = SamplingParams(
            temperature=0.0, max_tokens=1, allowed_token_ids=sorted(tokens), logprobs=max(0, min(most, len(tokens)))
        )
        output = await self._generate(entry, parameters)
        told = {token: logprob.logprob for token, logprob in output.logprobs[0].items() if token in tokens}
        likely = {tokens[token]: math.exp(value) for token, value in told.items()}
        whole = sum(likely.values())
        ranked = sorted(((code, value / whole) for code, value in likely.items()), key=lambda each: -each[1])
        return tuple(ranked)

    async def _generate(self, entry: EngineInput, parameters: SamplingParams) -> Any:
        """Return the one completion of a prompt; when the caller gives up, so does the engine."""
        parameters.output_kind = RequestOutputKind.FINAL_ONLY
        start = time.perf_counter()
        end = start + PATIENCE_SECONDS
        attempts = 0
        try:
            # Preparing features takes a while: the renderer does it in a thread of its own.
            (prepared,) = await self._client.renderer.render_cmpl_async(
                [parse_model_prompt(self._config, _prompt(entry))]
            )
            while True:
                try:
                    return await self._completed(prepared, parameters)
                except GracefulHTTPError:  # the queue is full
                    attempts += 1
                    pause = backoff(attempts)
                    if time.perf_counter() + pause > end:
                        raise
                    await asyncio.sleep(pause)
        except Exception as error:
            raise EngineError(f"{self.spec} failed: {type(error).__name__}: {error}") from error
        finally:
            with self._lock:
                self._seconds["engine"] += time.perf_counter() - start

    async def _completed(self, prepared: Any, parameters: SamplingParams) -> Any:
        final = None
        async for output in self._client.generate(prepared, parameters, f"auricle-{uuid.uuid4().hex}"):
            final = output
        if final is None or not final.outputs:
            raise EngineError(f"{self.spec} gave no answer")
        return final.outputs[0]


def _prompt(entry: EngineInput) -> dict[str, Any]:
    """Return a prompt as vLLM takes it."""
    audio = [(waveform, entry.sample_rate) for waveform in entry.waveforms]
    if not entry.encoder_decoder:
        return {"prompt_token_ids": list(entry.prompt), "multi_modal_data": {"audio": audio}}
    return {
        "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": audio[0]}},
        "decoder_prompt": {"prompt_token_ids": list(entry.prompt)},
    }


def _heard(samples: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Return a clip that is long enough for a model to look at: silence follows what is shorter than 0.1 s."""
    least = sample_rate // 10
    return samples if len(samples) >= least else np.pad(samples, (0, least - len(samples)))


def _folder(config: Any) -> Path:
    """Return the folder of a model's files, which the server has loaded already."""
    folder = Path(str(config.model))
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                str(config.model), revision=config.revision, local_files_only=True, allow_patterns=["*.json"]
            )
        )
    except Exception as error:
        raise EngineUnavailableError(
            f"{config.model}: the model's files are not in the hub's cache ({error}); give vLLM the model's folder"
        ) from error


class _Tokenizer:
    """The server's tokenizer, as the families' prompts want it."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name

    def token_id(self, token: str) -> int:
        found = self._tokenizer.get_vocab().get(token)
        if found is None:
            raise EngineUnavailableError(f"{self._name}: the tokenizer lacks {token}; download the model again")
        return int(found)

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=special))

    def chat(self, content: str) -> list[int]:
        turns: Sequence[dict[str, str]] = [{"role": "user", "content": content}]
        written = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return self.encode(written, special=False)
