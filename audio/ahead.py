"""An iterator that a thread of its own runs, ahead of who reads it, by a bounded number of items."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class _End:
    """There are no more items, because of a failure or without one."""

    failure: BaseException | None


class _Line(Generic[Item]):
    """What the thread and its reader share, and all that the thread knows, so that it keeps no reader alive."""

    def __init__(self, items: Iterator[Item], most: int, name: str) -> None:
        self.ready: queue.SimpleQueue[Item | _End] = queue.SimpleQueue()
        self.room = threading.Semaphore(most)
        self._items = items
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read ahead, unless that has begun or is over."""
        if self._thread.ident is None and not self._stopped.is_set():
            self._thread.start()

    def stop(self) -> None:
        """Let the thread end, and wait for it; it may be in the midst of an item."""
        self._stopped.set()
        self.room.release()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while True:
                self.room.acquire()
                if self._stopped.is_set():
                    break
                self.ready.put(next(self._items))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again where the items are read
            failure = error
        self.ready.put(_End(failure))


class Ahead(Generic[Item]):
    """Reads an iterator in a thread, so that making the next items and using the last ones take place side by side.

    Decoders and resamplers let go of the interpreter's lock, so each has a core of its own.

    Parameters
    ----------
    items : iterator
        What is read. It is used by the thread alone, which begins with the first item that is asked for.
    most : int
        How many items may be made and not yet read.
    name : str
        The thread's name.

    """

    def __init__(self, items: Iterator[Item], most: int, name: str) -> None:
        self._line = _Line(items, most, name)
        self._ended = self._closed = False
        self._finalize = weakref.finalize(self, self._line.stop)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        """Return the next item, or raise what the iterator raised in its place.

        Raises
        ------
        ValueError
            After `close`: what there is would pass for the whole.

        """
        if self._closed:
            raise ValueError("it is closed, so the rest of it cannot be read")
        if self._ended:
            raise StopIteration
        self._line.start()
        found = self._line.ready.get()
        if not isinstance(found, _End):
            self._line.room.release()
            return found
        self._ended = True
        if found.failure is not None:
            raise found.failure
        raise StopIteration

    def close(self) -> None:
        """End the thread. What it has made and nobody read is lost. It may be called more than once."""
        self._closed = True
        self._finalize()
