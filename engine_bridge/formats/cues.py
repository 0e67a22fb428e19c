"""Subtitle cues of readable size: what is shown, from when to when, on which lines.

The figures are those of Netflix's Timed Text Style Guide, General Requirements
(https://partnerhelp.netflixstudios.com/hc/en-us/articles/215758617): two lines at most, 5/6 of a second at least, seven
seconds at most; the lengths of lines stand in `engine_bridge.formats.pieces`.
"""

# ruff: noqa: RUF001 (full-width punctuation is meant where it stands)

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from engine_bridge.formats.pieces import LINE_WIDTH, NARROW, Piece, pieces_of
from engine_bridge.transcript import Transcript

MAX_LINES = 2
MAX_CUE_SECONDS = 7.0
MIN_CUE_MS = 833
# Where the engine piles several cues on one moment, each still gets this long: what a viewer can notice.
_PILED_CUE_MS = 200

# Costs that decide where long segments are cut. A further cue costs more than any one blemish, so that text is cut
# only as often as it must be; then a cut after a sentence or in a pause is free, after a clause cheap, elsewhere dear.
_COST_CUE = 10.0
_COST_AFTER_CLAUSE = 2.0
_COST_AFTER_WORD = 6.0
_COST_INSIDE_RUN = 7.0
_COST_TOO_SHORT = 6.0
_COST_UNEVEN = 4.0
_PAUSE_SECONDS = 0.5
_SENTENCE_ENDS = ".?!…。？！｡།။។"
_CLAUSE_ENDS = ",;:、，；：､—–၊"
_CLOSERS = "\"'”’»)]）」』】"


@dataclass(frozen=True)
class Cue:
    """What a subtitle shows at one time.

    Attributes
    ----------
    start_ms, end_ms : int
        Milliseconds in the recording, ``start_ms <= end_ms``. The next cue starts at `end_ms` or later.
    lines : tuple of str
        One or two lines of text, none of them blank.

    """

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]


def cues(transcript: Transcript) -> list[Cue]:
    """Lay a transcript out as subtitle cues.

    Parameters
    ----------
    transcript : Transcript
        The transcript. Suspect segments and blank ones give no cue; a segment too long for one cue gives several,
        cut at the ends of sentences, in pauses or at the ends of clauses where possible.

    Returns
    -------
    list of Cue
        Cues that ascend, never overlap and never pass the recording's end. Each lasts from 5/6 of a second, where
        the next one leaves room, to seven seconds.

    """
    groups = [
        group for segment in transcript.segments if segment.suspect is None for group in _grouped(pieces_of(segment))
    ]
    times = _fitted_times(
        [(round(group[0].start * 1000), round(group[-1].end * 1000)) for group in groups],
        max(math.floor(transcript.duration * 1000), 0),
    )
    return [Cue(start, end, _lines(group)) for (start, end), group in zip(times, groups, strict=True)]


def timestamp(milliseconds: int, decimal_mark: str) -> str:
    """Write a time as hours, minutes, seconds and milliseconds.

    Parameters
    ----------
    milliseconds : int
        The time, from 0. Hours past 99 take as many digits as they need.
    decimal_mark : str
        What parts seconds from milliseconds.

    Returns
    -------
    str
        The time, such as "01:02:03,004".

    """
    seconds, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}{decimal_mark}{thousandths:03d}"


def _grouped(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Cut a segment's pieces into cues at the least total cost, by dynamic programming over the cuts."""
    count = len(pieces)
    if not pieces:
        return
    if any(stop == count for stop, _ in _openings(pieces, 0)):
        yield pieces
        return
    cost_at = [0.0, *(_cost_of_cut(before, after) for before, after in itertools.pairwise(pieces)), 0.0]
    best = [0.0] + [math.inf] * count
    previous = [0] * (count + 1)
    for first in range(count):
        for stop, cost_of_cue in _openings(pieces, first):
            cost = best[first] + cost_of_cue + cost_at[stop]
            if cost < best[stop]:
                best[stop], previous[stop] = cost, first
    cuts = [count]
    while cuts[-1] > 0:
        cuts.append(previous[cuts[-1]])
    cuts.reverse()
    for first, stop in itertools.pairwise(cuts):
        yield pieces[first:stop]


def _openings(pieces: list[Piece], first: int) -> Iterator[tuple[int, float]]:
    """Yield each index at which a cue that begins at `first` may stop, with the cost of that cue.

    Whether it fits is found by filling the lines greedily, which uses the fewest.
    """
    lines, filled, full = 1, 0, 0
    start = pieces[first].start
    for index in range(first, len(pieces)):
        piece = pieces[index]
        filled += piece.width + NARROW * (piece.spaced and index > first)
        if filled > LINE_WIDTH:
            lines, filled, full = lines + 1, piece.width, full + filled - piece.width
        seconds = piece.end - start
        if index > first and (lines > MAX_LINES or seconds > MAX_CUE_SECONDS):
            return
        emptiness = 1 - (full + filled) / (LINE_WIDTH * MAX_LINES)
        too_short = seconds < MIN_CUE_MS / 1000
        yield index + 1, _COST_CUE + _COST_UNEVEN * emptiness * emptiness + _COST_TOO_SHORT * too_short


def _cost_of_cut(before: Piece, after: Piece) -> float:
    if after.start - before.end >= _PAUSE_SECONDS:
        return 0.0
    last = before.text.rstrip(_CLOSERS)[-1:]
    if last and last in _SENTENCE_ENDS:
        return 0.0
    if last and last in _CLAUSE_ENDS:
        return _COST_AFTER_CLAUSE
    return _COST_AFTER_WORD if after.spaced else _COST_INSIDE_RUN


def _lines(pieces: list[Piece]) -> tuple[str, ...]:
    """Set pieces that fit on two lines, evenly and with the break after punctuation where there is a choice."""
    candidates: list[tuple[float, int]] = []
    total = _width(pieces)
    if total <= LINE_WIDTH:
        return (_text(pieces),)
    upper = 0
    for index in range(1, len(pieces)):
        upper += pieces[index - 1].width + NARROW * (pieces[index - 1].spaced and index > 1)
        lower = total - upper - NARROW * pieces[index].spaced
        if upper <= LINE_WIDTH and lower <= LINE_WIDTH:
            unevenness = abs(upper - lower) / LINE_WIDTH
            candidates.append((_COST_CUE * unevenness + _cost_of_cut(pieces[index - 1], pieces[index]), index))
    _, cut = min(candidates)
    return _text(pieces[:cut]), _text(pieces[cut:])


def _width(pieces: list[Piece]) -> int:
    return sum(piece.width for piece in pieces) + NARROW * sum(piece.spaced for piece in pieces[1:])


def _text(pieces: list[Piece]) -> str:
    return pieces[0].text + "".join(" " * piece.spaced + piece.text for piece in pieces[1:])


def _fitted_times(times: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Make times ascend without overlap within [0, limit], and last as long as the next start allows."""
    starts: list[int] = []
    for start, _ in times:
        starts.append(min(max(start, starts[-1] if starts else 0), limit))
    following = limit
    for index in reversed(range(len(starts))):
        starts[index] = max(min(starts[index], following - _PILED_CUE_MS), 0)
        following = starts[index]
    fitted: list[tuple[int, int]] = []
    for index, (start, (_, end)) in enumerate(zip(starts, times, strict=True)):
        room = starts[index + 1] if index + 1 < len(starts) else limit
        longest = start + round(MAX_CUE_SECONDS * 1000)
        fitted.append((start, min(max(end, start + MIN_CUE_MS), room, longest)))
    return fitted
