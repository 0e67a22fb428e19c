"""Many recordings on a cluster, by Ray Data.

The stages are those of one process. Workers decode and cut; actors that each open an engine recognise; the process that
asked keeps the journal, joins what was cut, and yields each recording as its last chunk comes::

    recordings -> read and cut (tasks) -> recognise (actors) -> join (here)

Scheduling, transport, back-pressure and what to do when a process or a machine is lost are Ray's. Its workers need this
package, the model, and the recordings at the same paths or addresses; the journal needs only the process that asked.

Where times come from words the outcome is that of one process. Engines that time no words are held to the usual pace of
speech in place of each recording's own, for chunks of one recording do not wait for each other across machines.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from types import TracebackType
from typing import Any, Literal, Self

from audio.channels import ChannelReduction
from audio.errors import AudioError
from audio.mixing import ChannelChoice
from audio.selection import Timeline
from audio.source import Source
from engine_bridge.asking import check_languages
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address
from engine_bridge.batch.results import Failure, RecordingResult
from engine_bridge.cluster_engines import Asked
from engine_bridge.cluster_messages import Ballot, Broken, Content, Cut, Order, messages_of
from engine_bridge.cluster_ray import Engines, Pass, Stage, agreed, connected, placed, rows_in_cluster, translated
from engine_bridge.cluster_results import Collector, Entry
from engine_bridge.engines.open import DEFAULT_SPEC
from engine_bridge.engines.options import check_options
from engine_bridge.errors import ClusterError, EngineBridgeError
from engine_bridge.journal import Journal
from engine_bridge.transcription import FILLED

WINDOW = 20_000
"""Recordings that are known at a time. Each costs about a kilobyte here, and a window's last ones leave some of a
cluster idle: half an hour in some days, with recordings of an hour on a hundred engines."""

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
    recordings: Iterable[Recording],
    *,
    address: str | None = None,
    engine: str = DEFAULT_SPEC,
    engines: int | None = None,
    cpus_per_engine: float = 1,
    gpus_per_engine: float | None = None,
    journal: Journal | None = None,
    retry_failed: bool = False,
    language: str | None = None,
    per_chunk_language: bool = False,
    task: str = "transcribe",
    beam_size: int = 1,
    prompt: str | None = None,
    glossary: Sequence[str] = (),
    audio_backend: str = "auto",
    channel_reduction: ChannelChoice | Literal["each"] = ChannelReduction.MEAN,
    track: int | str | None = None,
    from_seconds: float = 0.0,
    to_seconds: float | None = None,
    timeline: Timeline = "container",
) -> "ClusterResults":
    """Transcribe many recordings on a Ray cluster; iterate over the result for each as it is done.

    Parameters
    ----------
    recordings : iterable of Recording
        May have no end. Files are opened by workers, at the paths given here made absolute; what is no file travels.
    address : str or None
        As `parse_address` gives it. Where Ray is in use already in this process, that cluster is used.
    engine : str
        A specification for `open_engine`, opened on the workers.
    engines : int or None
        How many; None for as many as the cluster has room for, started as they are needed.
    cpus_per_engine : float
        Cores that each takes, and works on where it is an embedded one.
    gpus_per_engine : float or None
        GPUs that each takes; None for one where the cluster has any and the engine is no server elsewhere.
    journal : Journal or None
        What is done is kept there, and not done again.
    retry_failed : bool
        Whether recordings that failed before are tried again.
    language, per_chunk_language, task, beam_size, prompt, glossary, audio_backend, channel_reduction, track, \
from_seconds, to_seconds, timeline
        As for `stream_transcript`; "each" channel may have a text of its own, as by `transcribe_channels`. A recording
        may differ.

    Returns
    -------
    ClusterResults
        An iterator of `RecordingResult`, in the order in which they are done.

    Raises
    ------
    ClusterError
        If the cluster cannot be reached or has no room for the engines; while iterating, if it is lost.
    EngineBridgeError
        If the engine cannot be opened there, or cannot do what is asked; while iterating, if it dies again and again.

    """
    asked = Asked(language, per_chunk_language, task, beam_size, prompt, tuple(glossary))
    with ExitStack() as stack:
        ray = stack.enter_context(connected(address))
        kind = placed(ray, Engines(engine, {}, engines, cpus_per_engine, 0), gpus_per_engine)
        contract = agreed(ray, kind, asked)
        cut = Cut(
            contract.capabilities.sample_rate,
            FILLED * contract.capabilities.max_clip_seconds,
            contract.options.timestamps,
            audio_backend,
            timeline,
        )
        settings = {
            "language": language,
            "per_chunk_language": per_chunk_language,
            "task": task,
            "beam_size": beam_size,
            "prompt": prompt,
            "glossary": tuple(glossary),
            "audio_backend": audio_backend,
            "channel_reduction": channel_reduction,
            "track": track,
            "from_seconds": from_seconds,
            "to_seconds": to_seconds,
            "timeline": timeline,
        }
        job = _Job(ray, Pass("pieces", cut, kind, contract, per_chunk_language), journal, settings, retry_failed)
        return ClusterResults(job.results(recordings), stack.pop_all())


class ClusterResults(Iterator[RecordingResult]):
    """The results of a job on a cluster, as they come. Leaving early and closing stops the job there.

    Made by `transcribe_on_ray`.
    """

    def __init__(self, results: Iterator[RecordingResult], connection: ExitStack) -> None:
        self._results = results
        self._connection = connection

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
        close = getattr(self._results, "close", None)
        if close is not None:
            close()
        self._connection.close()


class _Job:
    """The recordings of a job, window by window."""

    def __init__(
        self, ray: Any, run: Pass, journal: Journal | None, settings: Mapping[str, Any], retry_failed: bool
    ) -> None:
        self._ray = ray
        self._run = run
        self._journal = journal
        self._settings = settings
        self._retry_failed = retry_failed

    def results(self, recordings: Iterable[Recording]) -> Iterator[RecordingResult]:
        """Yield what becomes of the recordings."""
        numbered = enumerate(recordings)
        while window := list(islice(numbered, WINDOW)):
            collector = Collector(self._run.contract, self._journal)
            for position, recording in window:
                failed = self._open(collector, position, recording)
                if failed is not None:
                    yield failed
            yield from self._known(collector)
            yield from self._elected(collector)
            yield from self._recognised(collector)
            if len(collector):
                raise ClusterError(f"the cluster ended without a word of {len(collector)} recordings: start again")

    def _open(self, collector: Collector, position: int, recording: Recording) -> RecordingResult | None:
        """Take a recording into a window, or return why it cannot be."""
        contract = self._run.contract
        own = {
            "language": recording.language,
            "channel_reduction": recording.channels,
            "track": recording.track,
            "from_seconds": recording.from_seconds,
            "to_seconds": recording.to_seconds,
        }
        settings = {**self._settings, **{name: value for name, value in own.items() if value is not None}}
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
            elif (result := collector.known(entry.order.number, digest, retry_failed=self._retry_failed)) is not None:
                yield result
        if unseen and not journal.is_empty:
            for message in self._told(unseen, "contents"):
                if isinstance(message, Content):
                    collector.keep_digest(message)
                    result = collector.known(message.number, message.digest, retry_failed=self._retry_failed)
                    if result is not None:
                        yield result

    def _elected(self, collector: Collector) -> Iterator[RecordingResult]:
        """Let the first chunks of recordings without a language vote on it."""
        if not self._run.contract.capabilities.detects_language:
            return
        voting = [order for order in collector.orders() if order.language is None]
        if not voting:
            return
        for message in self._told(voting, "votes"):
            if isinstance(message, Ballot | Broken) and (result := collector.take(message)) is not None:
                yield result
        collector.elect()

    def _recognised(self, collector: Collector) -> Iterator[RecordingResult]:
        for message in self._told(collector.orders(), "pieces"):
            result = collector.take(message)
            if result is not None:
                yield result

    def _told(self, orders: Sequence[Order], stage: Stage) -> Iterator[Any]:
        """Yield what the stages tell of recordings."""
        if not orders:
            return
        run = replace(self._run, stage=stage)
        with translated(run.engines.spec):
            for rows in rows_in_cluster(self._ray, list(orders), run):
                yield from messages_of(rows)


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
