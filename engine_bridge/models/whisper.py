"""Whisper: every size, English-only and multilingual, large-v3 and turbo with 128 mel bins, and distilled ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from audio.channels import AudioSpec, Layout
from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, ClipSegment, DecodingOptions
from engine_bridge.engines.whisper_tokens import MAX_CONTEXT_TOKENS, MAX_PROMPT_TOKENS, WhisperTokens
from engine_bridge.errors import EngineUnavailableError
from engine_bridge.features import SAMPLE_RATE, WINDOW_SECONDS
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.inputs import EngineInput, Generated, PromptTokenizer, normalized, one_segment
from engine_bridge.models.languages import WHISPER_LANGUAGES
from engine_bridge.models.registry import register_audio_model

WHISPER = "Whisper"
"""The family's name."""

ENCODER_POSITIONS_PER_SECOND = 50.0
"""The encoder halves the features' hundred frames a second."""

SMALLEST_MULTILINGUAL_VOCABULARY = 51_865
"""OpenAI's rule for telling multilingual models from English-only ones, which have one token fewer."""


def is_multilingual(files: ModelFiles) -> bool:
    """Tell whether a Whisper model's prompts name a language and a task."""
    stated = files.generation_config.get("is_multilingual")
    if isinstance(stated, bool):
        return stated
    return bool(
        files.setting("vocab_size", default=SMALLEST_MULTILINGUAL_VOCABULARY) >= SMALLEST_MULTILINGUAL_VOCABULARY
    )


def whisper_info(files: ModelFiles) -> AudioModelInfo:
    """Return what a Whisper model takes and gives."""
    multilingual = is_multilingual(files)
    seconds = float(files.preprocessor_config.get("chunk_length", WINDOW_SECONDS))
    languages = WHISPER_LANGUAGES if multilingual else ("en",)
    listed = files.generation_config.get("lang_to_id")
    if multilingual and isinstance(listed, Mapping) and listed:
        languages = tuple(sorted(token.strip("<|>") for token in listed))
    return AudioModelInfo(
        family=WHISPER,
        sample_rate=int(files.preprocessor_config.get("sampling_rate", SAMPLE_RATE)),
        audio_spec=AudioSpec(target_channels=1),
        max_clip_seconds=seconds,
        languages=languages,
        tasks=(TRANSCRIBE, TRANSLATE) if multilingual else (TRANSCRIBE,),
        audio_tokens_per_second=ENCODER_POSITIONS_PER_SECOND,
        padded_to_seconds=seconds,
        encoder_decoder=True,
        timestamps=True,
        detects_language=multilingual,
        hidden_size=files.setting("d_model", default=None),
        context_tokens=files.setting("max_target_positions", default=MAX_CONTEXT_TOKENS),
    )


@register_audio_model("WhisperForConditionalGeneration", info=whisper_info)
class WhisperProcessor:
    """Writes Whisper's prompts and reads its tokens.

    A multilingual model is told language and task; an English-only one, which has never seen these tokens, is not.

    Parameters
    ----------
    info : AudioModelInfo
        The model.
    files : ModelFiles
        With a folder that holds ``tokenizer.json``.
    tokenizer : PromptTokenizer or None
        Not needed.

    Raises
    ------
    EngineUnavailableError
        If there is no folder, or its tokenizer is not Whisper's.

    """

    def __init__(self, info: AudioModelInfo, files: ModelFiles, tokenizer: PromptTokenizer | None = None) -> None:
        del tokenizer
        self._info = info
        self.tokens = WhisperTokens(_folder(files), multilingual=is_multilingual(files))

    @property
    def max_prompt_tokens(self) -> int:
        """Half of the decoder's context, less one."""
        return MAX_PROMPT_TOKENS

    def prepare(self, audio: Sequence[Any], options: DecodingOptions, *, layout: Layout | None = None) -> EngineInput:
        """Return the input for at most one waveform; a multilingual model has to be told the language."""
        return self._input(audio, self.tokens.prompt(options.language, options), layout)

    def prepare_detection(self, audio: Sequence[Any], *, layout: Layout | None = None) -> EngineInput:
        """Return the input after which a multilingual model's first token tells the language."""
        return self._input(audio, [self.tokens.start_of_transcript], layout)

    def _input(self, audio: Sequence[Any], prompt: Sequence[int], layout: Layout | None) -> EngineInput:
        waveforms = normalized(audio, self._info, layout)
        return EngineInput(tuple(prompt), waveforms, self._info.sample_rate, len(prompt), encoder_decoder=True)

    def segments(self, generated: Generated, seconds: float, options: DecodingOptions) -> tuple[ClipSegment, ...]:
        """Return the segments between timestamp tokens, or without them the whole text as one."""
        if options.timestamps == "tokens":
            return self.tokens.segments(generated.tokens, seconds)
        return one_segment(self.tokens.decode(generated.tokens), seconds)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits into half of the decoder's context."""
        return self.tokens.fit_prompt(text)

    def language_tokens(self) -> dict[int, str]:
        """Return the tokens that name a language, with its code."""
        return self.tokens.language_tokens()


def _folder(files: ModelFiles) -> Path:
    if files.folder is None:
        raise EngineUnavailableError(
            f"{files.name}: a Whisper prompt takes the model's tokenizer.json; give its folder"
        )
    return files.folder
