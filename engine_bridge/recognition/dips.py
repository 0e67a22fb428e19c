"""Where speech dips inside its stretches: pauses too short for the detector, which leaves nothing out in doubt.

Estimated times need more. A sentence that follows another after a tenth of a second is in the same stretch, yet the
level falls between the two.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from audio.energy import FRAMES_PER_SECOND, EnvelopeMeter, frame_length
from audio.positions import seconds_from_samples
from audio.running import true_runs
from engine_bridge.recognition.edges import Seconds, speech_edges
from engine_bridge.recognition.frame_levels import Levels
from engine_bridge.recognition.stitch import speech_seconds

DIP_DB = 10.0
SHORTEST_DIP = 10
"""How far below its stretch's level a dip is, in dB, and how long it is at the least, in frames of 10 ms. With these
the ends of sentences are found in speech without pauses (bench/quality.py, the recording `dense`)."""

_LEVEL_PERCENTILE = 60  # of a stretch's frames: the level of its vowels
_SMOOTHED_FRAMES = 3
_SHORTEST_SOUND = 5  # frames: what sounds shorter between two dips is part of the dip
_ENDING_FRAMES = 40  # a dip this close to a stretch's end is its last sound fading


def fitted_speech(chunk: Chunk) -> list[Seconds]:
    """Return a chunk's stretches of speech from their first sound to their last, in seconds of the recording."""
    return speech_edges(speech_seconds(chunk), Levels.of(chunk))


def voiced_seconds(chunk: Chunk, fitted: Sequence[Seconds] | None = None) -> list[Seconds]:
    """Return where a chunk's speech sounds: its stretches, fitted to the sound, without the dips in them.

    Parameters
    ----------
    chunk : Chunk
        Its samples are looked at.
    fitted : sequence of (start, end), optional
        What `fitted_speech` gives, where it is at hand.

    Returns
    -------
    list of (start, end)
        In seconds of the recording, ascending.

    """
    levels = _levels(chunk)
    rate, hop = chunk.sample_rate, frame_length(chunk.sample_rate)
    voiced: list[Seconds] = []
    for (start, stop), (begin, end) in zip(
        chunk.speech, fitted_speech(chunk) if fitted is None else fitted, strict=True
    ):
        passed = 0
        for kept_start, kept_stop in chunk.kept:
            first, last = max(start, kept_start), min(stop, kept_stop)
            origin = seconds_from_samples(first, rate)
            inside = levels[(passed + first - kept_start) // hop : (passed + last - kept_start) // hop]
            for dip_start, dip_stop in _dips(inside) if first < last else []:
                quiet = origin + dip_start / FRAMES_PER_SECOND, origin + dip_stop / FRAMES_PER_SECOND
                if begin < quiet[0] and quiet[1] < end:
                    voiced.append((begin, quiet[0]))
                    begin = quiet[1]
            passed += kept_stop - kept_start
        voiced.append((begin, end))
    return voiced


def _levels(chunk: Chunk) -> NDArray[np.float64]:
    """Return the level of each frame of the chunk's samples in dB, shape (frames,)."""
    meter = EnvelopeMeter(chunk.sample_rate)
    levels = np.concatenate([meter.feed(chunk.samples), meter.finish()]).astype(np.float64)
    if not len(levels):
        return levels
    window = np.full(_SMOOTHED_FRAMES, 1 / _SMOOTHED_FRAMES)
    smooth: NDArray[np.float64] = 10 * np.log10(np.convolve(10 ** (levels / 10), window, "same"))
    return smooth


def _dips(levels: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the dips in a stretch as half-open intervals of frames."""
    if not len(levels):
        return []
    quiet = levels < np.percentile(levels, _LEVEL_PERCENTILE) - DIP_DB
    dips: list[tuple[int, int]] = []
    for start, stop in true_runs(quiet).tolist():
        if dips and start - dips[-1][1] < _SHORTEST_SOUND:
            dips[-1] = (dips[-1][0], stop)
        else:
            dips.append((start, stop))
    return [
        (start, stop)
        for start, stop in dips
        if stop - start >= SHORTEST_DIP and start >= _SHORTEST_SOUND and stop <= len(levels) - _ENDING_FRAMES
    ]
