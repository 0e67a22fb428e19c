"""Many recordings as chunks in shards: for training and labelling, and safe to end and begin again at any time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from audio.isolation import Isolation
from audio.limits import DecodeLimits
from engine_bridge.batch.chunking import EXPECTED_FAILURES, CutRecording, SplitSettings, cut
from engine_bridge.batch.names import Names
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.result_tables import source_name
from engine_bridge.batch.shard_files import ShardWriter, open_shard, shard_extension
from engine_bridge.batch.shard_state import ShardState, bytes_of, held, made_by
from engine_bridge.errors import OutputError
from engine_bridge.outputs import replaced, write_atomically, written

SHARD_SIZE = 1000
"""Chunks after which a shard ends: about seven hours, and half a gigabyte of FLAC at 16 kHz."""

REPORT = "report.jsonl"
_MOST_WORKERS = 8


@dataclass(frozen=True)
class SplitResult:
    """What became of one recording.

    Attributes
    ----------
    recording : Recording
        The entry.
    state : str
        "done"; "known" where it was done in an earlier run; or "failed".
    shard : str or None
        The shard that holds its chunks; None where it has none.
    chunks : int
        How many it gave.
    seconds : float
        Its length.
    warnings : tuple of str
        What the decoder told.
    error : str or None
        Why it failed.

    """

    recording: Recording
    state: str
    shard: str | None = None
    chunks: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    error: str | None = None


@dataclass
class SplitSummary:
    """What a run has done: recordings by state, and chunks, seconds and shards that are new."""

    done: int = 0
    known: int = 0
    failed: int = 0
    chunks: int = 0
    seconds: float = 0.0
    shards: int = 0

    def add(self, result: SplitResult) -> None:
        """Count a recording."""
        setattr(self, result.state, getattr(self, result.state) + 1)
        if result.state == "done":
            self.chunks += result.chunks
            self.seconds += result.seconds


def split_recordings(
    recordings: Iterable[Recording],
    output: str | os.PathLike[str],
    kind: str,
    *,
    settings: SplitSettings | None = None,
    shard_size: int = SHARD_SIZE,
    workers: int | None = None,
    limits: DecodeLimits | None = None,
    isolation: Isolation | None = None,
    on_result: Callable[[SplitResult], None] | None = None,
) -> SplitSummary:
    """Cut recordings into chunks, and write them to shards in the order given.

    A shard ends with the recording that fills it, so that none is in two. It is there as a whole, with a description
    beside it, or not at all: a run that is killed and started again with the same recordings writes the shards that
    are missing, and they are what they would have been. A recording that fails is told in the report and tried again
    by the next run; the others are done. Memory depends on `workers`, not on the number or length of recordings: what
    is cut before its turn waits on disk.

    Parameters
    ----------
    recordings : iterable of Recording
        May be without end.
    output : str or path
        A folder for the shards, ``shard-000000`` and on; for their descriptions, ``.json``; and for ``report.jsonl``,
        one line a recording of the last run that came to its end.
    kind : {"webdataset", "parquet", "lhotse"}
        What a shard is: see `engine_bridge.batch.shard_files`.
    settings : SplitSettings, optional
        How recordings are cut.
    shard_size : int
        Chunks after which a shard ends.
    workers : int, optional
        How many recordings are cut at a time; one for each core, up to eight, by default.
    limits : DecodeLimits, optional
        What decoding a recording may cost; one that costs more fails.
    isolation : Isolation, optional
        Bounds of a process of its own in which each recording is decoded.
    on_result : callable, optional
        Called with each `SplitResult`, in order.

    Returns
    -------
    SplitSummary
        What was done.

    Raises
    ------
    OutputError
        The folder cannot be written, another run is using it, or it holds shards that were made otherwise.
    EngineUnavailableError
        Parquet is asked for, and pyarrow is absent.
    SplitError
        The settings contradict each other.

    """
    chosen = settings if settings is not None else SplitSettings()
    _check_lengths(chosen)
    folder = Path(output)
    count = workers if workers is not None else min(os.cpu_count() or 1, _MOST_WORKERS)
    summary = SplitSummary()
    with held(folder), ShardState(folder, kind, chosen) as done, _report(folder) as tell:
        shards = _Shards(folder, kind, chosen, shard_size, done)
        cutting = partial(cut, limits=limits, isolation=isolation)
        with shards, closing(_cut_in_order(recordings, chosen, folder, done, count, cutting)) as cuts:
            for recording, key, work in cuts:
                result = _taken(recording, key, work, shards, done)
                summary.add(result)
                tell(result)
                if on_result is not None:
                    on_result(result)
        summary.shards = shards.finished
    return summary


def _check_lengths(settings: SplitSettings) -> None:
    from audio.detectors import open_detector
    from audio.split import stream_chunks

    stream_chunks(
        [],
        settings.sample_rate,
        max_duration=settings.max_duration,
        min_duration=settings.min_duration,
        keep_silence=settings.keep_silence,
        detector=open_detector(settings.detector, settings.sample_rate),
    )


def _cut_in_order(
    recordings: Iterable[Recording],
    settings: SplitSettings,
    folder: Path,
    done: ShardState,
    workers: int,
    cutting: Callable[[Recording, SplitSettings, str, Callable[[], bool]], CutRecording],
) -> Generator[tuple[Recording, str, Future[CutRecording] | None], None, None]:
    """Cut recordings, several at a time, and yield each in its turn; None for those that are in a shard already."""
    stopped = threading.Event()
    under_way: deque[tuple[Recording, str, Future[CutRecording] | None]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="auricle-cut")
    try:
        with Names() as keys:
            for recording in recordings:
                key = keys.unique(recording.id.replace(".", "_"))
                work = None
                if done.shard_of(recording) is None:
                    work = pool.submit(cutting, recording, settings, os.fspath(folder), stopped.is_set)
                under_way.append((recording, key, work))
                if len(under_way) >= 2 * workers:
                    yield under_way.popleft()
            while under_way:
                yield under_way.popleft()
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
        for *_, work in under_way:
            if work is not None and not work.cancelled() and work.exception() is None:
                work.result().close()


def _taken(
    recording: Recording, key: str, work: Future[CutRecording] | None, shards: _Shards, done: ShardState
) -> SplitResult:
    """Put a recording's chunks into the shard that is open, and say what became of it."""
    if work is None:
        shard = done.shard_of(recording)
        if done.has_changed(recording):
            told = f"{recording.id}: it has changed since {shard} was made of it; remove that, and it is made again"
            return SplitResult(recording, "failed", shard, error=told)
        return SplitResult(recording, "known", shard)
    try:
        chunks = work.result()
    except OutputError:
        raise
    except EXPECTED_FAILURES as error:
        return SplitResult(recording, "failed", error=str(error))
    try:
        shard = shards.add(chunks, key) if len(chunks) else None
    finally:
        chunks.close()
    return SplitResult(recording, "done", shard, len(chunks), chunks.seconds, chunks.warnings)


class _Shards:
    """The shards of a run, one of them open at a time."""

    def __init__(self, folder: Path, kind: str, settings: SplitSettings, size: int, done: ShardState) -> None:
        self._folder = folder
        self._kind = kind
        self._settings = settings
        self._size = size
        self._done = done
        self._number = -1
        self._context: AbstractContextManager[ShardWriter] | None = None
        self._writer: ShardWriter | None = None
        self._recordings: list[dict[str, Any]] = []
        self._chunks = 0
        self.finished = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._context is None:
            return
        if kind is None:
            self._finish()
            return
        context, self._context = self._context, None
        context.__exit__(kind, error, trace)

    @property
    def _name(self) -> str:
        return f"shard-{self._number:06d}"

    def add(self, chunks: CutRecording, key: str) -> str:
        """Write a recording's chunks, end the shard if that fills it, and return the shard's file name."""
        if self._context is None:
            self._begin()
        assert self._writer is not None  # noqa: S101 - just opened; for the type checker
        recording = chunks.recording
        common = {
            "recording": recording.id,
            "source": source_name(recording.source),
            "language": recording.language,
            "extra": dict(recording.extra),
        }
        for entry, content in chunks:
            self._writer.add({"key": f"{key}-{entry['index']:05d}", **common, **entry}, content)
        self._recordings.append(
            {
                **{name: common[name] for name in ("recording", "source")},
                "bytes": bytes_of(recording),
                "key": key,
                "chunks": len(chunks),
                "seconds": round(chunks.seconds, 6),
                "warnings": list(chunks.warnings),
            }
        )
        self._chunks += len(chunks)
        file = self._path.name
        if self._chunks >= self._size:
            self._finish()
        return file

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._name}{shard_extension(self._kind)}"

    def _begin(self) -> None:
        self._number = self._done.next_number(self._number + 1)
        self._context = open_shard(self._kind, self._path)
        self._writer = self._context.__enter__()
        self._recordings, self._chunks = [], 0

    def _finish(self) -> None:
        context, self._context, self._writer = self._context, None, None
        assert context is not None  # noqa: S101 - it is open; for the type checker
        if self._kind == "lhotse" and self._path.exists():
            shutil.rmtree(self._path)  # left by a run that was killed before it could describe it
        context.__exit__(None, None, None)
        description = {
            "shard": self._path.name,
            **made_by(self._kind, self._settings),
            "sha256": _hash_of(self._path / "cuts.jsonl.gz" if self._kind == "lhotse" else self._path),
            "chunks": self._chunks,
            "seconds": round(sum(each["seconds"] for each in self._recordings), 6),
            "recordings": self._recordings,
        }
        text = json.dumps(description, ensure_ascii=False, indent=1, default=str) + "\n"
        write_atomically(self._folder / f"{self._name}.json", text, what="shard's description")
        self.finished += 1


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _report(folder: Path) -> Iterator[Callable[[SplitResult], None]]:
    """Give what writes a line of the report; the report is there when the run has come to its end."""
    path = folder / REPORT
    with (
        replaced(path, what="report") as temporary,
        temporary.open("x", encoding="utf-8", errors="backslashreplace") as file,
    ):
        yield lambda result: _write_line(file, path, result)


def _write_line(file: TextIO, path: Path, result: SplitResult) -> None:
    entry = {
        "id": result.recording.id,
        "source": source_name(result.recording.source),
        **{name: getattr(result, name) for name in ("state", "shard", "chunks", "seconds", "error")},
        "warnings": list(result.warnings),
        "extra": dict(result.recording.extra),
    }
    with written(path, what="report"):
        file.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
