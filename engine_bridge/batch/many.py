"""The way in for many recordings: a journal, an engine, and one result after the other."""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from audio.detectors import open_detector
from audio.source import AudioSource
from engine_bridge.asking import decoding_options
from engine_bridge.batch.names import Names, name_of_source
from engine_bridge.batch.queue import Entry, RecordingResults
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.result_tables import source_name
from engine_bridge.batch.results import JobProgress
from engine_bridge.batch.working import complete_settings
from engine_bridge.engines.open import DEFAULT_SPEC, open_engine
from engine_bridge.engines.protocol import Engine
from engine_bridge.journal import Journal
from engine_bridge.pipeline import stream_transcript
from engine_bridge.transcript import Segment

MOST_AT_ONCE = 256
"""Recordings under way at once, at the most, where it is not said: each takes two or three threads."""


def transcribe_many(
    recordings: Iterable["Recording | AudioSource"],
    *,
    engine: str | Engine = DEFAULT_SPEC,
    journal: Journal | str | os.PathLike[str] | None = None,
    ordered: bool = False,
    at_once: int | None = None,
    restart: bool = False,
    retry_failed: bool = False,
    on_progress: Callable[[JobProgress], None] | None = None,
    on_segment: Callable[[Recording, Segment], None] | None = None,
    **options: Any,
) -> "RecordingResults":
    """Transcribe many recordings on one engine; iterate over the result for each as it is done.

    ::

        with transcribe_many(Path("calls").glob("*.mp3"), journal="calls.sqlite") as results:
            for result in results:
                print(result.recording.id, result.failure or result.transcript.text)

    A recording that cannot be done is a result with a `Failure`, and the others go on. A clip that the engine fails on
    is tried again before that. With a journal, what was done before is not done again: whole recordings, and the
    chunks of those that were under way when a process ended. Several processes may share a journal and their work.

    Parameters
    ----------
    recordings : iterable of Recording or source
        May have no end. A list or tuple is begun in the order of priorities; of another iterable each is begun as it
        comes: see `engine_bridge.batch.inputs.prioritised`.
    engine : str or Engine
        A specification for `open_engine`, or an engine that stays open afterwards.
    journal : Journal, path or None
        Where work is recorded; a journal that is given stays open.
    ordered : bool
        Yield the results in the order given. One that takes long then holds up the others behind it, of which a bounded
        number is done meanwhile.
    at_once : int or None
        Most recordings under way at once; None for as many as keep the engine busy where each is short.
    restart : bool
        Do again what was done before this call.
    retry_failed : bool
        Try again those recordings that failed before because they cannot be decoded. Without it that is told again.
        What failed for another reason, such as the engine, is always tried again.
    on_progress : callable or None
        Called with a `JobProgress` after each chunk and each recording; by one thread at a time.
    on_segment : callable or None
        Called with a recording and a segment as that becomes known; by several threads.
    **options
        The other options of `stream_transcript`. Its `channel_reduction` may be "each" as well, for a text of each
        channel. What a `Recording` says of itself comes first.

    Raises
    ------
    TypeError
        If there is no such option.
    AudioError
        If the detector cannot be used here.
    EngineBridgeError
        If the engine or the journal cannot be opened. While iterating: if the engine dies, or the journal cannot be
        written any more. What was done until then is kept.

    """
    known = inspect.signature(stream_transcript).parameters
    unknown = [name for name in options if name not in known or name in ("source", "room")]
    if unknown:
        raise TypeError(f"transcribe_many() takes no option {unknown[0]!r}")
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once must be at least 1, not {at_once}")
    opened = open_engine(engine) if isinstance(engine, str) else engine
    try:
        _check(opened, options)
        kept = journal if journal is None or isinstance(journal, Journal) else Journal(journal)
    except BaseException:
        if isinstance(engine, str):
            opened.close()
        raise
    owned: list[Engine | Journal] = [opened] if isinstance(engine, str) else []
    if kept is not None and kept is not journal:
        owned.append(kept)
    return RecordingResults(
        _in_order(recordings, ordered=ordered),
        opened,
        kept,
        options,
        owned=owned,
        ordered=ordered,
        at_once=at_once if at_once is not None else max(2, min(opened.preferred_in_flight, MOST_AT_ONCE)),
        restart=restart,
        retry_failed=retry_failed,
        on_progress=on_progress,
        on_segment=on_segment,
    )


def _check(engine: Engine, options: Mapping[str, Any]) -> None:
    """Raise UnsupportedOptionError or AudioError if what all recordings are asked for cannot be done."""
    settings = complete_settings(options)
    asked = ("language", "per_chunk_language", "task", "beam_size", "prompt", "glossary")
    decoding_options(engine, **{name: settings[name] for name in asked})
    open_detector(settings["detector"], engine.capabilities.sample_rate)


def _in_order(recordings: Iterable["Recording | AudioSource"], *, ordered: bool) -> Iterator[Entry]:
    numbered = enumerate(named(recordings))
    if isinstance(recordings, Sequence) and not ordered:
        yield from sorted(numbered, key=lambda entry: -entry[1].priority)
    else:
        yield from numbered


def named(recordings: Iterable["Recording | AudioSource"]) -> Iterator[Recording]:
    """Yield the recordings, and for each source one whose name is that of the source."""
    with Names() as names:
        for each in recordings:
            if isinstance(each, Recording):
                yield each
            else:
                yield Recording(names.unique(name_of_source(source_name(each))), each)
