"""What an engine's answer to one clip is worth: its text with times, and what speaks against it."""

from collections.abc import Sequence
from dataclasses import dataclass

from audio.chunk import Chunk
from engine_bridge.engines.protocol import ClipResult, DecodingOptions
from engine_bridge.joining import join_texts
from engine_bridge.recognition.coverage import covered_seconds
from engine_bridge.recognition.dips import fitted_speech, voiced_seconds
from engine_bridge.recognition.edges import Seconds, settle_edges, speech_edges
from engine_bridge.recognition.frame_levels import Levels
from engine_bridge.recognition.spread import estimated_segments
from engine_bridge.recognition.stitch import place, segments_of, speech_seconds
from engine_bridge.recognition.text_checks import why_suspect
from engine_bridge.transcript import Segment

DOUBTED_CONFIDENCE = 0.5
DOUBTED_COVERED = 0.2
"""A chunk's text counts as invented when its words are less probable than this and leave more than the rest of the
chunk's speech uncovered: the single "thank you" under half a minute of music."""

SILENT_PROBABILITY = 0.6
SILENT_LOG_PROBABILITY = -1.0
"""Text counts as invented when the model itself gives at least this probability to silence and less than this mean log
probability to the text: OpenAI Whisper's defaults."""

FAILED_LOG_PROBABILITY = -1.0
"""Text of less mean log probability is improbable: OpenAI Whisper's threshold for a decoding that failed. Each word is
probable once the first is taken, in the thanks for watching that music alone gives, but not the first."""

DOUBTED = "doubted by the engine"
"""The fault of a text that its engine takes for a guess."""


@dataclass(frozen=True)
class Attempt:
    """The text that one request gave, and what speaks against it.

    Attributes
    ----------
    segments : tuple of Segment
        The text with its times in the recording; empty where the engine heard nobody.
    fault : str or None
        Why the text may be invented, or None.
    result : ClipResult or None
        What the engine answered; None before it was asked.

    """

    segments: tuple[Segment, ...] = ()
    fault: str | None = None
    result: ClipResult | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return join_texts(segment.text for segment in self.segments)

    @property
    def is_improbable(self) -> bool:
        """Whether the engine finds the text improbable.

        That is no fault of a first attempt: speech that begins or ends within a word is improbable, and speech all the
        same. Where the first attempt heard nothing to believe, text that is improbable too is invented.
        """
        return bool(self.segments) and self.log_probability < FAILED_LOG_PROBABILITY

    @property
    def log_probability(self) -> float:
        """Mean log probability of the text's tokens; 0 where the engine tells none."""
        known = None if self.result is None else self.result.average_log_probability
        return 0.0 if known is None else known


def judge(chunk: Chunk, result: ClipResult, options: DecodingOptions) -> Attempt:
    """Return what an engine's answer to a chunk is worth.

    Parameters
    ----------
    chunk : Chunk
        What was asked.
    result : ClipResult
        What was answered. Where `options` asked for no timestamps, its text is spread over the chunk's speech.
    options : DecodingOptions
        How it was asked.

    """
    if _is_silent(result):
        return Attempt(result=result)
    speech = speech_seconds(chunk)
    if options.timestamps == "none":
        fitted = fitted_speech(chunk)
        segments = tuple(estimated_segments(result, voiced_seconds(chunk, fitted), fitted))
    else:
        levels = Levels.of(chunk)
        placed = settle_edges(place(result, chunk), levels)
        segments = tuple(segments_of(placed, speech_edges(speech, levels), result))
    text = " ".join(segment.text for segment in segments)
    spoken = sum(end - start for start, end in speech)
    fault = why_suspect(text, spoken, options.prompt)
    if fault is None and _is_doubted(segments, speech, spoken):
        fault = DOUBTED
    return Attempt(segments, fault, result)


def _is_doubted(segments: Sequence[Segment], speech: Sequence[Seconds], spoken: float) -> bool:
    """Tell whether the engine itself takes its text for a guess."""
    confidence = mean_confidence(segments)
    if confidence is None or confidence >= DOUBTED_CONFIDENCE:
        return False
    return covered_seconds(speech, segments) < DOUBTED_COVERED * spoken


def mean_confidence(segments: Sequence[Segment]) -> float | None:
    """Return the mean of the segments' confidences, or None where the engine gives none."""
    known = [segment.confidence for segment in segments if segment.confidence is not None]
    return sum(known) / len(known) if known else None


def _is_silent(result: ClipResult) -> bool:
    silence, text = result.no_speech_probability, result.average_log_probability
    return silence is not None and text is not None and silence > SILENT_PROBABILITY and text < SILENT_LOG_PROBABILITY
