"""A stretch of a recording that an engine takes in one piece."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from audio.positions import seconds_from_samples

Span = tuple[int, int]
"""A half-open interval ``[start, stop)`` of sample positions in the recording."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """One piece of a recording. The chunks of a recording tile it: each starts where the one before stops.

    Attributes
    ----------
    index : int
        Position among the recording's chunks, from 0.
    start, stop : int
        The half-open interval ``[start, stop)`` of the recording that this chunk stands for, in samples at
        `sample_rate`. Silence that was left out counts.
    sample_rate : int
        Samples per second.
    samples : ndarray, shape (frames,), float32 in [-1, 1]
        What the engine is given: the samples of `kept`, one span after the other.
    kept : tuple of (start, stop)
        The spans of the recording that `samples` holds, ascending, within ``[start, stop)``. One span equal to
        ``(start, stop)`` when no silence was left out; none when the whole chunk is left out.
    speech : tuple of (start, stop)
        The stretches of speech found in this chunk, ascending, in samples of the recording.
    forced : bool
        Whether the cut at `stop` had to be made inside speech because no pause was in reach.

    """

    index: int
    start: int
    stop: int
    sample_rate: int
    samples: NDArray[np.float32]
    kept: tuple[Span, ...]
    speech: tuple[Span, ...] = ()
    forced: bool = False

    @property
    def start_seconds(self) -> float:
        """Where the chunk starts in the recording, in seconds."""
        return seconds_from_samples(self.start, self.sample_rate)

    @property
    def stop_seconds(self) -> float:
        """Where the chunk stops in the recording, in seconds."""
        return seconds_from_samples(self.stop, self.sample_rate)

    @property
    def duration(self) -> float:
        """Length of the recording that the chunk stands for, in seconds."""
        return seconds_from_samples(self.stop - self.start, self.sample_rate)

    def moved(self, samples: int) -> "Chunk":
        """Return the chunk with all its positions later by so many samples, as in a recording read from there on."""
        if not samples:
            return self
        return replace(
            self,
            start=self.start + samples,
            stop=self.stop + samples,
            kept=tuple((start + samples, stop + samples) for start, stop in self.kept),
            speech=tuple((start + samples, stop + samples) for start, stop in self.speech),
        )

    def recording_position(self, frame: int, *, ending: bool = False) -> int:
        """Return the recording's sample position of a frame of `samples`.

        Parameters
        ----------
        frame : int
            A position in `samples`, from 0 to its length; values beyond are clamped.
        ending : bool
            At a seam between two kept spans a frame is both the end of the first and the start of the second. True
            gives the end of the first, as the end of a word wants it.

        """
        position = self.start
        passed = 0
        for start, stop in self.kept:
            length = stop - start
            offset = frame - passed
            if offset < length or (ending and offset == length):
                return start + max(offset, 0)
            position = stop
            passed += length
        return position

    def excerpt(self, first: int, last: int) -> "Chunk":
        """Return a part of this chunk as a chunk of its own.

        Parameters
        ----------
        first, last : int
            The part ``[first, last)`` in samples of the recording; clamped to the chunk.

        Returns
        -------
        Chunk
            With the samples, kept spans and speech that lie in the part.

        """
        first, last = max(first, self.start), min(last, self.stop)
        kept: list[Span] = []
        pieces = [self.samples[:0]]
        passed = 0
        for start, stop in self.kept:
            lower, upper = max(first, start), min(last, stop)
            if lower < upper:
                kept.append((lower, upper))
                pieces.append(self.samples[passed + lower - start : passed + upper - start])
            passed += stop - start
        inside = ((max(start, first), min(stop, last)) for start, stop in self.speech)
        speech = tuple((start, stop) for start, stop in inside if start < stop)
        return replace(
            self,
            start=first,
            stop=last,
            samples=np.concatenate(pieces),
            kept=tuple(kept),
            speech=speech,
            forced=self.forced and last == self.stop,
        )
