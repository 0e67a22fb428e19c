"""What a job has done, on disk, so that nothing is done twice.

A journal is one SQLite file, and an empty file beside it for locks. It holds, for each recording by its fingerprint
(`engine_bridge.batch.fingerprints`): the finished transcript, or why there is none, or the answers that have come so
far. It also remembers the hash of a file's content by the file's size and times, so that looking again reads nothing,
and which recording each output was written from.

Each change is committed by itself, in the write-ahead log. A process that is killed loses nothing that was committed;
a power cut may take the last moments with it, and never leaves a journal that contradicts itself. Any number of
threads and processes on one machine may use a journal at once; SQLite's log does not work across machines.
"""

import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from audio.source import Source
from engine_bridge.batch.locks import ByteLocks
from engine_bridge.batch.results import Failure
from engine_bridge.content import SETTLED_NANOSECONDS, content_hash
from engine_bridge.errors import JournalError
from engine_bridge.formats import read_json, render
from engine_bridge.journal_database import open_database
from engine_bridge.transcript import Transcript

FOLDER = ".auricle"
"""Name of the folder, within that of the outputs, that holds a job's journal and report."""

BEGUN, DONE, FAILED = "begun", "done", "failed"

_REMEDIES = (
    ("disk is full", "free some space, or choose another disk"),
    ("readonly", "choose a folder that may be written to"),
    ("locked", "another process holds it; end that, or wait"),
    ("not a database", "move it away, and what it knew is done again"),
    ("malformed", "move it away, and what it knew is done again"),
)


@dataclass(frozen=True)
class Entry:
    """What a journal knows of a recording.

    Attributes
    ----------
    number : int
        Names the recording within the journal.
    state : {"begun", "done", "failed"}
        How far it has come.
    changed : float
        When it came there, in seconds since 1970.
    duration : float or None
        Seconds of audio, once it is done.
    failure : Failure or None
        Why it failed.

    """

    number: int
    state: str
    changed: float
    duration: float | None = None
    failure: Failure | None = None


class Journal:
    """A journal, opened or begun.

    Parameters
    ----------
    path : str or path
        The SQLite file. Its folder is made where it is missing.

    Attributes
    ----------
    path : Path
        The SQLite file.

    Raises
    ------
    JournalError
        If the file cannot be opened or written, is no journal, or is of a version that is not known here.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        with self._translated():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = open_database(self.path)
            try:
                self._inode = self.path.stat().st_ino
                self._locks = ByteLocks(self.path.with_suffix(".locks"))
            except BaseException:
                self._connection.close()
                raise

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> Self:
        """Open the journal of the job whose outputs go to a folder."""
        return cls(Path(folder, FOLDER, "journal.sqlite"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and of all recordings that are held. It may be called more than once."""
        with self._lock, self._translated():
            self._locks.close()
            self._connection.close()

    def check_in_place(self) -> None:
        """Make sure that the file is still there by its name.

        A file that was removed while it is open goes on working and is lost with the process.

        Raises
        ------
        JournalError
            If it was removed or replaced.

        """
        with suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                return
        raise JournalError(
            f"{self.path}: it was removed while in use; start again to do what it does not know any more"
        )

    def content_digest(self, source: Source) -> bytes:
        """Return the hash of a recording's content, 32 bytes: see `engine_bridge.content.content_hash`.

        Parameters
        ----------
        source : Source
            A file is read once; it is recognised by its path, size, time of change and inode from then on.

        Raises
        ------
        AudioError
            If it cannot be read.
        JournalError
            If the journal cannot be read or written.

        """
        known = self.known_digest(source)
        if known is not None or source.path is None:
            return known or content_hash(source)
        status = os.stat(source.path)  # noqa: PTH116 - the path as it was given
        digest = content_hash(source)
        self.keep_digest(source.path, status, digest)
        return digest

    def known_digest(self, source: Source) -> bytes | None:
        """Return the hash of a file's content if it has been kept and the file has not changed since, or None."""
        if source.path is None:
            return None
        status = os.stat(source.path)  # noqa: PTH116 - the path as it was given
        row = self._row(
            "SELECT digest FROM contents WHERE path=? AND size=? AND modified=? AND inode=?",
            os.fsencode(os.path.realpath(source.path)),
            status.st_size,
            status.st_mtime_ns,
            status.st_ino,
        )
        return None if row is None else bytes(row[0])

    def keep_digest(self, path: str, status: os.stat_result, digest: bytes) -> None:
        """Keep the hash of a file's content, unless the file is so young that it may change unseen.

        Parameters
        ----------
        path : str
            The file.
        status : stat result
            Of the file before it was read.
        digest : bytes
            The hash.

        """
        if time.time_ns() - status.st_mtime_ns > SETTLED_NANOSECONDS:
            self._change(
                "INSERT OR REPLACE INTO contents VALUES (?, ?, ?, ?, ?)",
                os.fsencode(os.path.realpath(path)),
                status.st_size,
                status.st_mtime_ns,
                status.st_ino,
                digest,
            )

    @property
    def is_empty(self) -> bool:
        """Whether no recording has been begun."""
        return self._row("SELECT 1 FROM recordings LIMIT 1") is None

    def find(self, fingerprint: str) -> Entry | None:
        """Return what is known of a recording, or None where nothing is."""
        row = self._row(
            "SELECT number, state, changed, duration, kind, reason, place FROM recordings WHERE fingerprint=?",
            fingerprint,
        )
        if row is None:
            return None
        failure = Failure(*row[4:]) if row[1] == FAILED else None
        number, state, changed, duration = row[:4]
        return Entry(number, state, changed, duration, failure)

    def begin(self, fingerprint: str) -> int:
        """Return a recording's number, which it is given where it is new."""
        self._change(
            "INSERT OR IGNORE INTO recordings (fingerprint, state, changed) VALUES (?, ?, ?)",
            fingerprint,
            BEGUN,
            time.time(),
        )
        row = self._row("SELECT number FROM recordings WHERE fingerprint=?", fingerprint)
        assert row is not None  # noqa: S101 - rows are never deleted; for the type checker
        return int(row[0])

    def hold(self, number: int) -> bool:
        """Take a recording for this journal object alone, until `release`; False where another has it.

        It is free again as soon as the process that has it ends, however it does.
        """
        with self._translated():
            return self._locks.acquire(number)

    def release(self, number: int) -> None:
        """Let go of a recording that is held."""
        with self._translated():
            self._locks.release(number)

    def finish(self, number: int, transcript: Transcript) -> None:
        """Keep a recording's transcript, and drop its answers, which are in it."""
        packed = zlib.compress(render(transcript, "json").encode("utf-8"))
        with self._transaction():
            self._execute(
                "UPDATE recordings SET state=?, changed=?, duration=?, transcript=?, kind=NULL, reason=NULL, "
                "place=NULL WHERE number=?",
                (DONE, time.time(), transcript.duration - transcript.start, packed, number),
            )
            self._execute("DELETE FROM answers WHERE recording=?", (number,))

    def fail(self, number: int, failure: Failure) -> None:
        """Keep why a recording failed. Its answers stay, for when it is tried again."""
        self._change(
            "UPDATE recordings SET state=?, changed=?, kind=?, reason=?, place=? WHERE number=?",
            FAILED,
            time.time(),
            failure.kind,
            # File names that are not UTF-8 hold lone surrogates, which SQLite cannot carry.
            failure.reason.encode("utf-8", "backslashreplace").decode(),
            failure.place,
            number,
        )

    def forget(self, number: int) -> None:
        """Drop a recording's transcript, failure and answers."""
        with self._transaction():
            self._execute(
                "UPDATE recordings SET state=?, changed=?, duration=NULL, transcript=NULL, kind=NULL, reason=NULL, "
                "place=NULL WHERE number=?",
                (BEGUN, time.time(), number),
            )
            self._execute("DELETE FROM answers WHERE recording=?", (number,))

    def transcript(self, number: int) -> Transcript:
        """Return the transcript of a recording that is done, with times in milliseconds as JSON has them.

        Raises
        ------
        JournalError
            If it is not done.

        """
        row = self._row("SELECT transcript FROM recordings WHERE number=? AND state=?", number, DONE)
        if row is None:
            raise JournalError(f"{self.path}: recording {number} is not done; transcribe it first")
        return read_json(zlib.decompress(row[0]).decode("utf-8"))

    def answer(self, number: int, key: bytes) -> bytes | None:
        """Return one of the answers that have come for a recording, or None."""
        row = self._row("SELECT answer FROM answers WHERE recording=? AND key=?", number, key)
        return None if row is None else bytes(row[0])

    def answers(self, number: int) -> dict[bytes, bytes]:
        """Return all answers that have come for a recording, by their keys."""
        with self._lock, self._translated():
            rows = self._execute("SELECT key, answer FROM answers WHERE recording=?", (number,)).fetchall()
        return {bytes(key): bytes(answer) for key, answer in rows}

    def keep_answer(self, number: int, key: bytes, answer: bytes) -> None:
        """Keep an answer for a recording: what an engine said of a clip, or what came of a chunk."""
        self._change("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", number, key, answer)

    def output_fingerprint(self, path: str | os.PathLike[str]) -> str | None:
        """Return the fingerprint of the recording that an output was written from, or None where that is not known."""
        row = self._row("SELECT fingerprint FROM outputs WHERE path=?", self._output_key(path))
        return None if row is None else str(row[0])

    def keep_output(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        """Keep which recording an output was written from."""
        self._change("INSERT OR REPLACE INTO outputs VALUES (?, ?)", self._output_key(path), fingerprint)

    def _output_key(self, path: str | os.PathLike[str]) -> bytes:
        """Name an output by its place beside the journal, so that the folder may be moved."""
        return os.fsencode(os.path.relpath(os.path.realpath(path), os.path.realpath(self.path.parent)))

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        with self._lock, self._translated():
            row: tuple[Any, ...] | None = self._execute(statement, values).fetchone()
            return row

    def _change(self, statement: str, *values: Any) -> None:
        with self._lock, self._translated():
            self._execute(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make several changes together or not at all."""
        with self._lock, self._translated():
            self._execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                # Where the disk is full SQLite has rolled back by itself, and says so.
                with suppress(sqlite3.Error):
                    self._execute("ROLLBACK")
                raise
            self._execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise what SQLite and the system raise as one sentence."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            remedy = next((remedy for sign, remedy in _REMEDIES if sign in reason), "check the folder and the disk")
            raise JournalError(f"{self.path}: the journal cannot be used ({reason.lower()}); {remedy}") from error
