"""One recording of a job: what it is, which part of it is wanted, and how it differs from the job's own settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audio.source import AudioSource


@dataclass(frozen=True)
class Recording:
    """One entry of a job.

    Attributes
    ----------
    id : str
        Names it in results, reports and the journal; unique within a job.
    source : path, address, bytes, binary file object, or (array, sample rate)
        What is decoded. A string with "://" is an address that is opened through fsspec.
    language : str or None
        ISO 639-1 code; None takes the job's.
    channels : str, int or None
        How its channels become one, which of them is taken, or "each"; None takes the job's.
    track : int, str or None
        The audio track, by number or language; None takes the job's.
    from_seconds, to_seconds : float or None
        The range of time; None takes the job's.
    priority : int
        Recordings with a higher one are begun earlier.
    extra : mapping
        What else its manifest said of it; results carry it on.

    """

    id: str
    source: AudioSource
    language: str | None = None
    channels: str | int | None = None
    track: int | str | None = None
    from_seconds: float | None = None
    to_seconds: float | None = None
    priority: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
