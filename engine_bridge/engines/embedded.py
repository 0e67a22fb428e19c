"""Whisper inside this process, on CTranslate2."""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from audio.positions import samples_from_seconds
from engine_bridge.budget import BatchBudget, BatchChoice, choose_batch
from engine_bridge.embeddings import AudioEmbedding
from engine_bridge.engines.clip_queue import ClipQueue, ClipRequest
from engine_bridge.engines.embedded_text import TextDecoder
from engine_bridge.engines.encoding import Intake, encoded_chunks
from engine_bridge.engines.model_files import DEFAULT_MODEL, locate_model
from engine_bridge.engines.options import check_options
from engine_bridge.engines.protocol import (
    WIDE_BEAM,
    ClipResult,
    DecodingOptions,
    EngineCapabilities,
    LanguageProbabilities,
)
from engine_bridge.engines.whisper_tokens import MAX_CONTEXT_TOKENS, MAX_PROMPT_TOKENS, WhisperTokens
from engine_bridge.errors import EngineError, EngineUnavailableError, UnsupportedOptionError
from engine_bridge.features import HOP_FRAMES, SAMPLE_RATE, WINDOW_FRAMES, WINDOW_SECONDS, log_mel_spectrogram
from engine_bridge.models.info import ModelFiles
from engine_bridge.models.whisper import whisper_info
from engine_bridge.timing import ALIGN, DECODE_TEXT, ENCODE, FEATURES, PROCESS, TimingContext

DECODER_BATCH = 3
DEVICE_BATCH = 32
"""Most clips decoded together, on a CPU and on CUDA, unless memory is short. The text decoder gains from batches, the
encoder on a CPU does not. Two at a time take 5 % longer than four, three and eight as long as four. The attention's
keys and values of four take more memory than the encoder's largest step, those of three do not: with two workers a job
of a hundred short recordings peaked at 443 MiB in batches of three, at 485 in batches of four."""

SEARCHED_TOGETHER = 2
"""Most clips searched together with a beam on a CPU. Against four it saves 60 MiB a worker and costs 14 to 33 %."""

DUMMY_TOKENS = 16
"""Length of the text that is decoded to measure memory."""

_CLIP_BYTES = 150 << 20
_CLIP_SHARE = 0.5
"""What a clip takes at the most: so many bytes, and that share of the model's file. On a CPU tiny.en, with a file of
72 MiB, was measured to take 100 MiB for the first clip of a batch and 10 to 20 MiB for each further one."""

SAMPLES_PER_STATE = 2 * HOP_FRAMES
"""How far apart the encoder's states are: it halves the features in time."""

_NO_SAMPLES = np.zeros(0, dtype=np.float32)


class EmbeddedEngine:
    """A Whisper model in this process.

    Clips that are submitted wait in one queue; each worker thread takes a batch of them, encodes, decodes and aligns.
    On a CPU two workers of one thread each are faster than one worker of two threads, so there is one a core.

    Parameters
    ----------
    model : str
        A folder, a model name, or a hub repository: see `locate_model`.
    device : str
        "cpu", "cuda", or "auto" for CUDA where there is a device.
    compute_type : str
        A CTranslate2 type, or "auto": int8 on a CPU, float16 on CUDA.
    workers : int or None
        Batches processed side by side; None for one a core on a CPU, one on CUDA.
    threads : int or None
        Threads of each worker on a CPU; None for one.
    batch_size : int or None
        Most clips decoded together; None for 3 on a CPU and 32 on CUDA, or as many as fit into the memory that is free
        (`engine_bridge.budget`). Where memory runs out, batches are halved and tried again.
    limit_mm_per_prompt : mapping or None
        ``{"audio": 0}`` refuses audio and leaves embeddings.
    enable_mm_embeds : bool
        Whether embeddings are taken in place of audio.

    Raises
    ------
    ModelNotFoundError
        If no place holds the model.
    EngineUnavailableError
        If CTranslate2 cannot load here, or cannot load this model.

    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        device: str = "auto",
        compute_type: str = "auto",
        workers: int | None = None,
        threads: int | None = None,
        batch_size: int | None = None,
        limit_mm_per_prompt: Mapping[str, int] | None = None,
        enable_mm_embeds: bool = False,
    ) -> None:
        folder = locate_model(model)
        try:
            import ctranslate2
        except (ImportError, OSError, RuntimeError) as error:
            raise EngineUnavailableError(
                f"CTranslate2 cannot load here: {error}. Reinstall it with: pip install --force-reinstall ctranslate2"
            ) from error
        if device == "auto":
            device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        if compute_type == "auto":
            compute_type = "float16" if device == "cuda" else "int8"
        on_cpu = device == "cpu"
        if workers is None:
            workers = len(os.sched_getaffinity(0)) if on_cpu else 1
        self._storage = ctranslate2.StorageView
        try:
            self._model = ctranslate2.models.Whisper(
                str(folder),
                device=device,
                compute_type=compute_type,
                inter_threads=workers,
                intra_threads=(threads or 1) if on_cpu else 0,
            )
        except (RuntimeError, ValueError) as error:
            raise EngineUnavailableError(
                f"{model}: CTranslate2 cannot load the model from {folder}: {error}"
            ) from error
        self._tokens = WhisperTokens(folder, multilingual=self._model.is_multilingual)
        self._spec = f"embedded:{model}"
        info = whisper_info(ModelFiles(model, {}, {"is_multilingual": self._model.is_multilingual}))
        self._intake = Intake(self._spec, info, limit_mm_per_prompt, enable_mm_embeds=enable_mm_embeds)
        self._state_shape: tuple[int, int] | None = None
        self._encoder_batch = 1 if on_cpu else batch_size or DEVICE_BATCH
        self._timing = TimingContext((FEATURES, ENCODE, DECODE_TEXT, ALIGN), parent=PROCESS)
        self._text = TextDecoder(
            self._model,
            self._tokens,
            self._timing,
            align_together=self._encoder_batch,
            search_together=SEARCHED_TOGETHER if on_cpu else DEVICE_BATCH,
        )
        self._budget = BatchBudget(
            BatchChoice(batch_size)
            if batch_size is not None
            else choose_batch(
                DECODER_BATCH if on_cpu else DEVICE_BATCH,
                workers=workers,
                device=device,
                clip_bound=_CLIP_BYTES + int(_CLIP_SHARE * (folder / "model.bin").stat().st_size),
                run=self._run_dummies,
            )
        )
        self._queue = ClipQueue(self._spec)
        self._description = f"CTranslate2 {ctranslate2.__version__}, {device}, {self._model.compute_type}"
        self._workers = [
            threading.Thread(target=self._work, name=f"auricle-embedded-{number}", daemon=True)
            for number in range(workers)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def spec(self) -> str:
        """The specification that opens this engine again."""
        return self._spec

    @property
    def description(self) -> str:
        """CTranslate2's version, the device, the computation type and the size of batches."""
        return f"{self._description}, {self._budget.choice}"

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the model can do."""
        multilingual = self._tokens.multilingual
        return EngineCapabilities(
            sample_rate=SAMPLE_RATE,
            max_clip_seconds=WINDOW_SECONDS,
            languages=self._tokens.languages(),
            detects_language=multilingual,
            translates=multilingual,
            timestamps=True,
            word_times=True,
            beam_search=True,
            embeddings=True,
            max_prompt_tokens=MAX_PROMPT_TOKENS,
            max_output_tokens=MAX_CONTEXT_TOKENS,
        )

    @property
    def preferred_in_flight(self) -> int:
        """Two full batches a worker: one at work, one waiting."""
        return 2 * self._budget.size * len(self._workers)

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError if the model cannot honour `options`."""
        check_options(self.spec, self.capabilities, options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits into half of the decoder's context, and whether that is less than the whole."""
        return self._tokens.fit_prompt(text)

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip of at most 30 s at 16 kHz, shape (frames,), float32."""
        self._intake.check_audio()
        self.check(options)
        return self._enqueue(samples, options)

    def encode(self, chunks: Iterable[Chunk]) -> Iterator[AudioEmbedding]:
        """Yield the encoder's states of each chunk, shape (1500, hidden size), while those after it are at work."""
        self._intake.check_audio()
        return encoded_chunks(
            chunks,
            lambda samples: self._enqueue(samples, None, wants_states=True),
            in_flight=self.preferred_in_flight,
            samples_per_state=SAMPLES_PER_STATE,
            model=self.spec,
        )

    def submit_embedding(self, embedding: AudioEmbedding, options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip's states in place of its audio; see `EncodingEngine.submit_embedding`."""
        states = self._intake.admitted(embedding, self._shape_of_states)
        self.check(options)
        frames = min(samples_from_seconds(embedding.clip_seconds, SAMPLE_RATE), WINDOW_FRAMES)
        return self._queue.put(ClipRequest(_NO_SAMPLES, options, Future(), states=states, embedded_frames=frames))

    def _shape_of_states(self) -> tuple[int, int]:
        if self._state_shape is None:
            _, frames, hidden_size = self._states([_NO_SAMPLES]).shape
            self._state_shape = (frames, hidden_size)
        return self._state_shape

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip, as codes with probabilities."""
        if not self._tokens.multilingual:
            raise UnsupportedOptionError(f"{self.spec} is English-only and cannot detect languages")
        self._intake.check_audio()
        return self._enqueue(samples, None)

    def _enqueue(
        self, samples: NDArray[np.float32], options: DecodingOptions | None, *, wants_states: bool = False
    ) -> "Future[Any]":
        if samples.ndim != 1 or len(samples) > WINDOW_FRAMES:
            raise ValueError(f"a clip has shape (frames,) with at most {WINDOW_FRAMES} frames, not {samples.shape}")
        return self._queue.put(ClipRequest(samples, options, Future(), wants_states))

    def timings(self) -> Mapping[str, float]:
        """Seconds spent in features, encode, decode text and align, added up over the workers and on the clock."""
        return self._timing.seconds()

    def close(self) -> None:
        """Stop the workers after their current batch; clips still waiting are cancelled."""
        self._queue.close()
        for worker in self._workers:
            worker.join()

    def _work(self) -> None:
        while (batch := self._queue.take(self._budget.size, len(self._workers))) is not None:
            running = [request for request in batch if request.future.set_running_or_notify_cancel()]
            if not running:
                continue
            try:
                results = self._budget.process(running, self._process)
            except Exception as error:  # noqa: BLE001 - whatever fails belongs to the clips that wait for it
                failure = EngineError(f"{self.spec} failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                for request in running:
                    request.future.set_exception(failure)
            else:
                for request, result in zip(running, results, strict=True):
                    request.future.set_result(result)

    def _run_dummies(self, clips: int) -> None:
        """Encode and decode so many clips of full length, to see what memory that takes."""
        silence = np.zeros(WINDOW_FRAMES, dtype=np.float32)
        encoded = self._states([silence] * clips)
        for beam_size in (1, WIDE_BEAM):
            self._text.written(encoded, "en", DecodingOptions(language="en"), beam_size, DUMMY_TOKENS)

    def _process(self, batch: Sequence[ClipRequest]) -> Sequence[Any]:
        encoded = self._encode(batch)
        options = batch[0].options
        if batch[0].wants_states:
            return list(encoded.astype(np.float32, copy=False))
        if options is None:
            return self._languages(encoded)
        if options.language is not None or not self._tokens.multilingual:
            languages: list[tuple[str, float | None]] = [(options.language or "en", None)] * len(batch)
        else:
            languages = [(ranked[0][0], ranked[0][1]) for ranked in self._languages(encoded)]
        results: dict[int, ClipResult] = {}
        for language in dict.fromkeys(code for code, _ in languages):
            members = [index for index, (code, _) in enumerate(languages) if code == language]
            frames = [batch[index].frames for index in members]
            states = encoded if len(members) == len(batch) else encoded[members]
            decoded = self._text.decode(states, frames, language, options)
            for index, result in zip(members, decoded, strict=True):
                results[index] = replace(result, language_probability=languages[index][1])
        return [results[index] for index in range(len(batch))]

    def _encode(self, batch: Sequence[ClipRequest]) -> NDArray[Any]:
        """Return the encoder's states, shape (clips, 1500, hidden size), as they were given or computed here."""
        clips = [request.samples for request in batch if request.states is None]
        if len(clips) == len(batch):
            return self._states(clips)
        computed = iter(self._states(clips) if clips else ())
        return np.stack([next(computed) if request.states is None else request.states for request in batch])

    def _states(self, clips: Sequence[NDArray[np.float32]]) -> NDArray[Any]:
        states: NDArray[Any] | None = None
        for first in range(0, len(clips), self._encoder_batch):
            group = clips[first : first + self._encoder_batch]
            with self._timing.stage(FEATURES):
                features = np.stack([log_mel_spectrogram(clip, self._model.n_mels) for clip in group])
            with self._timing.stage(ENCODE):
                encoded = np.asarray(self._model.encode(self._storage.from_array(features), to_cpu=True))
                if states is None:
                    states = np.empty((len(clips), *encoded.shape[1:]), encoded.dtype)
                states[first : first + len(encoded)] = encoded
        assert states is not None  # noqa: S101 - for the type checker: there are clips
        return states

    def _languages(self, encoded: NDArray[Any]) -> list[LanguageProbabilities]:
        with self._timing.stage(DECODE_TEXT):
            ranked = self._model.detect_language(self._storage.from_array(encoded))
        return [tuple((token[2:-2], probability) for token, probability in clip) for clip in ranked]
