"""Recordings of a job cut into chunks, several at a time, each set aside on disk until its turn comes."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from audio.chunk import Chunk
from audio.detectors import DetectorName, open_detector
from audio.errors import AudioError
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.selection import Timeline
from audio.split import stream_chunks
from audio.stream import SPEECH_RATE, open_stream
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import opened
from engine_bridge.chunk_files import flac_of, position_of
from engine_bridge.errors import EngineBridgeError, UnsupportedOptionError
from engine_bridge.outputs import written

_IN_MEMORY = 1 << 22
"""Bytes of a recording's chunks that are set aside in memory; more goes to disk."""


class StoppedError(EngineBridgeError):
    """The job was ended while a recording was cut."""


@dataclass(frozen=True)
class SplitSettings:
    """How recordings are cut; what a recording itself says of channels, track and range comes first.

    Attributes
    ----------
    max_duration, min_duration, keep_silence : float, float or None, float or None
        As for `audio.stream_chunks`, in seconds.
    detector : {"energy", "silero"}
        What tells speech from pauses: see `audio.open_detector`.
    sample_rate : int
        Samples per second of the chunks.
    channels : str or int
        How several channels become one, or which is taken.
    audio_backend : str
        The decoder.
    track, from_seconds, to_seconds, timeline
        As for `audio.open_stream`.

    """

    max_duration: float = 30.0
    min_duration: float | None = None
    keep_silence: float | None = None
    detector: DetectorName = "energy"
    sample_rate: int = SPEECH_RATE
    channels: str | int = "mean"
    audio_backend: str = "auto"
    track: int | str | None = None
    from_seconds: float = 0.0
    to_seconds: float | None = None
    timeline: Timeline = "container"

    def for_recording(self, recording: Recording) -> SplitSettings:
        """Return the settings of one recording.

        Raises
        ------
        UnsupportedOptionError
            Its channels are wanted apart, which is for transcripts alone.

        """
        own = {
            name: value
            for name in ("channels", "track", "from_seconds", "to_seconds")
            if (value := getattr(recording, name)) is not None
        }
        if own.get("channels") == "each":
            raise UnsupportedOptionError(
                f"{recording.id}: its channels cannot be cut apart in one go; list it once for each channel"
            )
        return SplitSettings(**{**asdict(self), **own})


class CutRecording:
    """A recording's chunks, set aside in a temporary file without a name.

    Parameters
    ----------
    recording : Recording
        The entry.
    folder : str
        Where the temporary file lies once it is large.

    Attributes
    ----------
    recording : Recording
        As above.
    warnings : tuple of str
        What the decoder told.
    seconds : float
        Length of what was decoded.

    """

    def __init__(self, recording: Recording, folder: str) -> None:
        self.recording = recording
        self.warnings: tuple[str, ...] = ()
        self.seconds = 0.0
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=folder)  # noqa: SIM115 - closed with the object
        self._entries: list[tuple[dict[str, Any], int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: dict[str, Any], content: bytes) -> None:
        """Set a chunk aside."""
        self._file.write(content)
        self._entries.append((entry, len(content)))

    def __iter__(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield each chunk's description and its FLAC file."""
        self._file.seek(0)
        for entry, size in self._entries:
            yield entry, self._file.read(size)

    def close(self) -> None:
        """Give back what it holds."""
        self._file.close()


def cut(
    recording: Recording,
    settings: SplitSettings,
    folder: str,
    is_stopped: Callable[[], bool],
    *,
    limits: DecodeLimits | None = None,
    isolation: Isolation | None = None,
) -> CutRecording:
    """Cut a recording in its pauses and set its chunks aside.

    Parameters
    ----------
    recording : Recording
        What is cut.
    settings : SplitSettings
        The job's settings.
    folder : str
        Where the outputs go, for the temporary file: it is as large as the outputs to come.
    is_stopped : callable
        Asked at each chunk whether to end.
    limits : DecodeLimits or None
        What decoding may cost.
    isolation : Isolation or None
        Bounds of a process of its own for decoding.

    Raises
    ------
    AudioError
        The recording cannot be decoded.
    EngineBridgeError
        It is no recording, or wants what cannot be done.
    OutputError
        The chunks cannot be written.
    StoppedError
        The job is ended.

    """
    own = settings.for_recording(recording)
    done = CutRecording(recording, folder)
    try:
        with (
            opened(recording.source) as source,
            open_stream(
                source,
                own.sample_rate,
                backend=own.audio_backend,
                reduction=own.channels,  # type: ignore[arg-type]  # names as text are taken too
                track=own.track,
                from_seconds=own.from_seconds,
                to_seconds=own.to_seconds,
                timeline=own.timeline,
                limits=limits,
                isolation=isolation,
            ) as stream,
        ):
            chunks = stream_chunks(
                stream,
                own.sample_rate,
                max_duration=own.max_duration,
                min_duration=own.min_duration,
                keep_silence=own.keep_silence,
                detector=open_detector(own.detector, own.sample_rate),
            )
            for chunk in chunks:
                _check(is_stopped, recording)
                if len(chunk.samples):
                    _set_aside(chunk.moved(stream.offset), done, folder)
            done.seconds, done.warnings = stream.duration, tuple(stream.warnings)
    except BaseException:
        done.close()
        raise
    return done


def _check(is_stopped: Callable[[], bool], recording: Recording) -> None:
    if is_stopped():
        raise StoppedError(f"{recording.id}: the job was ended")


def _set_aside(chunk: Chunk, done: CutRecording, folder: str) -> None:
    content = flac_of(chunk)
    entry = {
        "index": chunk.index,
        **position_of(chunk),
        "frames": len(chunk.samples),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    with written(folder, what="chunk"):
        done.add(entry, content)


EXPECTED_FAILURES = (AudioError, EngineBridgeError)
"""What makes one recording fail, and not the job; `OutputError` among them is the job's."""
