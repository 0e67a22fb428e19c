"""How fast an engine works, by a short run on the recordings of the job itself."""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from audio.errors import AudioError
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import opened
from engine_bridge.engines.protocol import Engine

PILOT_RECORDINGS = 16
"""Recordings that are enough to measure on."""

_PILOT_SECONDS = 25.0
"""Wall-clock seconds after which measuring ends."""

_PILOT_AT_ONCE = 4

_SELECTION = ("track", "from_seconds", "to_seconds", "timeline")


@dataclass(frozen=True)
class Speed:
    """How fast an engine recognises.

    Attributes
    ----------
    factor : float
        Seconds of audio in one second.
    measured_seconds : float
        Seconds of audio it was measured on.
    earlier : bool
        Whether that was in earlier runs, as a journal knows them, and not just now.

    """

    factor: float
    measured_seconds: float
    earlier: bool = False


def selection_of(recording: Recording, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return which part of a recording is wanted, as arguments of `open_stream`: its own choice before the job's."""
    selection = {"timeline": "container", **{name: options[name] for name in _SELECTION if name in options}}
    own = {name: getattr(recording, name) for name in _SELECTION[:-1]}
    return selection | {name: value for name, value in own.items() if value is not None}


def measured_speed(recordings: Sequence[Recording], engine: Engine, options: Mapping[str, Any]) -> Speed | None:
    """Measure how fast an engine recognises recordings, for up to half a minute.

    Some are recognised at a time, so that batches fill as they do in the job. Results are thrown away, but for what a
    journal in front of the engine keeps.

    Parameters
    ----------
    recordings : sequence of Recording
        Which to begin with; those that fail are passed over.
    engine : Engine
        It stays open.
    options : mapping
        The job's options of `stream_transcript`.

    Returns
    -------
    Speed or None
        None where nothing could be recognised in that time.

    """
    pilot = _Pilot(engine, options)
    waiting = iter(recordings)
    lock = threading.Lock()

    def work() -> None:
        while not pilot.is_over:
            with lock:
                recording = next(waiting, None)
            if recording is None:
                return
            pilot.recognise(recording)

    with ThreadPoolExecutor(_PILOT_AT_ONCE, thread_name_prefix="auricle-pilot") as pool:
        for worker in [pool.submit(work) for _ in range(_PILOT_AT_ONCE)]:
            worker.result()
    return pilot.speed


class _Pilot:
    """A short run whose speed is measured."""

    def __init__(self, engine: Engine, options: Mapping[str, Any]) -> None:
        self._engine = engine
        self._options = options
        self._begun = time.monotonic()
        self._last = self._begun
        self._seconds = 0.0
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self._begun > _PILOT_SECONDS

    @property
    def speed(self) -> Speed | None:
        elapsed = self._last - self._begun
        return Speed(self._seconds / elapsed, self._seconds) if self._seconds > 0 and elapsed > 0 else None

    def recognise(self, recording: Recording) -> None:
        """Recognise a recording, to its end or to the end of the time."""
        from engine_bridge.pipeline import stream_transcript

        options = {name: value for name, value in self._options.items() if name not in ("engine", "on_progress")}
        if options.get("channel_reduction") == "each":
            del options["channel_reduction"]
        if recording.language is not None:
            options["language"] = recording.language
        if recording.channels not in (None, "each"):
            options["channel_reduction"] = recording.channels
        reached = 0.0
        try:
            with (
                opened(recording.source) as content,
                stream_transcript(
                    content, engine=self._engine, **{**options, **selection_of(recording, options)}
                ) as transcription,
            ):
                for segment in transcription:
                    reached = self._count(segment.end, reached)
                    if self.is_over:
                        return
                self._count(transcription.result().duration, reached)
        except AudioError:
            return  # the job will tell

    def _count(self, reached: float, before: float) -> float:
        with self._lock:
            self._seconds += max(reached - before, 0.0)
            self._last = time.monotonic()
        return max(reached, before)
