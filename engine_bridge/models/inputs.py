"""From waveforms and options to what an engine is given, and from what it wrote to segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from audio.channels import Layout, normalize_audio
from engine_bridge.engines.protocol import ClipSegment, DecodingOptions
from engine_bridge.models.info import AudioModelInfo


class PromptTokenizer(Protocol):
    """What writing a prompt takes of a model's tokenizer."""

    def token_id(self, token: str) -> int:
        """Return the number of one token. Raises EngineUnavailableError where the model has none of that name."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the tokens of a text; `special` adds the ones that open and close every text of the model."""

    def chat(self, content: str) -> list[int]:
        """Return the tokens of one user's turn by the model's chat template, up to where the answer begins."""


@dataclass(frozen=True, eq=False)
class EngineInput:
    """One prompt and its audio.

    Attributes
    ----------
    prompt : tuple of int
        Tokens, with one placeholder for each waveform where the audio stands in the prompt.
    waveforms : tuple of ndarray, float32
        Shape (frames,) for a family that takes one channel, otherwise as they came.
    sample_rate : int
        Samples per second of the waveforms.
    positions : int
        How much of the model's context the prompt takes once the audio stands in it.
    encoder_decoder : bool
        Whether the waveforms go to an encoder of their own, and the prompt opens the decoder's text.

    """

    prompt: tuple[int, ...]
    waveforms: tuple[NDArray[np.float32], ...]
    sample_rate: int
    positions: int
    encoder_decoder: bool = False


@dataclass(frozen=True)
class Generated:
    """What an engine wrote.

    Attributes
    ----------
    text : str
        Without special tokens.
    tokens : tuple of int
        All of it, without the prompt.

    """

    text: str
    tokens: tuple[int, ...]


class AudioProcessor(Protocol):
    """The prompt and the input of one model."""

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest text before a clip, in tokens; None where the family sets no bound of its own."""

    def prepare(self, audio: Sequence[Any], options: DecodingOptions, *, layout: Layout | None = None) -> EngineInput:
        """Return the input for waveforms at the model's sample rate.

        Parameters
        ----------
        audio : sequence of ndarray or torch.Tensor
            Each of shape (frames,), (channels, frames) or (frames, channels), as `audio.normalize_audio` takes them.
        options : DecodingOptions
            Language, task, timestamps and prompt.
        layout : {"channels_first", "frames_first"}, optional
            The layout, where known; None infers it.

        """

    def segments(self, generated: Generated, seconds: float, options: DecodingOptions) -> tuple[ClipSegment, ...]:
        """Return the segments of what the model wrote of a clip of so many seconds."""

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt fits before a clip, and whether that is less than the whole; see `Engine`."""


def normalized(audio: Sequence[Any], info: AudioModelInfo, layout: Layout | None) -> tuple[NDArray[np.float32], ...]:
    """Return waveforms with the channels that a model takes, as arrays.

    Raises
    ------
    ChannelLayoutError
        If a waveform's layout is ambiguous, or it has fewer channels than the model takes.
    ValueError
        If there are more waveforms than one prompt takes, or one is longer than the model takes.

    """
    if info.items_per_prompt is not None and len(audio) > info.items_per_prompt:
        raise ValueError(
            f"{info.family} takes {info.items_per_prompt} waveform(s) a prompt, not {len(audio)}: send them one by one"
        )
    waveforms = tuple(_as_array(normalize_audio(waveform, info.audio_spec, layout)) for waveform in audio)
    longest = round(info.max_clip_seconds * info.sample_rate)
    for waveform in waveforms:
        if max(waveform.shape) > longest:
            raise ValueError(
                f"{info.family} takes clips of at most {longest} frames ({info.max_clip_seconds:g} s), "
                f"not {max(waveform.shape)}: split the recording first"
            )
    return waveforms


def _as_array(waveform: Any) -> NDArray[np.float32]:
    if hasattr(waveform, "detach"):  # a torch tensor, told without importing torch
        waveform = waveform.detach().cpu().numpy()
    return np.ascontiguousarray(waveform, dtype=np.float32)


def one_segment(text: str, seconds: float) -> tuple[ClipSegment, ...]:
    """Return a clip's text as one segment, or none where there is no text."""
    text = text.strip()
    return (ClipSegment(0.0, seconds, text),) if text else ()
