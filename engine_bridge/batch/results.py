"""What became of the recordings of a job."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from engine_bridge.batch.recording import Recording
from engine_bridge.transcript import Transcript


@dataclass(frozen=True)
class Failure:
    """Why a recording has no transcript.

    Attributes
    ----------
    kind : str
        The error's class, such as "UnreadableAudioError".
    reason : str
        One sentence.
    place : float or None
        Seconds into the recording up to which it was recognised before; None where it never began.

    """

    kind: str
    reason: str
    place: float | None = None


@dataclass(frozen=True)
class JobProgress:
    """How far a job has come.

    Attributes
    ----------
    done, known, failed : int
        Recordings that were done now, that were done before, and that failed.
    under_way : int
        Recordings that are being done.
    audio_seconds : float
        Seconds of audio done now.
    elapsed_seconds : float
        Wall-clock seconds since the start.

    """

    done: int
    known: int
    failed: int
    under_way: int
    audio_seconds: float
    elapsed_seconds: float

    @property
    def finished(self) -> int:
        """How many recordings the job is through with."""
        return self.done + self.known + self.failed

    @property
    def speed(self) -> float:
        """Seconds of audio done in one second."""
        return self.audio_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0


class RecordingResult:
    """What became of one recording.

    Parameters
    ----------
    recording : Recording
        The entry.
    position : int
        Its place in the order in which the recordings were given, from 0.
    transcript : Transcript, callable or None
        The transcript, or what returns it when it is asked for; None where the recording failed.
    failure : Failure or None
        Why there is no transcript.
    fingerprint : str or None
        By which a journal knows it; None without a journal, and where its content could not be read.
    known : bool
        Whether it was found in the journal, so that nothing had to be done.
    duration : float or None
        Seconds of audio.

    Attributes
    ----------
    recording, position, failure, fingerprint, known, duration
        As above.

    """

    def __init__(
        self,
        recording: Recording,
        position: int,
        *,
        transcript: Transcript | Callable[[], Transcript] | None = None,
        failure: Failure | None = None,
        fingerprint: str | None = None,
        known: bool = False,
        duration: float | None = None,
    ) -> None:
        self.recording = recording
        self.position = position
        self.failure = failure
        self.fingerprint = fingerprint
        self.known = known
        self.duration = duration
        self._transcript = transcript

    def __repr__(self) -> str:
        state = f"failed: {self.failure.reason}" if self.failure is not None else "known" if self.known else "done"
        return f"RecordingResult({self.recording.id!r}, {state})"

    @cached_property
    def transcript(self) -> Transcript | None:
        """The transcript; None where the recording failed. Read from the journal at first use where it was known.

        Raises
        ------
        JournalError
            If the journal cannot be read any more.

        """
        return self._transcript() if callable(self._transcript) else self._transcript
