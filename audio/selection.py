"""Which part of a recording is wanted: the track, the range of time, and the clock that times are read on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import gcd
from typing import Literal, get_args

from audio.errors import SelectionError
from audio.info import StreamInfo
from audio.languages import language_code
from audio.positions import samples_from_seconds

Timeline = Literal["file", "container"]
"""Where time 0 lies, and whether holes count.

"file": time 0 is the first sample that is decoded, and the samples follow each other. It is what every decoder gives,
so all backends agree on it. "container": time 0 is that of the container's clock, on which a film's pictures are shown
too. A track that begins late begins with silence, and holes between its packets are silence of their length.
"""

_KERNEL_SAMPLES = 512
"""Samples of the lower rate on either side of a place that a resampler may look at; the kernels here reach 400."""


@dataclass(frozen=True)
class Selection:
    """What is wanted of a recording.

    Attributes
    ----------
    track : int, str or None
        Number of the audio track among the container's audio tracks, from 0, or a language code. None takes the one
        that the container marks as default, else the first.
    start : float
        Seconds on the timeline at which to begin, at least 0.
    stop : float or None
        Seconds at which to stop; None for the end.
    timeline : {"file", "container"}
        The clock that times are read on.
    resampled_to : int or None
        Samples per second that the audio is converted to afterwards. The frames asked for then begin on an instant of
        both rates and reach further on either side, so that a resampler gives what it would give of the whole.

    Raises
    ------
    ValueError
        A value is not a track, a range or a timeline.

    """

    track: int | str | None = None
    start: float = 0.0
    stop: float | None = None
    timeline: Timeline = "file"
    resampled_to: int | None = None

    def __post_init__(self) -> None:
        if self.timeline not in get_args(Timeline):
            raise ValueError(f'the timeline {self.timeline!r} is not known: give "file" or "container"')
        if not (math.isfinite(self.start) and self.start >= 0):
            raise ValueError(f"the range begins at {self.start} s: give a time from 0 on")
        if self.stop is not None and not self.stop > self.start:
            raise ValueError(
                f"the range from {self.start} s to {self.stop} s holds nothing: let it stop after it begins"
            )
        if isinstance(self.track, int) and self.track < 0:
            raise ValueError(f"the track is {self.track}: audio tracks are numbered from 0")
        if isinstance(self.track, str) and not self.track.strip():
            raise ValueError("the track has an empty name: give its number or its language")

    @property
    def is_range(self) -> bool:
        """Whether only a range of time is wanted."""
        return self.start > 0 or self.stop is not None

    def frames(self, rate: int) -> tuple[int, int | None]:
        """Return the half-open range of frames that are wanted of a track.

        Parameters
        ----------
        rate : int
            Samples per second of the track.

        """
        if self.resampled_to is None or self.resampled_to == rate:
            stop = None if self.stop is None or math.isinf(self.stop) else samples_from_seconds(self.stop, rate)
            return samples_from_seconds(self.start, rate), stop
        target = self.resampled_to
        margin = _KERNEL_SAMPLES * -(-rate // target)
        common = rate // gcd(rate, target)
        begin, end = self.resampled_frames()
        first = max(begin * rate // target - margin, 0) // common * common
        return first, None if end is None else -(-end * rate // target) + margin

    def resampled_frames(self) -> tuple[int, int | None]:
        """Return the half-open range of samples that are wanted at the rate `resampled_to`."""
        target = self.resampled_to or 1
        stop = None if self.stop is None or math.isinf(self.stop) else samples_from_seconds(self.stop, target)
        return samples_from_seconds(self.start, target), stop


EVERYTHING = Selection()
"""The default track from beginning to end."""


def find_track(tracks: tuple[StreamInfo, ...], wanted: int | str | None, source: str) -> int:
    """Return the number of the wanted track among a container's audio tracks.

    Parameters
    ----------
    tracks : tuple of StreamInfo
        The container's audio tracks in its order; at least one.
    wanted : int, str or None
        As `Selection.track`. Of several tracks in a language, the default one is taken, else the first.
    source : str
        The source's name, for the message.

    Raises
    ------
    SelectionError
        There is no such track; the message lists those that there are.

    """
    numbers = range(len(tracks))
    if isinstance(wanted, int):
        numbers = range(wanted, min(wanted, len(tracks) - 1) + 1)
    found = [
        number
        for number in numbers
        if not isinstance(wanted, str) or language_code(tracks[number].language or "") == language_code(wanted)
    ]
    if not found:
        kind = f"number {wanted}" if isinstance(wanted, int) else f"in the language {wanted!r}"
        raise SelectionError(
            source, f"there is no audio track {kind}; it has {described(tracks)}: choose one by number or language"
        )
    return next((number for number in found if tracks[number].default), found[0])


def described(tracks: tuple[StreamInfo, ...]) -> str:
    """Return a container's audio tracks in words, such as "0 (aac, eng, default) and 1 (ac3, deu)"."""
    words = []
    for number, track in enumerate(tracks):
        notes = [track.codec, track.language, track.title, "default" if track.default else None]
        words.append(f"{number} ({', '.join(note for note in notes if note)})")
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def several_tracks(tracks: tuple[StreamInfo, ...], chosen: int) -> str:
    """Return the warning that one of several tracks was decoded without being asked for."""
    return (
        f"it has {len(tracks)} audio tracks, {described(tracks)}; number {chosen} was decoded: "
        "choose another by its number or language"
    )
