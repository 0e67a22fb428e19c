"""FFmpeg's frames as blocks of one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from audio.decoders.array_decoder import scaled
from audio.decoders.protocol import Block

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame

_READABLE = {"u8", "s16", "s32", "flt", "dbl", "u8p", "s16p", "s32p", "fltp", "dblp"}
"""The sample formats that PyAV turns into arrays."""

_MOST_PLANES = 7
"""PyAV looks for the end of the planes behind the eighth, in memory that is not theirs, and crashes."""

_MOST_NOTES = 8
"""A stream that changes more often than this is reported no further."""

Form = tuple[int, int, str, str]
"""Sample rate, channels, layout and sample format."""


def form_of(frame: AudioFrame) -> Form:
    """Return what tells whether two frames can go through the same resampler."""
    return frame.sample_rate, frame.layout.nb_channels, frame.layout.name, frame.format.name


class FrameConverter:
    """Turns frames into blocks of the first frame's rate and channels, whatever the stream changes to.

    A resampler that is fed another layout than it was made for reads memory that is not its own. So every frame is
    compared with the one before, and each change gets a resampler of its own.

    Parameters
    ----------
    first : AudioFrame
        The first frame of the stream.

    Attributes
    ----------
    warnings : list of str
        The changes of rate or channels that were met.

    """

    def __init__(self, first: AudioFrame) -> None:
        self._rate = first.sample_rate
        self._layout = first.layout
        self._form = form_of(first)
        self._native = self._form[:2]
        self._resampler: Any = None
        self._frames = 0
        self.warnings: list[str] = []

    def convert(self, frame: AudioFrame) -> list[Block]:
        """Return the blocks that a frame gives, which may lag behind it by the length of a filter.

        Parameters
        ----------
        frame : AudioFrame
            The next frame of the stream. Its timestamp is lost.

        Returns
        -------
        list of ndarray, shape (frames, channels), float32
            None of them empty.

        """
        form = form_of(frame)
        blocks: list[Block] = []
        if form != self._form:
            blocks += self.flush()
            if form[:2] != self._form[:2]:
                self._note(form)
            self._form = form
        if (
            form[:2] == self._native
            and form[3] in _READABLE
            and not (frame.format.is_planar and form[1] > _MOST_PLANES)
        ):
            blocks.append(_samples(frame))
        else:
            blocks += self._resample(frame)
        self._frames += sum(len(block) for block in blocks)
        return [block for block in blocks if len(block)]

    def flush(self) -> list[Block]:
        """Return what the resampler in use still holds, and let go of it."""
        resampler, self._resampler = self._resampler, None
        if resampler is None:
            return []
        return [_samples(out) for out in resampler.resample(None) if out.samples]

    def _resample(self, frame: AudioFrame) -> list[Block]:
        import av

        if self._resampler is None:
            # Packed, so that the number of planes is always one.
            self._resampler = av.AudioResampler(format="flt", layout=self._layout, rate=self._rate)
        # At timestamps that jump the filter would insert silence or drop samples.
        frame.pts = None
        return [_samples(out) for out in self._resampler.resample(frame)]

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
        return np.ascontiguousarray(scaled(array).T)
    return scaled(array.reshape(-1, frame.layout.nb_channels))
