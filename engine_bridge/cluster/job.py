"""A job on a cluster, from the process that asked for it.

It keeps the journal, and joins and yields each recording as its last chunk comes.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields, replace
from itertools import islice
from types import TracebackType
from typing import Any, Self

from audio.errors import AudioError
from audio.source import AudioSource, Source
from engine_bridge.asking import check_languages
from engine_bridge.batch.many import named
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address
from engine_bridge.batch.results import Failure, JobProgress, RecordingResult
from engine_bridge.batch.working import complete_settings, settings_of
from engine_bridge.cluster.engines import Asked
from engine_bridge.cluster.messages import Content, Cut, Heard, Order, Stopped
from engine_bridge.cluster.on_ray import Engines, Pass, Stage, agreed, connected, placed, rows_in_cluster, translated
from engine_bridge.cluster.results import Collector, Entry
from engine_bridge.cluster.rows import messages_of
from engine_bridge.cutting import FILLED
from engine_bridge.engines.open import DEFAULT_SPEC
from engine_bridge.engines.options import check_options
from engine_bridge.errors import ClusterError, EngineBridgeError
from engine_bridge.journal import Journal

WINDOW = 20_000
"""Recordings that are known at a time. Each costs about a kilobyte here, and a window's last ones leave some of a
cluster idle: half an hour in some days, with recordings of an hour on a hundred engines."""

LOST = "each process of the cluster that took it up was lost; look at its memory and its logs, then try again"

LOCAL, ON_THIS_MACHINE, CLIENT = "ray", "ray:auto", "ray://"


def parse_address(text: str) -> str | None:
    """Return the address of a cluster as `transcribe_on_ray` takes it.

    Parameters
    ----------
    text : str
        "ray" for the cluster that RAY_ADDRESS names or that runs here, else one that is started for the job;
        "ray:auto" for one that must run here; "ray://HOST:PORT" for Ray's client port on another machine.

    Raises
    ------
    ClusterError
        If it is none of these.

    """
    if text == LOCAL:
        return None
    if text == ON_THIS_MACHINE:
        return "auto"
    host, separator, port = text.removeprefix(CLIENT).rpartition(":")
    if text.startswith(CLIENT) and host and separator and port.isdigit():
        return text
    raise ClusterError(f"cluster {text!r} is not understood: use ray, ray:auto or ray://HOST:PORT")


def transcribe_on_ray(
    recordings: Iterable["Recording | AudioSource"],
    *,
    address: str | None = None,
    engine: str = DEFAULT_SPEC,
    engine_args: Mapping[str, Any] | None = None,
    engines: int | None = None,
    cpus_per_engine: float = 1,
    gpus_per_engine: float | None = None,
    journal: Journal | None = None,
    restart: bool = False,
    retry_failed: bool = False,
    on_progress: Callable[[JobProgress], None] | None = None,
    **options: Any,
) -> "ClusterResults":
    """Transcribe many recordings on a Ray cluster; iterate over the result for each as it is done.

    ::

        with transcribe_on_ray(recordings, address="ray://head:10001", engine="vllm:large-v3-turbo") as results:
            for result in results:
                print(result.recording.id, result.failure or result.transcript.text)

    Parameters
    ----------
    recordings : iterable of Recording or source
        May have no end; so many are taken at a time (`WINDOW`). Files are opened by workers, at the paths given here
        made absolute; what is no file travels.
    address : str or None
        As `parse_address` gives it. Where Ray is in use already in this process, that cluster is used.
    engine : str
        A specification for `open_engine`, opened on the workers.
    engine_args : mapping or None
        What `open_engine` takes by name beside it.
    engines : int or None
        How many; None for as many as the cluster has room for, started as they are needed.
    cpus_per_engine : float
        Cores that each takes, and works on where it is an embedded one.
    gpus_per_engine : float or None
        GPUs that each takes; None for one where the cluster has any and the engine is no server elsewhere.
    journal : Journal or None
        What is done is kept there, and not done again.
    restart : bool
        Do again what was done before this call.
    retry_failed : bool
        Try again those recordings that failed before because they cannot be decoded.
    on_progress : callable or None
        Called with a `JobProgress` after each chunk and each recording.
    **options
        As for `transcribe_many`.

    Returns
    -------
    ClusterResults
        An iterator of `RecordingResult`, in the order in which they are done.

    Raises
    ------
    TypeError
        If there is no such option.
    ClusterError
        If the cluster cannot be reached or has no room for the engines; while iterating, if it is lost.
    EngineBridgeError
        If the engine cannot be opened there, or cannot do what is asked; while iterating, if it dies again and again,
        or the journal cannot be written any more. What was done until then is kept.

    """
    settings = complete_settings(options)
    unknown = sorted(set(options) - set(complete_settings({})))
    if unknown:
        raise TypeError(f"transcribe_on_ray() takes no option {unknown[0]!r}")
    asked = Asked(**{each.name: settings[each.name] for each in fields(Asked)})
    with ExitStack() as stack:
        ray = stack.enter_context(connected(address))
        kind = placed(ray, Engines(engine, engine_args or {}, engines, cpus_per_engine, 0), gpus_per_engine)
        contract = agreed(ray, kind, asked)
        cut = Cut(
            contract.capabilities.sample_rate,
            FILLED * contract.capabilities.max_clip_seconds,
            contract.options.timestamps,
            settings["audio_backend"],
            settings["timeline"],
            settings["detector"],
            settings["limits"],
            settings["isolation"],
        )
        run = Pass("pieces", cut, kind, contract, asked.per_chunk_language)
        job = _Job(ray, run, journal, settings, restart=restart, retry_failed=retry_failed, on_progress=on_progress)
        return ClusterResults(job, recordings, stack.pop_all())


class ClusterResults(Iterator[RecordingResult]):
    """The results of a job on a cluster, as they come. Leaving early and closing stops the job there.

    Made by `transcribe_on_ray`.

    Attributes
    ----------
    progress : JobProgress
        How far the job has come.

    """

    def __init__(self, job: "_Job", recordings: Iterable["Recording | AudioSource"], connection: ExitStack) -> None:
        self._job = job
        self._results = job.results(recordings)
        self._connection = connection

    @property
    def progress(self) -> JobProgress:
        """How far the job has come."""
        return self._job.progress

    def __next__(self) -> RecordingResult:
        """Return the next recording that is done."""
        try:
            return next(self._results)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the job, and leave the cluster if it was joined for it. It may be called more than once."""
        self._results.close()
        self._connection.close()


class _Job:
    """The recordings of a job, window by window."""

    def __init__(
        self,
        ray: Any,
        run: Pass,
        journal: Journal | None,
        settings: Mapping[str, Any],
        *,
        restart: bool,
        retry_failed: bool,
        on_progress: Callable[[JobProgress], None] | None,
    ) -> None:
        self._ray = ray
        self._run = run
        self._journal = journal
        self._settings = settings
        self._since = time.time() if restart else 0.0
        self._retry_failed = retry_failed
        self._on_progress = on_progress
        self._started = time.perf_counter()
        self._counts = {"done": 0, "known": 0, "failed": 0}
        self._under_way = 0
        self._audio_seconds = 0.0

    @property
    def progress(self) -> JobProgress:
        """How far the job has come."""
        return JobProgress(
            **self._counts,
            under_way=self._under_way,
            audio_seconds=self._audio_seconds,
            elapsed_seconds=time.perf_counter() - self._started,
        )

    def results(self, recordings: Iterable["Recording | AudioSource"]) -> Generator[RecordingResult, None, None]:
        """Yield what becomes of the recordings."""
        numbered = enumerate(named(recordings))
        while window := list(islice(numbered, WINDOW)):
            collector = Collector(self._run.contract, self._journal)
            for result in self._window(collector, window):
                self._counts["failed" if result.failure is not None else "known" if result.known else "done"] += 1
                self._under_way = len(collector)
                self._tell()
                yield result

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def _window(self, collector: Collector, window: Sequence[tuple[int, Recording]]) -> Iterator[RecordingResult]:
        for position, recording in window:
            failed = self._open(collector, position, recording)
            if failed is not None:
                yield failed
        yield from self._known(collector)
        yield from self._elected(collector)
        yield from self._recognised(collector)

    def _open(self, collector: Collector, position: int, recording: Recording) -> RecordingResult | None:
        """Take a recording into a window, or return why it cannot be."""
        contract = self._run.contract
        settings = settings_of(recording, self._settings)
        try:
            if settings["per_chunk_language"]:
                check_languages(contract.spec, settings["language"], detects=contract.capabilities.detects_language)
            options = replace(contract.options, language=settings["language"])
            check_options(contract.spec, contract.capabilities, options)
            called, source = _sendable(recording.source)
        except (AudioError, EngineBridgeError) as error:
            failure = Failure(type(error).__name__, str(error))
            return RecordingResult(recording, position, failure=failure)
        order = Order(
            position,
            called,
            source,
            settings["channel_reduction"],
            settings["track"],
            settings["from_seconds"],
            settings["to_seconds"],
            settings["language"],
            hashes=self._journal is not None,
        )
        status = None
        if isinstance(source, str) and not is_address(source):
            with suppress(OSError):
                status = os.stat(source)  # noqa: PTH116 - the path as it was given
        collector.open(Entry(recording, position, order, settings, status))
        return None

    def _known(self, collector: Collector) -> Iterator[RecordingResult]:
        """Yield what the journal knows of a window; content that it has not seen yet is hashed by the workers."""
        journal = self._journal
        if journal is None:
            return
        unseen = []
        for entry in collector.entries():
            path, digest = entry.order.source, None
            if entry.status is not None and isinstance(path, str):
                digest = journal.known_digest(Source(path, path=path))
            if digest is None:
                unseen.append(entry.order)
            else:
                yield from self._looked_up(collector, entry.order.number, digest)
        if unseen and not journal.is_empty:
            for message in self._told(unseen, "contents"):
                if isinstance(message, Content):
                    collector.keep_digest(message)
                    yield from self._looked_up(collector, message.number, message.digest)

    def _looked_up(self, collector: Collector, number: int, digest: bytes) -> Iterator[RecordingResult]:
        """Yield what the journal knows of a recording, if it is done."""
        result = collector.known(number, digest, retry_failed=self._retry_failed, since=self._since)
        if result is not None:
            yield result

    def _elected(self, collector: Collector) -> Iterator[RecordingResult]:
        """Let the first chunks of recordings without a language vote on it."""
        if not self._run.contract.capabilities.detects_language:
            return
        for alone in (False, True):
            for message in self._told(collector.unpolled(), "votes", alone=alone):
                if (result := collector.take(message)) is not None:
                    yield result
        collector.elect()

    def _recognised(self, collector: Collector) -> Iterator[RecordingResult]:
        """Yield the recordings as they are done.

        A recording, or a chunk of one, that ends each process that takes it up takes others with it that were there at
        the same time. What Ray then gives up is done once more, each chunk alone, and what is lost again is that
        recording's own failure.
        """
        for alone in (False, True):
            for message in self._told(collector.orders(), "pieces", alone=alone):
                result = collector.take(message)
                if isinstance(message, Heard):
                    self._audio_seconds += message.seconds
                    self._tell()
                if result is not None:
                    yield result
        yield from collector.lost(LOST)

    def _told(self, orders: Sequence[Order], stage: Stage, *, alone: bool = False) -> Iterator[Any]:
        """Yield what the stages tell of recordings, and raise what stopped them."""
        if not orders:
            return
        run = replace(self._run, stage=stage, alone=alone)
        with translated():
            for rows in rows_in_cluster(self._ray, list(orders), run):
                for message in messages_of(rows):
                    if isinstance(message, Stopped):
                        raise message.error
                    yield message


def _sendable(source: Any) -> tuple[str | None, Any]:
    """Return what messages call a source, and what of it a worker can open."""
    if isinstance(source, Source):
        if source.path is not None:
            return source.name, os.path.abspath(source.path)  # noqa: PTH100 - links stay as they are
        if source.array is not None:
            return source.name, (source.array.samples, source.array.sample_rate)
        with source.open() as file:
            return source.name, file.read()
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        return (None, path) if is_address(path) else (path, os.path.abspath(path))  # noqa: PTH100
    if callable(getattr(source, "read", None)):
        return "<file>", source.read(-1)
    return None, source
