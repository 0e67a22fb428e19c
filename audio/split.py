"""Chunks: a recording, whole or as a stream, taken apart in its pauses."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from audio.chunk import Chunk
from audio.chunker import Chunker, ChunkSettings
from audio.energy import FRAMES_PER_SECOND, EnergyDetector, SpeechDetector, frame_length
from audio.errors import SplitError
from audio.positions import samples_from_seconds
from audio.running import FloatArray

_SHORTEST_MARGIN = 0.1
_LONG_SILENCE_CHUNKS = 4
_LONGEST_KEPT = 60.0  # seconds: so much has to be looked ahead
_LARGEST_CELL = 25  # frames: a quarter of a second to each candidate cut
_LEAST_CHOICE = 8  # frames: candidates lie up to eight cells apart, and one must always be allowed
_LEAST_DURATION = 0.1


def split_audio(
    audio_data: NDArray[np.generic],
    sample_rate: float,
    max_clip_duration_s: float,
    overlap_duration_s: float,
    min_energy_window_size: int,
) -> list[FloatArray]:
    """Cut a waveform into clips at the quietest point near the end of each.

    Takes the arguments of vLLM's function of this name. Each clip but the last ends in the last `overlap_duration_s`
    before the limit, in the middle of the window with the least energy there; the first of equals counts.
    `stream_chunks` chooses better cuts, and says where its chunks lie.

    Parameters
    ----------
    audio_data : ndarray, shape (frames,)
        One channel.
    sample_rate : float
        Samples per second.
    max_clip_duration_s : float
        The longest clip, in seconds.
    overlap_duration_s : float
        How much of the end of a clip is searched, in seconds; less than `max_clip_duration_s`. The clips do not
        overlap.
    min_energy_window_size : int
        Samples in a window. Windows lie side by side, as many as fit whole; a search range shorter than a window is
        searched as one.

    Returns
    -------
    list of ndarray
        Views of `audio_data` that joined give it back exactly; none for an empty array.

    Raises
    ------
    SplitError
        The array is not one-dimensional, or the lengths cannot be satisfied.

    """
    waveform = np.asarray(audio_data)
    if waveform.ndim != 1:
        raise SplitError(
            f"split_audio takes one channel of shape (frames,), not an array of shape {waveform.shape}: "
            "reduce the channels first."
        )
    longest, overlap = _clip_lengths(sample_rate, max_clip_duration_s, overlap_duration_s)
    if min_energy_window_size < 1:
        raise SplitError(f"min_energy_window_size must be at least 1 sample, not {min_energy_window_size}.")
    clips = []
    start = 0
    while len(waveform) - start > longest:
        begin, end = start + longest - overlap, start + longest
        cut = begin + _quietest(waveform[begin:end], min_energy_window_size) if overlap else end
        clips.append(waveform[start:cut])
        start = cut
    if start < len(waveform):
        clips.append(waveform[start:])
    return clips


def _clip_lengths(sample_rate: float, longest_seconds: float, overlap_seconds: float) -> tuple[int, int]:
    """Return the longest clip and the search range in samples."""
    for name, value in (("sample_rate", sample_rate), ("max_clip_duration_s", longest_seconds)):
        if not 0 < value < math.inf:
            raise SplitError(f"{name} must be a positive number, not {value}.")
    if not 0 <= overlap_seconds < longest_seconds:
        raise SplitError(
            f"overlap_duration_s must be at least 0 and less than max_clip_duration_s ({longest_seconds} s), "
            f"not {overlap_seconds}."
        )
    longest, overlap = round(longest_seconds * sample_rate), round(overlap_seconds * sample_rate)
    if longest <= overlap:
        raise SplitError(
            f"a clip of {longest_seconds} s at {sample_rate} Hz has {longest} samples, no more than the {overlap} "
            "that are searched: allow longer clips or search less."
        )
    return longest, overlap


def _quietest(samples: NDArray[np.generic], window: int) -> int:
    """Return the middle of the window with the least energy."""
    window = min(window, len(samples))
    count = len(samples) // window
    rows = samples[: count * window].reshape(count, window).astype(np.float64)
    return int(np.argmin(np.einsum("ij,ij->i", rows, rows))) * window + window // 2


def stream_chunks(
    blocks: Iterable[NDArray[np.generic]],
    sample_rate: int,
    *,
    max_duration: float = 30.0,
    min_duration: float | None = None,
    keep_silence: float | None = None,
    detector: SpeechDetector | None = None,
) -> Iterator[Chunk]:
    """Cut a recording into chunks while it streams in.

    The cuts are planned together, several chunks ahead: in the longest pauses there are, with chunks as full as those
    allow. The chunks do not depend on how the recording is divided into blocks, they tile it, and what is held in
    memory does not grow with its length.

    Parameters
    ----------
    blocks : iterable of ndarray, shape (n,), float in [-1, 1]
        The recording's one channel, in blocks of any length. Blocks of less than a minute are copied, and may be
        overwritten once the next is asked for; the chunks' samples may be views of longer ones.
    sample_rate : int
        Samples per second.
    max_duration : float
        The most that a chunk's samples may last, in seconds, at least 0.1.
    min_duration : float, optional
        The least, in seconds, at most half of `max_duration`; a thirtieth of it unless given. Only the last chunk
        before the end, or before a long silence that is left out, may be shorter, if nothing else is possible.
    keep_silence : float, optional
        Shorten pauses to this many seconds, at most 60: half of it at the end of the speech before and half at the
        start of the speech after, though never less than 0.1 s each. Where more than four times `max_duration` is left
        out in one go, that becomes a chunk of its own, without samples. All silence is kept unless this is given.
    detector : SpeechDetector, optional
        What tells speech from pauses, unused so far, from `open_detector`; the energy unless given.

    Returns
    -------
    iterator of Chunk
        In the order of the recording; none for an empty recording.

    Raises
    ------
    SplitError
        At the call: lengths that contradict each other. While iterating: a block that is not one-dimensional.

    """
    settings = _settings(sample_rate, max_duration, min_duration, keep_silence)
    return _chunks(blocks, settings, EnergyDetector() if detector is None else detector)


def _settings(
    sample_rate: int, max_duration: float, min_duration: float | None, keep_silence: float | None
) -> ChunkSettings:
    hop = frame_length(sample_rate)
    if not _LEAST_DURATION <= max_duration < math.inf:
        raise SplitError(f"max_duration must be at least {_LEAST_DURATION} s, not {max_duration}.")
    least = max_duration / 30 if min_duration is None else min_duration
    if not 0 <= least <= max_duration / 2:
        raise SplitError(
            f"min_duration must be at least 0 and at most half of max_duration ({max_duration} s), not {min_duration}."
        )
    if keep_silence is not None and not 0 <= keep_silence <= _LONGEST_KEPT:
        raise SplitError(
            f"keep_silence must be 0 to {_LONGEST_KEPT:g} s, or None to keep all silence, not {keep_silence}."
        )
    longest = samples_from_seconds(max_duration, sample_rate)
    shortest = max(1, samples_from_seconds(least, sample_rate))
    frames = (longest - shortest) // hop
    if frames < _LEAST_CHOICE:
        raise SplitError(
            f"chunks of {shortest} to {longest} samples at {sample_rate} Hz leave no room to choose a cut: "
            "allow longer chunks."
        )
    margin = None
    if keep_silence is not None:
        margin = max(1, round(max(keep_silence / 2, _SHORTEST_MARGIN) * FRAMES_PER_SECOND))
    return ChunkSettings(
        sample_rate,
        hop,
        longest,
        shortest,
        min(max(frames // 100, 1), _LARGEST_CELL),
        margin,
        _LONG_SILENCE_CHUNKS * (longest // hop),
    )


def _chunks(
    blocks: Iterable[NDArray[np.generic]], settings: ChunkSettings, detector: SpeechDetector
) -> Iterator[Chunk]:
    chunker = Chunker(settings, detector)
    for block in blocks:
        yield from chunker.feed(block)
    yield from chunker.finish()
