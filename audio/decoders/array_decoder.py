"""Samples that are already decoded, brought to the form of decoded blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.decoders.base import DecoderBase
from audio.decoders.protocol import Block
from audio.info import AudioInfo, StreamInfo
from audio.source import ArrayAudio


def scaled(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Return samples of any real type as float32, with integers scaled to [-1, 1).

    Integers are divided by half their range, 2**(bits - 1), as FFmpeg and libsndfile do; unsigned ones are centred
    first.

    Parameters
    ----------
    samples : ndarray of float, or of integers of at most 32 bits
        Any shape, which is kept.

    """
    kind, bits = samples.dtype.kind, 8 * samples.dtype.itemsize
    if kind == "f":
        return samples.astype(np.float32, copy=False)
    half = 1 << (bits - 1)
    if kind == "u":
        return ((samples.astype(np.float64) - half) / half).astype(np.float32)
    # Multiplying by a power of two is exact, in either order.
    converted = samples.astype(np.float32)
    converted *= np.float32(1 / half)
    return converted


class ArrayDecoder(DecoderBase):
    """Cuts an array into blocks of one second.

    Parameters
    ----------
    audio : ArrayAudio
        The samples. A two-dimensional array is turned to (frames, channels) by the rules of `audio.channels`.

    Raises
    ------
    ChannelLayoutError
        The two dimensions cannot be told apart.

    """

    def __init__(self, audio: ArrayAudio) -> None:
        samples = audio.samples
        if samples.ndim == 1:
            samples = samples[:, np.newaxis]
        else:
            from audio.channels import to_frames_first

            samples = to_frames_first(samples)
        self._samples = samples
        codec, rate, channels = str(audio.samples.dtype), audio.sample_rate, samples.shape[1]
        super().__init__(
            AudioInfo(
                container="array",
                codec=codec,
                sample_rate=rate,
                channels=channels,
                channel_layout=None,
                claimed_duration=len(samples) / rate,
                start_time=0.0,
                streams=(StreamInfo(0, codec, rate, channels, default=True),),
                backend="array",
            )
        )

    def blocks(self) -> Iterator[Block]:
        """Yield one second at a time, converted as it goes."""
        for start in range(0, len(self._samples), self._info.sample_rate):
            yield np.ascontiguousarray(scaled(self._samples[start : start + self._info.sample_rate]))

    def close(self) -> None:
        """Do nothing: the array is the caller's."""
