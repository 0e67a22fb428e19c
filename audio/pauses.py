"""What a cut costs at each place of a recording: least in the middle of its longest and quietest pauses."""

import numpy as np
from numpy.typing import NDArray

from audio.energy import (
    CELL_FRAMES,
    SPEECH_EVIDENCE,
    FloatArray,
    cell_ranks,
    lowest_nearby,
    rolling_extreme,
    window_means,
)

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
_WINDOWS = ((5, 4.0), (10, 2.0), (15, 2.0), (20, 3.0), (30, 3.0), (45, 1.0), (80, 0.5), (160, 0.2), (320, 0.1))
_DOUBTFUL_UNITS = 26  # what may be speech is never quite a pause: in noise, the ends of words are lost in it
_UNITS = 256  # loudness is counted in whole units, so that sums do not depend on where a page begins


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
    loudness = _loudness(levels)
    loudness[evidence < SPEECH_EVIDENCE] = 0
    loudness[(evidence >= SPEECH_EVIDENCE) & (loudness < _DOUBTFUL_UNITS)] = _DOUBTFUL_UNITS
    sums = np.zeros(len(levels) + 1, np.int32)
    np.cumsum(loudness, out=sums[1:])
    costs = np.zeros(len(levels), np.float32)
    for half, weight in _WINDOWS:
        costs += np.float32(weight / (_UNITS * 2 * half)) * _around(sums, half)
    np.cumsum(evidence >= _CERTAIN, out=sums[1:])
    costs[_around(sums, _CLEARANCE_FRAMES) > 0] += np.float32(FORCED_COST)
    return costs


def _loudness(levels: FloatArray) -> NDArray[np.int32]:
    """Return how loud each frame is between the background and the peaks of the neighbourhood, in units."""
    smooth = window_means(levels)
    low, high = cell_ranks(smooth, _FLOOR_RANK, _PEAK_RANK)
    low = lowest_nearby(low, _REACH_CELLS)
    high = rolling_extreme(high, _REACH_CELLS, lowest=False)
    low = np.minimum(low, high) + np.float32(_ABOVE_FLOOR_DB)
    scale = np.float32(_UNITS) / np.maximum(high - low, np.float32(_LEAST_RANGE_DB))
    height = (smooth.reshape(-1, CELL_FRAMES) - low[:, np.newaxis]) * scale[:, np.newaxis]
    units: NDArray[np.int32] = np.clip(height, 0, _UNITS).astype(np.int32).reshape(-1)
    return units


def _around(sums: NDArray[np.int32], half: int) -> NDArray[np.int32]:
    """Return for each frame the sum over `half` frames before it and `half` from it on; nothing lies beyond the ends.

    Parameters
    ----------
    sums : ndarray, shape (frames + 1,)
        Cumulative sums, from 0.
    half : int
        Half the width, at most half of the frames.

    """
    count = len(sums) - 1
    around = np.empty(count, np.int32)
    around[half : count - half] = sums[2 * half : count] - sums[: count - 2 * half]
    around[:half] = sums[half : 2 * half]
    around[count - half :] = sums[count] - sums[count - 2 * half : count - half]
    return around
