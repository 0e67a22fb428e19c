"""What can be known before hours of work begin: what cannot be read, how long it takes, and where it finds room."""

import errno
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audio.errors import AudioError
from audio.mixing import check_choice
from audio.stream import open_stream
from engine_bridge.batch.failing import FailingSource
from engine_bridge.batch.measuring import PILOT_RECORDINGS, Speed, measured_speed, selection_of
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import opened
from engine_bridge.engines.protocol import Engine
from engine_bridge.errors import EngineBridgeError

NAMED = 10
"""Recordings that cannot be read are named up to this number; of more their number is told."""

BYTES_AN_HOUR = {"txt": 50_000, "srt": 90_000, "vtt": 85_000, "tsv": 65_000, "json": 950_000}
"""Bytes of a transcript in each format for an hour of talk without long pauses: those of samples/reading.flac by
tiny.en are 48, 86, 83, 61 and 908 thousand."""

JOURNAL_BYTES_AN_HOUR = 150_000
"""Bytes that a journal keeps of an hour: the JSON of samples/reading.flac takes 135 thousand when it is compressed."""

_LOOKING = 8
"""Threads that look at recordings: much of it is waiting for disks and servers."""

_SPARE = 1.1
"""More than is expected is asked of a disk: speech differs."""


@dataclass(frozen=True)
class Preflight:
    """What is known of a job before it begins.

    Attributes
    ----------
    recordings : int
        How many there are.
    unreadable : int
        How many of them cannot be read.
    reasons : tuple of (id, reason)
        The first of those, with why.
    unseen : int
        How many could not be looked at without using them up, such as standard input.
    audio_seconds : float
        The audio that the others claim to hold, of what is wanted of them.
    unclaimed : int
        How many do not say how long they are.
    output_bytes : int
        What outputs and journal are expected to take.
    free_bytes : int or None
        What is free where they go; None where nothing is written.
    speed : Speed or None
        How fast the work goes; None where that is not known.
    problems : tuple of str
        What would stop the whole job, one sentence each.

    """

    recordings: int
    unreadable: int
    reasons: tuple[tuple[str, str], ...]
    unseen: int
    audio_seconds: float
    unclaimed: int
    output_bytes: int
    free_bytes: int | None
    speed: Speed | None = None
    problems: tuple[str, ...] = ()

    @property
    def expected_seconds(self) -> float | None:
        """Wall-clock seconds that the job is expected to take; None where the speed is not known."""
        return None if self.speed is None else self.audio_seconds / self.speed.factor

    @property
    def is_clear(self) -> bool:
        """Whether everything can be read, and nothing would stop the job."""
        return not self.unreadable and not self.problems


@dataclass
class _Tally:
    """What the looks at recordings add up to."""

    recordings: int = 0
    unreadable: int = 0
    unseen: int = 0
    unclaimed: int = 0
    seconds: float = 0.0
    reasons: list[tuple[str, str]] = field(default_factory=list)
    first: list[Recording] = field(default_factory=list)

    def add(self, recording: Recording, looked: "_Look") -> None:
        self.recordings += 1
        if looked.reason is not None:
            self.unreadable += 1
            if len(self.reasons) < NAMED:
                self.reasons.append((recording.id, looked.reason))
            return
        self.unseen += looked.unseen
        self.unclaimed += looked.seconds is None
        self.seconds += looked.seconds or 0.0
        if not looked.unseen and len(self.first) < PILOT_RECORDINGS:
            self.first.append(recording)


@dataclass(frozen=True)
class _Look:
    """What a look at a recording shows."""

    seconds: float | None = None
    reason: str | None = None
    unseen: bool = False


def preflight(
    recordings: Iterable[Recording],
    *,
    output: str | os.PathLike[str] | None = None,
    formats: Sequence[str] = ("txt",),
    engine: Engine | None = None,
    speed: Speed | None = None,
    options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Preflight:
    """Look at every recording of a job without recognising it, and at where its outputs go.

    Of each recording the beginning is decoded. Memory does not depend on how many there are.

    Parameters
    ----------
    recordings : iterable of Recording
        As the job gets them; it must end.
    output : str or path, optional
        The folder that outputs go to. Nothing is left in it, and it is not made.
    formats : sequence of str
        The formats that each transcript is written in.
    engine : Engine, optional
        Measured for up to half a minute on the first recordings, unless `speed` is given. It stays open.
    speed : Speed, optional
        How fast the work goes, where that is known.
    options : mapping, optional
        The job's options of `stream_transcript`.
    on_progress : callable, optional
        Called with the number of recordings looked at.

    """
    chosen = dict(options or {})
    tally = _Tally()
    for recording, looked in _looks(recordings, chosen):
        tally.add(recording, looked)
        if on_progress is not None:
            on_progress(tally.recordings)
    problems: list[str] = []
    if speed is None and engine is not None and tally.first:
        try:
            speed = measured_speed(tally.first, engine, chosen)
        except EngineBridgeError as error:
            problems.append(str(error))
    hours = tally.seconds / 3600
    bytes_an_hour = sum(BYTES_AN_HOUR[name] for name in formats) + JOURNAL_BYTES_AN_HOUR
    expected = round(hours * bytes_an_hour) if output is not None else 0
    free = None
    if output is not None:
        free = free_bytes(output)
        problem = folder_problem(output)
        if problem is None and free < expected * _SPARE:
            problem = (
                f"{os.fspath(output)}: {shown_bytes(free)} are free and about {shown_bytes(expected)} are needed; free "
                "some space, or choose another disk"
            )
        problems += [] if problem is None else [problem]
    return Preflight(
        recordings=tally.recordings,
        unreadable=tally.unreadable,
        reasons=tuple(tally.reasons),
        unseen=tally.unseen,
        audio_seconds=tally.seconds,
        unclaimed=tally.unclaimed,
        output_bytes=expected,
        free_bytes=free,
        speed=speed,
        problems=tuple(problems),
    )


def _looks(recordings: Iterable[Recording], options: Mapping[str, Any]) -> Iterator[tuple[Recording, _Look]]:
    """Look at recordings, several at a time, and yield them in their order."""
    under_way: deque[tuple[Recording, Future[_Look]]] = deque()
    pool = ThreadPoolExecutor(_LOOKING, thread_name_prefix="auricle-preflight")
    try:
        for recording in recordings:
            under_way.append((recording, pool.submit(_look, recording, options)))
            if len(under_way) >= 2 * _LOOKING:
                first, look = under_way.popleft()
                yield first, look.result()
        while under_way:
            first, look = under_way.popleft()
            yield first, look.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _look(recording: Recording, options: Mapping[str, Any]) -> _Look:
    """Open a recording as the job will, and close it again."""
    source = recording.source
    if isinstance(source, FailingSource):
        return _Look(reason=str(source.error))
    if hasattr(source, "read"):
        return _Look(unseen=True)
    reduction = recording.channels if recording.channels is not None else options.get("channel_reduction", "mean")
    try:
        with (
            opened(source) as content,
            open_stream(
                content,
                backend=options.get("audio_backend", "auto"),
                reduction=check_choice("mean" if reduction == "each" else reduction),
                **selection_of(recording, options),
            ) as stream,
        ):
            return _Look(seconds=stream.info.claimed_duration)
    except (AudioError, ValueError) as error:
        return _Look(reason=str(error))


def folder_problem(folder: str | os.PathLike[str]) -> str | None:
    """Return why nothing can be written to a folder, in one sentence, or None. Nothing is left behind.

    Parameters
    ----------
    folder : str or path
        It need not exist.

    """
    name = os.fspath(folder)
    existing = _existing(Path(folder))
    try:
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if existing == Path(folder):
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(b"\0")
        elif not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return f"{name}: nothing can be written there ({reason}); choose a folder you may write to"
    return None


def free_bytes(folder: str | os.PathLike[str]) -> int:
    """Return how many bytes are free for this user where a folder lies, or will lie."""
    return shutil.disk_usage(_existing(Path(folder))).free


def _existing(folder: Path) -> Path:
    """Return the nearest thing that exists on a folder's path."""
    return next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))


def report(found: Preflight) -> Iterator[str]:
    """Yield the lines that tell a person what is known of a job."""
    yield f"recordings  {found.recordings}" + (
        f", {found.unreadable} of them cannot be read" if found.unreadable else ""
    )
    notes = [
        f"{count} {text}"
        for count, text in (
            (found.unclaimed - found.unseen, "do not say how long they are"),
            (found.unseen, "not seen"),
        )
        if count
    ]
    hours = found.audio_seconds / 3600
    yield f"audio       {f'{hours:.2f} h' if hours >= 1 else shown_time(found.audio_seconds)} claimed" + (
        f" ({', '.join(notes)})" if notes else ""
    )
    if found.speed is not None and found.expected_seconds is not None:
        when = "in earlier runs" if found.speed.earlier else f"on the first {found.speed.measured_seconds:.0f} s"
        yield f"speed       {found.speed.factor:.1f} times real time, measured {when}"
        yield f"time        about {shown_time(found.expected_seconds)}"
    if found.free_bytes is not None:
        yield f"size        about {shown_bytes(found.output_bytes)}, and {shown_bytes(found.free_bytes)} are free"
    for name, reason in found.reasons:
        yield f"unreadable  {reason if name in reason else f'{name}: {reason}'}"
    if found.unreadable > len(found.reasons):
        yield f"unreadable  {found.unreadable - len(found.reasons)} more"
    for problem in found.problems:
        yield f"problem     {problem}"


def shown_time(seconds: float) -> str:
    """Return a length of time for people: "40 s", "12 min", "3 h 20 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def shown_bytes(count: float) -> str:
    """Return a number of bytes for people: "950 kB", "1.2 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in ("bytes", "kB") or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
