"""The stream from a source to its transcript.

A producer thread decodes, resamples and splits, ahead of the engine by a bounded number of chunks. The consumer's own
thread carries the recognitions: it wakes when a chunk has come or an engine's answer is ready, and yields segments in
the recording's order. Memory depends on the bound, not on the recording's length.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from audio.chunk import Chunk
from audio.energy import SpeechDetector
from audio.info import AudioInfo
from audio.positions import seconds_from_samples
from audio.stream import MonoStream
from engine_bridge.assembling import Assembly, hears_seams, joined
from engine_bridge.cutting import FILLED, cut_stream
from engine_bridge.engines.protocol import DecodingOptions, Engine, LanguageProbabilities
from engine_bridge.errors import EngineError
from engine_bridge.recognition.ladder import Outcome, recognise
from engine_bridge.recognition.language import CANDIDATES, LanguageVote
from engine_bridge.recognition.pace import Pace
from engine_bridge.recognition.seams import seam_chunk
from engine_bridge.recognition.tasks import Task
from engine_bridge.room import Room
from engine_bridge.timing import CHECK, DECODE_AUDIO, PROCESS, SPLIT, WAIT, TimingContext
from engine_bridge.transcript import Segment, Transcript

LEAST_UNDER_WAY = 3
"""Chunks of a recording that have to be under way at once: a forced cut waits for the chunk after it, and that is cut
while both are recognised."""


@dataclass(frozen=True)
class Progress:
    """How far a transcription has come.

    Attributes
    ----------
    audio_seconds : float
        Seconds of the recording that are done.
    total_seconds : float or None
        What the file claims as its length; an estimate.
    elapsed_seconds : float
        Wall-clock seconds since the start.
    start_seconds : float
        Where in the recording the wanted range begins.

    """

    audio_seconds: float
    total_seconds: float | None
    elapsed_seconds: float
    start_seconds: float = 0.0

    @property
    def speed(self) -> float:
        """Seconds of audio done in one second."""
        return (self.audio_seconds - self.start_seconds) / self.elapsed_seconds if self.elapsed_seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock seconds left, by the speed so far and the claimed length."""
        if self.total_seconds is None or not self.speed:
            return None
        return max(0.0, self.total_seconds - self.audio_seconds) / self.speed


@dataclass(frozen=True)
class _End:
    """The producer is done: the recording has ended, or failed."""

    failure: BaseException | None


@dataclass
class _Work:
    """A chunk under way, and what is heard across the cut before it where that lies in speech."""

    chunk: Chunk
    task: Task
    seam: Task | None
    own_language: "Future[LanguageProbabilities] | None" = None
    joined: Outcome | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What came of the chunk so far."""
        return self.joined or self.task.outcome

    def cancel(self) -> None:
        """Give up."""
        for task in (self.task, self.seam):
            if task is not None:
                task.cancel()


class Transcription:
    """A transcription under way: iterate for segments, then ask for the `result`.

    Made by `stream_transcript`. Iterating yields each `Segment` as soon as everything before it is known. Leaving the
    iteration early and closing gives everything back: threads, requests, files.

    Attributes
    ----------
    info : AudioInfo
        What is known of the recording before decoding.

    """

    def __init__(
        self,
        source: str,
        stream: MonoStream,
        engine: Engine,
        options: DecodingOptions,
        *,
        owns_engine: bool,
        on_progress: Callable[[Progress], None] | None,
        warnings: Sequence[str] = (),
        per_chunk_language: bool = False,
        detector: SpeechDetector | None = None,
        room: Room | None = None,
    ) -> None:
        self._source = source
        self._stream = stream
        self._engine = engine
        self._options = options
        self._owns_engine = owns_engine
        self._on_progress = on_progress
        self._warnings = tuple(warnings)
        self._started = time.perf_counter()
        self._timing = TimingContext((DECODE_AUDIO, SPLIT, WAIT, CHECK), parent=PROCESS)
        self._engine_before = dict(engine.timings())
        self._assembly = Assembly()
        self._start_seconds = seconds_from_samples(stream.offset, stream.sample_rate)
        self._done_until = self._start_seconds
        self._vote = None
        if options.language is None and engine.capabilities.detects_language:
            self._vote = LanguageVote(engine, every_chunk=per_chunk_language)
        self._per_chunk_language = per_chunk_language
        self._detector = detector
        self._pace = Pace() if options.timestamps == "none" else None
        self._events: queue.SimpleQueue[Chunk | _End | Task] = queue.SimpleQueue()
        own = LEAST_UNDER_WAY if self._vote is None else 2 * CANDIDATES
        self._share = (room or Room(max(engine.preferred_in_flight, own))).share(own)
        self._producer = threading.Thread(target=self._produce, name="auricle-decode", daemon=True)
        self._line: deque[_Work] = deque()
        self._failure: Exception | None = None
        self._complete = False
        self._iterator = self._run()

    @property
    def info(self) -> AudioInfo:
        """What is known of the recording before decoding."""
        return self._stream.info

    @property
    def progress(self) -> Progress:
        """How far the transcription has come."""
        claimed, elapsed = self.info.claimed_duration, time.perf_counter() - self._started
        total = None if claimed is None else self._start_seconds + claimed
        return Progress(self._done_until, total, elapsed, self._start_seconds)

    def __iter__(self) -> Iterator[Segment]:
        return self._iterator

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop: cancel what waits, join the threads, close the recording and an engine opened for it."""
        self._iterator.close()
        self._stop()
        if self._producer.ident is not None:
            self._producer.join()
        self._stream.close()
        if self._owns_engine:
            self._engine.close()

    def result(self) -> Transcript:
        """Return the transcript, after recognising whatever is left of the recording.

        Raises
        ------
        AudioError
            If the recording cannot be decoded to its end; the text of what was decoded has been yielded before.
        EngineBridgeError
            If the engine fails.
        RuntimeError
            If the transcription was stopped before its end: what there is of it would pass for the whole.

        """
        for _ in self._iterator:
            pass
        if self._failure is not None:
            raise self._failure
        if not self._complete:
            raise RuntimeError(f"{self._source}: the transcription was stopped before its end; keep the segments read")
        language = self._options.language
        if self._vote is not None and self._vote.decided.done():
            language = self._vote.decided.result()
        elif language is None and len(self._engine.capabilities.languages) == 1:
            language = self._engine.capabilities.languages[0]
        return Transcript(
            segments=tuple(self._assembly.segments),
            gaps=tuple(self._assembly.gaps),
            duration=self._start_seconds + self._stream.duration,
            start=self._start_seconds,
            language=language,
            language_probability=self._vote.probability if self._vote is not None else None,
            source=self._source,
            engine=self._engine.spec,
            backend=self.info.backend,
            claimed_duration=self.info.claimed_duration,
            warnings=(*self._stream.warnings, *self._warnings),
            timings=self._timings(),
        )

    def _timings(self) -> dict[str, float]:
        """Return the seconds of each stage so far, the engine's without those it spent before."""
        before = self._engine_before
        engine = {stage: seconds - before.get(stage, 0.0) for stage, seconds in self._engine.timings().items()}
        return {**self._timing.seconds(), **engine, "total": time.perf_counter() - self._started}

    def _produce(self) -> None:
        failure: BaseException | None = None
        try:
            longest = FILLED * self._engine.capabilities.max_clip_seconds
            for chunk in cut_stream(self._stream, self._timing, max_duration=longest, detector=self._detector):
                if not self._share.enter():
                    # Heard only where others closed the room: what there is must not pass for the whole.
                    failure = EngineError(f"{self._source}: the job was stopped before its end; start it again")
                    break
                self._events.put(chunk)
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            failure = error
        self._events.put(_End(failure))

    def _run(self) -> Generator[Segment, None, None]:
        try:
            yield from self._recognised()
            self._complete = True
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._stop()

    def _recognised(self) -> Iterator[Segment]:
        """Carry the recognitions until the recording has ended, and raise what ended it early."""
        self._producer.start()
        end: _End | None = None
        while end is None or self._line:
            with self._timing.stage(WAIT):
                event = self._events.get()
            with self._timing.stage(CHECK):
                if isinstance(event, _End):
                    end = event
                    if self._vote is not None:
                        self._vote.close()
                elif isinstance(event, Chunk):
                    self._begin(event)
                else:
                    event.advance()
            yield from self._finished(ended=end is not None)
        if end.failure is not None:
            raise end.failure

    def _stop(self) -> None:
        """Cancel what waits and let the producer end."""
        self._share.close()
        for work in self._line:
            work.cancel()
        self._line.clear()
        if self._vote is not None:
            self._vote.cancel()

    def _begin(self, chunk: Chunk) -> None:
        language = own = None
        if self._vote is not None:
            ballot = self._vote.offer(chunk)
            language, own = self._vote.decided, ballot if self._per_chunk_language else None
        before = self._line[-1] if self._line else None
        seam = None
        if before is not None and before.chunk.forced and hears_seams(self._options.timestamps):
            across = seam_chunk(before.chunk, chunk)
            seam = Task(recognise(across, self._engine, self._options, language, before.own_language), self._events)
        turn = self._pace.turn() if self._pace is not None else None
        recognition = recognise(chunk, self._engine, self._options, language, own, turn, self._timing)
        task = Task(recognition, self._events)
        work = _Work(chunk, task, seam, own)
        self._line.append(work)
        if seam is not None:
            seam.advance()
        work.task.advance()

    def _finished(self, *, ended: bool) -> Iterator[Segment]:
        """Yield the text of the chunks at the head of the line that are done."""
        while self._line:
            work = self._line[0]
            if work.task.failure is not None:
                raise work.task.failure
            if work.outcome is None or not self._is_joined(work, ended=ended):
                return
            self._line.popleft()
            self._share.leave()
            self._done_until = work.chunk.stop_seconds
            yield from self._assembly.add(work.outcome, work.chunk.stop_seconds)
            if self._on_progress is not None:
                self._on_progress(self.progress)

    def _is_joined(self, work: _Work, *, ended: bool) -> bool:
        """Merge the chunk at the head of the line with the next one, if the cut between them asks for it.

        False while that has to wait.
        """
        if not work.chunk.forced or not hears_seams(self._options.timestamps):
            return True
        if len(self._line) == 1:
            return ended
        after = self._line[1]
        if after.seam is None:
            return True
        if after.seam.failure is not None:
            raise after.seam.failure
        if after.task.failure is not None:
            return True  # raised in its turn
        if work.outcome is None or after.seam.outcome is None or after.task.outcome is None:
            return False
        work.joined, after.joined = joined(
            work.outcome, after.seam.outcome, after.task.outcome, work.chunk.stop_seconds, self._options.timestamps
        )
        after.seam = None
        return True
