"""The second stage of a job on a cluster: engines, each opened once by a worker of its own.

Nothing here knows of Ray: these are classes that answer batches of rows.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from audio.positions import seconds_from_samples
from engine_bridge.asking import decoding_options
from engine_bridge.batch.fingerprints import engine_identity, package_version
from engine_bridge.batch.results import Failure
from engine_bridge.batch.retrying import RetryingEngine
from engine_bridge.cluster.messages import Ballot, Broken, Contract, Heard, Message, Piece, stopped
from engine_bridge.cluster.rows import messages_of, rows_of
from engine_bridge.engines.open import open_engine
from engine_bridge.engines.protocol import DecodingOptions, Engine, LanguageProbabilities
from engine_bridge.errors import EngineBridgeError, EngineDeadError, EngineError
from engine_bridge.journal import Journal
from engine_bridge.recognition.ladder import Outcome, Waiting, recognise
from engine_bridge.recognition.tasks import carry

if TYPE_CHECKING:
    import pyarrow as pa

ENGINE_ATTEMPTS = 3
"""How often a batch is given to an engine that dies over it, each time opened anew, before the job is stopped. What
becomes of a process that dies with its engine is the cluster's to decide."""


@dataclass(frozen=True)
class Asked:
    """What is asked of an engine, as for `stream_transcript`."""

    language: str | None
    per_chunk_language: bool
    task: str
    beam_size: int | None
    prompt: str | None
    glossary: tuple[str, ...]


def agree(spec: str, arguments: Mapping[str, Any], asked: Asked) -> Contract:
    """Open an engine to see what it can do, and whether it can do what is asked.

    Parameters
    ----------
    spec : str
        The engine's specification.
    arguments : mapping
        For `open_engine`.
    asked : Asked
        What is asked of it.

    Raises
    ------
    EngineBridgeError
        If the engine cannot be opened here, or cannot do it.

    """
    engine = open_engine(spec, **arguments)
    try:
        options, notices = decoding_options(engine, **vars(asked))
        with tempfile.TemporaryDirectory(prefix="auricle-") as folder, Journal.in_folder(folder) as journal:
            identity = engine_identity(spec, journal)
        return Contract(
            engine.spec,
            identity,
            package_version(),
            engine.capabilities,
            engine.preferred_in_flight,
            options,
            notices,
        )
    finally:
        engine.close()


class _Station:
    """An engine on one of the cluster's machines; opened once, and again where it dies.

    Parameters
    ----------
    spec : str
        The engine's specification.
    arguments : mapping
        For `open_engine`.

    """

    def __init__(self, spec: str, arguments: Mapping[str, Any]) -> None:
        self._spec = spec
        self._arguments = arguments
        self._lock = threading.Lock()
        self._engine = self._opened()

    def answered(self, rows: "pa.Table", answer: Callable[[Engine, Sequence[Piece]], Iterable[Message]]) -> "pa.Table":
        """Return the rows that answer a batch; those that ask nothing of an engine are given back as they are.

        What cannot go on, as where the engine dies again and again, is told by a row: Ray is to see the loss of
        processes alone.
        """
        try:
            return rows_of(self._messages(rows, answer))
        except Exception as error:  # noqa: BLE001 - raised again where the job was asked for
            return rows_of([stopped(error)])

    def _messages(
        self, rows: "pa.Table", answer: Callable[[Engine, Sequence[Piece]], Iterable[Message]]
    ) -> list[Message]:
        messages = messages_of(rows)
        asking = [message for message in messages if isinstance(message, Piece)]
        rest = [message for message in messages if not isinstance(message, Piece)]
        for attempt in range(1, ENGINE_ATTEMPTS + 1):
            engine = self._engine
            try:
                return [*answer(engine, asking), *rest]
            except EngineDeadError:
                if attempt == ENGINE_ATTEMPTS:
                    raise
                self._replace(engine)
        raise AssertionError  # the last attempt has returned or raised

    def _opened(self) -> Engine:
        return RetryingEngine(open_engine(self._spec, **self._arguments))

    def _replace(self, dead: Engine) -> None:
        """Open the engine anew, unless another batch has done so meanwhile."""
        with self._lock:
            if self._engine is dead:
                dead.close()
                self._engine = self._opened()


class Recogniser:
    """An engine on one of the cluster's machines, opened once, that recognises chunks, those of a batch side by side.

    Parameters
    ----------
    spec : str
        The engine's specification.
    arguments : mapping
        For `open_engine`.
    options : DecodingOptions
        How clips are recognised.
    per_chunk_language : bool
        Whether a chunk may be in a language of its own.

    """

    def __init__(
        self, spec: str, arguments: Mapping[str, Any], options: DecodingOptions, *, per_chunk_language: bool
    ) -> None:
        self._station = _Station(spec, arguments)
        self._options = options
        self._per_chunk_language = per_chunk_language

    def __call__(self, batch: "pa.Table") -> "pa.Table":
        """Answer a batch of rows."""
        return self._station.answered(batch, self._heard)

    def _heard(self, engine: Engine, asking: Sequence[Piece]) -> Iterator[Message]:
        begun = [self._begin(engine, piece) for piece in asking]
        tasks = iter(carry(chain.from_iterable(begun)))
        for piece, recognitions in zip(asking, begun, strict=True):
            told = list(islice(tasks, len(recognitions)))
            failure = next((task.failure for task in told if task.failure is not None), None)
            if failure is not None:
                yield _broken(piece, failure)
                continue
            outcomes = [task.outcome or Outcome() for task in told]
            seam = outcomes[1] if piece.seam is not None else None
            chunk = piece.chunk
            yield Heard(piece.number, piece.part, chunk.index, chunk.stop_seconds, chunk.duration, outcomes[0], seam)

    def _begin(self, engine: Engine, piece: Piece) -> list[Waiting]:
        """Return the recognition of a chunk, and of the cut at its end where that lies in speech."""
        language: Future[str | None] | None = None
        own: Future[LanguageProbabilities] | None = None
        options = self._options
        if piece.elected:
            language = Future()
            language.set_result(piece.language)
            own = engine.detect_language(piece.chunk.samples) if self._per_chunk_language else None
        else:
            options = replace(options, language=piece.language)
        clips = [piece.chunk] if piece.seam is None else [piece.chunk, piece.seam]
        return [recognise(clip, engine, options, language, own) for clip in clips]


class Voter:
    """An engine on one of the cluster's machines, opened once, that tells the languages of chunks.

    Parameters
    ----------
    spec, arguments
        As for `Recogniser`.

    """

    def __init__(self, spec: str, arguments: Mapping[str, Any]) -> None:
        self._station = _Station(spec, arguments)

    def __call__(self, batch: "pa.Table") -> "pa.Table":
        """Answer a batch of rows."""
        return self._station.answered(batch, self._ballots)

    def _ballots(self, engine: Engine, asking: Sequence[Piece]) -> Iterator[Message]:
        ballots = [engine.detect_language(piece.chunk.samples) for piece in asking]
        for piece, ballot in zip(asking, ballots, strict=True):
            try:
                heard = ballot.result()
            except EngineError as error:
                yield _broken(piece, error)
                continue
            spoken = sum(stop - start for start, stop in piece.chunk.speech)
            seconds = seconds_from_samples(spoken, piece.chunk.sample_rate)
            yield Ballot(piece.number, piece.part, piece.chunk.index, seconds, heard)


def _broken(piece: Piece, failure: Exception) -> Broken:
    """Return that a recording failed; what is not its own failure is raised."""
    if isinstance(failure, EngineDeadError) or not isinstance(failure, EngineBridgeError):
        raise failure
    return Broken(piece.number, Failure(type(failure).__name__, str(failure), piece.chunk.start_seconds))
