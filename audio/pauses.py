"""What a cut costs at each place of a recording: least in the middle of its longest and quietest pauses."""

import numpy as np

from audio.energy import SPEECH_EVIDENCE
from audio.running import CELL_FRAMES, FloatArray, cell_ranks, lowest_nearby, rolling_extreme, window_means

FORCED_COST = 100.0
"""From this cost on a cut lies in speech: half a second of pause anywhere is worth more than any number of others."""

CONTEXT_FRAMES = 600
"""Frames before and after a frame that its cost depends on, at most."""

_CERTAIN = 0.75
_CLEARANCE_FRAMES = 6
_REACH_CELLS = 10
_FLOOR_RANK, _PEAK_RANK = 4, 45  # of the 50 frames of a cell
_ABOVE_FLOOR_DB = 3.0
_LEAST_RANGE_DB = 12.0
# Half widths in frames, and weights. A pause costs nothing in the windows that fit into it, so that a longer one is
# cheaper; the widest windows draw the cut to the middle of pauses of seconds.
_WINDOWS = ((5, 4.0), (10, 3.0), (20, 5.0), (35, 3.0), (80, 0.5), (320, 0.1))
_WIDEST = 320
_DOUBTFUL_UNITS = np.float32(
    26
)  # what may be speech is never quite a pause: in noise, the ends of words are lost in it
_UNITS = 256


def cut_costs(levels: FloatArray, evidence: FloatArray) -> FloatArray:
    """Return what a cut before each frame costs.

    Parameters
    ----------
    levels : ndarray, shape (frames,), float32
        Levels in dB from `EnvelopeMeter`; a whole number of half seconds.
    evidence : ndarray, shape (frames,), float32 in [0, 1]
        What a `SpeechDetector` says of the frames.

    Returns
    -------
    ndarray, shape (frames,), float32
        At least 0; `FORCED_COST` and more in speech.

    """
    doubtful = evidence >= SPEECH_EVIDENCE
    sums = _Sums(np.maximum(_loudness(levels), _DOUBTFUL_UNITS) * doubtful)
    costs = np.zeros(len(levels), np.float32)
    for half, weight in _WINDOWS:
        costs += sums.around(half) * np.float32(weight / (_UNITS * 2 * half))
    certain = _Sums((evidence >= _CERTAIN).astype(np.float32))
    costs[certain.around(_CLEARANCE_FRAMES) > 0] += np.float32(FORCED_COST)
    return costs


def _loudness(levels: FloatArray) -> FloatArray:
    """Return how loud each frame is between the background and the peaks of the neighbourhood, in whole units."""
    smooth = window_means(levels)
    low, high = cell_ranks(smooth, _FLOOR_RANK, _PEAK_RANK)
    low = lowest_nearby(low, _REACH_CELLS)
    high = rolling_extreme(high, _REACH_CELLS, lowest=False)
    low = np.minimum(low, high) + np.float32(_ABOVE_FLOOR_DB)
    scale = np.float32(_UNITS) / np.maximum(high - low, np.float32(_LEAST_RANGE_DB))
    height = smooth.reshape(-1, CELL_FRAMES) - low[:, np.newaxis]
    height *= scale[:, np.newaxis]
    units: FloatArray = np.floor(np.clip(height, 0, _UNITS)).reshape(-1)
    return units


class _Sums:
    """Sums over windows of whole numbers, which are exact, so that they do not depend on where a page begins.

    Float32 holds whole numbers exactly up to 2^24, and a page of 7200 frames sums up to less than 2^21 units.
    """

    def __init__(self, values: FloatArray) -> None:
        self._count = len(values)
        self._sums = np.empty(len(values) + 1 + 2 * _WIDEST, np.float32)
        self._sums[: _WIDEST + 1] = 0
        np.cumsum(values, out=self._sums[_WIDEST + 1 : _WIDEST + 1 + len(values)])
        self._sums[_WIDEST + 1 + len(values) :] = self._sums[_WIDEST + len(values)]

    def around(self, half: int) -> FloatArray:
        """Return for each frame the sum over `half` frames before it and `half` from it on; beyond the ends is 0."""
        first, last = _WIDEST - half, _WIDEST + half
        return self._sums[last : last + self._count] - self._sums[first : first + self._count]
