"""What a recognition yields: plain frozen data, with every time in the recording's own seconds."""

from dataclasses import dataclass, field
from typing import Any

from engine_bridge.joining import join_texts


@dataclass(frozen=True)
class Word:
    """One word with its time.

    Attributes
    ----------
    start, end : float
        Seconds in the recording, ``start <= end``.
    text : str
        The word with its punctuation, without surrounding space.
    probability : float
        The engine's own confidence, in [0, 1].

    """

    start: float
    end: float
    text: str
    probability: float


@dataclass(frozen=True)
class Segment:
    """A sentence-like stretch of text.

    Attributes
    ----------
    start, end : float
        Seconds in the recording, ``start <= end``. Segments of a transcript ascend and do not overlap.
    text : str
        The text, without surrounding space.
    words : tuple of Word
        The words with their times, where the engine gives them.
    confidence : float or None
        Mean probability of the text's tokens, in [0, 1].
    attempts : int
        How many times the engine was asked before this text was accepted, from 1.
    suspect : str or None
        Why the text may be invented ("no speech here", "repetition"), or None.
    language : str or None
        ISO 639-1 code of the language it was recognised in.
    channel : str or None
        The channel it was heard in, such as "left", where channels were recognised apart.
    estimated : bool
        Whether `start` and `end` are estimated from the speech that the text was heard in, because the engine times
        no words.

    """

    start: float
    end: float
    text: str
    words: tuple[Word, ...] = ()
    confidence: float | None = None
    attempts: int = 1
    suspect: str | None = None
    language: str | None = None
    channel: str | None = None
    estimated: bool = False


@dataclass(frozen=True)
class Gap:
    """A stretch of speech that has no text.

    Attributes
    ----------
    start, end : float
        Seconds in the recording.
    reason : str
        Why there is no text, such as "engine returned no text".

    """

    start: float
    end: float
    reason: str


@dataclass(frozen=True)
class Transcript:
    """The text of one recording.

    Attributes
    ----------
    segments : tuple of Segment
        Ascending in time.
    gaps : tuple of Gap
        Speech without text, ascending in time.
    duration : float
        Seconds from the recording's beginning to where decoding ended.
    language : str or None
        ISO 639-1 code of the recording's main language.
    language_probability : float or None
        The language's share of the vote by which it was detected, in [0, 1]; None where it was named or is the only
        one.
    source : str
        The recording's name.
    engine : str
        The engine specification that was used, such as "embedded:tiny.en".
    backend : str
        The decoder that read the recording.
    claimed_duration : float or None
        What the file claims as its duration, in seconds; an estimate, never used for times.
    warnings : tuple of str
        What a reader should know: damage, lost seconds, truncation.
    timings : dict
        Seconds spent in each stage, by name.
    start : float
        Seconds into the recording at which decoding began; above 0 where a range of time was asked for.

    """

    segments: tuple[Segment, ...]
    gaps: tuple[Gap, ...]
    duration: float
    language: str | None
    source: str
    engine: str
    backend: str
    claimed_duration: float | None = None
    warnings: tuple[str, ...] = ()
    timings: dict[str, Any] = field(default_factory=dict)
    language_probability: float | None = None
    start: float = 0.0

    @property
    def text(self) -> str:
        """The whole text, segments joined; suspect ones are left out."""
        return join_texts(segment.text for segment in self.segments if segment.suspect is None)
