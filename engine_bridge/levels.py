"""Speech at one level before it reaches the engine.

A model that hears a loud and a quiet speaker in one clip writes down the loud one and skips the other. Raising the
quiet stretches to the level of the loud ones costs next to nothing and keeps them (measured: bench/quality.py, the
recording `levels`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk, Span
from audio.energy import FRAMES_PER_SECOND, frame_length
from audio.running import true_runs

MAX_GAIN = 16.0
"""Largest amplification (24 dB): enough for a far speaker beside a near one, too little to make noise loud."""

CHANGE_DB = 10.0
"""By how much speech before and after a short pause differ where one stretch is levelled as two.

Where a speaker at -25 dB answers within 0.25 s, 1.9 % of the words were wrong with it and 4.9 % without, and 5 deleted
in place of 45 (the recording `two-levels` of bench.recordings, tiny.en); recordings of one level are as before.
"""

PAUSE_DB = 6.0
"""How far below the quieter side the pause between them is."""

_SIDE_FRAMES = FRAMES_PER_SECOND  # of each side are compared, and no part is shorter: a breath is not to be raised
_SMOOTHED_FRAMES = 5

RAMP_SECONDS = 0.05
"""Length of the transition between two gains, in the pause before a stretch."""


def level_speech(chunk: Chunk) -> NDArray[np.float32]:
    """Return the chunk's samples, shape (frames,), with its quieter speech stretches raised to the loudest one's level.

    Levels are root mean squares over a stretch, or over the parts of one in which speakers of very different levels
    follow each other closely. Nothing is made quieter, and gains never let any of them clip.
    """
    stretches = [
        (start + first, start + last)
        for start, stop in clip_stretches(chunk)
        for first, last in _even_parts(chunk.samples[start:stop], chunk.sample_rate)
    ]
    if len(stretches) < 2:
        return chunk.samples
    levels = np.array([rms(chunk.samples[start:stop]) for start, stop in stretches])
    peaks = np.array([np.abs(chunk.samples[start:stop]).max() for start, stop in stretches])
    loudest = float(levels.max())
    if loudest == 0.0:
        return chunk.samples
    with np.errstate(divide="ignore"):
        gains = np.minimum(np.minimum(loudest / levels, 1.0 / peaks), MAX_GAIN)
    gains = np.maximum(gains, 1.0)
    if gains.max() < 1.4:  # within 3 dB: nothing to gain
        return chunk.samples
    return chunk.samples * _gain_curve(len(chunk.samples), stretches, gains, round(RAMP_SECONDS * chunk.sample_rate))


def rms(samples: NDArray[np.float32]) -> float:
    """Return the root mean square of samples, shape (frames,), at least one."""
    return float(np.sqrt(np.mean(np.square(samples))))


def clip_stretches(chunk: Chunk) -> list[Span]:
    """Return the speech stretches in frames of the chunk's samples."""
    stretches: list[Span] = []
    passed = 0
    for kept_start, kept_stop in chunk.kept:
        for start, stop in chunk.speech:
            first, last = max(start, kept_start), min(stop, kept_stop)
            if first < last:
                stretches.append((passed + first - kept_start, passed + last - kept_start))
        passed += kept_stop - kept_start
    return stretches


def _gain_curve(frames: int, stretches: Sequence[Span], gains: NDArray[np.float64], ramp: int) -> NDArray[np.float32]:
    """Return a gain for each frame: constant over a stretch, changing just before the next one starts."""
    positions: list[int] = []
    values: list[float] = []
    for (start, _), (_, previous_stop), gain, previous_gain in zip(
        stretches[1:], stretches[:-1], gains[1:], gains[:-1], strict=True
    ):
        positions += [max(previous_stop, start - ramp), start]
        values += [float(previous_gain), float(gain)]
    return np.interp(np.arange(frames), positions, values).astype(np.float32)


def _even_parts(samples: NDArray[np.float32], sample_rate: int) -> list[Span]:
    """Split a stretch at the pauses where its level changes; return the parts in frames, the pauses between left out.

    The detector leaves nothing out in doubt, so that a speaker who answers within a quarter of a second is in the same
    stretch.
    """
    hop, side = frame_length(sample_rate), _SIDE_FRAMES
    count = len(samples) // hop
    if count <= 2 * side:
        return [(0, len(samples))]
    frames = samples[: count * hop].reshape(count, hop)
    power = np.einsum("ij,ij->i", frames, frames, dtype=np.float64) / hop + 1e-12
    sums = np.concatenate([[0.0], np.cumsum(power)])
    at = np.arange(side, count - side)
    before = 10 * np.log10((sums[at] - sums[at - side]) / side)
    after = 10 * np.log10((sums[at + side] - sums[at]) / side)
    smooth = 10 * np.log10(np.convolve(power, np.full(_SMOOTHED_FRAMES, 1 / _SMOOTHED_FRAMES), "same"))
    changes = np.zeros(count, dtype=bool)
    changes[at] = (np.abs(before - after) >= CHANGE_DB) & (smooth[at] < np.minimum(before, after) - PAUSE_DB)
    parts: list[Span] = []
    start = 0
    for pause_start, pause_stop in _longest_apart(changes, side):
        parts.append((start, pause_start * hop))
        start = pause_stop * hop
    return [*parts, (start, len(samples))]


def _longest_apart(marked: NDArray[np.bool_], least: int) -> list[Span]:
    """Return the runs of marked frames; of those less than `least` frames apart, the longest."""
    runs: list[Span] = []
    for start, stop in true_runs(marked).tolist():
        if not runs or start - runs[-1][1] >= least:
            runs.append((start, stop))
        elif stop - start > runs[-1][1] - runs[-1][0]:
            runs[-1] = (start, stop)
    return runs
