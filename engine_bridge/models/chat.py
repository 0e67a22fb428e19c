"""What families have in common whose audio stands in the prompt of a language model."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from audio.channels import AudioSpec, Layout
from engine_bridge.engines.protocol import TRANSLATE, ClipSegment, DecodingOptions
from engine_bridge.errors import EngineUnavailableError
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.inputs import EngineInput, Generated, PromptTokenizer, normalized, one_segment
from engine_bridge.models.languages import ENGLISH_NAMES

MAX_PROMPT_TOKENS = 512
"""Tokens of earlier text given before a clip. These models take more, but what is far from the audio helps little and
costs its share of every clip's time."""

MONO = AudioSpec(target_channels=1)


class ChatProcessor(ABC):
    """Writes prompts with a placeholder for each waveform, and takes what is written as one segment.

    Parameters
    ----------
    info : AudioModelInfo
        The model.
    files : ModelFiles
        Its configuration.
    tokenizer : PromptTokenizer or None
        The engine's own.

    Raises
    ------
    EngineUnavailableError
        If there is no tokenizer.

    """

    takes_prompt: ClassVar[bool] = True
    """Whether the family's prompts have a place for earlier text."""

    def __init__(self, info: AudioModelInfo, files: ModelFiles, tokenizer: PromptTokenizer | None) -> None:
        if tokenizer is None:
            raise EngineUnavailableError(
                f"{files.name}: a prompt for {info.family} takes the engine's tokenizer; open the model with vllm:MODEL"
            )
        self.info = info
        self.tokenizer = tokenizer

    @abstractmethod
    def prompt(self, count: int, options: DecodingOptions) -> list[int]:
        """Return the tokens of a prompt for so many waveforms, with one placeholder for each."""

    def clean(self, text: str) -> str:
        """Return the transcript in what the model wrote."""
        return text

    @property
    def max_prompt_tokens(self) -> int:
        """The longest text before a clip, in tokens."""
        return MAX_PROMPT_TOKENS if self.takes_prompt else 0

    def prepare(self, audio: Sequence[Any], options: DecodingOptions, *, layout: Layout | None = None) -> EngineInput:
        """Return the input for waveforms; see `AudioProcessor.prepare`."""
        waveforms = normalized(audio, self.info, layout)
        prompt = self.prompt(len(waveforms), options)
        rate = self.info.sample_rate
        expanded = 0
        if not self.info.encoder_decoder:
            expanded = sum(max(1, self.info.audio_tokens(max(waveform.shape) / rate)) - 1 for waveform in waveforms)
        return EngineInput(tuple(prompt), waveforms, rate, len(prompt) + expanded, self.info.encoder_decoder)

    def segments(self, generated: Generated, seconds: float, options: DecodingOptions) -> tuple[ClipSegment, ...]:
        """Return what was written as one segment that is as long as the clip."""
        del options
        return one_segment(self.clean(generated.text), seconds)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return the last words of a text, as many as fit before a clip, and whether any are left out."""
        words = text.split()
        if not words or self._fits(text):
            return text, False
        # By bisection: without its first `cut` words the text fits, without `short` it does not.
        cut, short = len(words), 0
        while cut - short > 1:
            middle = (cut + short) // 2
            if self._fits(" ".join(words[middle:])):
                cut = middle
            else:
                short = middle
        return " ".join(words[cut:]), True

    def _fits(self, text: str) -> bool:
        return len(self.tokenizer.encode(text, special=False)) <= self.max_prompt_tokens


def asked_after(audio: str, options: DecodingOptions) -> str:
    """Return earlier text, the audio's place, and the question that GLM-ASR and Granite Speech were trained with."""
    translates = options.task == TRANSLATE
    asked = "translate the speech to English" if translates else "can you transcribe the speech into a written format?"
    context = f"{options.prompt}\n" if options.prompt else ""
    return f"{context}{audio}{asked}"


def instruction(options: DecodingOptions) -> str:
    """Return what a model that follows instructions is asked, with the language in words where it is known."""
    language = ENGLISH_NAMES.get(options.language or "")
    if options.task == TRANSLATE:
        asked = (
            f"Translate this audio from {language} into English." if language else "Translate this audio into English."
        )
    else:
        asked = f"Transcribe this audio into {language}." if language else "Transcribe this audio."
    return f"{asked} {options.prompt}" if options.prompt else asked
