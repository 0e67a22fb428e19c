"""One chunk through the engine: ask, check, ask again for what is missing.

A recognition is a generator. It yields the futures it waits for, is resumed with their results, and returns the
outcome, so that one thread can carry many of them at once and each still reads from top to bottom.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from audio.chunk import Chunk
from audio.positions import samples_from_seconds
from engine_bridge.coverage import covered_seconds, uncovered_speech
from engine_bridge.edges import Seconds
from engine_bridge.engines.protocol import DecodingOptions, Engine, LanguageProbabilities
from engine_bridge.judgement import Attempt, judge, mean_confidence
from engine_bridge.language import spoken_language
from engine_bridge.levels import level_speech
from engine_bridge.pace import Turn
from engine_bridge.stitch import speech_seconds
from engine_bridge.timing import RECOVER, TimingContext
from engine_bridge.transcript import Gap, Segment
from engine_bridge.untimed import NO_TEXT, complete

Waiting = Generator[Sequence["Future[Any]"], list[Any], "Outcome"]
"""A recognition under way: yields what it waits for, receives the results, returns the outcome."""

RETRY_BEAM = 5
"""Beam size of second attempts, as OpenAI's and its descendants' default."""

RETRY_TEMPERATURE = 0.4
"""Temperature of the last attempt, which breaks loops that the likeliest text falls into."""

RETRY_SECONDS = (28.0, 10.0)
"""How long the clips of the second and of the third attempt are at the most: what lies close together is first asked
for with all its context, and what then still has no text in shorter clips."""

RETRY_MARGIN = 0.2
"""Seconds of the recording on both sides of a stretch that is sent again, within its chunk."""

LEAST_CONFIDENCE = 0.6
LEAST_COVERED = 0.5
CERTAIN_CONFIDENCE = 0.8
"""Text of a second attempt was asked for because the first one heard nothing there, so it has to be better than a
guess: a mean word probability of 0.6 where it fills half of the stretch, or of 0.8 where it does not, as when most of
the stretch is music."""


@dataclass(frozen=True)
class Outcome:
    """What came of one chunk: text and gaps in seconds of the recording, and the language it is in."""

    segments: tuple[Segment, ...] = ()
    gaps: tuple[Gap, ...] = ()


def recognise(
    chunk: Chunk,
    engine: Engine,
    options: DecodingOptions,
    language: "Future[str | None] | None" = None,
    own_language: "Future[LanguageProbabilities] | None" = None,
    turn: Turn | None = None,
    timing: TimingContext | None = None,
) -> Waiting:
    """Recognise one chunk.

    The chunk is sent whole. A text that loops or is invented is asked for again by a short ladder: beam search, then
    sampling. Speech that still lies under no text is sent again on its own; what then has no text becomes a gap. Where
    the engine times no words, text that is too short for its speech is what is asked for again (`untimed`).

    Parameters
    ----------
    chunk : Chunk
        Its samples at the engine's rate and within its longest clip.
    engine : Engine
        Where the clips go.
    options : DecodingOptions
        For the first attempt.
    language : Future or None
        The language to use instead of the options' own, when it will only be known later.
    own_language : Future or None
        What the chunk itself is in; where that is certain it comes before `language`.
    turn : Turn or None
        The chunk's part in the recording's pace, which tells how much text it should hold.
    timing : TimingContext or None
        Where the time that second attempts take is counted.

    """
    speech = speech_seconds(chunk)
    if not speech or not len(chunk.samples):
        if turn is not None:
            turn.tell()
        return Outcome()
    if language is not None:
        spoken, *heard = yield [language] if own_language is None else [language, own_language]
        options = replace(options, language=spoken_language(heard[0], spoken) if heard else spoken)
    attempts = 0
    best = Attempt()
    for rung in _ladder(engine, options):
        attempts += 1
        (result,) = yield [engine.submit(level_speech(chunk), rung)]
        attempt = judge(chunk, result, options)
        if best.fault is not None or attempts == 1:
            best = attempt
        if best.fault is None:
            break
    segments = [replace(segment, attempts=attempts, suspect=best.fault) for segment in best.segments]

    # Text that is not believed covers nothing, so that its speech is asked for again in shorter parts.
    trusted = segments if best.fault is None else []
    again = _again(engine, options)
    span = timing.span(RECOVER) if timing is not None else None
    try:
        if options.timestamps == "none":
            found, gaps = yield from complete(chunk, engine, again, best, attempts, turn)
            segments = [segment for segment in segments if segment.suspect is not None]
        else:
            found, gaps = yield from _recover(chunk, engine, again, speech, trusted)
    finally:
        if span is not None:
            span.end()
    kept = [segment for segment in segments if segment.suspect is None or not _overlaps(segment, found)]
    return Outcome(tuple(sorted((*kept, *found), key=lambda segment: segment.start)), tuple(gaps))


def _overlaps(segment: Segment, others: Sequence[Segment]) -> bool:
    return any(segment.start < other.end and other.start < segment.end for other in others)


def _ladder(engine: Engine, options: DecodingOptions) -> list[DecodingOptions]:
    rungs = [options]
    if engine.capabilities.beam_search and options.beam_size < RETRY_BEAM and options.temperature == 0:
        rungs.append(replace(options, beam_size=RETRY_BEAM, prompt=None))
    rungs.append(replace(options, beam_size=1, temperature=max(options.temperature, RETRY_TEMPERATURE), prompt=None))
    return rungs


def _again(engine: Engine, options: DecodingOptions) -> DecodingOptions:
    """Return how speech without text is asked for again."""
    again = replace(options, prompt=None, temperature=0.0)
    if engine.capabilities.beam_search:
        again = replace(again, beam_size=max(RETRY_BEAM, options.beam_size))
    return again


def _recover(
    chunk: Chunk,
    engine: Engine,
    again: DecodingOptions,
    speech: Sequence[Seconds],
    segments: Sequence[Segment],
) -> Generator[Sequence["Future[Any]"], list[Any], tuple[list[Segment], list[Gap]]]:
    """Send the stretches without text again, each on its own, and return their text and the gaps that remain."""
    found: list[Segment] = []
    asked: set[Seconds] = set()
    for attempts, longest in enumerate(RETRY_SECONDS, start=2):
        missing = [part for part in uncovered_speech(speech, [*segments, *found], longest) if part not in asked]
        if not missing:
            continue
        asked.update(missing)
        parts = [_part(chunk, start, end) for start, end in missing]
        results = yield [engine.submit(level_speech(part), again) for part in parts]
        for part, (start, end), result in zip(parts, missing, results, strict=True):
            attempt = judge(part, result, again)
            if _holds(attempt, start, end):
                found += [replace(segment, attempts=attempts) for segment in attempt.segments]
    gaps = [Gap(start, end, NO_TEXT) for start, end in uncovered_speech(speech, [*segments, *found])]
    return found, gaps


def _holds(attempt: Attempt, start: float, end: float) -> bool:
    """Tell whether text of a second attempt is good enough to fill a stretch that the first one left empty."""
    if attempt.fault is not None:
        return False
    confidence = mean_confidence(attempt.segments)
    if confidence is not None and not LEAST_CONFIDENCE <= confidence < CERTAIN_CONFIDENCE:
        return confidence >= CERTAIN_CONFIDENCE
    return covered_seconds([(start, end)], attempt.segments) >= LEAST_COVERED * (end - start)


def _part(chunk: Chunk, start: float, end: float) -> Chunk:
    """Return the piece of a chunk around a stretch, as a chunk of its own."""
    rate = chunk.sample_rate
    margin = samples_from_seconds(RETRY_MARGIN, rate)
    return chunk.excerpt(samples_from_seconds(start, rate) - margin, samples_from_seconds(end, rate) + margin)
