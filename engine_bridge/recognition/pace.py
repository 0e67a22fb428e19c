"""How much text a recording's speech holds, so that text which is missing is noticed where words have no times.

One speaker's text fills the seconds of speech evenly: in the recordings that were measured a chunk of half a minute
never lies more than 15 % below the recording's median. A chunk far below it has most likely lost a passage.
"""

import math
from collections import deque
from concurrent.futures import Future
from statistics import median

from engine_bridge.recognition.spread import TYPICAL_PACE, spoken_length

LEAST_PACE, MOST_PACE = 0.5 * TYPICAL_PACE, 1.15 * TYPICAL_PACE
"""Bounds of what a recording is held to, in letters a second of speech: below the lower one text is missing even from
the slowest speaker's, and the upper one keeps a fast speaker's pauses for thought from being taken for losses."""

LAG = 8
"""A chunk is held to what became of the chunks so many before it and earlier, so that as many are under way at once."""

_WINDOW = 12  # chunks: a few minutes, in which speakers change
_PRIOR = 2  # chunks of typical pace that each recording is taken to begin with
_LEAST_SECONDS = 5.0  # of speech, for a chunk to tell anything of the pace
# How far below its due a text may be: so many standard deviations, of which one part grows as words add up and one
# is the speaker's.
_DEVIATIONS = 2.5
_EDGE_VARIANCE = 6.0
_WORD_VARIANCE = 1.0
_PACE_DEVIATION = 0.06


def is_short(text: str, seconds: float, pace: float) -> bool:
    """Tell whether a text is far too short for its speech.

    Parameters
    ----------
    text : str
        What an engine wrote.
    seconds : float
        How much speech it heard.
    pace : float
        Letters (`spoken_length`) that a second of speech holds in this recording.

    """
    due = pace * seconds
    deviation = math.sqrt(_EDGE_VARIANCE + _WORD_VARIANCE * due + (_PACE_DEVIATION * due) ** 2)
    return spoken_length(text) < due - _DEVIATIONS * deviation


class Pace:
    """Keeps a recording's pace: the median of its last chunks, in the recording's order.

    What a chunk is held to depends on the chunks before it and not on when their answers came, so that the same
    recording gives the same text each time. Used by one thread.
    """

    def __init__(self) -> None:
        self._turns = 0
        self._told: dict[int, float | None] = {}  # of chunks that came before those before them
        self._known = 0  # chunks from the first on that have told theirs
        self._recent: deque[float] = deque([TYPICAL_PACE] * _PRIOR, maxlen=_WINDOW)
        self._paces: dict[int, float] = {0: TYPICAL_PACE}  # by how many chunks were known
        self._waiting: dict[int, Future[float]] = {}  # by how many have to be known

    def turn(self) -> "Turn":
        """Take the next chunk's turn."""
        number = self._turns
        self._turns += 1
        needed = max(0, number - LAG + 1)
        pace: Future[float] = Future()
        if needed in self._paces:
            pace.set_result(self._paces[needed])
        else:
            self._waiting[needed] = pace
        return Turn(self, number, pace)

    def tell(self, number: int, pace: float | None) -> None:
        """Take a chunk's own pace, or None where it has too little speech to have one."""
        self._told[number] = pace
        while self._known in self._told:
            told = self._told.pop(self._known)
            if told is not None:
                self._recent.append(told)
            self._known += 1
            now = min(max(median(self._recent), LEAST_PACE), MOST_PACE)
            self._paces[self._known] = now
            self._paces.pop(self._known - LAG - 1, None)
            if self._known in self._waiting:
                self._waiting.pop(self._known).set_result(now)


class Turn:
    """One chunk's part in keeping the pace.

    Attributes
    ----------
    pace : Future of float
        What the chunk is to be held to, once the chunks that it depends on have told theirs.

    """

    def __init__(self, keeper: Pace, number: int, pace: "Future[float]") -> None:
        self._keeper = keeper
        self._number = number
        self.pace = pace

    def tell(self, text: str = "", seconds: float = 0.0) -> None:
        """Tell what became of the chunk: its text, and its seconds of speech.

        A chunk without text tells nothing of the pace, for it may well be music.
        """
        enough = seconds >= _LEAST_SECONDS and bool(text)
        self._keeper.tell(self._number, spoken_length(text) / seconds if enough else None)
