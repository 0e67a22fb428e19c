"""From clip times to the recording's own times: positions, pauses and sentences."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from audio.chunk import Chunk
from audio.positions import samples_from_seconds, seconds_from_samples
from engine_bridge.engines.protocol import ClipResult, ClipSegment, ClipWord
from engine_bridge.recognition.edges import Seconds, usual_length
from engine_bridge.recognition.sentences import ends_sentence, sentences_from_words
from engine_bridge.transcript import Segment, Word

LEAD_SECONDS = 0.08
TAIL_SECONDS = 0.1
"""How much a sentence is made longer at its start and end where there is a pause: what is too soft to be seen belongs
to it, and a subtitle should not be gone with the last sound."""

HELD_SECONDS = 0.3
"""A phrase that goes on after a pause of less than this is held until it does."""

SNAP_SECONDS = 0.5
"""How far the first or last word of a speech stretch is moved to meet the stretch's edge."""

LONGEST_CHARACTER = 0.25
"""Seconds that a spoken character takes at the most; with `SHORTEST_CAP` it bounds a word's length. Slow dictation of
digits stays below it; an alignment that stretches a word over speech which the engine skipped does not."""

SHORTEST_CAP = 1.0
"""Seconds that any word may take."""


def speech_seconds(chunk: Chunk) -> list[Seconds]:
    """Return the chunk's speech stretches in seconds of the recording."""
    rate = chunk.sample_rate
    return [(seconds_from_samples(start, rate), seconds_from_samples(stop, rate)) for start, stop in chunk.speech]


def place(result: ClipResult, chunk: Chunk) -> list[ClipSegment]:
    """Return the result's segments with times in seconds of the recording."""

    def recording_seconds(seconds: float, *, ending: bool) -> float:
        frame = samples_from_seconds(seconds, chunk.sample_rate)
        return seconds_from_samples(chunk.recording_position(frame, ending=ending), chunk.sample_rate)

    def placed(start: float, end: float) -> Seconds:
        first = recording_seconds(start, ending=False)
        return first, max(first, recording_seconds(end, ending=True))

    return [
        replace(
            segment,
            start=placed(segment.start, segment.end)[0],
            end=placed(segment.start, segment.end)[1],
            words=tuple(ClipWord(*placed(word.start, word.end), word.text, word.probability) for word in segment.words),
        )
        for segment in result.segments
    ]


def snap_words(words: Sequence[ClipWord], speech: Sequence[Seconds]) -> list[ClipWord]:
    """Fit words into the speech stretches that they were spoken in.

    Alignment leaves no pause between words: the word before a pause runs into it and the word after it starts late.
    Each word belongs to the stretch it overlaps most; it is cut to that stretch, and the first and last word of a
    stretch meet its edges where these are near. Words that overlap no stretch keep their times. A word longer than
    speech can be is shortened.
    """
    owners = [_owner(word, speech) for word in words]
    snapped: list[ClipWord] = []
    for index, (word, owner) in enumerate(zip(words, owners, strict=True)):
        start, end = word.start, word.end
        if owner is not None:
            stretch_start, stretch_end = speech[owner]
            start, end = max(start, stretch_start), min(end, stretch_end)
            if (index == 0 or owners[index - 1] != owner) and start - stretch_start <= SNAP_SECONDS:
                start = stretch_start
            if (index + 1 == len(words) or owners[index + 1] != owner) and stretch_end - end <= SNAP_SECONDS:
                end = stretch_end
        cap = max(SHORTEST_CAP, LONGEST_CHARACTER * len(word.text.strip()))
        snapped.append(ClipWord(start, max(start, min(end, start + cap)), word.text, word.probability))
    return snapped


def _owner(word: ClipWord, speech: Sequence[Seconds]) -> int | None:
    """Return the stretch that a word was spoken in.

    A word's start is the better known end: alignment runs it on through the pause, into whatever sounds next. So the
    time that the word can have taken decides, and only where that lies in silence does the whole of it.
    """
    plausible = word.start + usual_length(word.text)
    owner = _most_overlapped(word.start, min(word.end, plausible), speech)
    return owner if owner is not None else _most_overlapped(word.start, word.end, speech)


def _most_overlapped(start: float, end: float, speech: Sequence[Seconds]) -> int | None:
    best, longest = None, 0.0
    for index, (first, last) in enumerate(speech):
        overlap = min(end, last) - max(start, first)
        if overlap > longest or (best is None and overlap == 0.0):
            best, longest = index, overlap
    return best


def segments_of(placed: Sequence[ClipSegment], speech: Sequence[Seconds], result: ClipResult) -> list[Segment]:
    """Return a chunk's segments: sentences of snapped words, or the engine's own segments where it times no words."""
    segments: list[Segment] = []
    for part in placed:
        if not part.words:
            start, end = _trim(part.start, part.end, speech)
            confidence = clip_confidence(result)
            segments.append(Segment(start, end, part.text, confidence=confidence, language=result.language))
            continue
        for sentence in with_margins(sentences_from_words(snap_words(part.words, speech))):
            text = "".join(word.text for word in sentence).strip()
            words = tuple(
                Word(word.start, word.end, word.text.strip(), word.probability)
                for word in sentence
                if word.text.strip()
            )
            if text:
                segments.append(
                    Segment(
                        words[0].start,
                        words[-1].end,
                        text,
                        words=words,
                        confidence=sum(word.probability for word in words) / len(words),
                        language=result.language,
                    )
                )
    return segments


def with_margins(sentences: Sequence[Sequence[ClipWord]]) -> list[list[ClipWord]]:
    """Let sentences begin a little before their first sound and end a little after their last, within their pauses."""
    padded = [list(sentence) for sentence in sentences]
    for before, after in pairwise([None, *padded, None]):
        pause = after[0].start - before[-1].end if before is not None and after is not None else 2 * TAIL_SECONDS
        lead = min(LEAD_SECONDS, max(pause, 0.0) / 2)
        if after is not None:
            after[0] = replace(after[0], start=max(0.0, after[0].start - lead))
        if before is not None:
            goes_on = after is not None and pause <= HELD_SECONDS and not ends_sentence(before[-1].text)
            tail = pause - lead if goes_on else min(TAIL_SECONDS, pause / 2)
            before[-1] = replace(before[-1], end=before[-1].end + max(tail, 0.0))
    return padded


def _trim(start: float, end: float, speech: Sequence[Seconds]) -> Seconds:
    """Cut silence off both ends of a segment."""
    inside = [(max(start, first), min(end, last)) for first, last in speech if first < end and last > start]
    return (inside[0][0], inside[-1][1]) if inside else (start, end)


def clip_confidence(result: ClipResult) -> float | None:
    """Return the mean probability of a result's tokens, in [0, 1], or None where the engine gives none."""
    average = result.average_log_probability
    return None if average is None else min(1.0, math.exp(average))


def in_order(segments: Sequence[Segment], earliest: float, latest: float) -> list[Segment]:
    """Return segments with times that ascend, do not overlap, and lie within ``[earliest, latest]`` seconds."""
    ordered: list[Segment] = []
    reached = earliest
    for segment in sorted(segments, key=lambda segment: segment.start):
        start = min(max(segment.start, reached), latest)
        end = min(max(segment.end, start), latest)
        words: list[Word] = []
        at = start
        for word in segment.words:
            first = min(max(word.start, at), end)
            last = min(max(word.end, first), end)
            words.append(replace(word, start=first, end=last))
            at = last
        ordered.append(replace(segment, start=start, end=end, words=tuple(words)))
        reached = end
    return ordered
