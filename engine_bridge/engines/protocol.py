"""What an engine is to the rest of the program."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from audio.chunk import Chunk
    from engine_bridge.embeddings import AudioEmbedding

TRANSCRIBE = "transcribe"
TRANSLATE = "translate"

WIDE_BEAM = 5
"""Beam size of a wider search, where one greedy search is in doubt or has failed: OpenAI's default, and that of the
programs made after it."""

LanguageProbabilities = tuple[tuple[str, float], ...]
"""ISO 639-1 codes with their probabilities, the likeliest first."""


@dataclass(frozen=True)
class EngineCapabilities:
    """What an engine can do; whatever it cannot do it refuses by name.

    Attributes
    ----------
    sample_rate : int
        Samples per second of the clips it takes.
    max_clip_seconds : float
        The longest clip it takes.
    languages : tuple of str
        ISO 639-1 codes it recognises.
    detects_language : bool
        Whether it can tell the language of a clip.
    translates : bool
        Whether it can translate into English.
    timestamps : bool
        Whether its segments carry times.
    word_times : bool
        Whether it can time single words.
    beam_search : bool
        Whether it can search with more than one beam.
    embeddings : bool
        Whether it gives the encoder's states of clips: see `EncodingEngine`.
    max_prompt_tokens : int or None
        The longest text before a clip, in tokens; None where that is not known.
    max_output_tokens : int or None
        The longest text of one clip, in tokens; None where that is not known.

    """

    sample_rate: int
    max_clip_seconds: float
    languages: tuple[str, ...]
    detects_language: bool
    translates: bool
    timestamps: bool
    word_times: bool
    beam_search: bool
    embeddings: bool = False
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True)
class DecodingOptions:
    """How a clip is to be recognised.

    Attributes
    ----------
    language : str or None
        ISO 639-1 code, or None to let the engine detect it.
    task : str
        "transcribe" or "translate" (into English).
    beam_size : int
        1 for greedy search.
    doubt_beam_size : int
        With how many beams a clip is searched again where the text of the first search is improbable; the likelier of
        the two is taken. 1 for no second search.
    temperature : float
        0 for the likeliest text; above 0 samples are drawn.
    timestamps : str
        Where times come from. "align": text is decoded without timestamp tokens and its words are aligned to the audio
        afterwards; decoding with timestamp tokens drops whole passages (measured: bench/quality.py). "tokens": from
        the timestamp tokens that the model writes, without word times. "both": text is decoded with timestamp tokens,
        which carry the model on where it would end a short clip after its first word, and its words are aligned.
        "none": one segment a clip.
    prompt : str or None
        Text that comes before the clip, to set spelling and style.

    """

    language: str | None = None
    task: str = TRANSCRIBE
    beam_size: int = 1
    doubt_beam_size: int = 1
    temperature: float = 0.0
    timestamps: str = "align"
    prompt: str | None = None


@dataclass(frozen=True)
class ClipWord:
    """A word with its times in seconds from the clip's start.

    The text keeps the space that separates it from the word before, so that texts join into the segment's text.
    """

    start: float
    end: float
    text: str
    probability: float


@dataclass(frozen=True)
class ClipSegment:
    """A stretch of text with its times in seconds from the clip's start."""

    start: float
    end: float
    text: str
    words: tuple[ClipWord, ...] = ()


@dataclass(frozen=True)
class ClipResult:
    """What an engine made of one clip.

    Attributes
    ----------
    segments : tuple of ClipSegment
        Ascending in time; empty when the engine found nothing to write.
    language : str or None
        The language used.
    language_probability : float or None
        The engine's certainty of the language, in [0, 1], where it was detected.
    average_log_probability : float or None
        Mean natural log probability of the text's tokens.
    no_speech_probability : float or None
        The model's own estimate that nobody speaks, in [0, 1].

    """

    segments: tuple[ClipSegment, ...]
    language: str | None = None
    language_probability: float | None = None
    average_log_probability: float | None = None
    no_speech_probability: float | None = None


class Engine(Protocol):
    """Recognises clips. Clips are handed over one by one; the engine batches them as suits it."""

    @property
    def spec(self) -> str:
        """The specification that opens this engine again, such as "embedded:tiny.en"."""

    @property
    def description(self) -> str:
        """What it runs on, for people."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """What this engine can do."""

    @property
    def preferred_in_flight(self) -> int:
        """How many clips to have submitted at once to keep the engine busy."""

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError, naming the option, if this engine cannot honour `options`."""

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt the engine takes before a clip, and whether that is less than the whole.

        A prompt that is too long keeps its end, in whole words; what is returned fits when it is given again.
        """

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip, shape (frames,), float32 in [-1, 1] at the engine's sample rate.

        The future fails with EngineError when the engine does.
        """

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip. Raises UnsupportedOptionError if the engine cannot."""

    def timings(self) -> Mapping[str, float]:
        """Seconds spent so far in each of the engine's own stages, added up over its workers."""

    def close(self) -> None:
        """Give back what the engine holds. Clips still waiting are cancelled."""


class EncodingEngine(Engine, Protocol):
    """An engine that gives the encoder's states of clips; one whose capabilities name `embeddings` is one."""

    def encode(self, chunks: "Iterable[Chunk]") -> "Iterator[AudioEmbedding]":
        """Return the encoder's states of each chunk in turn, while those after it are at work.

        Raises
        ------
        EngineError
            If the engine fails.

        """

    def submit_embedding(self, embedding: "AudioEmbedding", options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over a clip's encoder states in place of its audio.

        Raises
        ------
        EmbeddingError
            If the states do not fit the model or are no numbers.
        UnsupportedOptionError
            If the engine takes audio alone, was opened without ``enable_mm_embeds``, or cannot honour the options.

        """
