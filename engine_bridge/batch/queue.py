"""One queue over many recordings: batches are filled across them, and each comes out when it is done.

A number of threads take recordings one after the other and transcribe them on one engine. How many chunks are under way
is bounded for all of them together (`engine_bridge.room`), results that nobody has read keep further recordings from
being begun, and recordings are taken from their iterator only when they are begun. Memory therefore depends on these
bounds, not on how many recordings there are or how long they are.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from engine_bridge.batch.recording import Recording
from engine_bridge.batch.results import JobProgress, RecordingResult
from engine_bridge.batch.retrying import RetryingEngine
from engine_bridge.batch.working import HeldElsewhere, Worker
from engine_bridge.engines.protocol import Engine
from engine_bridge.journal import Journal
from engine_bridge.room import Room
from engine_bridge.transcript import Segment

WINDOW = 4
"""Recordings in the order given are begun so many times as many ahead of the one awaited as are under way at once."""

MOST_DEFERRED = 1000
"""Recordings that others hold and that are looked at again; with more of them, no new ones are begun."""

LOOK_AGAIN_SECONDS = 0.5
"""How long a recording that another process has under way is left alone before it is looked at again."""

Entry = tuple[int, Recording]


class RecordingResults(Iterator[RecordingResult]):
    """The results of a job as they come. Made by `transcribe_many`.

    Leaving the iteration early and closing gives everything back; what is done by then is in the journal.

    Attributes
    ----------
    progress : JobProgress
        How far the job has come.

    """

    def __init__(
        self,
        entries: Iterator[Entry],
        engine: Engine,
        journal: Journal | None,
        options: dict[str, Any],
        *,
        owned: Sequence[Engine | Journal],
        ordered: bool,
        at_once: int,
        restart: bool,
        retry_failed: bool,
        on_progress: Callable[[JobProgress], None] | None,
        on_segment: Callable[[Recording, Segment], None] | None,
    ) -> None:
        self._entries = entries
        self._owned = owned
        self._ordered = ordered
        self._at_once = at_once
        self._on_progress = on_progress
        self._engine = RetryingEngine(engine)
        self._room = Room(2 * engine.preferred_in_flight)
        self._worker = Worker(
            self._engine,
            journal,
            options,
            self._room,
            restart=restart,
            retry_failed=retry_failed,
            on_audio=self._count_audio,
            on_segment=on_segment,
        )
        self._changed = threading.Condition()
        self._intake = threading.Lock()
        self._telling = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._deferred: deque[tuple[float, Entry]] = deque()
        self._ready: dict[int, RecordingResult] = {}
        self._under_way = 0
        self._reading = False
        self._exhausted = False
        self._stopped = False
        self._closed = False
        self._failure: BaseException | None = None
        self._next = 0
        self._started = time.perf_counter()
        self._counts = {"done": 0, "known": 0, "failed": 0}
        self._audio_seconds = 0.0

    @property
    def progress(self) -> JobProgress:
        """How far the job has come."""
        with self._changed:
            elapsed = time.perf_counter() - self._started
            return JobProgress(
                **self._counts,
                under_way=self._under_way,
                audio_seconds=self._audio_seconds,
                elapsed_seconds=elapsed,
            )

    @property
    def stopped(self) -> bool:
        """Whether the job was told to stop."""
        return self._stopped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> RecordingResult:
        """Return the next recording that is done, waiting for it.

        Raises
        ------
        EngineBridgeError
            If the job cannot go on.

        """
        self._add_thread()
        with self._changed:
            self._changed.wait_for(self._may_tell)
            position = self._following()
            if position is not None:
                self._next = position + 1
                result = self._ready.pop(position)
                self._changed.notify_all()
                return result
        if self._failure is not None:
            raise self._failure
        if self._stopped and not self._closed:
            self._engine.drain()
        raise StopIteration

    def stop(self) -> None:
        """Begin nothing more, let the engine finish what it has begun, and end the iteration after that.

        Recordings that are complete by then are still yielded. It returns at once, and may be called from a signal's
        handler.
        """
        # No lock is taken here: the handler may have interrupted the thread that holds it.
        self._stopped = True
        threading.Thread(target=self._stop, name="auricle-stop", daemon=True).start()

    def close(self) -> None:
        """Stop without waiting for results; let the threads end, and close what was opened here."""
        with self._changed:
            if self._closed:
                return
            self._closed = self._stopped = True
            self._changed.notify_all()
        self._stop()
        for thread in list(self._threads):
            # One that waits for the next entry of an iterator cannot be woken.
            thread.join(1.0 if self._reading else None)
        for each in self._owned:
            each.close()

    def _stop(self) -> None:
        self._engine.stop()
        self._room.close()
        with self._changed:
            self._changed.notify_all()

    def _following(self) -> int | None:
        """Return the position of the result to yield next, if it is there."""
        if not self._ordered:
            return next(iter(self._ready), None)
        if self._stopped:  # the order's gaps will not be filled
            return min(self._ready, default=None)
        return self._next if self._next in self._ready else None

    def _may_tell(self) -> bool:
        if self._following() is not None and not (self._ordered and self._stopped and self._under_way):
            return True
        ended = self._failure is not None or self._stopped or (self._exhausted and not self._deferred)
        return ended and not self._under_way and (self._stopped or not self._reading)

    def _add_thread(self) -> None:
        """Start another thread, up to so many."""
        with self._changed:
            if len(self._threads) < self._at_once and not self._exhausted and not self._stopped:
                number = len(self._threads)
                thread = threading.Thread(target=self._work, name=f"auricle-recording-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        while (entry := self._take()) is not None:
            self._add_thread()
            position, recording = entry
            result: RecordingResult | None = None
            deferred = False
            try:
                result = self._worker.do(position, recording)
            except HeldElsewhere:
                deferred = True
            except BaseException as error:  # noqa: BLE001 - raised again by whoever iterates
                self._fail(error)
            with self._changed:
                self._under_way -= 1
                if result is not None and result.failure is not None and self._stopped and not result.known:
                    result = None  # it was broken off
                if deferred:
                    self._deferred.append((time.monotonic() + LOOK_AGAIN_SECONDS, entry))
                if result is not None:
                    self._ready[position] = result
                    self._counts["failed" if result.failure else "known" if result.known else "done"] += 1
                self._changed.notify_all()
            if result is not None:
                self._tell_progress()

    def _fail(self, error: BaseException) -> None:
        """End the job, unless it is ending anyhow: then what breaks is only what was broken off."""
        with self._changed:
            if not self._stopped and self._failure is None:
                self._failure = error
            self._stopped = True
        self._stop()

    def _take(self) -> Entry | None:
        """Wait until another recording may be begun and take it; None when there are no more."""
        if not self._room.wait():
            return None
        with self._intake:
            with self._changed:
                while not self._stopped and (self._exhausted or not self._may_begin()):
                    if self._exhausted and not self._deferred:
                        return None
                    if (entry := self._take_deferred()) is not None:
                        return entry
                if self._stopped:
                    return None
                self._reading = True
            entry = self._read()
        return self._take() if entry is None and self._deferred else entry

    def _may_begin(self) -> bool:
        """Return whether a recording that is new may be begun; with the lock held."""
        if len(self._deferred) >= MOST_DEFERRED:
            return False
        if not self._ordered:
            return len(self._ready) < self._at_once
        # The one awaited is among these, or is the next.
        return len(self._ready) + self._under_way + len(self._deferred) < WINDOW * self._at_once

    def _take_deferred(self) -> Entry | None:
        """Take a recording that was held elsewhere, or wait for what may change; with the lock held."""
        left = None
        if self._deferred and (self._ordered or len(self._ready) < self._at_once):
            due, entry = self._deferred[0]
            left = due - time.monotonic()
            if left <= 0:
                self._deferred.popleft()
                self._under_way += 1
                return entry
        self._changed.wait(left)
        return None

    def _read(self) -> Entry | None:
        """Take the next entry of the iterator."""
        entry: Entry | None = None
        try:
            entry = next(self._entries, None)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever iterates
            self._fail(error)
        with self._changed:
            self._reading = False
            self._exhausted = self._exhausted or entry is None
            if self._stopped:
                entry = None
            elif entry is not None:
                self._under_way += 1
            self._changed.notify_all()
        return entry

    def _count_audio(self, seconds: float) -> None:
        with self._changed:
            self._audio_seconds += seconds
        self._tell_progress()

    def _tell_progress(self) -> None:
        if self._on_progress is not None:
            with self._telling:
                self._on_progress(self.progress)
