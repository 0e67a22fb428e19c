"""What a person at a terminal sees: times, what is in a file, what was lost, and how far a transcription has come."""

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audio.info import AudioInfo
    from engine_bridge.transcript import Transcript
    from engine_bridge.transcription import Progress

MOST_PLACES = 5
"""Places that are named in one line; of more their number is told."""


def clock(seconds: float) -> str:
    """Return a time as 0:01:02.34: hours, minutes, seconds and hundredths."""
    hundredths = round(seconds * 100)
    minutes, hundredths = divmod(hundredths, 6000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{hundredths // 100:02d}.{hundredths % 100:02d}"


def losses(transcript: "Transcript") -> "Iterator[str]":
    """Yield a sentence for speech without text and one for text that may be invented, with their places."""
    if transcript.gaps:
        seconds = sum(gap.end - gap.start for gap in transcript.gaps)
        places = [f"{clock(gap.start)} to {clock(gap.end)}" for gap in transcript.gaps]
        yield f"{seconds:.1f} s that may be speech have no text: {_first_of(places)}"
    suspects = [segment for segment in transcript.segments if segment.suspect]
    if suspects:
        places = [f"{clock(segment.start)} ({segment.suspect})" for segment in suspects]
        yield f"{len(suspects)} segments may be invented and are left out of the text: {_first_of(places)}"


def _first_of(places: list[str]) -> str:
    more = len(places) - MOST_PLACES
    return ", ".join(places[:MOST_PLACES]) + (f" and {more} more places" if more > 0 else "")


def description(info: "AudioInfo") -> "Iterator[str]":
    """Yield lines that tell what is in a file."""
    claimed = "unknown" if info.claimed_duration is None else clock(info.claimed_duration)
    yield f"container  {info.container}"
    yield f"codec      {info.codec}"
    yield f"rate       {info.sample_rate} Hz"
    yield f"channels   {info.channels}" + (f" ({info.channel_layout})" if info.channel_layout else "")
    yield f"duration   {claimed} (claimed)"
    yield f"starts at  {info.start_time:.3f} s"
    yield f"backend    {info.backend}"
    for stream in info.streams:
        notes = [part for part in (stream.language, stream.title, "default" if stream.default else None) if part]
        yield (
            f"stream {stream.index}   {stream.codec}, {stream.sample_rate} Hz, {stream.channels} channels"
            + (f" ({', '.join(notes)})" if notes else "")
        )


class ProgressBar:
    """Progress on standard error: audio time, speed, time left. It leaves nothing behind when it is closed.

    Parameters
    ----------
    title : str
        What goes before the figures.

    """

    def __init__(self, title: str) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(total=0, desc=title, bar_format="{desc}", leave=False, file=sys.stderr)
        self._title = title

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, progress: "Progress") -> None:
        """Show how far it has come."""
        total = f" of {clock(progress.total_seconds)[:-3]}" if progress.total_seconds else ""
        left = f", {clock(progress.seconds_left)[:-3]} left" if progress.seconds_left is not None else ""
        self._bar.set_description_str(
            f"{self._title}: {clock(progress.audio_seconds)[:-3]}{total}, {progress.speed:.0f}x{left}"
        )

    def hidden(self) -> AbstractContextManager[None]:
        """Make room for a line of text on standard output."""
        from tqdm import tqdm

        context: AbstractContextManager[None] = tqdm.external_write_mode(file=sys.stdout)
        return context


class StatusLine:
    """One line of progress on standard error, which leaves nothing behind when it is closed."""

    def __init__(self) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(total=0, bar_format="{desc}", leave=False, file=sys.stderr)

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        self._bar.set_description_str(text)

    def hidden(self) -> AbstractContextManager[None]:
        """Make room for a line of text."""
        from tqdm import tqdm

        context: AbstractContextManager[None] = tqdm.external_write_mode(file=sys.stdout)
        return context

    def close(self) -> None:
        """Take it off the screen. It may be called more than once."""
        self._bar.close()
