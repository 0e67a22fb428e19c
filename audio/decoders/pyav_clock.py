"""The container's clock: silence where it says that nothing sounds, and the way to a place in a file.

Timestamps are read in two ways. On the timeline "container" they say where each frame belongs. On the timeline "file"
they serve only to find a place again after a seek; time then counts from the first frame, whatever the container says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from audio.decoders.protocol import Block

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer

TOLERANCE_SECONDS = 0.1
"""What is off the clock by less is an encoder's delay or rounding, and no hole: 2257 samples of AAC at 44.1 kHz are
0.051 s, and broadcasts are timed to 0.04 s."""

LONGEST_HOLE_SECONDS = 6 * 3600.0
"""A jump ahead by more than this is a clock that was set anew, not a hole: six hours of silence would be no help."""

PREROLL_SECONDS = 1.0
"""How much is decoded before a range: MP3 looks back 511 bytes (0.5 s at 8 kbit/s), Opus 80 ms (RFC 7845, 4.6)."""

_MEETING_FRAMES = 64
"""After so many frames behind a seek without two that agree on where they are, the place counts as not found."""

_UNEVEN = frozenset({"vorbis", "wmav1", "wmavoice", "als", "tak"})
"""Codecs whose frames change in length from one to the next, though the first may be equal."""

_ROUGHEST_SECONDS = 0.0015
"""Matroska, Flash and ASF round times to milliseconds, the first frame's and the sought one's."""

# Containers whose zero is where the film begins. In others the clock may begin anywhere, so that the film begins with
# the earliest of its streams.
_ZERO_BASED = ("mov", "matroska")
_CLOCKED = (*_ZERO_BASED, "mpegts", "mpeg", "asf", "flv", "ogg", "nut", "mxf", "wtv", "rm", "gxf")


def time_of(frame: AudioFrame) -> float | None:
    """Return the second on the container's clock at which a frame begins, or None if it says nothing."""
    return None if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)


def is_clocked(container: str) -> bool:
    """Return whether a container, by FFmpeg's name for it, has a clock of its own, which more than audio may share."""
    return any(name in _CLOCKED for name in container.split(","))


def lead_of(container: InputContainer, first: AudioFrame | None) -> float:
    """Return how many seconds after time 0 the first frame begins, 0 where the container has no clock."""
    import av

    time = None if first is None else time_of(first)
    if time is None or not is_clocked(container.format.name):
        return 0.0
    zero_based = any(name in _ZERO_BASED for name in container.format.name.split(","))
    zero = 0.0 if zero_based or container.start_time is None else container.start_time / av.time_base
    lead = time - zero
    return lead if TOLERANCE_SECONDS < lead <= LONGEST_HOLE_SECONDS else 0.0


class Clock:
    """Compares what was decoded with the timestamps, and counts the silence that is due.

    Parameters
    ----------
    zero : float
        The time that is the recording's 0, in seconds on the container's clock.
    rate : int
        Frames per second of the audio that is given.
    position : int
        Frames from `zero` to what comes first.

    Attributes
    ----------
    silence : int
        Frames of silence found due so far.

    """

    def __init__(self, zero: float, rate: int, position: int = 0) -> None:
        self._zero = zero
        self._rate = rate
        self._position = float(position)
        self.silence = 0

    def silence_before(self, frame: AudioFrame) -> int:
        """Return the frames of silence due before a frame, and count both as given."""
        due = 0
        time = time_of(frame)
        if time is not None:
            ahead = time - self._zero - self._position / self._rate
            if TOLERANCE_SECONDS < ahead <= LONGEST_HOLE_SECONDS:
                due = round(ahead * self._rate)
            elif abs(ahead) > TOLERANCE_SECONDS:
                # The clock was set anew, as where broadcasts are joined: from here on it is read from here.
                self._zero += ahead
        self._position += due + frame.samples * self._rate / frame.sample_rate
        self.silence += due
        return due


def silent_blocks(frames: int, rate: int, channels: int) -> Iterator[Block]:
    """Yield so much silence, a second at a time."""
    for start in range(0, frames, rate):
        yield np.zeros((min(rate, frames - start), channels), np.float32)


@dataclass(frozen=True)
class Grid:
    """Where frames can begin, in frames from the recording's 0: all of one length, but for the first.

    Attributes
    ----------
    first : int
        Where the second frame of the recording begins.
    length : int
        Samples in each frame.

    """

    first: int
    length: int

    @staticmethod
    def of(frames: list[AudioFrame], codec: str, lead: int) -> Grid | None:
        """Return the grid of a recording's first frames, or None if its frames are not of one length."""
        lengths = {frame.samples for frame in frames[1:]}
        if codec in _UNEVEN or len(frames) < 3 or len(lengths) > 1:
            return None
        return Grid(lead + frames[0].samples, lengths.pop())

    def nearest(self, position: float, tolerance: float) -> int | None:
        """Return the place on the grid at a position, or None if it lies off the grid by more than a tolerance."""
        place = self.first + round((position - self.first) / self.length) * self.length
        return place if abs(place - position) <= tolerance else None


class Seeker:
    """Finds a place in a file by its timestamps.

    Parameters
    ----------
    stream : AudioStream
        The track.
    zero : float
        The time that is the recording's 0, in seconds on the container's clock.
    rate : int
        Samples per second.
    grid : Grid or None
        Where frames can begin, if they are of one length.
    rounds : bool
        Whether times that are rounded, and lie on no grid, are good enough: on the timeline "container" they are what
        there is.

    """

    def __init__(self, stream: AudioStream, zero: float, rate: int, grid: Grid | None, *, rounds: bool) -> None:
        self._stream = stream
        self._zero = zero
        self._rate = rate
        self._grid = grid
        base = stream.time_base
        self._exact = base is not None and (1 / (base * rate)).denominator == 1
        self._rounds = rounds

    def seek(self, container: InputContainer, start: int) -> bool:
        """Go to the pre-roll of a frame, and return whether there is a clock to go by."""
        base = self._stream.time_base
        if base is None or self._stream.codec_context is None:
            return False
        time = self._zero + start / self._rate - PREROLL_SECONDS
        container.seek(ceil(time / base), stream=self._stream, backward=True)
        return True

    def found(self, frames: Iterator[AudioFrame], start: int) -> tuple[int, Iterator[AudioFrame]] | None:
        """Return the place of the first frame that is certain, and the frames from there on.

        A frame's place is certain when it is where the one before ended. None if no place is, or it is behind `start`.
        """
        expected: int | None = None
        for number, frame in enumerate(frames):
            place = self._place(frame)
            if place is not None and place == expected:
                return (place, chain([frame], frames)) if place <= start else None
            if number >= _MEETING_FRAMES:
                return None
            expected = None if place is None else place + frame.samples
        return None

    def _place(self, frame: AudioFrame) -> int | None:
        time = time_of(frame)
        if time is None or frame.sample_rate != self._rate:
            return None
        position = (time - self._zero) * self._rate
        if self._exact:
            return round(position)
        if self._grid is not None:
            tolerance = min(_ROUGHEST_SECONDS * self._rate, self._grid.length / 2)
            place = self._grid.nearest(position, tolerance)
            if place is not None and frame.samples == self._grid.length:
                return place
        return round(position) if self._rounds else None
