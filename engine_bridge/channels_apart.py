"""One transcript of a recording whose speakers have a channel each, as in recorded calls.

Each channel is recognised on its own, one after the other, and the segments are merged by time. The recording is
decoded once for each channel: decoding costs a hundredth of recognition, and only one channel is held at a time.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from audio.decoders import open_decoder
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.selection import Selection, Timeline
from audio.source import AudioSource, Source
from engine_bridge.engines.open import DEFAULT_SPEC, open_engine
from engine_bridge.engines.protocol import Engine
from engine_bridge.pipeline import transcribe
from engine_bridge.transcript import Gap, Segment, Transcript
from engine_bridge.transcription import Progress

SAME_SOUND = "its channels hold the same sound: they were transcribed once"
"""What a transcript tells where there was nothing to keep apart."""

_DIFFERENCE = 1e-4
"""Energy of the difference of two channels against their own, 40 dB, above which they are not the same. A lossy codec
leaves less of a difference between equal channels."""

_SILENCE = 1e-8
"""Mean square (-80 dBFS) below which a block says nothing of its channels."""


def transcribe_channels(
    source: AudioSource,
    *,
    engine: str | Engine = DEFAULT_SPEC,
    audio_backend: str = "auto",
    track: int | str | None = None,
    from_seconds: float = 0.0,
    to_seconds: float | None = None,
    timeline: Timeline = "container",
    limits: DecodeLimits | None = None,
    isolation: Isolation | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Transcript:
    """Transcribe each channel of a recording, and merge the transcripts.

    A recording of one channel, or of channels that hold the same sound, gives one transcript without labels; the latter
    is told in its warnings.

    Parameters
    ----------
    source, engine, audio_backend, track, from_seconds, to_seconds, timeline, limits, isolation
        As for `stream_transcript`.
    on_progress : callable or None
        Called with a `Progress` after each chunk; it counts the recording once for each channel.
    **options
        The other options of `stream_transcript`, except for `channel_reduction`.

    Returns
    -------
    Transcript
        Its segments ascend by start and may overlap; `Segment.channel` tells whose each is.

    Raises
    ------
    AudioError
        If the recording cannot be decoded.
    EngineBridgeError
        If the engine cannot be opened, fails, or cannot do what is asked.

    """
    recording = Source.of(source, limits)
    selection = Selection(track, from_seconds, to_seconds, timeline)
    channels, differ = channels_of(recording, audio_backend, selection, limits=limits, isolation=isolation)
    opened = open_engine(engine) if isinstance(engine, str) else engine
    ranges = {"track": track, "from_seconds": from_seconds, "to_seconds": to_seconds, "timeline": timeline}
    bounds = {"limits": limits, "isolation": isolation}
    options = {**options, **ranges, **bounds, "engine": opened, "audio_backend": audio_backend}
    progress = _ChannelsProgress(len(channels) if differ else 1, on_progress)
    try:
        if not differ:
            whole = transcribe(recording, channel_reduction=0, on_progress=progress.update, **options)
            notes = (SAME_SOUND,) if len(channels) > 1 else ()
            return replace(whole, warnings=(*whole.warnings, *notes))
        transcripts = {}
        for number, name in enumerate(channels):
            progress.number = number
            transcripts[name] = transcribe(recording, channel_reduction=number, on_progress=progress.update, **options)
    finally:
        if isinstance(engine, str):
            opened.close()
    return merged(transcripts)


def merged(transcripts: dict[str, Transcript]) -> Transcript:
    """Merge the transcripts of a recording's channels by time.

    Parameters
    ----------
    transcripts : dict of str to Transcript
        Each channel's transcript by its name, at least one.

    Returns
    -------
    Transcript
        The language is that of the channel with the most text; each warning is told once, and each stage's seconds
        are added up.

    """
    segments: list[Segment] = []
    gaps: list[Gap] = []
    warnings: list[str] = []
    timings: dict[str, Any] = {}
    for name, each in transcripts.items():
        segments += [replace(segment, channel=name) for segment in each.segments]
        gaps += [replace(gap, reason=f"{gap.reason} ({name})") for gap in each.gaps]
        warnings += each.warnings
        for stage, seconds in each.timings.items():
            timings[stage] = timings.get(stage, 0.0) + seconds
    main = max(transcripts.values(), key=lambda each: len(each.text))
    return replace(
        main,
        segments=tuple(sorted(segments, key=lambda segment: (segment.start, segment.end))),
        gaps=tuple(sorted(gaps, key=lambda gap: (gap.start, gap.end))),
        warnings=tuple(dict.fromkeys(warnings)),
        timings=timings,
    )


def channels_of(
    source: Source,
    backend: str,
    selection: Selection,
    *,
    limits: DecodeLimits | None = None,
    isolation: Isolation | None = None,
) -> tuple[list[str], bool]:
    """Return the channels' names, and whether they differ; it reads to the first difference.

    Parameters
    ----------
    source : Source
        The recording.
    backend : str
        The decoder.
    selection : Selection
        The part of the recording that counts.
    limits : DecodeLimits or None
        What decoding may cost.
    isolation : Isolation or None
        Bounds of a process of its own for decoding.

    Raises
    ------
    AudioError
        If the recording cannot be decoded.

    """
    with open_decoder(source, backend, selection=selection, limits=limits, isolation=isolation) as decoder:
        count = decoder.info.channels
        names = ["left", "right"] if count == 2 else [f"channel {number}" for number in range(count)]
        return names, count > 1 and any(_differences(decoder.blocks()))


def _differences(blocks: "Iterator[np.ndarray[Any, np.dtype[np.float32]]]") -> Iterator[bool]:
    """Yield for each block whether its channels differ."""
    for block in blocks:
        first = block[:, :1]
        energy = float(np.square(block, dtype=np.float64).mean())
        difference = float(np.square(block - first, dtype=np.float64).mean(axis=0).max())
        yield energy > _SILENCE and difference > _DIFFERENCE * energy


@dataclass
class _ChannelsProgress:
    """Progress over all channels, as if they followed each other."""

    count: int
    tell: Callable[[Progress], None] | None
    number: int = 0

    def __post_init__(self) -> None:
        self._started = time.perf_counter()

    def update(self, progress: Progress) -> None:
        """Tell how far it has come, after so many channels."""
        if self.tell is None:
            return
        total = progress.total_seconds
        before = self.number * ((total or progress.audio_seconds) - progress.start_seconds)
        self.tell(
            replace(
                progress,
                audio_seconds=before + progress.audio_seconds,
                total_seconds=None if total is None else total + (self.count - 1) * (total - progress.start_seconds),
                elapsed_seconds=time.perf_counter() - self._started,
            )
        )
