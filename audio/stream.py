"""From a source to one channel of samples at one rate, block by block.

Channels are reduced before resampling: that is one channel to resample instead of several, and the result is the same.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from audio.ahead import Ahead
from audio.channels import ChannelReduction
from audio.decoders import Decoder, open_decoder
from audio.errors import DecodeError
from audio.info import AudioInfo
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.mixing import ChannelChoice, Mixer, check_choice
from audio.positions import seconds_from_samples
from audio.resample import Implementation, check_implementation, check_rate, open_resampler
from audio.selection import EVERYTHING, Selection, Timeline
from audio.source import AudioSource

SPEECH_RATE = 16_000
"""The sample rate of the pipeline, in Hz: that of Whisper and nearly every other speech model."""

_BLOCKS_AHEAD = 4
"""Blocks, of up to a second, that are decoded while the one before them is resampled."""


class MonoStream:
    """One channel of a source at one sample rate, as an iterator over blocks.

    Open it with `open_stream`. It is a context manager, and goes through the source once.

    Parameters
    ----------
    decoder : Decoder
        What gives the blocks; it is closed with the stream.
    sample_rate : int or None
        Samples per second to give; None keeps those of the decoder.
    reduction : ChannelReduction, "left", "right" or int
        How several channels become one, or which of them is taken.
    resampler : {"auto", "soxr", "pyav", "scipy", "torchaudio"}
        The library that changes the sample rate.
    selection : Selection
        What the decoder was asked for. Of what it gives around a range, for the resampler, nothing is given on.

    Raises
    ------
    ChannelLayoutError
        The source has no such channel.
    ResampleError
        The source's rate cannot be converted.

    Attributes
    ----------
    info : AudioInfo
        What the source claims.
    sample_rate : int
        Samples per second of the blocks.
    offset : int
        The first sample's position in the recording, in samples; above 0 where a range of time was asked for.
    frames : int
        Samples yielded so far.

    """

    def __init__(
        self,
        decoder: Decoder,
        sample_rate: int | None,
        reduction: ChannelChoice,
        resampler: Implementation,
        selection: Selection = EVERYTHING,
    ) -> None:
        info: AudioInfo = decoder.info
        self.info = info
        self.sample_rate = info.sample_rate if sample_rate is None else sample_rate
        self.frames = 0
        self._decoder = decoder
        self._mixer = Mixer(reduction, info.channels, info.channel_layout, info.sample_rate)
        self._resampler = open_resampler(info.sample_rate, self.sample_rate, implementation=resampler)
        # Before a range the decoder begins on an instant of both rates, so this is exact.
        begin = info.offset * self.sample_rate // info.sample_rate
        self.offset, self._stop = begin, None
        if selection.is_range and selection.resampled_to is not None:
            self.offset, self._stop = selection.resampled_frames()
        self._unwanted = self.offset - begin
        # Channels are mixed where they were decoded, while they are in that core's cache.
        mixed = map(self._mixer.mix, decoder.blocks())
        # Where nothing is resampled there is nothing to do side by side.
        self._ahead = None if info.sample_rate == self.sample_rate else Ahead(mixed, _BLOCKS_AHEAD, "auricle-blocks")
        self._blocks = self._resampled(mixed if self._ahead is None else self._ahead)

    @property
    def duration(self) -> float:
        """Seconds yielded so far; at the end, the recording's length."""
        return seconds_from_samples(self.frames, self.sample_rate)

    @property
    def warnings(self) -> list[str]:
        """What the listener should know, one sentence each; complete when the blocks are exhausted."""
        return [*self._decoder.warnings, *self._mixer.warnings]

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        """Iterate over blocks of shape (frames,), float32, none of them empty.

        Raises
        ------
        DecodeError
            If the decoder cannot go on; what it gave before has been yielded to the last sample.

        """
        return self._blocks

    def _resampled(self, mixed: Iterator[NDArray[np.float32]]) -> Iterator[NDArray[np.float32]]:
        failure: DecodeError | None = None
        try:
            for block in mixed:
                yield from self._counted(self._resampler.process(block))
        except DecodeError as error:
            failure = error
        yield from self._counted(self._resampler.flush())
        if failure is not None:
            raise failure

    def _counted(self, samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
        """Yield the samples that are wanted, unless there are none."""
        if self._unwanted:
            before = min(self._unwanted, len(samples))
            self._unwanted -= before
            samples = samples[before:]
        if self._stop is not None:
            samples = samples[: max(self._stop - self.offset - self.frames, 0)]
        if len(samples):
            self.frames += len(samples)
            yield samples

    def close(self) -> None:
        """Let go of the source. It may be called at any time and more than once."""
        if self._ahead is not None:
            self._ahead.close()
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
    reduction: ChannelChoice = ChannelReduction.MEAN,
    resampler: Implementation = "auto",
    limits: DecodeLimits | None = None,
    track: int | str | None = None,
    from_seconds: float = 0.0,
    to_seconds: float | None = None,
    timeline: Timeline = "file",
    workers: int = 1,
    isolation: Isolation | None = None,
) -> MonoStream:
    """Open a source as a stream of one channel.

    All arguments are checked, and the beginning is decoded, before this returns. Memory does not depend on the length.

    A range of time gives the very samples that the whole recording has there: all of them for lossless codecs, to
    within 1e-3 of full scale for lossy ones, whose decoders carry some state on. Its cost does not depend on where it
    begins, but for formats without an index, such as MP3, whose bytes before it are read and not decoded, and for the
    few that cannot be entered exactly, which a warning tells. On the timeline "file", a range in a container whose
    clock has holes before it begins early by their length; on "container" it does not.

    Parameters
    ----------
    source : path, bytes, binary file or (array, sample_rate)
        What to read.
    sample_rate : int or None
        Samples per second to give; None keeps those of the source.
    backend : {"auto", "soundfile", "torchcodec", "pyav"}
        The decoder. A named one has no fallback.
    reduction : ChannelReduction, "left", "right" or int
        How several channels become one, or which of them is taken: by number from 0, "left" for 0 and "right" for 1.
        The mean of surround sound is weighted by its layout, where that is known (ITU-R BS.775). Where a mean or sum
        cancels, a channel that sounds is taken in its place, and a warning tells.
    resampler : {"auto", "soxr", "pyav", "scipy", "torchaudio"}
        The library that changes the sample rate, as for `open_resampler`.
    limits : DecodeLimits, optional
        What the decode may cost; `DecodeLimits.generous()` by default.
    track : int, str or None
        The audio track: its number among the audio tracks, from 0, or its language, such as "de", "deu" or "ger".
        None takes the one that the container marks as default, else the first, and warns if there are several.
    from_seconds, to_seconds : float, float or None
        The range of time, in seconds on the timeline; from beginning to end by default.
    timeline : {"file", "container"}
        Where time 0 is. "file": at the first sample; the rest follows without holes. "container": at the zero of the
        container's clock, so that times fit a film's pictures; what the clock leaves without audio, at the beginning
        or between, is silence.
    workers : int
        How many threads decode a recording of over a minute, in several places at once, as for `open_decoder`.
    isolation : Isolation, optional
        Decode in a process of its own under these bounds, as for `open_decoder`; in this one by default.

    Returns
    -------
    stream : MonoStream
        A context manager that yields blocks of shape (frames,), float32.

    Raises
    ------
    ResampleError
        If `sample_rate` or that of the source cannot be converted, or the resampler is not known.
    ChannelLayoutError
        If the reduction is not known, or the source has no such channel.
    SelectionError
        If the source has no such track, or ends before the range begins; the latter may show only while reading.
    ValueError
        If the range holds no time, the timeline is not known, or `workers` is below 1.
    AudioError
        What `open_decoder` raises where the source cannot be decoded, and `BackendUnavailableError` where a named
        backend or resampler cannot be used on this machine.

    """
    if sample_rate is not None:
        sample_rate = check_rate(sample_rate)
    check_implementation(resampler)
    choice = check_choice(reduction)
    selection = Selection(track, from_seconds, to_seconds, timeline, resampled_to=sample_rate)
    decoder = open_decoder(source, backend, limits=limits, selection=selection, workers=workers, isolation=isolation)
    try:
        return MonoStream(decoder, sample_rate, choice, resampler, selection)
    except BaseException:
        decoder.close()
        raise
