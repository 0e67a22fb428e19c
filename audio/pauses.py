"""What a cut costs at each place of a recording: least in the middle of its longest and quietest pauses."""

import numpy as np
from numpy.typing import NDArray

from audio.energy import FloatArray, noise_floor, rolling_extreme, smooth_levels

FORCED_COST = 100.0
"""From this cost on a cut lies in speech."""

CUT_CONTEXT_FRAMES = 600

_CELL_FRAMES = 50
_PEAK_REACH = 10
_WINDOWS = ((10, 2.0), (20, 2.0), (40, 2.0), (80, 2.0), (160, 0.5), (320, 0.1))  # half widths in frames, weights
_UNITS = 256


def cut_costs(levels: FloatArray, speech: NDArray[np.bool_]) -> FloatArray:
    """Return what a cut before each frame costs."""
    smooth = smooth_levels(levels)
    floor = noise_floor(smooth)
    peaks = np.partition(smooth.reshape(-1, _CELL_FRAMES), -5, axis=1)[:, -5]
    peak = np.repeat(rolling_extreme(peaks, _PEAK_REACH, lowest=False), _CELL_FRAMES)
    height = np.clip((smooth - floor - 3) / np.maximum(peak - floor - 3, 12), 0, 1)
    height = np.where(speech, height, 0)
    activity = np.rint(height * _UNITS).astype(np.int64)
    costs = np.zeros(len(levels), np.float32)
    for half, weight in _WINDOWS:
        costs += np.float32(weight / (_UNITS * 2 * half)) * box_sums(activity, half).astype(np.float32)
    costs[box_sums(speech.astype(np.int64), 5) > 0] += FORCED_COST
    return costs


def box_sums(values: NDArray[np.int64], half: int) -> NDArray[np.int64]:
    """Return for each index the sum of the `half` values before it and the `half` values from it on."""
    sums = np.zeros(len(values) + 2 * half + 1, np.int64)
    np.cumsum(values, out=sums[half + 1 : half + 1 + len(values)])
    sums[half + 1 + len(values) :] = sums[half + len(values)]
    return sums[2 * half : -1] - sums[: -2 * half - 1]
