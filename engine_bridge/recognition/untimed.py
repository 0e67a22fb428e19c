"""Completing a chunk whose words have no times: what is missing is seen from how little there is.

A text that is far too short for the chunk's speech has lost a passage, but it does not say which. So the chunk is cut
in its pauses and asked for again piece by piece. Where the pieces hold more text than the whole, they take its place;
where they do not, the whole text stays, and how much each piece holds tells where it belongs.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from audio.chunk import Chunk
from audio.split import stream_chunks
from engine_bridge.engines.protocol import DecodingOptions, Engine
from engine_bridge.recognition.clips import heard
from engine_bridge.recognition.coverage import uncovered_speech
from engine_bridge.recognition.dips import fitted_speech, voiced_seconds
from engine_bridge.recognition.edges import Seconds
from engine_bridge.recognition.judgement import Attempt, judge, mean_confidence
from engine_bridge.recognition.pace import LEAST_PACE, MOST_PACE, Turn, is_short
from engine_bridge.recognition.spread import TYPICAL_PACE, estimated_segments, spoken_length
from engine_bridge.recognition.stitch import speech_seconds
from engine_bridge.transcript import Gap, Segment

PIECE_SECONDS = (10.0, 5.0)
"""How long the clips of the second and of the third attempt are at the most."""

MORE_TEXT = 1.05
"""Pieces take the place of a whole from so many times its text on: less says only that they were heard differently."""

LEAST_CONFIDENCE = 0.6
"""Mean probability of the tokens of a piece's text, where the engine gives it, for the text to be taken: the speech was
asked for because the first attempt heard little there, so it has to be better than a guess."""

NO_TEXT = "the engine returned no text it stands behind"
LITTLE_TEXT = "the engine returned too little text for so much speech"


@dataclass(frozen=True)
class _Leaf:
    """A piece of the chunk with the text that stands for it."""

    chunk: Chunk
    attempt: Attempt
    attempts: int
    places: tuple[tuple[Seconds, float], ...] = ()  # where pieces have told it: the text's shares

    @property
    def text(self) -> str:
        """The text that is believed."""
        return "" if self.attempt.fault is not None else self.attempt.text

    @property
    def seconds(self) -> float:
        """Seconds of speech."""
        return sum(end - start for start, end in speech_seconds(self.chunk))

    def segments(self) -> list[Segment]:
        """Return the text with its times."""
        if self.attempt.result is None or not self.text:
            return []
        fitted = fitted_speech(self.chunk)
        voiced = [place for place, _ in self.places] or voiced_seconds(self.chunk, fitted)
        shares = [share for _, share in self.places] or None
        found = estimated_segments(self.attempt.result, voiced, fitted, shares)
        return [replace(segment, attempts=self.attempts) for segment in found]


def complete(
    chunk: Chunk,
    engine: Engine,
    again: DecodingOptions,
    first: Attempt,
    attempts: int,
    turn: Turn | None,
) -> Generator[Sequence["Future[Any]"], list[Any], tuple[list[Segment], list[Gap]]]:
    """Ask for a chunk again in pieces if its text is too short, and return its text and the gaps that remain.

    Parameters
    ----------
    chunk : Chunk
        With speech.
    engine : Engine
        Where the pieces go.
    again : DecodingOptions
        For the pieces.
    first : Attempt
        The chunk's text so far; with a fault it counts as no text.
    attempts : int
        How often the engine was asked for it.
    turn : Turn or None
        The chunk's part in the recording's pace; None to hold it to the typical one.

    """
    leaves = [_Leaf(chunk, first, attempts)]
    pace = yield from _due_pace(leaves[0], turn)
    for number, longest in enumerate(PIECE_SECONDS, start=2):
        parts = {
            index: _shorter(leaf.chunk, longest)
            for index, leaf in enumerate(leaves)
            if not leaf.places and is_short(leaf.text, leaf.seconds, pace) and (leaf.attempt.text or number == 2)
        }
        asked = [part for pieces in parts.values() for part in pieces]
        if not asked:
            break
        results = yield from heard(engine, asked, again)
        answers = iter(
            _Leaf(part, _believed(judge(part, result, again)), number)
            for part, result in zip(asked, results, strict=True)
        )
        shorter = {index: [next(answers) for _ in pieces] for index, pieces in parts.items()}
        leaves = [new for index, leaf in enumerate(leaves) for new in _better(leaf, shorter.get(index, []))]
    segments = [segment for leaf in leaves for segment in leaf.segments()]
    gaps = [
        Gap(start, end, LITTLE_TEXT if leaf.text else NO_TEXT)
        for leaf in leaves
        for start, end in uncovered_speech(speech_seconds(leaf.chunk), segments)
    ]
    if turn is not None:
        turn.tell(" ".join(leaf.text for leaf in leaves), sum(leaf.seconds for leaf in leaves if leaf.text))
    return segments, gaps


def _due_pace(whole: _Leaf, turn: Turn | None) -> Generator[Sequence["Future[Any]"], list[Any], float]:
    """Return the pace that a chunk is held to; it waits for the chunks before only where they can make a difference."""
    if turn is None:
        return TYPICAL_PACE
    for bound in (LEAST_PACE, MOST_PACE):
        if is_short(whole.text, whole.seconds, bound) == (bound == LEAST_PACE):
            return bound
    (pace,) = yield [turn.pace]
    return float(pace)


def _shorter(chunk: Chunk, longest: float) -> list[Chunk]:
    """Cut a chunk in its longest pauses, and return the pieces with speech."""
    pieces = stream_chunks([chunk.samples], chunk.sample_rate, max_duration=longest)
    cuts = [chunk.recording_position(piece.stop) for piece in pieces]
    edges = pairwise([chunk.start, *cuts, chunk.stop])
    excerpts = [chunk.excerpt(start, stop) for start, stop in edges]
    return [excerpt for excerpt in excerpts if excerpt.speech and len(excerpt.samples)]


def _believed(attempt: Attempt) -> Attempt:
    confidence = mean_confidence(attempt.segments)
    doubted = confidence is not None and confidence < LEAST_CONFIDENCE
    return Attempt() if doubted or attempt.is_improbable else attempt


def _better(whole: _Leaf, parts: Sequence[_Leaf]) -> list[_Leaf]:
    """Return the pieces where they hold more text than the whole, and else the whole with what they tell of it."""
    said = [spoken_length(part.text) for part in parts]
    if not any(said):
        return [whole]
    if sum(said) > MORE_TEXT * spoken_length(whole.text):
        return list(parts)
    places: list[tuple[Seconds, float]] = []
    for part, length in zip(parts, said, strict=True):
        voiced = voiced_seconds(part.chunk)
        seconds = sum(end - start for start, end in voiced)
        places += [((start, end), length * (end - start) / seconds if seconds else 0.0) for start, end in voiced]
    return [replace(whole, places=tuple(places))]
