"""How loud a recording is, how loud its background is, and where somebody speaks: streaming, from energy alone.

Everything works on frames of 10 ms. Levels are measured on the difference between the waveform and itself 0.25 ms
earlier, a comb that passes 600 Hz to 3.4 kHz and holds back rumble, hum and the strong low end of room noise: what is
left of steady noise hardly fluctuates, so that speech a few decibels above it can be told from it. The background is
the quietest that the neighbourhood gets, and speech is what rises above it. In doubt a frame counts as speech.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from audio.errors import SplitError
from audio.running import (
    CELL_FRAMES,
    FloatArray,
    PagedFilter,
    cell_ranks,
    dilate,
    erode,
    lowest_nearby,
    true_runs,
    window_means,
)

FRAMES_PER_SECOND = 100
"""Frames a second: a frame is 10 ms, the usual step of speech analysis."""

SPEECH_EVIDENCE = 0.5
"""Evidence from which on a frame counts as speech."""

ONSET_FRAMES = 4
FADE_FRAMES = 22
DIP_FRAMES = 3
"""Frames before and behind speech, and of a dip within it, that are in doubt: the onset, and the end, which fades into
the background. They count as speech as well."""

DOUBT = 0.5
"""The evidence of what is in doubt."""

SILENCE_DB = -120.0
"""Level of a frame of zeros, in dB relative to full scale; nothing is quieter."""

_COMB_SECONDS = 0.00025
_LEAST_ENERGY, _BROKEN_ENERGY = 1e-12, 1e12
_TILE_FRAMES = 400  # what is worked on at a time stays in the processor's cache

_PAGE_FRAMES = 6000
_FLOOR_RANK = 4  # the background of a cell is the fifth quietest of its frames,
_REACH_CELLS = 10  # and that of a frame is the least of the cells within 5 s on either side
_CONTEXT_FRAMES = (_REACH_CELLS + 2) * CELL_FRAMES
_LOWEST_FLOOR_DB = -92.0  # near the rounding noise of 16-bit samples (-98 dB); below lies nothing worth hearing
# Speech is certain at 6 dB above the background for 60 ms; near it, 3 dB will do.
_CERTAIN_DB = 6.0
_POSSIBLE_DB = 3.0
_SHORTEST_FRAMES = 6
_NEAR_FRAMES = 25


def frame_length(sample_rate: int) -> int:
    """Return the samples in a frame of 10 ms, at least 1.

    Parameters
    ----------
    sample_rate : int
        Samples per second.

    Raises
    ------
    SplitError
        The sample rate is not positive.

    """
    if sample_rate <= 0:
        raise SplitError(f"sample_rate must be positive, not {sample_rate}: give the samples per second.")
    return max(1, round(sample_rate / FRAMES_PER_SECOND))


def mono_samples(samples: NDArray[np.generic]) -> FloatArray:
    """Return a waveform as float32, refusing anything but one channel.

    Raises
    ------
    SplitError
        The array is not one-dimensional, or not of floats.

    """
    waveform = np.asarray(samples)
    if waveform.dtype.kind != "f":
        raise SplitError(
            f"splitting takes float samples in [-1, 1], not {waveform.dtype}: divide integers by full scale."
        )
    if waveform.ndim != 1:
        raise SplitError(
            f"splitting takes one channel of shape (frames,), not an array of shape {waveform.shape}: "
            "reduce the channels first."
        )
    return np.ascontiguousarray(waveform, dtype=np.float32)


class EnvelopeMeter:
    """Measures the level of each frame of a stream: RMS in dB relative to full scale, after the 0.25 ms comb.

    The same samples give the same levels however they are cut into blocks.

    Parameters
    ----------
    sample_rate : int
        Samples per second of the stream.

    """

    def __init__(self, sample_rate: int) -> None:
        self._hop = frame_length(sample_rate)
        self._lag = min(max(1, round(sample_rate * _COMB_SECONDS)), self._hop)
        self._room = np.empty(_TILE_FRAMES * self._hop, np.float32)
        self._past = np.empty(0, np.float32)  # the last samples measured, for the comb
        self._begun = np.empty(0, np.float32)

    def feed(self, samples: NDArray[np.generic]) -> FloatArray:
        """Return the levels of the frames that these samples complete.

        Parameters
        ----------
        samples : ndarray, shape (frames,), float in [-1, 1]
            The next block, of any length.

        Returns
        -------
        ndarray, shape (n,), float32
            Levels in dB, at least -120.

        """
        block = mono_samples(samples)
        if not len(block):
            return np.empty(0, np.float32)
        if not len(self._past):
            self._past = np.full(self._lag, block[0], np.float32)
        frames = (len(self._begun) + len(block)) // self._hop
        energies = np.empty(frames, np.float32)
        done = 0
        if frames and len(self._begun):
            missing = self._hop - len(self._begun)
            self._measure(np.concatenate([self._begun, block[:missing]]), energies[:1])
            self._begun, block, done = block[:0], block[missing:], 1
        for first in range(done, frames, _TILE_FRAMES):
            last = min(first + _TILE_FRAMES, frames)
            begin, end = (first - done) * self._hop, (last - done) * self._hop
            self._measure(block[begin:end], energies[first:last])
        self._begun = np.concatenate([self._begun, block[(frames - done) * self._hop :]])
        return _decibels(energies)

    def finish(self) -> FloatArray:
        """Return the level of the last frame, shape (0,) or (1,), from the samples there are."""
        begun, self._begun = self._begun, self._begun[:0]
        if not len(begun):
            return np.empty(0, np.float32)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = begun - np.concatenate([self._past, begun])[: len(begun)]
            return _decibels(np.mean(difference * difference, keepdims=True))

    def _measure(self, samples: FloatArray, energies: FloatArray) -> None:
        """Write the mean squares of whole frames that directly follow those measured before."""
        count, lag = len(samples), self._lag
        difference = self._room[:count]
        with np.errstate(invalid="ignore", over="ignore"):  # broken samples are dealt with below
            np.subtract(samples[lag:], samples[: count - lag], out=difference[lag:])
            np.subtract(samples[:lag], self._past, out=difference[:lag])
            rows = difference.reshape(-1, self._hop)
            np.einsum("ij,ij->i", rows, rows, out=energies)
        energies /= np.float32(self._hop)
        self._past = samples[count - lag :].copy()


def _decibels(energies: FloatArray) -> FloatArray:
    """Return 10 log10 of mean squares; what is not a number counts as loud, since broken samples are no silence."""
    bounded = np.fmin(np.maximum(energies, np.float32(_LEAST_ENERGY)), np.float32(_BROKEN_ENERGY))
    # The logarithm of the least is not the same to the last bit on all processors.
    return np.maximum(np.log10(bounded) * np.float32(10), np.float32(SILENCE_DB))


def noise_floor(smooth: FloatArray) -> FloatArray:
    """Return the level of the background.

    Parameters
    ----------
    smooth : ndarray, shape (frames,), float32
        Levels in dB from `window_means`; a whole number of half seconds.

    Returns
    -------
    ndarray, shape (frames,), float32
        Levels in dB, at least -92.

    """
    (quiet,) = cell_ranks(smooth, _FLOOR_RANK)
    quietest = lowest_nearby(quiet, _REACH_CELLS)
    quietest[np.isinf(quietest)] = _LOWEST_FLOOR_DB
    return np.repeat(np.maximum(quietest, np.float32(_LOWEST_FLOOR_DB)), CELL_FRAMES)


class SpeechDetector(Protocol):
    """Tells frames with speech from frames without, as a stream.

    A detector is used for one recording. It may answer late, by a bounded number of frames, and in the end answers for
    exactly the frames it was given.
    """

    def feed(self, samples: FloatArray, levels: FloatArray) -> FloatArray:
        """Take the next samples and frames, and return the next frames that are decided.

        Parameters
        ----------
        samples : ndarray, shape (n,), float32 in [-1, 1]
            The next samples of the recording; all but the last block hold whole frames.
        levels : ndarray, shape (frames,), float32
            The levels of the frames they complete, in dB, from `EnvelopeMeter`.

        Returns
        -------
        ndarray, shape (decided,), float32 in [0, 1]
            Evidence of speech for the next frames not answered yet; 0.5 and above counts as speech.

        """

    def finish(self) -> FloatArray:
        """Return the frames that are still owed, as `feed` does."""


class EnergyDetector:
    """Finds speech as what rises above the background: the detector that needs nothing but numpy.

    The threshold follows the recording: the background is the quietest level within 5 s on either side, so that faint
    recordings, and faint speakers beside loud ones, are found like loud ones, while hum, steady noise and digital
    silence give nothing. Sound that changes, such as music, counts as speech. Answers come up to 66 s late.
    """

    def __init__(self) -> None:
        fill = np.full(1, SILENCE_DB, np.float32)
        self._filter = PagedFilter(_PAGE_FRAMES, _CONTEXT_FRAMES, fill, self._page)

    def feed(self, samples: FloatArray, levels: FloatArray) -> FloatArray:  # noqa: ARG002 (the protocol's signature)
        """Take the levels of the next frames; see `SpeechDetector.feed`. The samples are not needed."""
        return _joined(self._filter.feed(levels[:, np.newaxis]))

    def finish(self) -> FloatArray:
        """Return the frames that are still owed."""
        return _joined(self._filter.finish())

    @staticmethod
    def _page(rows: FloatArray) -> FloatArray:
        smooth = window_means(rows[:, 0])
        above = smooth - noise_floor(smooth)
        half = _SHORTEST_FRAMES // 2
        certain = erode(above >= _CERTAIN_DB, half, half)
        certain = dilate(certain, half, half)
        speech = certain | ((above >= _POSSIBLE_DB) & dilate(certain, _NEAR_FRAMES, _NEAR_FRAMES))
        wide = dilate(speech, ONSET_FRAMES + DIP_FRAMES, FADE_FRAMES + DIP_FRAMES)
        doubt = erode(wide, DIP_FRAMES, DIP_FRAMES)
        evidence = np.where(speech, np.float32(1), doubt * np.float32(DOUBT))
        return evidence[_CONTEXT_FRAMES:-_CONTEXT_FRAMES]


def _joined(pages: list[FloatArray]) -> FloatArray:
    return np.concatenate(pages) if pages else np.empty(0, np.float32)


def speech_stretches(
    waveform: NDArray[np.generic], sample_rate: int, *, detector: SpeechDetector | None = None
) -> list[tuple[int, int]]:
    """Find the stretches of speech in a recording held in memory.

    Parameters
    ----------
    waveform : ndarray, shape (frames,), float in [-1, 1]
        One channel.
    sample_rate : int
        Samples per second.
    detector : SpeechDetector, optional
        What decides; an `EnergyDetector` unless given.

    Returns
    -------
    list of (start, stop)
        Half-open intervals in samples, ascending, not touching.

    Raises
    ------
    SplitError
        The waveform is not one-dimensional or the sample rate is not positive.

    """
    hop = frame_length(sample_rate)
    meter = EnvelopeMeter(sample_rate)
    judge = EnergyDetector() if detector is None else detector
    samples = mono_samples(waveform)
    evidence = [judge.feed(samples, meter.feed(samples))]
    evidence.append(judge.feed(samples[:0], meter.finish()))
    evidence.append(judge.finish())
    speech = np.concatenate(evidence) >= SPEECH_EVIDENCE
    return [(int(start) * hop, min(int(stop) * hop, len(samples))) for start, stop in true_runs(speech)]
