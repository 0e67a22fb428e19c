"""From a source to one channel of samples at one rate, block by block.

Channels are reduced before resampling: that is one channel to resample instead of several, and the result is the same.
"""

from collections.abc import Iterator
from math import log10
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from audio.channels import AudioSpec, ChannelReduction, reduce_block
from audio.decoders import Decoder, open_decoder
from audio.errors import DecodeError
from audio.info import AudioInfo
from audio.limits import DecodeLimits
from audio.positions import seconds_from_samples
from audio.resample import Implementation, check_implementation, check_rate, open_resampler
from audio.source import AudioSource

SPEECH_RATE = 16_000
"""The sample rate of the pipeline, in Hz: that of Whisper and nearly every other speech model."""

CANCELLATION_RATIO = 1e-3
"""Energy of the mix against the mean energy of its channels below which they are taken to cancel each other: 30 dB.
One sounding channel among 64 silent ones stays 18 dB down."""


class MonoStream:
    """One channel of a source at one sample rate, as an iterator over blocks.

    Open it with `open_stream`. It is a context manager, and goes through the source once.

    Parameters
    ----------
    decoder : Decoder
        What gives the blocks; it is closed with the stream.
    sample_rate : int or None
        Samples per second to give; None keeps those of the decoder.
    reduction : ChannelReduction
        How several channels become one.
    resampler : {"auto", "soxr", "pyav", "scipy", "torchaudio"}
        The library that changes the sample rate.

    Attributes
    ----------
    info : AudioInfo
        What the source claims.
    sample_rate : int
        Samples per second of the blocks.
    frames : int
        Samples yielded so far.

    """

    def __init__(
        self, decoder: Decoder, sample_rate: int | None, reduction: ChannelReduction, resampler: Implementation
    ) -> None:
        self.info: AudioInfo = decoder.info
        self.sample_rate = decoder.info.sample_rate if sample_rate is None else sample_rate
        self.frames = 0
        self._decoder = decoder
        self._reduction = reduction
        self._resampler = open_resampler(self.info.sample_rate, self.sample_rate, implementation=resampler)
        self._mix_energy = 0.0
        self._channel_energy = 0.0
        self._blocks = self._mono_blocks()

    @property
    def duration(self) -> float:
        """Seconds yielded so far; at the end, the recording's length."""
        return seconds_from_samples(self.frames, self.sample_rate)

    @property
    def warnings(self) -> list[str]:
        """What the listener should know, one sentence each; complete when the blocks are exhausted."""
        found = list(self._decoder.warnings)
        if self._mix_energy < CANCELLATION_RATIO * self._channel_energy:
            if self._mix_energy > 0:
                level = -10 * log10(self._mix_energy / self._channel_energy)
                loss = f"the mix is {level:.0f} dB below them"
            else:
                loss = "the mix is silent"
            found.append(f"the channels cancel each other ({loss}): use the first channel alone instead")
        return found

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        """Iterate over blocks of shape (frames,), float32, none of them empty.

        Raises
        ------
        DecodeError
            If the decoder cannot go on; what it gave before has been yielded to the last sample.

        """
        return self._blocks

    def _mono_blocks(self) -> Iterator[NDArray[np.float32]]:
        failure: DecodeError | None = None
        try:
            for block in self._decoder.blocks():
                yield from self._counted(self._resampler.process(self._reduced(block)))
        except DecodeError as error:
            failure = error
        yield from self._counted(self._resampler.flush())
        if failure is not None:
            raise failure

    def _reduced(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a block's mix, and watch whether its channels cancel."""
        mono = reduce_block(block, self._reduction)
        channels = block.shape[1]
        if channels > 1 and self._reduction in (ChannelReduction.MEAN, ChannelReduction.SUM):
            flat = np.ascontiguousarray(block).reshape(-1)
            self._channel_energy += float(np.dot(flat, flat)) / channels
            self._mix_energy += float(np.dot(mono, mono))
        return mono

    def _counted(self, samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Yield samples unless there are none."""
        if len(samples):
            self.frames += len(samples)
            yield samples

    def close(self) -> None:
        """Let go of the source. It may be called at any time and more than once."""
        self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


def open_stream(
    source: AudioSource,
    sample_rate: int | None = SPEECH_RATE,
    *,
    backend: str = "auto",
    reduction: ChannelReduction = ChannelReduction.MEAN,
    resampler: Implementation = "auto",
    limits: DecodeLimits | None = None,
) -> MonoStream:
    """Open a source as a stream of one channel.

    All arguments are checked, and the beginning is decoded, before this returns. Memory does not depend on the length.

    Parameters
    ----------
    source : path, bytes, binary file or (array, sample_rate)
        What to read.
    sample_rate : int or None
        Samples per second to give; None keeps those of the source.
    backend : {"auto", "soundfile", "torchcodec", "pyav"}
        The decoder. A named one has no fallback.
    reduction : ChannelReduction
        How several channels become one.
    resampler : {"auto", "soxr", "pyav", "scipy", "torchaudio"}
        The library that changes the sample rate, as for `open_resampler`.
    limits : DecodeLimits, optional
        What the decode may cost; `DecodeLimits.generous()` by default.

    Returns
    -------
    stream : MonoStream
        A context manager that yields blocks of shape (frames,), float32.

    Raises
    ------
    ResampleError
        If `sample_rate` or that of the source cannot be converted, or the resampler is not known.
    ChannelLayoutError
        If the reduction is not known.
    AudioError
        What `open_decoder` raises where the source cannot be decoded, and `BackendUnavailableError` where a named
        backend or resampler cannot be used on this machine.

    """
    if sample_rate is not None:
        sample_rate = check_rate(sample_rate)
    check_implementation(resampler)
    spec = AudioSpec(target_channels=1, channel_reduction=reduction)
    decoder = open_decoder(source, backend, limits=limits)
    try:
        return MonoStream(decoder, sample_rate, spec.channel_reduction, resampler)
    except BaseException:
        decoder.close()
        raise
