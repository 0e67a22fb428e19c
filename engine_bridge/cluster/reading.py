"""The first stage of a job on a cluster: recordings are read and cut, each by one worker.

Nothing here knows of Ray: these are functions that yield rows for a row.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from audio.chunk import Chunk
from audio.detectors import open_detector
from audio.errors import AudioError
from audio.positions import seconds_from_samples
from audio.selection import Selection
from audio.source import Source
from audio.stream import MonoStream, open_stream
from engine_bridge.assembling import hears_seams
from engine_bridge.batch.remote import opened
from engine_bridge.batch.results import Failure
from engine_bridge.batch.working import EACH, lasts
from engine_bridge.channels_apart import SAME_SOUND, channels_of
from engine_bridge.cluster.messages import Broken, Content, Cut, End, Heard, Message, Order, Piece, Polled, stopped
from engine_bridge.cluster.rows import packed, unpacked
from engine_bridge.content import content_hash
from engine_bridge.cutting import cut_stream
from engine_bridge.errors import EngineBridgeError
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.recognition.language import CANDIDATES, most_audible
from engine_bridge.recognition.seams import seam_chunk
from engine_bridge.timing import DECODE_AUDIO, SPLIT, TimingContext


def read_pieces(row: Mapping[str, Any], cut: Cut) -> Iterator[dict[str, bytes]]:
    """Read the recording that a row names, and yield its chunks and what else there is to tell, as rows."""
    return _rows(pieces(unpacked(row), cut))


def read_contents(row: Mapping[str, Any]) -> Iterator[dict[str, bytes]]:
    """Read the recording that a row names for the hash of its content; nothing where it cannot be read."""
    return _rows(_contents(unpacked(row)))


def read_voters(row: Mapping[str, Any], cut: Cut) -> Iterator[dict[str, bytes]]:
    """Read the recording that a row names up to the chunks that vote on its language; what fails is told later."""
    return _rows(_voters(unpacked(row), cut))


def _rows(messages: Iterator[Message]) -> Iterator[dict[str, bytes]]:
    """Yield rows of messages, and a last one of what stopped them: Ray is to see the loss of processes alone."""
    try:
        for message in messages:
            yield packed(message)
    except Exception as error:  # noqa: BLE001 - raised again where the job was asked for
        yield packed(stopped(error))


def _contents(order: Order) -> Iterator[Message]:
    with suppress(AudioError), opened(order.source) as audio:
        yield _content(order, _named(audio, order))


def _voters(order: Order, cut: Cut) -> Iterator[Message]:
    voting = 0
    with suppress(AudioError), opened(order.source) as audio:
        source = _named(audio, order, cut)
        names, _ = _channels(source, order, cut)
        for part in range(len(names)):
            with _stream(source, order, cut, part if len(names) > 1 else None) as stream:
                spoken = (chunk for chunk in _Reading(stream, cut).chunks() if chunk.speech)
                for chunk in most_audible(list(islice(spoken, CANDIDATES))):
                    voting += 1
                    yield Piece(order.number, part, chunk, None, None, elected=True)
    yield Polled(order.number, voting)


def pieces(order: Order, cut: Cut) -> Iterator[Message]:
    """Read a recording, and yield its chunks and what else there is to tell.

    Parameters
    ----------
    order : Order
        Which recording; chunks whose outcome is known are left out.
    cut : Cut
        How it is read and cut.

    Yields
    ------
    Content
        First, where the content's hash is wanted.
    Piece
        Each chunk with speech whose outcome is not known.
    Heard
        In place of each chunk without speech, of which nothing can come.
    End
        After each channel's last chunk.
    Broken
        Last, where the recording cannot be read to its end.

    """
    place: float | None = None
    try:
        with opened(order.source) as audio:
            source = _named(audio, order, cut)
            if order.hashes:
                yield _content(order, source)
            names, notes = _channels(source, order, cut)
            for part in range(len(names)):
                with _stream(source, order, cut, part if len(names) > 1 else None) as stream:
                    reading = _Reading(stream, cut)
                    for chunk, after in pairwise(chain(reading.chunks(), [None])):
                        assert chunk is not None  # noqa: S101 - only the last is none; for the type checker
                        if chunk.index not in order.done.get(part, ()):
                            yield _piece(order, cut, part, chunk, after)
                        place = chunk.stop_seconds
                    yield reading.end(order.number, part, names, source.name, notes)
    except (AudioError, EngineBridgeError) as error:
        failure = Failure(type(error).__name__, str(error), place)
        yield Broken(order.number, failure, lasting=lasts(error, order.source))


def _named(audio: Any, order: Order, cut: Cut | None = None) -> Source:
    source = Source.of(audio, cut.limits if cut is not None else None)
    if order.name is not None:
        source.name = order.name
    return source


def _content(order: Order, source: Source) -> Content:
    traits = None
    if source.path is not None:
        status = Path(source.path).stat()
        traits = (status.st_size, status.st_mtime_ns)
    return Content(order.number, content_hash(source), traits)


def _channels(source: Source, order: Order, cut: Cut) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the channels that have a text of their own, one empty name for all together, and what to tell of it."""
    if order.channels != EACH:
        return ("",), ()
    selection = Selection(order.track, order.from_seconds, order.to_seconds, cut.timeline)
    names, differ = channels_of(source, cut.backend, selection, limits=cut.limits, isolation=cut.isolation)
    if differ:
        return tuple(names), ()
    return ("",), (SAME_SOUND,) if len(names) > 1 else ()


def _stream(source: Source, order: Order, cut: Cut, channel: int | None) -> MonoStream:
    choice = order.channels if channel is None else channel
    return open_stream(
        source,
        cut.sample_rate,
        backend=cut.backend,
        reduction=0 if choice == EACH else choice,
        track=order.track,
        from_seconds=order.from_seconds,
        to_seconds=order.to_seconds,
        timeline=cut.timeline,
        limits=cut.limits,
        isolation=cut.isolation,
    )


def _piece(order: Order, cut: Cut, part: int, chunk: Chunk, after: Chunk | None) -> Message:
    """Return the row of a chunk, with what lies around the cut behind it where that had to be made in speech."""
    if not chunk.speech or not len(chunk.samples):
        return Heard(order.number, part, chunk.index, chunk.stop_seconds, chunk.duration, Outcome(), None)
    across = seam_chunk(chunk, after) if after is not None and chunk.forced and hears_seams(cut.timestamps) else None
    elected = part in order.elected
    language = order.elected[part] if elected else order.language
    return Piece(order.number, part, chunk, across, language, elected)


class _Reading:
    """A recording, or one of its channels, read and cut. Where decoding breaks off, what came before is still cut."""

    def __init__(self, stream: MonoStream, cut: Cut) -> None:
        self._stream = stream
        self._cut = cut
        self._timing = TimingContext((DECODE_AUDIO, SPLIT))
        self._count = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks at their places in the recording, and raise what ended it early."""
        detector = open_detector(self._cut.detector, self._cut.sample_rate)
        for chunk in cut_stream(self._stream, self._timing, max_duration=self._cut.max_duration, detector=detector):
            self._count += 1
            yield chunk

    def end(self, number: int, part: int, names: tuple[str, ...], source: str, notes: tuple[str, ...]) -> End:
        """Return what there is to tell once all chunks have been yielded."""
        stream = self._stream
        start = seconds_from_samples(stream.offset, stream.sample_rate)
        return End(
            number,
            part,
            names,
            self._count,
            source,
            start,
            start + stream.duration,
            stream.info.backend,
            stream.info.claimed_duration,
            tuple(stream.warnings),
            notes,
            self._timing.seconds(),
        )
