"""What the stages of a job on a cluster tell each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audio.chunk import Chunk
from audio.errors import AudioError
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.selection import Timeline
from audio.source import AudioSource
from engine_bridge.batch.results import Failure
from engine_bridge.engines.protocol import DecodingOptions, EngineCapabilities, LanguageProbabilities
from engine_bridge.errors import ClusterError, EngineBridgeError
from engine_bridge.recognition.ladder import Outcome


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


def stopped(error: Exception) -> Stopped:
    """Return the message that an error stopped a stage; what is not this package's own is told by its type."""
    if isinstance(error, AudioError | EngineBridgeError):
        return Stopped(error)
    return Stopped(
        ClusterError(f"a worker of the cluster failed ({type(error).__name__}: {error}); start again to go on")
    )
