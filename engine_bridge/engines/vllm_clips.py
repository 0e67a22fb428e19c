"""Clips through vLLM's asynchronous engine: prompts and sampling in, segments and probabilities out.

Whatever holds an engine client of vLLM's recognises through this: the engine in this process, and a server's plugin.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.positions import samples_from_seconds, seconds_from_samples
from engine_bridge.engines.protocol import (
    TRANSLATE,
    ClipResult,
    DecodingOptions,
    EngineCapabilities,
    LanguageProbabilities,
)
from engine_bridge.errors import EngineError, EngineUnavailableError
from engine_bridge.models.info import ModelFiles
from engine_bridge.models.inputs import EngineInput, Generated
from engine_bridge.models.registry import find_audio_model
from engine_bridge.models.whisper import WHISPER, WhisperProcessor
from engine_bridge.timing import PROCESS, TimingContext

LEAST_SECONDS = 0.1
"""What is shorter is followed by silence up to this, for feature extractors that fail on a few samples."""

MAX_TEXT_TOKENS = 1_024
"""The longest text of a clip for models whose context would take more: a loop should not fill it."""

TIMESTAMPS = "auricle_timestamps"
"""The name under which a request carries what `TimestampRules` needs."""

PREPARE = "prepare"
"""The stage in which vLLM's renderer makes spectrograms and prompts of clips."""

ENGINE = "engine"
"""The stage in which clips are in vLLM's engine, waiting or at work."""

_FORBIDDEN = -100.0  # the lowest bias that vLLM takes


class VllmClips:
    """Recognises clips with an engine client.

    Parameters
    ----------
    client : vllm.engine.protocol.EngineClient
        The engine; used only in its own event loop.
    files : ModelFiles
        The model's configuration.
    spec : str
        The engine's specification, for messages.
    has_timestamp_rules : bool
        Whether the engine applies `TimestampRules`; without them Whisper is not asked for timestamps.

    Raises
    ------
    EngineUnavailableError
        If the model is of no family known here.

    """

    def __init__(self, client: Any, files: ModelFiles, spec: str, *, has_timestamp_rules: bool = False) -> None:
        self._client = client
        self._spec = spec
        family = find_audio_model(files)
        self.info = family.describe(files)
        self.processor = family.processor(
            self.info, files, ClientTokenizer(client.renderer.get_tokenizer(), files.name)
        )
        self._rules = self._timestamp_tokens() if has_timestamp_rules else None
        self._context = int(client.model_config.max_model_len)
        suppressed = files.generation_config.get("suppress_tokens") or ()
        vocabulary = int(client.model_config.get_vocab_size())
        self._bias = {int(token): _FORBIDDEN for token in suppressed if 0 <= token < vocabulary}
        # What may not come first is the end of text: a clip is sent because somebody speaks in it.
        ends_early = files.generation_config.get("eos_token_id") in (
            files.generation_config.get("begin_suppress_tokens") or ()
        )
        self._least_tokens = 1 if ends_early else 0
        self._longest = samples_from_seconds(self.info.max_clip_seconds, self.info.sample_rate)
        self._timing = TimingContext((PREPARE, ENGINE), parent=PROCESS)

    def capabilities(self, *, embeddings: bool = False) -> EngineCapabilities:
        """Return what the model can do in vLLM, which searches greedily or samples and times no words."""
        return EngineCapabilities(
            sample_rate=self.info.sample_rate,
            max_clip_seconds=self.info.max_clip_seconds,
            languages=self.info.languages,
            detects_language=self.info.detects_language,
            translates=TRANSLATE in self.info.tasks,
            timestamps=self.info.timestamps and (self.info.family != WHISPER or self._rules is not None),
            word_times=False,
            beam_search=False,
            embeddings=embeddings,
            max_prompt_tokens=self.processor.max_prompt_tokens,
            max_output_tokens=min(self._context, MAX_TEXT_TOKENS),
        )

    def _timestamp_tokens(self) -> list[int] | None:
        """Return the fields of `TimestampTokens`, as they travel between processes; None for other families."""
        if not isinstance(self.processor, WhisperProcessor):
            return None
        tokens = self.processor.tokens
        return [tokens.end_of_text, tokens.no_timestamps, tokens.first_timestamp]

    def check_clip(self, samples: NDArray[np.float32]) -> None:
        """Raise ValueError unless a clip has one dimension and is no longer than the model takes."""
        if samples.ndim != 1 or len(samples) > self._longest:
            raise ValueError(f"a clip has shape (frames,) with at most {self._longest} frames, not {samples.shape}")

    def timings(self) -> Mapping[str, float]:
        """Seconds spent in preparing inputs and in the engine, added up over clips that overlap in time."""
        return self._timing.seconds()

    async def recognise(self, samples: NDArray[np.float32], options: DecodingOptions) -> ClipResult:
        """Recognise one clip, shape (frames,), float32 in [-1, 1]; its language is detected where it is not named."""
        from vllm import SamplingParams

        language, probability = options.language, None
        if language is None and self.info.detects_language:
            ((language, probability), *_) = await self.languages(samples)
        elif language is None and len(self.info.languages) == 1:
            language = self.info.languages[0]
        options = replace(options, language=language)
        entry = self.processor.prepare([self._heard(samples)], options)
        room = self._context - entry.positions
        if room < 1:
            raise EngineError(
                f"{self._spec} has no room for text: the prompt takes {entry.positions} of {self._context} positions; "
                "shorten the prompt or raise max_model_len"
            )
        output = await self._generate(
            entry,
            SamplingParams(
                temperature=options.temperature,
                max_tokens=min(room, MAX_TEXT_TOKENS),
                min_tokens=self._least_tokens,
                logprobs=0,
                logit_bias=self._bias or None,
                extra_args={TIMESTAMPS: self._rules} if self._rules and options.timestamps == "tokens" else None,
            ),
        )
        tokens = tuple(int(token) for token in output.token_ids)
        seconds = seconds_from_samples(len(samples), self.info.sample_rate)
        total = output.cumulative_logprob
        return ClipResult(
            segments=self.processor.segments(Generated(output.text, tokens), seconds, options),
            language=language,
            language_probability=probability,
            average_log_probability=min(0.0, float(total) / len(tokens)) if tokens and total is not None else None,
        )

    async def languages(self, samples: NDArray[np.float32]) -> LanguageProbabilities:
        """Tell the language of one clip by the first token that the model would write, among those that name one."""
        from vllm import SamplingParams

        processor: Any = self.processor  # of a family that detects languages, which has these two methods
        names: Mapping[int, str] = processor.language_tokens()
        entry = processor.prepare_detection([self._heard(samples)])
        output = await self._generate(
            entry, SamplingParams(temperature=0.0, max_tokens=1, logprob_token_ids=sorted(names), detokenize=False)
        )
        told = {names[token]: found.logprob for token, found in output.logprobs[0].items() if token in names}
        likeliest = max(told.values())
        weights = {code: math.exp(value - likeliest) for code, value in told.items()}
        whole = sum(weights.values())
        return tuple(sorted(((code, weight / whole) for code, weight in weights.items()), key=lambda each: -each[1]))

    def _heard(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        least = samples_from_seconds(LEAST_SECONDS, self.info.sample_rate)
        return samples if len(samples) >= least else np.pad(samples, (0, least - len(samples)))

    async def _generate(self, entry: EngineInput, parameters: Any) -> Any:
        """Return the one completion of a prompt; when the caller gives up, so does the engine."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt
        from vllm.sampling_params import RequestOutputKind

        parameters.output_kind = RequestOutputKind.FINAL_ONLY
        audio = [(waveform, entry.sample_rate) for waveform in entry.waveforms]
        prompt = {"prompt_token_ids": list(entry.prompt), "multi_modal_data": {"audio": audio}}
        # Clips take turns in one event loop, so a stage is no block of one thread's time. Features take a while: the
        # renderer computes them in a thread of its own.
        with self._timing.span(PREPARE):
            (rendered,) = await self._client.renderer.render_cmpl_async(
                [parse_model_prompt(self._client.model_config, prompt)]
            )
        final = None
        with self._timing.span(ENGINE):
            async for output in self._client.generate(rendered, parameters, f"auricle-{uuid.uuid4().hex}"):
                final = output
        if final is None or not final.outputs:
            raise EngineError(f"{self._spec} gave no answer; submit the clip again")
        return final.outputs[0]


class ClientTokenizer:
    """A model's tokenizer, as the families' prompts want it.

    Parameters
    ----------
    tokenizer : vllm.tokenizers.TokenizerLike
        As vLLM's renderer has it.
    name : str
        The model's name, for messages.

    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name

    def token_id(self, token: str) -> int:
        """Return the number of one token."""
        found = self._tokenizer.get_vocab().get(token)
        if found is None:
            raise EngineUnavailableError(f"{self._name}: the tokenizer lacks {token}; download the model again")
        return int(found)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the tokens of a text, with the ones that open and close every text if asked."""
        return list(self._tokenizer.encode(text, add_special_tokens=special))

    def chat(self, content: str) -> list[int]:
        """Return the tokens of one user's turn by the model's chat template."""
        turns: Sequence[Mapping[str, str]] = [{"role": "user", "content": content}]
        written = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return self.encode(written, special=False)
