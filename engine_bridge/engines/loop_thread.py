"""An event loop in a thread of its own, for callers that are not asynchronous."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines in the background; each has a future that can be cancelled until it is done.

    Parameters
    ----------
    name : str
        The thread's name.

    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, begin: Callable[[], Coroutine[Any, Any, _T]]) -> "Future[_T]":
        """Run a coroutine and return the future of its result; cancelling that cancels the coroutine.

        Parameters
        ----------
        begin : callable
            Makes the coroutine, in the loop's thread.

        """
        future: Future[_T] = Future()
        self.loop.call_soon_threadsafe(self._begin, begin, future)
        return future

    def run(self, begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine and wait for its result."""
        return self.submit(begin).result()

    def _begin(self, begin: Callable[[], Coroutine[Any, Any, _T]], future: "Future[_T]") -> None:
        if future.cancelled():
            future.set_running_or_notify_cancel()
            return
        task = self.loop.create_task(begin())
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finish(done, future))
        future.add_done_callback(lambda done: self._on_cancel(done, task))

    def _on_cancel(self, future: "Future[Any]", task: "asyncio.Task[Any]") -> None:
        if future.cancelled():
            # The loop is closed only after its last task, and a task that is done needs no cancelling.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(task.cancel)

    def _finish(self, task: "asyncio.Task[Any]", future: "Future[Any]") -> None:
        self._tasks.discard(task)
        # Only now does the future count as running, so that it can be cancelled up to here.
        if task.cancelled():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        failure = task.exception()
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(task.result())

    def stop(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel what runs, run a last coroutine, and end the thread. Once only."""
        self.run(lambda: self._wind_up(finish))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _wind_up(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await finish()
        await self.loop.shutdown_default_executor()
