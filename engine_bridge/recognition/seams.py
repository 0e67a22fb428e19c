"""The two sides of a cut that had to be made inside speech, and what was heard across it.

Where no pause is in reach a cut may divide a word, and neither side hears it whole. So a few seconds on both sides of
such a cut are recognised once more in one clip of their own, and the three texts are merged by the words they share
and the times at which these were spoken. Text alone would not do: people do say "no, no, no".
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from audio.chunk import Chunk, Span
from audio.positions import samples_from_seconds
from engine_bridge.engines.protocol import ClipWord
from engine_bridge.joining import join_texts, needs_space
from engine_bridge.recognition.coverage import uncovered_speech
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.recognition.sentences import sentences_from_words
from engine_bridge.recognition.text_checks import words_of
from engine_bridge.transcript import Gap, Segment, Word

SEAM_SECONDS = 3.0
"""Seconds on each side of a forced cut that are heard again: enough words around the cut for either side to share."""

SAME_WORD_SECONDS = 0.15
"""How far the middles of one word may lie apart in two recognitions of it. Alignment is about this exact, and a word
that is said twice takes longer than this to say."""

SAME_WORD_OVERLAP = 1 / 3
"""Or the share of the shorter of the two that lies under the other."""


def seam_chunk(left: Chunk, right: Chunk) -> Chunk:
    """Return the samples around the cut between two neighbouring chunks as a chunk of its own.

    Parameters
    ----------
    left, right : Chunk
        Chunks of which the second starts where the first stops.

    Returns
    -------
    Chunk
        `SEAM_SECONDS` on each side of the cut, as far as the two chunks reach.

    """
    reach = samples_from_seconds(SEAM_SECONDS, left.sample_rate)
    before, after = left.excerpt(left.stop - reach, left.stop), right.excerpt(right.start, right.start + reach)
    return Chunk(
        left.index,
        before.start,
        after.stop,
        left.sample_rate,
        np.concatenate([before.samples, after.samples]),
        _connected(before.kept, after.kept),
        _connected(before.speech, after.speech),
    )


def _connected(before: Sequence[Span], after: Sequence[Span]) -> tuple[Span, ...]:
    """Return the spans of both sides, with those that meet at the cut as one: a word there is one word."""
    if before and after and before[-1][1] == after[0][0]:
        return (*before[:-1], (before[-1][0], after[0][1]), *after[1:])
    return (*before, *after)


def merge_seam(left_words: Sequence[Word], right_words: Sequence[Word], cut_seconds: float) -> list[Word]:
    """Merge two recognitions that overlap in time into one row of words.

    The left words count up to one that both have, at about the same time, and the right words after it. Of several
    such words the one counts that leaves the fewest words out, then the one nearest to `cut_seconds`. Without any the
    left words count up to a moment, chosen in the same way, and the right words from it; the outermost words there
    are taken to be fragments, for the clips begin and end within words.

    Parameters
    ----------
    left_words, right_words : sequence of Word
        Ascending in time. The left ones reach into the time of the right ones, or up to it.
    cut_seconds : float
        Where the change is best made when nothing else decides, in seconds of the recording.

    Returns
    -------
    list of Word
        Ascending, not overlapping. A word that both have is there once; one that is said twice stays twice.

    """
    shared = _shared_words(left_words, right_words)
    if shared:
        at, after = max(shared, key=lambda pair: (pair[0] - pair[1], -abs(_middle(left_words[pair[0]]) - cut_seconds)))
        likelier = max(left_words[at], right_words[after], key=lambda word: word.probability)
        return _ascending([*left_words[:at], likelier, *right_words[after + 1 :]])
    if not left_words or not right_words or right_words[0].start >= left_words[-1].end:
        return _ascending([*left_words, *right_words])
    moment = _best_moment(left_words, right_words, cut_seconds)
    before = [word for word in left_words if _middle(word) < moment]
    behind = [word for word in right_words if _middle(word) >= moment]
    if before and behind and _overlap_share(before[-1], behind[0]) > SAME_WORD_OVERLAP:
        # One word was spoken there, heard in two ways.
        if before[-1].probability < behind[0].probability:
            before.pop()
        else:
            behind.pop(0)
    return _ascending([*before, *behind])


def join_at_cut(left: Outcome, seam: Outcome, right: Outcome, cut_seconds: float) -> tuple[Outcome, Outcome]:
    """Merge what was heard across a cut into what was heard on both sides of it.

    Parameters
    ----------
    left, right : Outcome
        What came of the chunks before and after the cut.
    seam : Outcome
        What came of `seam_chunk`.
    cut_seconds : float
        Where the cut lies, in seconds of the recording.

    Returns
    -------
    (Outcome, Outcome)
        The left one with the words before the cut, the right one with those after it; gaps that have been filled are
        gone. Both as they were given where the seam holds no text to trust, or text beside it has no timed words to
        merge by.

    """
    near_left = [segment for segment in left.segments if segment.end > cut_seconds - SEAM_SECONDS]
    near_right = [segment for segment in right.segments if segment.start < cut_seconds + SEAM_SECONDS]
    parts = [*near_left, *seam.segments, *near_right]
    if not seam.segments or any(segment.suspect is not None or not segment.words for segment in parts):
        return left, right
    half = SEAM_SECONDS / 2
    across = merge_seam(_words_of(near_left), _words_of(seam.segments), cut_seconds - half)
    words = merge_seam(across, _words_of(near_right), cut_seconds + half)
    model = replace(parts[0], attempts=1 + max(part.attempts for part in parts))
    before = _segments([word for word in words if _middle(word) < cut_seconds], model)
    after = _segments(
        [word for word in words if _middle(word) >= cut_seconds], replace(model, language=parts[-1].language)
    )
    text = [*before, *after]
    return (
        Outcome((*left.segments[: len(left.segments) - len(near_left)], *before), _still_open(left.gaps, text)),
        Outcome((*after, *right.segments[len(near_right) :]), _still_open(right.gaps, text)),
    )


def _words_of(segments: Sequence[Segment]) -> list[Word]:
    return [word for segment in segments for word in segment.words]


def _still_open(gaps: Sequence[Gap], text: Sequence[Segment]) -> tuple[Gap, ...]:
    """Return what is left of gaps now that there is this text."""
    left: list[Gap] = []
    for gap in gaps:
        if any(word.start < gap.end and word.end > gap.start for word in _words_of(text)):
            left += [
                replace(gap, start=start, end=end) for start, end in uncovered_speech([(gap.start, gap.end)], text)
            ]
        else:
            left.append(gap)
    return tuple(left)


def _segments(words: Sequence[Word], model: Segment) -> list[Segment]:
    """Group words into sentences; what is not told by the words is taken from `model`."""
    spaced = [
        ClipWord(
            word.start,
            word.end,
            f" {word.text}" if index and needs_space(words[index - 1].text, word.text) else word.text,
            word.probability,
        )
        for index, word in enumerate(words)
    ]
    segments = []
    for sentence in sentences_from_words(spaced):
        said = tuple(Word(word.start, word.end, word.text.strip(), word.probability) for word in sentence)
        confidence = sum(word.probability for word in said) / len(said)
        text = join_texts(word.text for word in said)
        segments.append(
            replace(model, start=said[0].start, end=said[-1].end, text=text, words=said, confidence=confidence)
        )
    return segments


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2


def _overlap_share(first: Word, second: Word) -> float:
    shorter = min(first.end - first.start, second.end - second.start)
    overlap = min(first.end, second.end) - max(first.start, second.start)
    return overlap / shorter if shorter > 0 else 0.0


def _shared_words(left: Sequence[Word], right: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the indices of words that both rows have: the same text, and each the other's nearest in time."""
    if not left or not right:
        return []
    first, last = right[0].start - SAME_WORD_SECONDS, left[-1].end + SAME_WORD_SECONDS
    ours = {index: words_of(word.text) for index, word in enumerate(left) if word.end >= first}
    theirs = {index: words_of(word.text) for index, word in enumerate(right) if word.start <= last}
    pairs = []
    for mine, text in ours.items():
        alike = [index for index, other in theirs.items() if text and other == text]
        if not alike:
            continue
        nearest = min(alike, key=lambda index: abs(_middle(right[index]) - _middle(left[mine])))
        rivals = [index for index, other in ours.items() if other == text]
        mutual = min(rivals, key=lambda index: abs(_middle(left[index]) - _middle(right[nearest])))
        if mutual == mine and _is_same_moment(left[mine], right[nearest]):
            pairs.append((mine, nearest))
    return pairs


def _is_same_moment(first: Word, second: Word) -> bool:
    return (
        abs(_middle(first) - _middle(second)) <= SAME_WORD_SECONDS or _overlap_share(first, second) >= SAME_WORD_OVERLAP
    )


def _best_moment(left: Sequence[Word], right: Sequence[Word], preferred: float) -> float:
    """Return where to change from the left words to the right ones so that the fewest words are left out."""
    first, last = right[0].start, left[-1].end
    moments = [min(max(preferred, first), last)]
    moments += [_middle(word) for word in right if first <= _middle(word) <= last]
    moments += [np.nextafter(_middle(word), np.inf) for word in left if first <= _middle(word) <= last]

    def whole_words(moment: float) -> int:
        before = sum(_middle(word) < moment for word in left[:-1])
        return before + sum(_middle(word) >= moment for word in right[1:])

    return float(max(moments, key=lambda moment: (whole_words(moment), -abs(moment - preferred))))


def _ascending(words: Sequence[Word]) -> list[Word]:
    """Return the words with times that do not overlap: two recognitions time the same sounds a little apart."""
    ordered: list[Word] = []
    reached = -np.inf
    for word in words:
        start = max(word.start, float(reached))
        ordered.append(replace(word, start=start, end=max(word.end, start)))
        reached = ordered[-1].end
    return ordered
