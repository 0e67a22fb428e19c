"""A whole recording as one array."""

import logging

import numpy as np
from numpy.typing import NDArray

from audio.decoders import open_decoder
from audio.limits import DecodeLimits
from audio.resample import check_rate, open_resampler
from audio.selection import Selection, Timeline
from audio.source import AudioSource, Source
from audio.stream import SPEECH_RATE, open_stream

logger = logging.getLogger(__name__)

_FIRST_CAPACITY = 1 << 20
_GROWTH = 1.125

_MOST_TRUSTED = 1 << 24
"""What a header claims is set aside at once up to this many samples (64 MiB), of which only those that come take
memory."""


class _Samples:
    """One growing array.

    It grows by an eighth at a time and in place, so that the peak stays near the size of the result; joining a list of
    blocks at the end would take twice that.

    Parameters
    ----------
    claimed : float or None
        How many seconds there may be.
    sample_rate : int
        Samples per second.

    """

    def __init__(self, claimed: float | None, sample_rate: int) -> None:
        expected = int(min((claimed or 0.0) * sample_rate + 1, _MOST_TRUSTED))
        self._buffer = np.empty(expected, dtype=np.float32)
        self._length = 0

    def append(self, samples: NDArray[np.float32]) -> None:
        stop = self._length + len(samples)
        if stop > len(self._buffer):
            capacity = max(stop, _FIRST_CAPACITY, int(len(self._buffer) * _GROWTH))
            self._buffer.resize(capacity, refcheck=False)
        self._buffer[self._length : stop] = samples
        self._length = stop

    def finish(self) -> NDArray[np.float32]:
        self._buffer.resize(self._length, refcheck=False)
        return self._buffer


def load_audio(
    path_or_bytes: AudioSource,
    *,
    sr: int | None = SPEECH_RATE,
    mono: bool = True,
    backend: str = "auto",
    limits: DecodeLimits | None = None,
    track: int | str | None = None,
    from_seconds: float = 0.0,
    to_seconds: float | None = None,
    timeline: Timeline = "file",
) -> tuple[NDArray[np.float32], int]:
    """Return a whole recording and its sample rate.

    For recordings of hours prefer `open_stream`, whose memory does not depend on the length. What a listener should
    know about the decoding, such as a truncated file, is logged as a warning.

    Parameters
    ----------
    path_or_bytes : path, bytes, binary file or (array, sample_rate)
        What to read.
    sr : int or None
        Samples per second to return; None keeps those of the source.
    mono : bool
        Whether to average the channels into one.
    backend : {"auto", "soundfile", "torchcodec", "pyav"}
        The decoder. A named one has no fallback.
    limits : DecodeLimits, optional
        What the decode may cost; `DecodeLimits.generous()` by default.
    track, from_seconds, to_seconds, timeline
        The part of the recording, as for `open_stream`.

    Returns
    -------
    waveform : ndarray, float32 in [-1, 1]
        Shape (frames,) if `mono`, otherwise (channels, frames).
    sample_rate : int
        Samples per second and channel.

    Raises
    ------
    ResampleError
        If `sr` or the source's sample rate cannot be converted.
    AudioError
        What `open_decoder` raises where the source cannot be decoded.

    """
    limits = limits if limits is not None else DecodeLimits.generous()
    source = Source.of(path_or_bytes, limits)
    rate = None if sr is None else check_rate(sr)
    selection = Selection(track, from_seconds, to_seconds, timeline, resampled_to=rate)
    load = _load_mono if mono else _load_channels
    waveform, sample_rate, warnings = load(source, rate, backend, limits, selection)
    for warning in warnings:
        logger.warning("%s: %s", source.name, warning)
    return waveform, sample_rate


def _load_mono(
    source: Source, sr: int | None, backend: str, limits: DecodeLimits, wanted: Selection
) -> tuple[NDArray[np.float32], int, list[str]]:
    """Return the mix of all channels."""
    with open_stream(
        source,
        sr,
        backend=backend,
        limits=limits,
        track=wanted.track,
        from_seconds=wanted.start,
        to_seconds=wanted.stop,
        timeline=wanted.timeline,
    ) as stream:
        samples = _Samples(stream.info.claimed_duration, stream.sample_rate)
        for block in stream:
            samples.append(block)
        return samples.finish(), stream.sample_rate, stream.warnings


def _load_channels(
    source: Source, sr: int | None, backend: str, limits: DecodeLimits, wanted: Selection
) -> tuple[NDArray[np.float32], int, list[str]]:
    """Return all channels, each resampled on its own."""
    with open_decoder(source, backend, limits=limits, selection=wanted) as decoder:
        source_rate = decoder.info.sample_rate
        sample_rate = source_rate if sr is None else sr
        resamplers = [open_resampler(source_rate, sample_rate) for _ in range(decoder.info.channels)]
        channels = [_Samples(decoder.info.claimed_duration, sample_rate) for _ in resamplers]
        for block in decoder.blocks():
            for index, (resampler, samples) in enumerate(zip(resamplers, channels, strict=True)):
                samples.append(resampler.process(block[:, index]))
        for resampler, samples in zip(resamplers, channels, strict=True):
            samples.append(resampler.flush())
        waveform = np.stack([samples.finish() for samples in channels])
        if wanted.is_range and sr is not None:
            begin = decoder.info.offset * sr // source_rate
            first, stop = wanted.resampled_frames()
            waveform = waveform[:, first - begin : None if stop is None else stop - begin]
        return waveform, sample_rate, decoder.warnings
