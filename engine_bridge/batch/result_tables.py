"""What became of many recordings, as one file: JSON Lines or Parquet, one row a recording.

The columns: ``id``; ``source``; ``state``, "done" or "failed"; ``language``; ``duration``, in seconds; ``text``;
``segments`` (``start``, ``end``, ``text``, ``confidence``, ``suspect``, ``language``, ``channel``, ``words``), times
in seconds; ``gaps`` (``start``, ``end``, ``reason``): speech without text; ``warnings``; ``error`` and ``error_kind``:
why it failed; ``engine``; ``fingerprint``, by which the journal knows it; ``extra``: what else its manifest said, as an
object in JSON Lines and as JSON text in Parquet.
"""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from audio.source import AudioSource, Source
from engine_bridge.batch.remote import is_address, shown_address
from engine_bridge.batch.results import RecordingResult
from engine_bridge.batch.tables import import_parquet
from engine_bridge.errors import OutputError
from engine_bridge.outputs import replaced, written
from engine_bridge.transcript import Gap, Segment

_GROUP_ROWS = 1000
_GROUP_CHARACTERS = 1 << 22
"""A group of rows in Parquet, which is held in memory, ends at either: some ten hours of speech."""

_WHAT = "table of results"


class _Sink(Protocol):
    """Takes rows."""

    def add(self, row: dict[str, Any], size: int) -> None:
        """Write a row of so many characters."""

    def finish(self) -> None:
        """Write what is held back."""


class ResultsTable:
    """A file that takes results one by one. It is there as a whole when the context ends without error, or not at all.

    Memory holds one result for JSON Lines, and one group of rows for Parquet.

    Parameters
    ----------
    path : str or path
        Ends in ``.jsonl`` or ``.ndjson``, or in ``.parquet``. What bears the name before is replaced at the end.

    Raises
    ------
    OutputError
        The ending is another, or the file cannot be written.
    EngineUnavailableError
        pyarrow is absent, and the ending asks for it.

    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        ending = Path(self._path).suffix.lower()
        if ending not in (".jsonl", ".ndjson", ".parquet"):
            raise OutputError(f"{self._path}: the ending does not say how to write it; use .jsonl or .parquet")
        self._parquet = import_parquet(self._path) if ending == ".parquet" else None
        self._stack = ExitStack()
        self._sink: _Sink | None = None

    def __enter__(self) -> Self:
        temporary = self._stack.enter_context(replaced(self._path, what=_WHAT))
        try:
            with written(self._path, what=_WHAT):
                if self._parquet is not None:
                    self._sink = _ParquetSink(self._parquet, temporary, self._stack)
                else:
                    file = temporary.open("x", encoding="utf-8", errors="backslashreplace", newline="")
                    self._sink = _LinesSink(self._stack.enter_context(file))
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        sink, self._sink = self._sink, None
        if error is None and sink is not None:
            try:
                with written(self._path, what=_WHAT):
                    sink.finish()
            except BaseException as fault:
                self._stack.__exit__(type(fault), fault, fault.__traceback__)
                raise
        with written(self._path, what=_WHAT):
            self._stack.__exit__(kind, error, trace)

    def add(self, result: RecordingResult) -> None:
        """Write a result.

        Raises
        ------
        OutputError
            The file cannot be written.
        JournalError
            The transcript cannot be read from the journal.

        """
        if self._sink is None:
            raise ValueError("the table is not open: use it as a context manager")
        row = row_of(result)
        with written(self._path, what=_WHAT):
            self._sink.add(row, sum(len(segment["text"]) for segment in row["segments"]) * 4)


def row_of(result: RecordingResult) -> dict[str, Any]:
    """Return the row of a result, its columns as the module says, ``extra`` as a dictionary."""
    transcript, failure = result.transcript, result.failure
    return {
        "id": result.recording.id,
        "source": _clean(source_name(result.recording.source)),
        "state": "done" if failure is None else "failed",
        "language": transcript.language if transcript is not None else result.recording.language,
        "duration": transcript.duration if transcript is not None else result.duration,
        "text": transcript.text if transcript is not None else None,
        "segments": [_segment(segment) for segment in transcript.segments] if transcript is not None else [],
        "gaps": [_gap(gap) for gap in transcript.gaps] if transcript is not None else [],
        "warnings": [_clean(each) for each in transcript.warnings] if transcript is not None else [],
        "error": _clean(failure.reason) if failure is not None else None,
        "error_kind": failure.kind if failure is not None else None,
        "engine": transcript.engine if transcript is not None else None,
        "fingerprint": result.fingerprint,
        "extra": dict(result.recording.extra),
    }


def source_name(source: AudioSource) -> str:
    """Return what a recording's source is called: its path, or its address without what may be secret in it."""
    if isinstance(source, Source):
        return source.name
    if isinstance(source, str | os.PathLike):
        text = os.fsdecode(source)
        return shown_address(text) if is_address(text) else text
    if isinstance(source, tuple | list):
        return "<array>"
    return "<bytes>" if isinstance(source, bytes | bytearray | memoryview) else "<file>"


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "start": round(segment.start, 3),
        "end": round(segment.end, 3),
        "text": segment.text,
        "confidence": segment.confidence,
        "suspect": segment.suspect,
        "language": segment.language,
        "channel": segment.channel,
        "words": [
            {
                "start": round(word.start, 3),
                "end": round(word.end, 3),
                "text": word.text,
                "probability": word.probability,
            }
            for word in segment.words
        ],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {"start": round(gap.start, 3), "end": round(gap.end, 3), "reason": gap.reason}


def _clean(text: str) -> str:
    """Return text as UTF-8 can carry it: names of files in other encodings hold lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


class _LinesSink:
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def add(self, row: dict[str, Any], size: int) -> None:  # noqa: ARG002 - nothing is held back
        self._file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

    def finish(self) -> None:
        self._file.flush()


class _ParquetSink:
    def __init__(self, parquet: Any, path: Path, stack: ExitStack) -> None:
        import pyarrow as pa

        self._pyarrow = pa
        self._schema = _schema(pa)
        file = stack.enter_context(path.open("xb"))
        self._writer = stack.enter_context(parquet.ParquetWriter(file, self._schema, compression="zstd"))
        self._rows: list[dict[str, Any]] = []
        self._held = 0

    def add(self, row: dict[str, Any], size: int) -> None:
        self._rows.append({**row, "extra": json.dumps(row["extra"], default=str)})
        self._held += size
        if len(self._rows) >= _GROUP_ROWS or self._held >= _GROUP_CHARACTERS:
            self.finish()

    def finish(self) -> None:
        if self._rows:
            self._writer.write_table(self._pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._held = [], 0


def _schema(pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.float64()
    word = pyarrow.struct([("start", number), ("end", number), ("text", text), ("probability", number)])
    segment = pyarrow.struct(
        [
            ("start", number),
            ("end", number),
            ("text", text),
            ("confidence", number),
            ("suspect", text),
            ("language", text),
            ("channel", text),
            ("words", pyarrow.list_(word)),
        ]
    )
    gap = pyarrow.struct([("start", number), ("end", number), ("reason", text)])
    return pyarrow.schema(
        [
            *((name, text) for name in ("id", "source", "state", "language")),
            ("duration", number),
            ("text", text),
            ("segments", pyarrow.list_(segment)),
            ("gaps", pyarrow.list_(gap)),
            ("warnings", pyarrow.list_(text)),
            *((name, text) for name in ("error", "error_kind", "engine", "fingerprint", "extra")),
        ]
    )
