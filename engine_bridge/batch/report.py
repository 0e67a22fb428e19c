"""What became of a job: counts, and one entry a recording, as one JSON file.

Version 1 is one object: ``schema``, ``version``, ``state`` ("complete", "interrupted" or "stopped"), ``reason`` of a
stop, ``engine``, ``started`` and ``ended`` (ISO 8601, UTC), ``elapsed_seconds``, ``audio_seconds`` done in this run,
``counts`` (``recordings``, ``done``, ``known``, ``failed``) and ``recordings`` in the order they were given: ``id``,
``source``, ``state`` ("done" now, "known" from before, "failed"), ``duration``, ``outputs`` (paths), and of failures
``kind``, ``reason`` and ``place``, the seconds that were recognised before. Recordings that a job which ended early did
not come to are not among them.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from engine_bridge.batch.result_tables import source_name
from engine_bridge.batch.results import Failure, RecordingResult
from engine_bridge.databases import open_tables
from engine_bridge.outputs import write_atomically

SCHEMA = "auricle.report"
VERSION = 1


@dataclass(frozen=True)
class Summary:
    """What became of a job, in figures.

    Attributes
    ----------
    done, known, failed : int
        Recordings that were done now, that were done before, and that failed.
    audio_seconds : float
        Seconds of audio that were done now.
    elapsed_seconds : float
        Wall-clock seconds that it took.
    state : {"complete", "interrupted", "stopped"}
        How it ended.

    """

    done: int
    known: int
    failed: int
    audio_seconds: float
    elapsed_seconds: float
    state: str = "complete"

    @property
    def recordings(self) -> int:
        """How many recordings the job came to."""
        return self.done + self.known + self.failed


class Report:
    """Gathers what becomes of a job's recordings, and writes it.

    Entries are kept in a database that SQLite moves to a temporary file when it grows. Use it as a context manager.
    """

    def __init__(self) -> None:
        self._started = datetime.now(UTC)
        self._counts = {"done": 0, "known": 0, "failed": 0}
        self._audio_seconds = 0.0
        self._entries = open_tables("CREATE TABLE entries (position INTEGER PRIMARY KEY, entry TEXT)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entries.close()

    def add(self, result: RecordingResult, outputs: Sequence[Path] = (), failure: Failure | None = None) -> None:
        """Take what became of a recording.

        Parameters
        ----------
        result : RecordingResult
            The result.
        outputs : sequence of path
            The files that hold it.
        failure : Failure or None
            Why it failed; that of the result by default.

        """
        failure = failure or result.failure
        state = "failed" if failure is not None else "known" if result.known else "done"
        self._counts[state] += 1
        if state == "done":
            self._audio_seconds += result.duration or 0.0
        entry: dict[str, Any] = {
            "id": result.recording.id,
            "source": source_name(result.recording.source),
            "state": state,
            "duration": None if result.duration is None else round(result.duration, 3),
            "outputs": [os.fspath(path) for path in outputs],
        }
        if failure is not None:
            place = None if failure.place is None else round(failure.place, 3)
            entry |= {"kind": failure.kind, "reason": failure.reason, "place": place}
        # Escapes carry names that are no text.
        self._entries.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (result.position, json.dumps(entry)))

    def summary(self, state: str = "complete") -> Summary:
        """Return the figures so far."""
        elapsed = (datetime.now(UTC) - self._started).total_seconds()
        return Summary(**self._counts, audio_seconds=self._audio_seconds, elapsed_seconds=elapsed, state=state)

    def write(
        self, path: str | os.PathLike[str], *, engine: str, state: str = "complete", reason: str | None = None
    ) -> None:
        """Write the report.

        Parameters
        ----------
        path : str or path
            The file.
        engine : str
            The engine's specification.
        state : {"complete", "interrupted", "stopped"}
            How the job ended.
        reason : str or None
            Why it was stopped.

        Raises
        ------
        OutputError
            If it cannot be written.

        """
        figures = self.summary(state)
        head = {
            "schema": SCHEMA,
            "version": VERSION,
            "state": state,
            "reason": reason,
            "engine": engine,
            "started": self._started.isoformat(timespec="seconds"),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "elapsed_seconds": round(figures.elapsed_seconds, 3),
            "audio_seconds": round(figures.audio_seconds, 3),
            "counts": {"recordings": figures.recordings, **self._counts},
        }

        def write(file: TextIO) -> None:
            file.write("{\n")
            file.writelines(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
            file.write('  "recordings": [')
            separator = "\n    "
            for (entry,) in self._entries.execute("SELECT entry FROM entries ORDER BY position"):
                file.write(separator + entry)
                separator = ",\n    "
            file.write("\n  ]\n}\n")

        write_atomically(path, write)
