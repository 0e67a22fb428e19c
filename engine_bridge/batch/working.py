"""One recording of a job, from its source to its result."""

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from audio.errors import AudioError, AudioFileNotFoundError, BackendUnavailableError
from audio.source import AudioSource, Source
from engine_bridge.batch.fingerprints import engine_identity, recording_fingerprint
from engine_bridge.batch.journalled import JournalledEngine
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address, opened
from engine_bridge.batch.results import Failure, RecordingResult
from engine_bridge.channels_apart import transcribe_channels
from engine_bridge.engines.protocol import Engine
from engine_bridge.errors import EngineBridgeError, EngineDeadError, JournalError
from engine_bridge.journal import DONE, FAILED, Entry, Journal
from engine_bridge.pipeline import stream_transcript
from engine_bridge.room import Room
from engine_bridge.transcript import Segment, Transcript
from engine_bridge.transcription import Progress

EACH = "each"
"""The choice of channels that gives each a text of its own."""

_DEFAULTS = {
    name: each.default
    for name, each in inspect.signature(stream_transcript).parameters.items()
    if name not in ("source", "engine", "on_progress", "room")
}


class HeldElsewhere(Exception):  # noqa: N818 - no error: it is looked at again later
    """Somebody else has this recording under way."""


def complete_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of `stream_transcript` that a transcript depends on, those not given by their defaults."""
    settings = {**_DEFAULTS, **options}
    return {**settings, "glossary": tuple(settings["glossary"])}


def settings_of(recording: Recording, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's settings as a recording changes them."""
    own = {
        "language": recording.language,
        "channel_reduction": recording.channels,
        "track": recording.track,
        "from_seconds": recording.from_seconds,
        "to_seconds": recording.to_seconds,
    }
    return {**settings, **{name: value for name, value in own.items() if value is not None}}


class Worker:
    """Does recordings, several at once where several threads ask it to.

    Parameters
    ----------
    engine : Engine
        Shared by all of them.
    journal : Journal or None
        What is done is looked up and kept there.
    options : mapping
        The job's options.
    room : Room
        Bounds the chunks under way.
    restart : bool
        Whether what was done before now is done again.
    retry_failed : bool
        Whether recordings that could not be decoded before are tried again.
    on_audio : callable
        Called with the seconds of audio that have been done since it was called before.
    on_segment : callable or None
        Called with a recording and each segment of its text.

    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal | None,
        options: Mapping[str, Any],
        room: Room,
        *,
        restart: bool,
        retry_failed: bool,
        on_audio: Callable[[float], None],
        on_segment: Callable[[Recording, Segment], None] | None,
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._settings = complete_settings(options)
        self._room = room
        self._since = time.time() if restart else 0.0
        self._retry_failed = retry_failed
        self._on_audio = on_audio
        self._on_segment = on_segment
        self._identity = "" if journal is None else engine_identity(engine.spec, journal)

    def do(self, position: int, recording: Recording) -> RecordingResult:
        """Return what becomes of a recording.

        Raises
        ------
        HeldElsewhere
            If it is under way elsewhere.
        EngineDeadError, JournalError
            If the job cannot go on.

        """
        task = _Task(recording, position, settings_of(recording, self._settings))
        try:
            with opened(recording.source) as audio:
                source = Source.of(audio)
                if self._journal is None:
                    return task.result(self._transcribed(task, source, self._engine))
                return self._recorded(task, source, self._journal)
        except (HeldElsewhere, EngineDeadError, JournalError):
            raise
        except (AudioError, EngineBridgeError) as error:
            return self._failed(task, error, str(error))
        except Exception as error:  # noqa: BLE001 - one recording out of ten thousand is no reason to end the night's work
            return self._failed(task, error, f"unexpected {type(error).__name__}: {error}")

    def _recorded(self, task: "_Task", source: Source, journal: Journal) -> RecordingResult:
        """Return what the journal knows of a recording, or do what it does not know."""
        digest = journal.content_digest(source)
        task.fingerprint = recording_fingerprint(digest, task.settings, self._identity)
        known = self._known(task, journal)
        if known is not None:
            return known
        number = journal.begin(task.fingerprint)
        if not journal.hold(number):
            raise HeldElsewhere
        try:
            # Whoever had it until now may have finished it.
            known = self._known(task, journal)
            if known is not None:
                return known
            entry = journal.find(task.fingerprint)
            if entry is not None and entry.changed < self._since:
                journal.forget(number)
            task.number = number
            transcript = self._transcribed(task, source, JournalledEngine(self._engine, journal, number))
            journal.finish(number, transcript)
        except (AudioError, EngineBridgeError) as error:
            if lasts(error, task.recording.source):
                journal.fail(number, task.failure(error, str(error)))
            raise
        finally:
            journal.release(number)
        return task.result(journal.transcript(number))

    def _known(self, task: "_Task", journal: Journal) -> RecordingResult | None:
        entry: Entry | None = journal.find(task.fingerprint or "")
        if entry is None or entry.changed < self._since:
            return None
        if entry.state == DONE:
            number, name = entry.number, None
            if isinstance(task.recording.source, str):
                name = Source.of(task.recording.source).name if not is_address(task.recording.source) else None
            return RecordingResult(
                task.recording,
                task.position,
                transcript=lambda: renamed(journal.transcript(number), name),
                fingerprint=task.fingerprint,
                known=True,
                duration=entry.duration,
            )
        if entry.state == FAILED and not self._retry_failed:
            return RecordingResult(
                task.recording, task.position, failure=entry.failure, fingerprint=task.fingerprint, known=True
            )
        return None

    def _failed(self, task: "_Task", error: Exception, reason: str) -> RecordingResult:
        return RecordingResult(
            task.recording, task.position, failure=task.failure(error, reason), fingerprint=task.fingerprint
        )

    def _transcribed(self, task: "_Task", source: Source, engine: Engine) -> Transcript:
        def progress(progress: Progress) -> None:
            before = task.reached if task.reached is not None else progress.start_seconds
            task.reached = progress.audio_seconds
            self._on_audio(progress.audio_seconds - before)

        options = {**task.settings, "engine": engine, "room": self._room, "on_progress": progress}
        if options["channel_reduction"] == EACH:
            del options["channel_reduction"]
            transcript = transcribe_channels(source, **options)
            self._tell(task.recording, transcript.segments)
            return transcript
        with stream_transcript(source, **options) as transcription:
            self._tell(task.recording, transcription)
            return transcription.result()

    def _tell(self, recording: Recording, segments: Any) -> None:
        for segment in segments:
            if self._on_segment is not None:
                self._on_segment(recording, segment)


class _Task:
    """A recording that is being done."""

    def __init__(self, recording: Recording, position: int, settings: dict[str, Any]) -> None:
        self.recording = recording
        self.position = position
        self.settings = settings
        self.fingerprint: str | None = None
        self.number: int | None = None
        self.reached: float | None = None

    def failure(self, error: Exception, reason: str) -> Failure:
        return Failure(type(error).__name__, reason, self.reached)

    def result(self, transcript: Transcript) -> RecordingResult:
        return RecordingResult(
            self.recording,
            self.position,
            transcript=transcript,
            fingerprint=self.fingerprint,
            duration=transcript.duration - transcript.start,
        )


def lasts(error: Exception, source: AudioSource) -> bool:
    """Return whether a recording fails again as long as it stays as it is."""
    passing = (BackendUnavailableError, AudioFileNotFoundError)
    return isinstance(error, AudioError) and not isinstance(error, passing) and not is_address(source)


def renamed(transcript: Transcript, name: str | None) -> Transcript:
    """Return a transcript under the name that the same content has now."""
    return transcript if name is None else replace(transcript, source=name)
