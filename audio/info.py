"""What a source says about itself, before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamInfo:
    """One audio stream of a container.

    Attributes
    ----------
    index : int
        Its number among all streams of the container, pictures and subtitles included, from 0.
    codec : str
        The codec's name as the backend gives it; "unknown" if it has none for it.
    sample_rate : int
        Samples per second; 0 if the header does not say.
    channels : int
        Number of channels; 0 if the header does not say.
    language : str or None
        The language tag, such as "eng".
    default : bool
        Whether the container marks the stream as the one to play.
    title : str or None
        The stream's title.

    """

    index: int
    codec: str
    sample_rate: int
    channels: int
    language: str | None = None
    default: bool = False
    title: str | None = None


@dataclass(frozen=True)
class AudioInfo:
    """What a decoder is about to give, and what the source claims.

    Attributes
    ----------
    container : str
        The file format, as the backend names it.
    codec : str
        The codec of the stream that is decoded.
    sample_rate : int
        Samples per second of the decoded blocks. For Opus this may differ between backends; durations agree.
    channels : int
        Channels of the decoded blocks.
    channel_layout : str or None
        The layout's name, such as "stereo" or "5.1(side)", where the source states one.
    claimed_duration : float or None
        Seconds of what is decoded, from the header or estimated from the size; None if there is no claim. It may be
        wrong by any amount: it serves progress displays and warnings, never times.
    start_time : float
        Seconds on the container's clock at which the stream begins.
    streams : tuple of StreamInfo
        All audio streams of the container. A track's number is its position here.
    backend : str
        The backend that decodes.
    track : int
        The number of the stream that is decoded.
    offset : int
        The first decoded frame's position in the recording, in frames; above 0 where a range of time was asked for.

    """

    container: str
    codec: str
    sample_rate: int
    channels: int
    channel_layout: str | None
    claimed_duration: float | None
    start_time: float
    streams: tuple[StreamInfo, ...]
    backend: str
    track: int = 0
    offset: int = 0
