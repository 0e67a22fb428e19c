"""How loud a recording is, how loud its background is, and where somebody speaks: streaming, from energy alone.

Everything works on frames of 10 ms. Levels are measured on the difference between the waveform and itself 0.25 ms
earlier, a comb that passes 600 Hz to 3.4 kHz and holds back rumble, hum and the strong low end of room noise: what is
left of steady noise hardly fluctuates, so that speech a few decibels above it can be told from it. The background is
the quietest that the neighbourhood gets, and speech is what rises above it. In doubt a frame counts as speech.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from audio.errors import SplitError

FloatArray = NDArray[np.float32]

FRAMES_PER_SECOND = 100
"""Frames a second: a frame is 10 ms, the usual step of speech analysis."""

SILENCE_DB = -120.0
"""Level of a frame of zeros, in dB relative to full scale; nothing is quieter."""

_COMB_SECONDS = 0.00025
_TILE_SECONDS = 4  # samples per pass that stay in the processor's cache

_PAGE_FRAMES = 3000
_CELL_FRAMES = 50  # the background is looked for in every half second ...
_CELL_RANK = 4  # ... as the fifth quietest of its frames ...
_REACH_CELLS = 10  # ... and is the quietest within 5 s on either side.
_EDGE_CELLS = 2
_CONTEXT_FRAMES = (_REACH_CELLS + _EDGE_CELLS) * _CELL_FRAMES
_NO_SIGNAL_DB = -110.0  # digital silence says nothing about the background of the sound around it
_LOWEST_FLOOR_DB = -92.0  # near the rounding noise of 16-bit samples (-98 dB); below lies nothing worth hearing
_CERTAIN_DB = 6.0
_POSSIBLE_DB = 3.0
_SHORTEST_FRAMES = 4
_NEAR_FRAMES = 25
_PAD_FRAMES = 3
_BRIDGE_FRAMES = 5


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
        The array is not one-dimensional.

    """
    waveform = np.asarray(samples)
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
        self._lag = max(1, round(sample_rate * _COMB_SECONDS))
        self._tile = self._hop * FRAMES_PER_SECOND * _TILE_SECONDS
        self._held: FloatArray | None = None  # the comb's history, then the samples of the frame begun

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
        if self._held is None:
            self._held = np.full(self._lag, block[0], np.float32)
        joined = np.concatenate([self._held, block])
        whole = (len(joined) - self._lag) // self._hop * self._hop
        self._held = joined[whole:].copy()
        return self._levels(joined[: whole + self._lag])

    def finish(self) -> FloatArray:
        """Return the level of the last frame, shape (0,) or (1,), from the samples there are."""
        held, self._held = self._held, None
        if held is None or len(held) == self._lag:
            return np.empty(0, np.float32)
        difference = held[self._lag :] - held[: -self._lag]
        return _decibels(np.array([np.mean(difference * difference)], np.float32))

    def _levels(self, joined: FloatArray) -> FloatArray:
        frames = (len(joined) - self._lag) // self._hop
        energies = np.empty(frames, np.float32)
        step = self._tile // self._hop
        for first in range(0, frames, step):
            last = min(first + step, frames)
            begin, end = first * self._hop, last * self._hop
            difference = joined[begin + self._lag : end + self._lag] - joined[begin:end]
            rows = difference.reshape(last - first, self._hop)
            np.einsum("ij,ij->i", rows, rows, out=energies[first:last])
        return _decibels(energies / np.float32(self._hop))


def _decibels(energies: FloatArray) -> FloatArray:
    """Return 10 log10 of mean squares; what is not a number counts as full scale, as broken samples are no silence."""
    finite = np.nan_to_num(energies, nan=1.0, posinf=1.0)
    levels: FloatArray = 10 * np.log10(np.maximum(finite, np.float32(10 ** (SILENCE_DB / 10))))
    return levels


class PagedFilter:
    """Runs a function over a stream of rows in pages of fixed size, with context on both sides.

    As the pages lie at fixed positions and the function always sees arrays of one shape, what comes out does not
    depend on how the rows arrive.

    Parameters
    ----------
    page : int
        Rows worked on at a time.
    context : int
        Rows shown before and after the page.
    fill : ndarray, shape (columns,), float32
        The row that stands before the beginning and after the end.
    function : callable
        Takes ``(context + page + context, columns)`` and returns one row for each row of the page.

    """

    def __init__(self, page: int, context: int, fill: FloatArray, function: Callable[[FloatArray], FloatArray]) -> None:
        self._page = page
        self._context = context
        self._fill = fill
        self._function = function
        self._rows = [np.tile(fill, (context, 1))]
        self._count = context

    def feed(self, rows: FloatArray) -> list[FloatArray]:
        """Take rows, shape (n, columns), and return the results of the pages they complete."""
        self._rows.append(rows)
        self._count += len(rows)
        need = self._page + 2 * self._context
        if self._count < need:
            return []
        joined = np.concatenate(self._rows)
        results = []
        while len(joined) >= need:
            results.append(self._function(joined[:need]))
            joined = joined[self._page :]
        self._rows = [joined.copy()]
        self._count = len(joined)
        return results

    def finish(self) -> list[FloatArray]:
        """Return the results of the rows that are left."""
        left = self._count - self._context
        if left <= 0:
            return []
        padding = -left % self._page + self._context
        results = self.feed(np.tile(self._fill, (padding, 1)))
        surplus = padding - self._context
        if surplus:
            results[-1] = results[-1][:-surplus]
        return results


def smooth_levels(levels: FloatArray) -> FloatArray:
    """Return the level of the mean power over five frames, the same shape; the edges see zeros beyond them."""
    power = np.zeros(len(levels) + 4, np.float32)
    power[2:-2] = np.power(np.float32(10), levels / np.float32(10))
    total = power[:-4] + power[1:-3] + power[2:-2] + power[3:-1] + power[4:]
    result: FloatArray = 10 * np.log10(np.maximum(total / np.float32(5), np.float32(10 ** (SILENCE_DB / 10))))
    return result


def dilate(mask: NDArray[np.bool_], before: int, after: int) -> NDArray[np.bool_]:
    """Return where the mask is true within `before` positions later or `after` positions earlier.

    In other words, each true run is made longer by `before` at its start and by `after` at its end.
    """
    sums = np.zeros(len(mask) + before + after + 1, np.int32)
    np.cumsum(mask, out=sums[after + 1 : after + 1 + len(mask)])
    sums[after + 1 + len(mask) :] = sums[after + len(mask)]
    return sums[before + after + 1 :] > sums[: len(mask)]


def erode(mask: NDArray[np.bool_], before: int, after: int) -> NDArray[np.bool_]:
    """Return the mask with each true run made shorter by `before` at its start and by `after` at its end."""
    return ~dilate(~mask, after, before)


def rolling_extreme(values: FloatArray, reach: int, *, lowest: bool) -> FloatArray:
    """Return the least or greatest of each value and `reach` neighbours on both sides; the ends have none beyond."""
    edge = np.full(reach, np.inf if lowest else -np.inf, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([edge, values, edge]), 2 * reach + 1)
    result: FloatArray = windows.min(axis=1) if lowest else windows.max(axis=1)
    return result


def _cell_floor(smooth: FloatArray) -> FloatArray:
    """Return the background of each half second, in dB; infinite where there is no signal to tell it from."""
    cells = np.where(smooth < _NO_SIGNAL_DB, np.float32(np.inf), smooth).reshape(-1, _CELL_FRAMES)
    return np.partition(cells, _CELL_RANK, axis=1)[:, _CELL_RANK]


def noise_floor(smooth: FloatArray) -> FloatArray:
    """Return the background's level for each frame.

    Parameters
    ----------
    smooth : ndarray, shape (frames,), float32
        Levels in dB from `smooth_levels`; a whole number of half seconds.

    Returns
    -------
    ndarray, shape (frames,), float32
        Levels in dB, at least -92.

    """
    quietest = rolling_extreme(_cell_floor(smooth), _REACH_CELLS, lowest=True)
    known = np.where(np.isfinite(quietest), quietest, np.float32(_LOWEST_FLOOR_DB))
    return np.repeat(np.maximum(known, np.float32(_LOWEST_FLOOR_DB)), _CELL_FRAMES)


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
    silence give nothing. Sound that changes, such as music, counts as speech. Answers come up to 36 s late.
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
        smooth = smooth_levels(rows[:, 0])
        above = smooth - noise_floor(smooth)
        above[smooth < _NO_SIGNAL_DB] = 0
        certain = above >= _CERTAIN_DB
        half = _SHORTEST_FRAMES // 2
        certain = dilate(erode(certain, half, half), half, half)
        active = certain | ((above >= _POSSIBLE_DB) & dilate(certain, _NEAR_FRAMES, _NEAR_FRAMES))
        active = erode(dilate(active, _BRIDGE_FRAMES, _BRIDGE_FRAMES), _BRIDGE_FRAMES, _BRIDGE_FRAMES)
        active = dilate(active, _PAD_FRAMES, _PAD_FRAMES)
        return active[_CONTEXT_FRAMES:-_CONTEXT_FRAMES].astype(np.float32)


def _joined(pages: list[FloatArray]) -> FloatArray:
    return np.concatenate(pages) if pages else np.empty(0, np.float32)


def true_runs(mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the half-open index ranges where the mask is true, shape (runs, 2), ascending."""
    edges = np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


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
    speech = np.concatenate(evidence) >= 0.5
    return [(int(start) * hop, min(int(stop) * hop, len(samples))) for start, stop in true_runs(speech)]
