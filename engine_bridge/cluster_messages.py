"""What the stages of a job on a cluster tell each other, and how it travels.

Each row of a Ray dataset carries one message, pickled, as Ray's own transport does between processes of one cluster.
What a journal keeps of them is JSON: a file on disk is not to be trusted with code.
"""

import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from audio.chunk import Chunk
from audio.errors import AudioError
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.selection import Timeline
from audio.source import AudioSource
from engine_bridge.batch.results import Failure
from engine_bridge.engines.protocol import DecodingOptions, EngineCapabilities, LanguageProbabilities
from engine_bridge.errors import ClusterError, EngineBridgeError
from engine_bridge.recognition import Outcome
from engine_bridge.transcript import Gap, Segment, Word

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE = "message"
"""Name of the datasets' only column."""

_FULL_SCALE = 1 << 15


@dataclass(frozen=True)
class Contract:
    """What an engine of the cluster agreed to, as one of its machines found out.

    Attributes
    ----------
    spec : str
        The engine's specification.
    identity : str
        Tells the engine and its model's files from others: see `batch.fingerprints.engine_identity`.
    version : str
        Version of this package where the engine runs.
    capabilities : EngineCapabilities
        What the engine can do.
    in_flight : int
        How many clips keep it busy.
    options : DecodingOptions
        How clips are recognised.
    notices : tuple of str
        What a reader should know of the prompt.

    """

    spec: str
    identity: str
    version: str
    capabilities: EngineCapabilities
    in_flight: int
    options: DecodingOptions
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Cut:
    """How recordings are read and cut; the same for all of a job.

    Attributes
    ----------
    sample_rate : int
        Samples per second that the engine takes.
    max_duration : float
        The longest chunk, in seconds.
    timestamps : str
        Where times come from, as in `DecodingOptions`.
    backend : str
        The decoder.
    timeline : {"file", "container"}
        Where time 0 is.
    detector : str
        What tells speech from pauses, as for `audio.open_detector`.
    limits : DecodeLimits or None
        What decoding may cost.
    isolation : Isolation or None
        Bounds of a process of its own for decoding.
    """

    sample_rate: int
    max_duration: float
    timestamps: str
    backend: str
    timeline: Timeline
    detector: str
    limits: DecodeLimits | None = None
    isolation: Isolation | None = None


@dataclass(frozen=True)
class Order:
    """One recording to be read.

    Attributes
    ----------
    number : int
        Names it within its window of the job.
    name : str or None
        What messages call it; None to name it by its source.
    source : path, address, bytes or (array, sample rate)
        What a worker can open.
    channels : str, int
        How its channels become one, which is taken, or "each".
    track : int, str or None
        The audio track.
    from_seconds, to_seconds : float, float or None
        The range of time.
    language : str or None
        What it is recognised in; None where that is detected.
    hashes : bool
        Whether the hash of its content is wanted.
    elected : mapping of int to (str or None)
        What each part's language was found to be.
    done : mapping of int to frozenset of int
        For each part, the chunks whose outcome is known.

    """

    number: int
    name: str | None
    source: AudioSource
    channels: Any
    track: int | str | None
    from_seconds: float
    to_seconds: float | None
    language: str | None
    hashes: bool = False
    elected: Mapping[int, str | None] = field(default_factory=dict)
    done: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What a recording holds.

    Attributes
    ----------
    number : int
        The recording.
    digest : bytes
        The hash of its content, 32 bytes.
    traits : (size, time of change in ns) or None
        Of the file that was read, where it is one.

    """

    number: int
    digest: bytes
    traits: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Piece:
    """One chunk to be recognised.

    Attributes
    ----------
    number, part : int
        The recording, and which of its channels where each has its own text.
    chunk : Chunk
        The chunk.
    seam : Chunk or None
        What lies around the cut at its end, where that had to be made in speech.
    language : str or None
        What it is recognised in.
    elected : bool
        Whether the language is the recording's by a vote, which a chunk may differ from.

    """

    number: int
    part: int
    chunk: Chunk
    seam: Chunk | None
    language: str | None
    elected: bool


@dataclass(frozen=True)
class Heard:
    """What came of a chunk.

    Attributes
    ----------
    number, part, index : int
        The recording, its channel, and the chunk.
    stop_seconds : float
        Where the chunk stops in the recording.
    seconds : float
        How much of the recording it stands for.
    outcome : Outcome
        Its text and gaps.
    seam : Outcome or None
        What was heard around the cut at its end, where that had to be made in speech.

    """

    number: int
    part: int
    index: int
    stop_seconds: float
    seconds: float
    outcome: Outcome
    seam: Outcome | None


@dataclass(frozen=True)
class Ballot:
    """One chunk's vote on its recording's language.

    Attributes
    ----------
    number, part, index : int
        The recording, its channel, and the chunk.
    seconds : float
        Its speech, by which it counts.
    heard : tuple of (str, float)
        Languages with their probabilities.

    """

    number: int
    part: int
    index: int
    seconds: float
    heard: LanguageProbabilities


@dataclass(frozen=True)
class Polled:
    """A recording was read as far as its language is voted on.

    Attributes
    ----------
    number : int
        The recording.
    ballots : int
        How many chunks vote.

    """

    number: int
    ballots: int


@dataclass(frozen=True)
class End:
    """A recording, or one of its channels, was read to its end.

    Attributes
    ----------
    number, part : int
        The recording and its channel.
    names : tuple of str
        The channels that each have a text of their own; one empty name where there is one text.
    chunks : int
        How many there are.
    source : str
        What the recording is called.
    start, duration : float
        Where decoding began and ended, in seconds of the recording.
    backend : str
        The decoder.
    claimed_duration : float or None
        What the file claims.
    warnings, notes : tuple of str
        What the decoder told, and what there is to tell of the channels.
    timings : mapping of str to float
        Seconds spent on reading.

    """

    number: int
    part: int
    names: tuple[str, ...]
    chunks: int
    source: str
    start: float
    duration: float
    backend: str
    claimed_duration: float | None
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    timings: Mapping[str, float]


@dataclass(frozen=True)
class Broken:
    """A recording cannot be read or recognised.

    Attributes
    ----------
    number : int
        The recording.
    failure : Failure
        Why.
    lasting : bool
        Whether it fails again as long as it stays as it is.

    """

    number: int
    failure: Failure
    lasting: bool = False


@dataclass(frozen=True, eq=False)
class Stopped:
    """A stage cannot go on, whatever the recording.

    Attributes
    ----------
    error : Exception
        What stopped it, to be raised where the job was asked for.

    """

    error: AudioError | EngineBridgeError


Message = Order | Content | Piece | Heard | Ballot | Polled | End | Broken | Stopped


def packed(message: Message) -> dict[str, bytes]:
    """Return the row that carries a message. Samples of 16 bits travel as these: half as much, and the same."""
    if isinstance(message, Piece):
        message = replace(message, chunk=_narrowed(message.chunk), seam=_narrowed(message.seam))
    return {MESSAGE: pickle.dumps(message, protocol=5)}


def unpacked(row: Mapping[str, Any]) -> Any:
    """Return the message that a row carries."""
    message = pickle.loads(row[MESSAGE])  # noqa: S301 - between processes of one cluster, as Ray's own
    if isinstance(message, Piece):
        message = replace(message, chunk=_widened(message.chunk), seam=_widened(message.seam))
    return message


def messages_of(rows: "pa.Table") -> list[Any]:
    """Return the messages that an Arrow table of rows carries."""
    return [unpacked({MESSAGE: item.as_py()}) for item in rows.column(MESSAGE)]


def rows_of(messages: Iterable[Message]) -> "pa.Table":
    """Return the Arrow table of rows that carries messages."""
    import pyarrow as pa

    return pa.table({MESSAGE: pa.array([packed(message)[MESSAGE] for message in messages], pa.binary())})


def stopped(error: Exception) -> Stopped:
    """Return the message that an error stopped a stage; what is not this package's own is told by its type."""
    if isinstance(error, AudioError | EngineBridgeError):
        return Stopped(error)
    return Stopped(
        ClusterError(f"a worker of the cluster failed ({type(error).__name__}: {error}); start again to go on")
    )


def _narrowed(chunk: Chunk | None) -> Any:
    """Return the chunk with samples of 16 bits, if they are as many."""
    if chunk is None:
        return None
    scaled = chunk.samples * np.float32(_FULL_SCALE)
    whole = scaled.astype(np.int16) if len(scaled) and np.abs(scaled).max() < _FULL_SCALE else None
    if whole is None or not np.array_equal(whole, scaled):
        return chunk
    return replace(chunk, samples=whole)  # type: ignore[arg-type]  # only while it travels


def _widened(chunk: Any) -> Any:
    if chunk is None or chunk.samples.dtype == np.float32:
        return chunk
    return replace(chunk, samples=chunk.samples.astype(np.float32) / np.float32(_FULL_SCALE))


def as_json(heard: Heard) -> bytes:
    """Return what a journal keeps of a chunk; floats come back as they were."""
    kept = {"stop": heard.stop_seconds, "seconds": heard.seconds, "outcome": heard.outcome, "seam": heard.seam}
    # `asdict` would copy each word, which takes most of the time that a job's own process has.
    return json.dumps(kept, separators=(",", ":"), default=vars).encode()


def from_json(text: bytes, number: int, part: int, index: int) -> Heard:
    """Return what `as_json` wrote of a chunk."""
    kept = json.loads(text)
    seam = None if kept["seam"] is None else _outcome(kept["seam"])
    return Heard(number, part, index, kept["stop"], kept["seconds"], _outcome(kept["outcome"]), seam)


def _outcome(kept: Mapping[str, Any]) -> Outcome:
    return Outcome(
        tuple(
            Segment(**{**segment, "words": tuple(Word(**word) for word in segment["words"])})
            for segment in kept["segments"]
        ),
        tuple(Gap(**gap) for gap in kept["gaps"]),
    )
