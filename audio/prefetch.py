"""Running an iterator ahead of its consumer, by a bounded amount."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

Item = TypeVar("Item")

_END = object()


def prefetch(iterable: Iterable[Item], max_blocks: int = 8) -> Iterator[Item]:
    """Yield what an iterable yields, produced by a thread of its own that runs ahead.

    Decoding releases the interpreter's lock, so it proceeds while the consumer works on the blocks before. The thread
    starts with the first item asked for. It has ended when the iterator is exhausted, raises, or is closed early; the
    iterable's iterator is closed with it where it can be.

    Parameters
    ----------
    iterable : iterable
        What to run ahead. It is used by one thread at a time.
    max_blocks : int
        How many items may be ready and not yet taken, at least 1.

    Returns
    -------
    items : iterator
        The same items in the same order. An exception of the iterable is raised in its place among them.

    Raises
    ------
    ValueError
        If `max_blocks` is below 1.
    TypeError
        If `iterable` cannot be iterated.

    """
    if max_blocks < 1:
        raise ValueError(f"max_blocks is {max_blocks}: give at least 1.")
    return _running_ahead(iter(iterable), max_blocks)


def _running_ahead(iterator: Iterator[Item], max_blocks: int) -> Iterator[Item]:
    """Keep up to `max_blocks` calls of `next` ahead of the consumer."""
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
    ahead: deque[Future[object]] = deque()
    try:
        ahead.extend(executor.submit(next, iterator, _END) for _ in range(max_blocks))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(executor.submit(next, iterator, _END))
            yield cast(Item, item)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
