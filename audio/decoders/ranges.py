"""A range of a recording, cut out of what a backend gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from audio.decoders.base import DecoderBase
from audio.decoders.protocol import Block, Decoder
from audio.errors import SelectionError
from audio.selection import Selection


class RangedDecoder(DecoderBase):
    """Gives exactly the frames of a range, of a decoder that begins at or before it.

    Its `AudioInfo.offset` is the first frame of the range, and its claimed duration that of the range.

    Parameters
    ----------
    decoder : Decoder
        What decodes. Its `AudioInfo.offset` says which frame it begins with.
    selection : Selection
        The range.
    source : str
        The source's name, for messages.

    """

    def __init__(self, decoder: Decoder, selection: Selection, source: str) -> None:
        info = decoder.info
        self._start, self._stop = selection.frames(info.sample_rate)
        claimed = info.claimed_duration
        if claimed is not None:
            end = claimed if self._stop is None else min(claimed, self._stop / info.sample_rate)
            claimed = end - self._start / info.sample_rate
        super().__init__(
            replace(info, offset=self._start, claimed_duration=claimed if claimed is None or claimed > 0 else None),
            decoder.doubt,
        )
        self._decoder = decoder
        self._wanted = selection
        self._source = source

    @property
    def warnings(self) -> list[str]:
        """What went wrong so far, one sentence each."""
        return self._decoder.warnings

    def blocks(self) -> Iterator[Block]:
        """Yield the range.

        Raises
        ------
        SelectionError
            The recording ends before the range begins.

        """
        position = self._decoder.info.offset
        earliest = self._wanted.start * self.info.sample_rate
        # What a resampler sees before the range is no sign that there is a range.
        held: list[Block] = []
        for block in self._decoder.blocks():
            begin = max(self._start - position, 0)
            end = len(block) if self._stop is None else min(self._stop - position, len(block))
            position += len(block)
            if begin < end:
                held.append(block[begin:end])
            if position > earliest:
                yield from held
                held.clear()
            if self._stop is not None and position >= self._stop:
                return
        if self._start > 0 and position <= earliest:
            raise outside(self._source, self._wanted, position / self.info.sample_rate)

    def close(self) -> None:
        """Let go of the source."""
        self._decoder.close()


def outside(source: str, wanted: Selection, end: float) -> SelectionError:
    """Return the error for a range that begins behind the end of a recording.

    Parameters
    ----------
    source : str
        The source's name.
    wanted : Selection
        The range.
    end : float
        Where the recording ends, in seconds.

    """
    return SelectionError(
        source, f"the range begins at {wanted.start:.2f} s, but the recording ends at {end:.2f} s: begin earlier"
    )
