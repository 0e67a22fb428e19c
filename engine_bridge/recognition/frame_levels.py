"""How loud a chunk of a recording is, from one hundredth of a second to the next."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from audio.positions import seconds_from_samples

FRAME_SECONDS = 0.01
"""Length of the frames whose level is looked at."""

SILENCE_DB = -100.0
"""The level of frames that hold nothing."""

EMPHASIS = 0.95
"""Share of the sample before that is taken from each sample; two times it weakens 300 Hz by 42 dB against 4 kHz."""

BRIGHTER_DB = 10.0
"""By how much the high frequencies have to stand out more. In chunks of speech over chords or hum it was 17 to 30 dB in
the median of a recording, in all others at most 3, whether alone or in noise, and 9 in the worst chunk (recordings
made by `bench.recordings`, and those that they are made of)."""


@dataclass(frozen=True)
class Levels:
    """How loud a chunk is from frame to frame.

    Attributes
    ----------
    decibels : ndarray, shape (frames,), float32
        The level of each 10 ms in dBFS, smoothed over three of them.
    start : float
        Where the first frame begins, in seconds of the recording.
    bright : bool
        Whether they are those of the high frequencies alone.

    """

    decibels: NDArray[np.float32]
    start: float
    bright: bool = False

    @classmethod
    def of(cls, chunk: Chunk) -> "Levels":
        """Measure a chunk, over all frequencies, or over the high ones where its sounds stand out more there.

        They do under music and hum, whose power lies below 2 kHz; in noise, and alone, speech stands out by its vowels.
        """
        plain, bright = cls._measured(chunk, chunk.samples), cls._measured(chunk, _emphasised(chunk.samples))
        return replace(bright, bright=True) if bright.contrast > plain.contrast + BRIGHTER_DB else plain

    @classmethod
    def _measured(cls, chunk: Chunk, heard: NDArray[np.float32]) -> "Levels":
        hop = max(round(FRAME_SECONDS * chunk.sample_rate), 1)
        power = np.full(-(-(chunk.stop - chunk.start) // hop), np.nan, np.float32)
        passed = 0
        for start, stop in chunk.kept:
            samples = heard[passed : passed + stop - start]
            passed += stop - start
            frames = samples[: len(samples) // hop * hop].reshape(-1, hop)
            first = (start - chunk.start) // hop
            power[first : first + len(frames)] = np.einsum("ij,ij->i", frames, frames)[: len(power) - first] / hop
        # As quiet as the quietest of what was kept: a silence of other depth would shift what counts as loud.
        unknown = np.isnan(power)
        power[unknown] = 0.0 if unknown.all() else np.percentile(power[~unknown], 10)
        padded = np.concatenate([power[:1], power, power[-1:]])
        smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
        decibels = 10 * np.log10(smooth + np.float32(10 ** (SILENCE_DB / 10)))
        return cls(decibels.astype(np.float32), seconds_from_samples(chunk.start, chunk.sample_rate))

    @property
    def contrast(self) -> float:
        """By how many decibels the loud frames stand above the quiet ones."""
        low, high = np.percentile(self.decibels, (10, 95)) if len(self.decibels) else (0.0, 0.0)
        return float(high - low)

    @property
    def end(self) -> float:
        """Where the last frame ends, in seconds of the recording."""
        return self.start + len(self.decibels) * FRAME_SECONDS

    def frame(self, seconds: float) -> int:
        """Return the frame at a time, within the chunk."""
        return min(max(round((seconds - self.start) / FRAME_SECONDS), 0), len(self.decibels))

    def time(self, frame: int) -> float:
        """Return where a frame begins, in seconds of the recording."""
        return self.start + frame * FRAME_SECONDS

    def between(self, start: float, end: float) -> NDArray[np.float32]:
        """Return the levels of a span of time."""
        return self.decibels[self.frame(start) : self.frame(end)]


def _emphasised(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a waveform with its high frequencies raised: a first difference, as codecs take it, two times."""
    for _ in range(2):
        samples = np.concatenate([samples[:1], samples[1:] - np.float32(EMPHASIS) * samples[:-1]])
    return samples
