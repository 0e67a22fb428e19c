"""Many recognitions carried by one thread."""

import queue
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from engine_bridge.errors import EngineError
from engine_bridge.recognition.ladder import Outcome, Waiting


class Task:
    """A recognition and the futures it waits for.

    Parameters
    ----------
    recognition : generator
        See `engine_bridge.recognition.ladder`.
    ready : queue
        Receives this task whenever all that it waits for has come.

    Attributes
    ----------
    outcome : Outcome or None
        The result, once there is one.
    failure : Exception or None
        What the recognition or one of its futures raised; then there will be no outcome.

    """

    def __init__(self, recognition: Waiting, ready: "queue.SimpleQueue[Any]") -> None:
        self._recognition = recognition
        self._ready = ready
        self._futures: Sequence[Future[Any]] = ()
        self.outcome: Outcome | None = None
        self.failure: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome or a failure."""
        return self.outcome is not None or self.failure is not None

    def advance(self) -> None:
        """Run until the recognition waits again, ends or fails.

        A failure is kept rather than raised, for chunks before this one may still be under way and their text is to
        be had first.
        """
        # What is done is let go of at once: its callbacks lead back here, so that Python would keep both for a while.
        done, self._futures = self._futures, ()
        try:
            if done:
                self._futures = self._recognition.send([future.result() for future in done])
            else:
                self._futures = next(self._recognition)
        except StopIteration as stop:
            self.outcome = stop.value
            return
        except CancelledError as error:
            self.failure = EngineError("the engine was closed before it had recognised everything: keep it open")
            self.failure.__cause__ = error
            return
        except Exception as error:  # noqa: BLE001 - raised in the chunk's turn by whoever reads this task
            self.failure = error
            return
        _Countdown(self._futures, self, self._ready)

    def cancel(self) -> None:
        """Give up; what the engine has not begun is not computed."""
        for future in self._futures:
            future.cancel()
        self._recognition.close()


def carry(recognitions: Iterable[Waiting]) -> list[Task]:
    """Carry recognitions side by side until each has an outcome or a failure, and return them as tasks, in order."""
    ready: queue.SimpleQueue[Task] = queue.SimpleQueue()
    tasks = [Task(recognition, ready) for recognition in recognitions]
    for task in tasks:
        task.advance()
    left = sum(not task.is_over for task in tasks)
    while left:
        task = ready.get()
        task.advance()
        left -= task.is_over
    return tasks


class _Countdown:
    """Announces a task when the last of its futures is done, whichever thread that happens in."""

    def __init__(self, futures: Sequence[Future[Any]], task: Task, ready: "queue.SimpleQueue[Any]") -> None:
        self._left = len(futures)
        self._lock = threading.Lock()
        self._task = task
        self._ready = ready
        for future in futures:
            future.add_done_callback(self._done)

    def _done(self, _: "Future[Any]") -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._ready.put(self._task)
