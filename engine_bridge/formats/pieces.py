"""A segment's text in pieces that must stay whole on a screen, each with its width and its time."""

# ruff: noqa: RUF001 (full-width punctuation is meant where it stands)

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from engine_bridge.formats.base import one_line
from engine_bridge.joining import is_spaceless
from engine_bridge.transcript import Segment

# Netflix's Timed Text Style Guides allow 42 characters a line in Latin scripts, and 16 in Chinese and Korean.
# Widths count in 1/336 of a line, so that both are whole numbers: 42 * 8 = 16 * 21 = 336.
LINE_WIDTH = 336
NARROW = 8
WIDE = 21

# What may not begin a line (closing marks, small kana, the prolonged sound mark, iteration marks) and what may not
# end one (opening marks), after JIS X 4051 and UAX #14; and Thai and Lao vowels written after or before their
# consonant.
_CLOSING = frozenset(
    "、。，．・：；？！»›”’）］｝〕〉》」』】〙〗｠,.:;?!)]}%…‥—–～ー"
    "々〻ゝゞヽヾぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶｰ｡｣､ะาำๅๆฯະາຳໆຯ"
)
_OPENING = frozenset("（［｛〔〈《「『【〘〖｟«‹“‘([{｢เแโใไເແໂໃໄ$¥￥£")
# A virama joins the consonant after it to the one before (Myanmar, Khmer); zero-width joiners do the same.
_JOINERS = frozenset("\u1039\u17d2\u200d\u2060")
_TIBETAN_BREAKS = frozenset("\u0f0b\u0f0d\u0f0e\u0f14")


@dataclass(frozen=True)
class Piece:
    """A piece of text that stays on one line.

    Attributes
    ----------
    text : str
        The text, without white space.
    width : int
        Its width on the screen, in units of which `LINE_WIDTH` fill a line.
    spaced : bool
        Whether a space parts it from the piece before.
    start, end : float
        Seconds in the recording, ``start <= end``.

    """

    text: str
    width: int
    spaced: bool
    start: float
    end: float


def width_of(text: str) -> int:
    """Measure a text on the screen.

    Parameters
    ----------
    text : str
        A text on one line.

    Returns
    -------
    int
        Its width, in units of which `LINE_WIDTH` fill a line. Combining marks take no room.

    """
    return sum(_character_width(character) for character in text)


def pieces_of(segment: Segment) -> list[Piece]:
    """Cut a segment's text into pieces with times.

    Times come from the segment's words where these spell its text; otherwise the segment's time is shared out
    evenly over its characters. Either way they ascend and stay within the segment.

    Parameters
    ----------
    segment : Segment
        A segment with ``start <= end``.

    Returns
    -------
    list of Piece
        The pieces in order, the channel's label first where there is one; empty when the text is blank.

    """
    text = one_line(segment.text)
    times = _character_times(segment, text.replace(" ", ""))
    pieces: list[Piece] = []
    if segment.channel is not None and text:
        label = f"[{one_line(segment.channel)}]"
        pieces.append(Piece(label, width_of(label), False, segment.start, segment.start))
    at = 0
    for word in text.split():
        for index, cluster in enumerate(_clusters(word)):
            start, end = times[at][0], times[at + len(cluster) - 1][1]
            pieces.append(Piece(cluster, width_of(cluster), index == 0 and bool(pieces), start, end))
            at += len(cluster)
    return pieces


@lru_cache(maxsize=4096)
def _character_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return WIDE if unicodedata.east_asian_width(character) in "WF" else NARROW


def _character_times(segment: Segment, characters: str) -> list[tuple[float, float]]:
    words = [("".join(one_line(word.text).split()), word.start, word.end) for word in segment.words]
    if "".join(text for text, _, _ in words) != characters:
        words = [(characters, segment.start, segment.end)]
    times: list[tuple[float, float]] = []
    earliest = segment.start
    for text, word_start, word_end in words:
        start = min(max(word_start, earliest), segment.end)
        end = min(max(word_end, start), segment.end)
        step = (end - start) / max(len(text), 1)
        times.extend((start + step * index, start + step * (index + 1)) for index in range(len(text)))
        if text:
            times[-1] = (times[-1][0], end)
            earliest = end
    return times


def _clusters(word: str) -> Iterator[str]:
    """Cut a word without white space wherever a line may break; runs longer than a line are cut to fit."""
    start, width = 0, 0
    for index, character in enumerate(word):
        character_width = _character_width(character)
        too_long = width + character_width > LINE_WIDTH
        if index > start and (too_long or _may_break(word[index - 1], character)):
            yield word[start:index]
            start, width = index, 0
        width += character_width
    yield word[start:]


def _may_break(before: str, after: str) -> bool:
    if not (is_spaceless(before) or is_spaceless(after)):
        return False
    if after in _CLOSING or before in _OPENING or before in _JOINERS or after in _JOINERS:
        return False
    if unicodedata.category(after) in {"Mn", "Mc", "Me"}:
        return False
    if "\u0f00" <= before <= "\u0fff" and "\u0f00" <= after <= "\u0fff":
        return before in _TIBETAN_BREAKS and after not in _TIBETAN_BREAKS
    return True
