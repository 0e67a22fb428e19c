"""One chunk through the engine: ask, check, ask again for what is missing.

A recognition is a generator. It yields the futures it waits for, is resumed with their results, and returns the
outcome, so that one thread can carry many of them at once and each still reads from top to bottom.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from audio.chunk import Chunk
from engine_bridge.engines.protocol import WIDE_BEAM, DecodingOptions, Engine, LanguageProbabilities
from engine_bridge.recognition.clips import heard
from engine_bridge.recognition.judgement import DOUBTED, Attempt, judge
from engine_bridge.recognition.language import spoken_language
from engine_bridge.recognition.pace import Turn
from engine_bridge.recognition.recovery import recover
from engine_bridge.recognition.stitch import speech_seconds
from engine_bridge.recognition.untimed import complete
from engine_bridge.timing import RECOVER, TimingContext
from engine_bridge.transcript import Gap, Segment

Waiting = Generator[Sequence["Future[Any]"], list[Any], "Outcome"]
"""A recognition under way: yields what it waits for, receives the results, returns the outcome."""

RETRY_TEMPERATURE = 0.4
"""Temperature of the last attempt, which breaks loops that the likeliest text falls into."""


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

    The chunk is sent whole. A text that loops or is invented is asked for again by a short ladder: beam search, the
    same with timestamp tokens, then sampling. Speech that still lies under no text is sent again on its own; what then
    has no text becomes a gap. Where the engine times no words, text that is too short for its speech is what is asked
    for again (`untimed`).

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
        spoken, *own = yield [language] if own_language is None else [language, own_language]
        options = replace(options, language=spoken_language(own[0], spoken) if own else spoken)
    best, attempts = yield from _attempted(chunk, engine, options)
    segments = [replace(segment, attempts=attempts, suspect=best.fault) for segment in best.segments]
    # Text that is not believed covers nothing, so that its speech is asked for again in shorter parts.
    trusted, suspects = (segments, []) if best.fault is None else ([], segments)
    again = _again(engine, options)
    span = timing.span(RECOVER) if timing is not None else None
    try:
        if options.timestamps == "none":
            text, gaps = yield from complete(chunk, engine, again, best, attempts, turn)
        else:
            text, gaps = yield from recover(chunk, engine, again, speech, trusted)
    finally:
        if span is not None:
            span.end()
    kept = [segment for segment in suspects if not _overlaps(segment, text)]
    return Outcome(tuple(sorted((*kept, *text), key=lambda segment: segment.start)), tuple(gaps))


def _attempted(
    chunk: Chunk, engine: Engine, options: DecodingOptions
) -> Generator[Sequence["Future[Any]"], list[Any], tuple[Attempt, int]]:
    """Ask for a chunk's text by the ladder, and return the one to keep with the number of attempts.

    A first text that is merely improbable gives way to a likelier one, and is not sampled for. Where the first one has
    a fault, another has to be probable as well, or it is a guess too.
    """
    (result,) = yield from heard(engine, [chunk], options)
    first = best = judge(chunk, result, options)
    attempts = 1
    for rung in _ladder(engine, options):
        if best.fault is None and (not best.is_improbable or rung.temperature > 0):
            break
        (result,) = yield from heard(engine, [chunk], rung)
        attempts += 1
        attempt = judge(chunk, result, options)
        if first.fault is not None:
            best = replace(attempt, fault=DOUBTED) if attempt.fault is None and attempt.is_improbable else attempt
        elif attempt.fault is None and attempt.segments and attempt.log_probability > best.log_probability:
            best = attempt
    return best, attempts


def _overlaps(segment: Segment, others: Sequence[Segment]) -> bool:
    return any(segment.start < other.end and other.start < segment.end for other in others)


def _ladder(engine: Engine, options: DecodingOptions) -> list[DecodingOptions]:
    """Return how a chunk is asked for again, one way after the other."""
    rungs, later = [], replace(options, doubt_beam_size=1, prompt=None)
    if engine.capabilities.beam_search and options.beam_size < WIDE_BEAM and options.temperature == 0:
        rungs.append(replace(later, beam_size=WIDE_BEAM))
    if options.temperature == 0 and _writes_both(engine, options):
        beam = max(WIDE_BEAM, options.beam_size) if engine.capabilities.beam_search else 1
        rungs.append(replace(later, beam_size=beam, timestamps="both"))
    rungs.append(replace(later, beam_size=1, temperature=max(options.temperature, RETRY_TEMPERATURE)))
    return rungs


def _again(engine: Engine, options: DecodingOptions) -> DecodingOptions:
    """Return how speech without text is asked for again."""
    again = replace(options, doubt_beam_size=1, prompt=None, temperature=0.0)
    if engine.capabilities.beam_search:
        again = replace(again, beam_size=max(WIDE_BEAM, options.beam_size))
    return replace(again, timestamps="both") if _writes_both(engine, options) else again


def _writes_both(engine: Engine, options: DecodingOptions) -> bool:
    """Tell whether words can be timed in a text that is decoded with timestamp tokens.

    Without them, short clips that begin within a word were ended after it; with them, and a beam, none of four was.
    """
    return options.timestamps == "align" and engine.capabilities.timestamps
