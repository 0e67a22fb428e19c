"""Speech at one level before it reaches the engine.

A model that hears a loud and a quiet speaker in one clip writes down the loud one and skips the other. Raising the
quiet stretches to the level of the loud ones costs next to nothing and keeps them (measured: bench/quality.py, the
recording `levels`).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk, Span

MAX_GAIN = 16.0
"""Largest amplification (24 dB): enough for a far speaker beside a near one, too little to make noise loud."""

RAMP_SECONDS = 0.05
"""Length of the transition between two gains, in the pause before a stretch."""


def level_speech(chunk: Chunk) -> NDArray[np.float32]:
    """Return the chunk's samples, shape (frames,), with its quieter speech stretches raised to the loudest one's level.

    Levels are root mean squares over a stretch. Nothing is made quieter, and gains never let a stretch clip.
    """
    stretches = clip_stretches(chunk)
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
