"""Speech that an engine left without text, sent again on its own."""

from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from audio.chunk import Chunk
from audio.positions import samples_from_seconds
from engine_bridge.engines.protocol import DecodingOptions, Engine
from engine_bridge.recognition.clips import heard
from engine_bridge.recognition.coverage import covered_seconds, uncovered_speech
from engine_bridge.recognition.dips import voiced_seconds
from engine_bridge.recognition.edges import Seconds
from engine_bridge.recognition.judgement import DOUBTED_CONFIDENCE, Attempt, judge, mean_confidence
from engine_bridge.recognition.text_checks import count_of, words_of
from engine_bridge.recognition.untimed import NO_TEXT
from engine_bridge.transcript import Gap, Segment

RETRY_SECONDS = (28.0, 10.0)
"""How long the clips of the second and of the third attempt are at the most: what lies close together is first asked
for with all its context, and what then still has no text in shorter clips."""

RETRY_MARGIN = 0.2
"""Seconds of the recording on both sides of a stretch that is sent again, within its chunk."""

LEAST_CONFIDENCE = 0.6
LEAST_COVERED = 0.5
CERTAIN_CONFIDENCE = 0.8
"""Text of a second attempt was asked for because the first one heard nothing there, so it has to be better than a
guess: a mean word probability of 0.6 where it fills half of the stretch's speech, or of 0.8 where it does not, as when
most of the stretch is music."""

BESIDE_SECONDS = 0.3
"""What is this close to a stretch without text belongs to the same breath."""

DOUBLED_SECONDS = 1.5
"""Text of a second attempt that stands within so many seconds of the same words may be those words: the first attempt
heard them and timed them wrongly."""

_Asking = Generator[Sequence["Future[Any]"], list[Any], list[Segment]]


def recover(
    chunk: Chunk,
    engine: Engine,
    again: DecodingOptions,
    speech: Sequence[Seconds],
    segments: Sequence[Segment],
) -> Generator[Sequence["Future[Any]"], list[Any], tuple[list[Segment], list[Gap]]]:
    """Send the stretches without text again, each on its own, and return all text and the gaps that remain.

    Parameters
    ----------
    chunk : Chunk
        Where the speech lies.
    engine : Engine
        Where the clips go.
    again : DecodingOptions
        How they are asked for.
    speech : sequence of (start, end)
        The chunk's stretches of speech, in seconds of the recording.
    segments : sequence of Segment
        The text of the first attempt, as far as it is believed.

    """
    text = list(segments)
    asked: set[Seconds] = set()
    for attempts, longest in enumerate(RETRY_SECONDS, start=2):
        missing = uncovered_speech(speech, text, longest)
        if attempts == 2:
            missing = _passages(missing, speech, text, longest)
        # What was asked for as it is would be answered as before: it is heard in two, from its longest pause on anew.
        missing = list(chain.from_iterable(_halves(chunk, part) if part in asked else [part] for part in missing))
        if not missing:
            continue
        asked.update(missing)
        parts = [_part(chunk, start, end) for start, end in missing]
        results = yield from heard(engine, parts, again)
        for part, (start, end), result in zip(parts, missing, results, strict=True):
            attempt = judge(part, result, again)
            replaced = [segment for segment in text if start <= segment.start and segment.end <= end]
            if _holds(attempt, _within(speech, start, end), needs_text=bool(replaced)):
                found = [replace(segment, attempts=attempts) for segment in attempt.segments]
                text = [segment for segment in text if segment not in replaced]
                text = yield from _without_doubles(chunk, engine, again, text, found)
    gaps = [Gap(start, end, NO_TEXT) for start, end in uncovered_speech(speech, text)]
    return text, gaps


def _halves(chunk: Chunk, part: Seconds) -> list[Seconds]:
    """Divide a stretch at its longest pause, however short; without one there are no parts."""
    start, end = part
    voiced = _within(voiced_seconds(chunk), start, end)
    if len(voiced) < 2:
        return []
    before, after = max(pairwise(voiced), key=lambda pair: pair[1][0] - pair[0][1])
    return [(start, before[1]), (after[0], end)]


def _passages(
    missing: Sequence[Seconds], speech: Sequence[Seconds], text: Sequence[Segment], longest: float
) -> list[Seconds]:
    """Widen stretches without text over the doubtful text beside and the little text between them.

    An engine that has lost the thread writes single words of what it hears: they are heard again with the rest.
    """

    def unheard(start: float, end: float) -> float:
        spoken = _within(speech, start, end)
        return sum(stop - first for first, stop in spoken) - covered_seconds(spoken, text)

    joined: list[Seconds] = []
    for part in missing:
        start, end = _with_doubtful(part, text, unheard(*part))
        if joined and end - joined[-1][0] <= longest:
            first, last = joined[-1]
            between = [segment for segment in text if segment.end > last and segment.start < start]
            whole = all(last <= segment.start and segment.end <= start for segment in between)
            told = sum(segment.end - segment.start for segment in between)
            if start <= last or (between and whole and told <= min(unheard(first, last), unheard(start, end))):
                joined[-1] = (first, end)
                continue
        joined.append((start, end))
    return joined


def _with_doubtful(part: Seconds, text: Sequence[Segment], unheard: float) -> Seconds:
    """Widen a stretch without text over text beside it that is shorter and that the engine itself doubts."""
    start, end = part
    for segment in text:
        doubted = segment.confidence is not None and segment.confidence < DOUBTED_CONFIDENCE
        if doubted and segment.end - segment.start <= unheard:
            if 0 <= part[0] - segment.end <= BESIDE_SECONDS:
                start = min(start, segment.start)
            elif 0 <= segment.start - part[1] <= BESIDE_SECONDS:
                end = max(end, segment.end)
    return start, end


def _holds(attempt: Attempt, spoken: Sequence[Seconds], *, needs_text: bool) -> bool:
    """Tell whether text of a second attempt is good enough for speech that the first one left without, or nearly so."""
    if attempt.fault is not None or attempt.is_improbable:
        return False
    confidence = mean_confidence(attempt.segments)
    if confidence is not None and confidence < LEAST_CONFIDENCE:
        return False
    if confidence is not None and confidence >= CERTAIN_CONFIDENCE and not needs_text:
        return True
    return covered_seconds(spoken, attempt.segments) >= LEAST_COVERED * sum(end - start for start, end in spoken)


def _without_doubles(
    chunk: Chunk, engine: Engine, again: DecodingOptions, text: Sequence[Segment], found: Sequence[Segment]
) -> _Asking:
    """Add text to other text; words that would then stand there twice are heard together, and counted."""
    together = [*text]
    for segment in found:
        twin = _twin(segment, text)
        if twin is not None:
            both = _part(chunk, min(segment.start, twin.start), max(segment.end, twin.end))
            (result,) = yield from heard(engine, [both], again)
            words = words_of(judge(both, result, again).text)
            if count_of(words_of(segment.text), words) < 2:
                together[together.index(twin)] = _reaching(twin, segment)
                continue
        together.append(segment)
    return together


def _twin(segment: Segment, text: Sequence[Segment]) -> Segment | None:
    """Return the segment beside another that begins or ends with the same words."""
    words = words_of(segment.text)
    for other in text:
        others = words_of(other.text)
        follows = -DOUBLED_SECONDS <= other.start - segment.end <= DOUBLED_SECONDS and other.start >= segment.start
        precedes = -DOUBLED_SECONDS <= segment.start - other.end <= DOUBLED_SECONDS and other.start <= segment.start
        if words and ((follows and others[: len(words)] == words) or (precedes and others[-len(words) :] == words)):
            return other
    return None


def _reaching(twin: Segment, segment: Segment) -> Segment:
    """Return a segment that takes the time of its own words, heard elsewhere, as well."""
    start, end = min(twin.start, segment.start), max(twin.end, segment.end)
    words = list(twin.words)
    if words:
        words[0] = replace(words[0], start=min(words[0].start, start))
        words[-1] = replace(words[-1], end=max(words[-1].end, end))
    return replace(twin, start=start, end=end, words=tuple(words))


def _within(speech: Sequence[Seconds], start: float, end: float) -> list[Seconds]:
    return [(max(first, start), min(last, end)) for first, last in speech if first < end and last > start]


def _part(chunk: Chunk, start: float, end: float) -> Chunk:
    """Return the piece of a chunk around a stretch, as a chunk of its own."""
    rate = chunk.sample_rate
    margin = samples_from_seconds(RETRY_MARGIN, rate)
    return chunk.excerpt(samples_from_seconds(start, rate) - margin, samples_from_seconds(end, rate) + margin)
