"""A job whose outputs go to a folder: what is there already, what has to be written, and what became of all of it."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from engine_bridge.batch.inputs import find_recordings
from engine_bridge.batch.output_names import OutputNames
from engine_bridge.batch.preflight import Preflight, folder_problem, preflight
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.report import Report, Summary
from engine_bridge.batch.result_tables import ResultsTable
from engine_bridge.batch.results import Failure, RecordingResult
from engine_bridge.errors import EngineBridgeError, OutputError
from engine_bridge.formats import find_format
from engine_bridge.journal import DONE, FOLDER, Journal
from engine_bridge.outputs import write_atomically
from engine_bridge.timing import PROCESS, WRITE, TimingContext
from engine_bridge.transcript import Transcript

_OF_ONE_OUTPUT = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ)
"""What can be wrong with the name of one output, while others can be written."""


class Listener(Protocol):
    """Is told what a job does."""

    def finished(
        self,
        result: RecordingResult,
        transcript: Transcript | None,
        wrote: Sequence[Path],
        kept: Sequence[Path],
        timings: Mapping[str, float],
    ) -> None:
        """Hear of a recording that is done; its transcript is given where it was needed, and what writing took."""

    def failed(self, result: RecordingResult, failure: Failure) -> None:
        """Hear of a recording that failed."""


class Job:
    """A job that is planned and whose journal is open. Use it as a context manager.

    Parameters
    ----------
    inputs : sequence of str
        As for `find_recordings`.
    folder : str or path
        Where outputs, journal and report go.
    formats : sequence of str
        The formats to write.
    reports : sequence of path
        Where the report goes besides its place in the folder.
    table : str, path or None
        Where a table of all results goes.

    Attributes
    ----------
    journal : Journal
        What has been done.
    names : OutputNames
        Where outputs go.

    Raises
    ------
    EngineBridgeError
        If the folder cannot be written to, or the journal cannot be opened.

    """

    def __init__(
        self,
        inputs: Sequence[str],
        folder: str | os.PathLike[str],
        formats: Sequence[str],
        *,
        reports: Sequence[str | os.PathLike[str]] = (),
        table: str | os.PathLike[str] | None = None,
    ) -> None:
        self._inputs = inputs
        self._folder = Path(folder)
        self._formats = formats
        self._reports = [self._folder / FOLDER / "report.json", *map(Path, reports)]
        self._table = None if table is None else ResultsTable(table)
        with ExitStack() as stack:
            self.names = stack.enter_context(OutputNames(folder, formats))
            self._report = stack.enter_context(Report())
            problem = folder_problem(folder)
            if problem is not None:
                raise OutputError(problem)
            self.journal = stack.enter_context(Journal.in_folder(folder))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def report_path(self) -> Path:
        """Where the report is in any case."""
        return self._reports[0]

    def recordings(self) -> Iterator[Recording]:
        """Yield the job's recordings."""
        return find_recordings(self._inputs, skipped=[self._folder])

    def plan(self, options: Mapping[str, Any]) -> Preflight | None:
        """Plan the outputs, and look at all recordings where the job is new.

        Inputs that can be read only once, such as a pipe that lists recordings, cannot be looked at before; their
        recordings keep their whole names.

        Parameters
        ----------
        options : mapping
            The job's options of `stream_transcript`.

        Returns
        -------
        Preflight or None
            What was seen; None where the job was begun before, or its inputs can be read only once.

        """
        if not all(map(_can_be_read_again, self._inputs)):
            return None
        planned = self.names.planning(self.recordings())
        if not self.journal.is_empty:
            for _ in planned:
                pass
            return None
        return preflight(planned, output=self._folder, formats=self._formats, options=options)

    def run(self, results: Iterable[RecordingResult], engine: str, listener: Listener) -> Summary:
        """Write what comes of the recordings, and the report.

        Parameters
        ----------
        results : iterable of RecordingResult
            All of them, also those that are known: from `transcribe_many` with this job's journal. Where its `stopped`
            is true in the end, the job was interrupted.
        engine : str
            The engine's specification.
        listener : Listener
            Is told of each.

        Raises
        ------
        EngineBridgeError
            If the job cannot go on. What was done is kept, and the report says so.

        """
        try:
            self._take_all(results, listener)
        except (EngineBridgeError, OSError) as error:
            with suppress(EngineBridgeError):
                self._write_reports(engine, "stopped", str(error))
            raise
        state = "interrupted" if getattr(results, "stopped", False) else "complete"
        self._write_reports(engine, state)
        return self._report.summary(state)

    def _take_all(self, results: Iterable[RecordingResult], listener: Listener) -> None:
        """Take the results as they come. A table of them is made only where it is one of all."""
        with suppress(_InterruptedError), self._table or nullcontext() as table:
            for result in results:
                self._take(result, listener)
                if table is not None:
                    table.add(result)
            if table is not None and getattr(results, "stopped", False):
                raise _InterruptedError

    def _write_reports(self, engine: str, state: str, reason: str | None = None) -> None:
        for path in self._reports:
            self._report.write(path, engine=engine, state=state, reason=reason)

    def _take(self, result: RecordingResult, listener: Listener) -> None:
        failure = result.failure
        paths: Mapping[str, Path] = {}
        if failure is None:
            paths = self.names.paths(result.recording)
            try:
                self._write(result, paths, listener)
            except OutputError as error:
                if error.errno not in _OF_ONE_OUTPUT:
                    raise
                failure = Failure(type(error).__name__, str(error))
        if failure is not None:
            listener.failed(result, failure)
        self._report.add(result, [] if failure is not None else list(paths.values()), failure)

    def _write(self, result: RecordingResult, paths: Mapping[str, Path], listener: Listener) -> None:
        """Write those outputs that are missing or were written from other work."""
        self.journal.check_in_place()
        kept = [path for path in paths.values() if self._is_current(path, result)]
        missing = {name: path for name, path in paths.items() if path not in kept}
        # With times as the journal has them, so that an output written later from there is the same.
        transcript = self._transcript(result) if missing or not result.known else None
        timing = TimingContext(parent=PROCESS)
        with timing.stage(WRITE):
            for name, path in missing.items():
                assert transcript is not None  # noqa: S101 - for the type checker
                write_atomically(path, partial(find_format(name).write, transcript))
                self.journal.keep_output(path, result.fingerprint or "")
        listener.finished(result, transcript, list(missing.values()), kept, timing.seconds())

    def _is_current(self, path: Path, result: RecordingResult) -> bool:
        return path.is_file() and self.journal.output_fingerprint(path) == result.fingerprint and result.known

    def _transcript(self, result: RecordingResult) -> Transcript:
        if not result.known and result.fingerprint is not None:
            entry = self.journal.find(result.fingerprint)
            if entry is not None and entry.state == DONE:
                return self.journal.transcript(entry.number)
        transcript = result.transcript
        if transcript is None:
            raise ValueError(f"{result!r} has no transcript")
        return transcript


class _InterruptedError(Exception):
    """The job was told to stop, so that what is made as a whole is not made."""


def _can_be_read_again(text: str) -> bool:
    """Return whether an input lists the same recordings when it is read a second time."""
    try:
        mode = os.stat(text).st_mode  # noqa: PTH116 - the text may be an address or a pattern
    except (OSError, ValueError):
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
