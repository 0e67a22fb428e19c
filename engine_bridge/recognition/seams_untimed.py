"""The two sides of a forced cut, merged where words have no times: by the words that they share and where these stand.

As in `seams`, a few seconds around the cut are heard once more in one clip. The end of the left text is found again in
that clip's first half, and the beginning of the right text in its second half; what divides or doubles a word at the
cut lies between, and there the clip counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine_bridge.joining import join_texts
from engine_bridge.recognition.coverage import uncovered_speech
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.recognition.seams import SEAM_SECONDS
from engine_bridge.recognition.spread import spoken_length
from engine_bridge.recognition.text_checks import words_of
from engine_bridge.transcript import Gap, Segment

LEAST_SHARED = 2
"""Words in a row that two texts must share to be put together there: one alone may be shared by chance."""

MOST_REPLACED = 3
"""Words beside a cut that the clip across it may correct; if it differs by more, something else is wrong."""

_OFF_CENTRE_COST = 0.5  # of a shared word, for each word by which a match would move the cut from the clip's middle
_NEAR_SECONDS = SEAM_SECONDS + 2.0  # estimated times are no better


@dataclass(frozen=True)
class _Match:
    """Words in a row that stand in both texts."""

    side: int  # index of the first of them at the side of the cut
    clip: int  # and in the clip across it
    length: int


def join_untimed(left: Outcome, seam: Outcome, right: Outcome, cut_seconds: float) -> tuple[Outcome, Outcome]:
    """Merge what was heard across a cut into the texts on both sides of it.

    Parameters
    ----------
    left, right : Outcome
        What came of the chunks before and after the cut.
    seam : Outcome
        What came of `seams.seam_chunk`.
    cut_seconds : float
        Where the cut lies, in seconds of the recording.

    Returns
    -------
    (Outcome, Outcome)
        The left one with the text up to the cut and what the clip put right, the right one with the rest. Both as they
        were given where the texts do not share enough words, or one of them is not believed.

    """
    near_left = [segment for segment in left.segments if segment.end > cut_seconds - _NEAR_SECONDS]
    near_right = [segment for segment in right.segments if segment.start < cut_seconds + _NEAR_SECONDS]
    parts = [*near_left, *seam.segments, *near_right]
    if not (near_left and near_right and seam.segments) or any(part.suspect is not None for part in parts):
        return left, right
    before, across, after = (_words(segments) for segments in (near_left, seam.segments, near_right))
    middle = _middle(across)
    ending, beginning = _matched_end(before, across, middle), _matched_beginning(after, across, middle)
    if ending is None or beginning is None:
        return left, right
    from_clip = ending.clip + ending.length
    to_clip = max(beginning.clip, from_clip)
    keep_left = ending.side + ending.length
    skip_right = beginning.side + to_clip - beginning.clip
    corrected = to_clip - from_clip
    dropped = (len(before) - keep_left, skip_right, corrected)
    if max(dropped) > MOST_REPLACED or skip_right > beginning.side + beginning.length:
        return left, right
    if not any(dropped):
        return left, right
    attempts = 1 + max(part.attempts for part in parts)
    kept = _first_words(near_left, keep_left)
    kept[-1] = replace(
        kept[-1],
        text=join_texts([kept[-1].text, *across[from_clip:to_clip]]),
        end=max(kept[-1].end, cut_seconds) if corrected else kept[-1].end,
        attempts=attempts,
    )
    rest = _without_words(near_right, skip_right, attempts)
    return (
        Outcome((*left.segments[: len(left.segments) - len(near_left)], *kept), _still_open(left.gaps, kept)),
        Outcome((*rest, *right.segments[len(near_right) :]), right.gaps),
    )


def _words(segments: Sequence[Segment]) -> list[str]:
    return [word for segment in segments for word in segment.text.split()]


def _middle(words: Sequence[str]) -> int:
    """Return the index of the word that half of a text's sound comes before."""
    half, said = spoken_length(" ".join(words)) / 2, 0.0
    for index, word in enumerate(words):
        said += spoken_length(word)
        if said > half:
            return index
    return len(words)


def _matched_end(side: Sequence[str], clip: Sequence[str], middle: int) -> _Match | None:
    """Find where the end of a text stands in the clip; the text's last word is expected near the clip's middle."""
    return max(
        _matches(side, clip), default=None, key=lambda match: _merit(match, match.clip + len(side) - match.side, middle)
    )


def _matched_beginning(side: Sequence[str], clip: Sequence[str], middle: int) -> _Match | None:
    return max(_matches(side, clip), default=None, key=lambda match: _merit(match, match.clip - match.side, middle))


def _merit(match: _Match, cut: int, middle: int) -> float:
    return match.length - _OFF_CENTRE_COST * abs(cut - middle)


def _matches(side: Sequence[str], clip: Sequence[str]) -> list[_Match]:
    """Return all longest rows of words that stand in both texts."""
    ours, theirs = [words_of(word) for word in side], [words_of(word) for word in clip]
    found = []
    for shift in range(-len(ours) + 1, len(theirs)):
        run = 0
        for index in range(max(0, -shift), min(len(ours), len(theirs) - shift) + 1):
            inside = index < min(len(ours), len(theirs) - shift)
            if inside and ours[index] and ours[index] == theirs[index + shift]:
                run += 1
                continue
            if run >= LEAST_SHARED:
                found.append(_Match(index - run, index - run + shift, run))
            run = 0
    return found


def _first_words(segments: Sequence[Segment], count: int) -> list[Segment]:
    """Return the segments with only so many words, at least one, of all of them."""
    kept: list[Segment] = []
    for segment in segments:
        words = segment.text.split()
        if count <= 0:
            break
        kept.append(segment if len(words) <= count else replace(segment, text=" ".join(words[:count])))
        count -= len(words)
    return kept


def _without_words(segments: Sequence[Segment], count: int, attempts: int) -> list[Segment]:
    """Return the segments without so many words at their beginning."""
    rest: list[Segment] = []
    for segment in segments:
        words = segment.text.split()
        if count < len(words):
            rest.append(replace(segment, text=" ".join(words[count:]), attempts=attempts) if count > 0 else segment)
        count = max(0, count - len(words))
    return rest


def _still_open(gaps: Sequence[Gap], text: Sequence[Segment]) -> tuple[Gap, ...]:
    """Return what is left of gaps now that there is this text."""
    return tuple(
        replace(gap, start=start, end=end)
        for gap in gaps
        for start, end in (
            uncovered_speech([(gap.start, gap.end)], text)
            if any(segment.start < gap.end and segment.end > gap.start for segment in text)
            else [(gap.start, gap.end)]
        )
    )
