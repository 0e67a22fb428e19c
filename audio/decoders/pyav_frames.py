"""FFmpeg's frames as blocks of one form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from audio.decoders.array_decoder import scaled
from audio.decoders.protocol import Block

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler

_READABLE = {"u8", "s16", "s32", "flt", "dbl", "u8p", "s16p", "s32p", "fltp", "dblp"}
"""The sample formats that PyAV turns into arrays."""

_MOST_PLANES = 7
"""PyAV looks for the end of the planes behind the eighth, in memory that is not theirs, and crashes."""

_MOST_NOTES = 8
"""A stream that changes more often than this is reported no further."""

_BATCH_SECONDS = 0.5
"""Frames, of a few milliseconds each, are joined to about this length before they become arrays: it costs a third."""

_LEAST_FRAMES = 1 << 12
"""At least so many frames are joined, whatever rate they state: at 1 Hz each would be handled on its own."""

Form = tuple[int, int, str]
"""Sample rate, channels and sample format."""


def form_of(frame: AudioFrame) -> Form:
    """Return what tells whether two frames can go through the same queue and resampler."""
    return frame.sample_rate, frame.layout.nb_channels, frame.format.name


class FrameConverter:
    """Turns frames into blocks of the first frame's rate and channels, whatever the stream changes to.

    A queue or resampler that is fed another layout than it was made for reads memory that is not its own. So every
    frame is compared with the one before, and each change gets new ones.

    Parameters
    ----------
    first : AudioFrame
        The first frame of the stream.

    Attributes
    ----------
    warnings : list of str
        The changes of rate or channels that were met.
    unconverted : int
        How much that was in another form, in pieces of a second at most, nothing brings to the first frame's; silence
        stands for it.

    """

    def __init__(self, first: AudioFrame) -> None:
        import av

        self._rate = first.sample_rate
        self._layout = first.layout
        self._form = form_of(first)
        self._native = self._form[:2]
        self._batch = max(round(_BATCH_SECONDS * self._rate), _LEAST_FRAMES)
        self._enough = min(self._batch, max(self._rate, _LEAST_FRAMES))
        self._new_queue = av.AudioFifo
        self._queue = av.AudioFifo()
        self._queued = 0
        self._resampler: AudioResampler | None = None
        self._frames = 0
        self.unconverted = 0
        self.warnings: list[str] = []

    def convert(self, frames: Iterable[AudioFrame]) -> Iterator[Block]:
        """Take frames and yield what is ready, half a second at a time.

        Parameters
        ----------
        frames : iterable of AudioFrame
            The next frames of the stream. Their timestamps are lost.

        Yields
        ------
        block : ndarray, shape (frames, channels), float32
            Not empty. What is less than half a second is held back.

        """
        for frame in frames:
            form = form_of(frame)
            if form != self._form:
                yield from self._changed_to(form)
            # At timestamps that jump the queue would fail, and the resampler insert silence or drop samples.
            frame.pts = None
            try:
                self._queue.write(frame)
            except ValueError:  # its time base has changed; asking each frame for it costs more than all the rest
                yield from self.flush()
                self._queue.write(frame)
            self._queued += frame.samples
            if self._queued >= self._enough:
                yield from self._drain()

    def _changed_to(self, form: Form) -> Iterator[Block]:
        """Yield what was held back, and begin with frames of another form."""
        yield from self.flush()
        if form[:2] != self._form[:2]:
            self._note(form)
        self._form = form
        self._enough = min(self._batch, max(form[0], _LEAST_FRAMES))

    def flush(self) -> Iterator[Block]:
        """Yield all that is held back, and begin afresh."""
        yield from self._drain()
        resampler, self._resampler = self._resampler, None
        if resampler is not None:
            yield from self._counted(resampler.resample(None))
        self._queue = self._new_queue()

    def _drain(self) -> Iterator[Block]:
        """Yield what is queued, at most about a second at a time where it has to be converted.

        A frame may state any rate: a thousand samples at 1 Hz, brought to the rate of the first frame, are a thousand
        seconds, which must not come at once.
        """
        self._queued = 0
        rate = self._form[0]
        piece = 0 if rate == self._rate else max(rate, _LEAST_FRAMES * rate // self._rate)  # 0 reads all of it
        while (frame := self._queue.read(piece, partial=True)) is not None:
            yield from self._converted(frame)

    def _converted(self, frame: AudioFrame) -> list[Block]:
        """Return a frame's samples, through the resampler where its form is not the first frame's."""
        import av

        rate, channels, sample_format = self._form
        crash = frame.format.is_planar and channels > _MOST_PLANES
        if (rate, channels) == self._native and sample_format in _READABLE and not crash:
            return self._counted([frame])
        if self._resampler is None:
            # Packed, so that the number of planes is always one.
            self._resampler = av.AudioResampler(format="flt", layout=self._layout, rate=self._rate)
        frame.pts = None
        try:
            return self._counted(self._resampler.resample(frame))
        except av.error.FFmpegError:  # what came out of a damaged packet may have channels in no order that is known
            self._resampler = None
            self.unconverted += 1
            silence = np.zeros((round(frame.samples * self._rate / rate), self._native[1]), np.float32)
            self._frames += len(silence)
            return [silence] if len(silence) else []

    def _counted(self, frames: list[AudioFrame]) -> list[Block]:
        blocks = [_samples(frame) for frame in frames if frame.samples]
        self._frames += sum(len(block) for block in blocks)
        return blocks

    def _note(self, form: Form) -> None:
        if len(self.warnings) < _MOST_NOTES:
            at = self._frames / self._rate
            self.warnings.append(
                f"from {at:.2f} s on the stream has {form[1]} channels at {form[0]} Hz; it was converted to "
                f"{self._native[1]} at {self._native[0]} Hz"
            )


def _samples(frame: AudioFrame) -> Block:
    """Return a frame as (frames, channels) float32, whether it is planar or packed, integer or float."""
    array = frame.to_ndarray()
    if frame.format.is_planar:
        return scaled(array).T
    return scaled(array.reshape(-1, frame.layout.nb_channels))
