"""What a person at a terminal sees: times, and how far a transcription has come."""

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from engine_bridge.transcription import Progress


def clock(seconds: float) -> str:
    """Return a time as 0:01:02.34: hours, minutes, seconds and hundredths."""
    hundredths = round(seconds * 100)
    minutes, hundredths = divmod(hundredths, 6000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{hundredths // 100:02d}.{hundredths % 100:02d}"


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
