"""Times for the words of a text that came without any: spread over the speech they were heard in.

Speech has a pace of its own: over eight recordings the text of a chunk stays within 15 % of what its seconds of speech
foretell. So each stretch of speech gets about its share of the text, and of all ways to share it out the one counts in
which sentences end at pauses. Words within a stretch then follow each other in proportion to their length.
"""

import math
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine_bridge.engines.protocol import ClipResult, ClipWord
from engine_bridge.formats.pieces import Piece, pieces_of
from engine_bridge.joining import is_spaceless, join_texts
from engine_bridge.recognition.edges import Seconds
from engine_bridge.recognition.sentences import SENTENCE_ENDS, sentences_from_words
from engine_bridge.recognition.stitch import clip_confidence, with_margins
from engine_bridge.transcript import Segment

# How long texts take to say, in letters. Fitted to 3400 words timed by alignment (tiny.en, four recordings): a word
# takes 0.19 s, and 0.031 s for each of its letters, or 0.22 s for each of its digits.
_WORD_LETTERS = 4.0
_DIGIT_LETTERS = 6.0
# A Chinese or Japanese character is a syllable, and other scripts without spaces have no words to count.
_WIDE_LETTERS = 4.5
_SPACELESS_LETTERS = 2.0

TYPICAL_PACE = 22.0
"""Letters, as `spoken_length` counts them, in a second of a speech stretch: 22 to 23 over seven recordings of two
speakers; chunks of one recording lie within 15 % of it."""

SLOWEST_PACE = 5.0
"""The least of it: a text that would be slower leaves the rest of its stretch without text."""

# Seconds that last sounds take which are too weak to be seen: after a stretch, and in a dip of the level.
_FADE_SECONDS = 0.05
_FADE_IN_DIP = 0.2
# More words than this are shared out by length alone; half a minute holds some hundred.
_MOST_WORDS = 600
# The spread of a stretch's text around its share: a constant for its edges, a part that grows as words add up, and one
# for a change of pace.
_EDGE_VARIANCE = 6.0
_WORD_VARIANCE = 1.0
_PACE_DEVIATION = 0.1
# What the end of a sentence, of a clause and of another word cost where there is no pause, and before one of 0.3 s:
# negative log probabilities, from how often each stood before the 250 pauses of four recordings and elsewhere. The
# longer the pause, the less likely a sentence goes on after it.
_MARK_COSTS = {"sentence": (2.0, 0.0), "clause": (0.3, 1.5), "word": (0.0, 2.0)}
_WHOLE_PAUSE = 0.3
_LONG_PAUSE_COST = 1.5
_LONG_PAUSE = 1.0
_CLAUSE_ENDS = (",", ";", ":", "\u3001", "\uff0c", "\uff1b", "\uff1a", "\u060c")
_CLOSERS = "\"'\u201d\u2019)]\u300d\u300f"

FloatArray = NDArray[np.float64]


def spoken_length(text: str) -> float:
    """Tell how much there is to say in a text.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    float
        Its length in letters: each word counts with four more than it has, a digit as six, a wide character (Chinese,
        Japanese, Korean in full width) as four and a half.

    """
    return sum(map(_piece_length, pieces_of(Segment(0.0, 0.0, text))))


def spread_words(text: str, speech: Sequence[Seconds], shares: Sequence[float] | None = None) -> list[ClipWord]:
    """Give the words of a text times within the speech that they were heard in.

    Parameters
    ----------
    text : str
        The text.
    speech : sequence of (start, end)
        Where speech sounds, in seconds, ascending; see `engine_bridge.recognition.dips.voiced_seconds`.
    shares : sequence of float, optional
        How much of the text each stretch is taken to hold, in any unit; in proportion to their length unless given.

    Returns
    -------
    list of ClipWord
        Ascending, each within one stretch, with texts that join into the text. In scripts without spaces what may not
        be parted by a line break is a word. The probability is 0, for nobody heard the word at that time. None
        without text or speech.

    """
    pieces = pieces_of(Segment(0.0, 0.0, text))
    if not pieces or not speech:
        return []
    lengths = np.array([_piece_length(piece) for piece in pieces])
    weights = np.array([end - start for start, end in speech] if shares is None else shares, dtype=np.float64)
    if not weights.sum() > 0:
        weights = np.ones(len(speech))
    pauses = [after[0] - before[1] for before, after in pairwise(speech)]
    bounds = _shared_out(lengths, [piece.text for piece in pieces], weights / weights.sum() * lengths.sum(), pauses)
    words: list[ClipWord] = []
    for (start, end), first, last in zip(speech, bounds[:-1], bounds[1:], strict=True):
        words += _in_stretch(pieces[first:last], lengths[first:last], start, end)
    return words


def estimated_segments(
    result: ClipResult,
    voiced: Sequence[Seconds],
    speech: Sequence[Seconds] = (),
    shares: Sequence[float] | None = None,
) -> list[Segment]:
    """Return an untimed answer's text as sentences with estimated times, and without words.

    Parameters
    ----------
    result : ClipResult
        The answer; times in it are not looked at.
    voiced, shares
        As for `spread_words`.
    speech : sequence of (start, end)
        The stretches of speech that `voiced` lies in (`engine_bridge.recognition.dips.fitted_speech`), in seconds. A
        segment begins a little before it sounds and ends a little later, but in a dip not after the stretch.

    Returns
    -------
    list of Segment
        Ascending, each marked as `estimated`; none without text or speech.

    """
    sentences = sentences_from_words(spread_words(join_texts(part.text for part in result.segments), voiced, shares))
    shown = with_margins(sentences)
    next_starts = [sentence[0].start for sentence in shown[1:]] + [math.inf]
    return [
        Segment(
            around[0].start,
            max(_faded_out(sentence[-1].end, next_start, speech), around[-1].end),
            "".join(word.text for word in sentence).strip(),
            confidence=clip_confidence(result),
            language=result.language,
            estimated=True,
        )
        for sentence, around, next_start in zip(sentences, shown, next_starts, strict=False)
    ]


def _faded_out(end: float, next_start: float, speech: Sequence[Seconds]) -> float:
    """Return where a segment ends: a little after its last loud sound, as its stretch and the next segment allow."""
    longest = end + _FADE_SECONDS
    for first, last in speech:
        if first < end < last:
            longest = min(end + _FADE_IN_DIP, last)
    return max(end, min(longest, next_start))


def _piece_length(piece: Piece) -> float:
    length = 0.0 if is_spaceless(piece.text[0]) else _WORD_LETTERS
    for character in piece.text:
        if character.isdigit():
            length += _DIGIT_LETTERS
        elif character.isalnum():
            wide = unicodedata.east_asian_width(character) in "WF"
            length += _WIDE_LETTERS if wide else _SPACELESS_LETTERS if is_spaceless(character) else 1.0
    return length


def _in_stretch(pieces: Sequence[Piece], lengths: FloatArray, start: float, end: float) -> list[ClipWord]:
    """Let words follow each other from a stretch's start to its end, or as far as the slowest pace takes them."""
    if not pieces:
        return []
    end = min(end, start + max(float(lengths.sum()), _WORD_LETTERS) / SLOWEST_PACE)
    edges = start + (end - start) * np.concatenate([[0.0], np.cumsum(lengths)]) / max(float(lengths.sum()), 1e-9)
    edges[-1] = end
    return [
        ClipWord(float(first), float(last), f" {piece.text}" if piece.spaced else piece.text, 0.0)
        for piece, first, last in zip(pieces, edges[:-1], edges[1:], strict=True)
    ]


def _shared_out(lengths: FloatArray, texts: Sequence[str], expected: FloatArray, pauses: Sequence[float]) -> list[int]:
    """Return the indices of the words at which each stretch begins, and after them the number of words.

    A dynamic programme over stretches and words: the cost of a stretch is the negative log probability of its text
    being so much longer or shorter than expected, plus those of its pause and of the sentence ends that have none.
    """
    count = len(lengths)
    said = np.concatenate([[0.0], np.cumsum(lengths)])
    if count > _MOST_WORDS:
        inner = np.searchsorted(said, np.cumsum(expected)[:-1])
        return [0, *(int(bound) for bound in np.minimum(inner, count)), count]
    marks = np.array([_MARK_COSTS[_mark(text)] for text in texts])
    inside = np.concatenate([[0.0], np.cumsum(marks[:, 0])])
    # Costs of all runs of words, from the row's word up to the column's: what stands between them, and none backwards.
    span = said[np.newaxis, :] - said[:, np.newaxis]
    unmarked = np.zeros((count + 1, count + 1))
    unmarked[:, 1:] = inside[np.newaxis, :-1] - inside[:, np.newaxis]
    unmarked = np.maximum(unmarked, 0.0)
    unmarked[np.tril_indices(count + 1, -1)] = np.inf
    variance = _EDGE_VARIANCE + _WORD_VARIANCE * expected + (_PACE_DEVIATION * expected) ** 2
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    choices: list[NDArray[np.intp]] = []
    for index, share in enumerate(expected):
        costs = best[:, np.newaxis] + (span - share) ** 2 / (2 * variance[index]) + unmarked
        choice = costs.argmin(axis=0)
        best = costs[choice, np.arange(count + 1)]
        if index < len(pauses):
            best[1:] += _at_pause(marks, pauses[index])
        choices.append(choice)
    bounds = [count]
    for choice in reversed(choices):
        bounds.append(int(choice[bounds[-1]]))
    return bounds[::-1]


def _at_pause(marks: FloatArray, pause: float) -> FloatArray:
    """Return what each word costs, shape (words,), if this pause follows it."""
    whole = min(max(pause / _WHOLE_PAUSE, 0.0), 1.0)
    long = min(max(pause / _LONG_PAUSE, 0.0), 1.0)
    costs: FloatArray = marks[:, 0] + whole * (marks[:, 1] - marks[:, 0])
    costs[marks[:, 1] == _MARK_COSTS["word"][1]] += _LONG_PAUSE_COST * long
    return costs


def _mark(text: str) -> str:
    bare = text.rstrip(_CLOSERS)
    if bare.endswith(SENTENCE_ENDS):
        return "sentence"
    return "clause" if bare.endswith(_CLAUSE_ENDS) else "word"
