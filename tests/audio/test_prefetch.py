"""Prefetching: the same items, at most so many ahead, and no thread left behind."""

import threading
import time

import pytest

from audio.prefetch import prefetch


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


class Recorded:
    """An iterator that counts what was asked of it and notes in which thread, and its closing."""

    def __init__(self, items):
        self.items = iter(items)
        self.asked = 0
        self.threads = set()
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        self.threads.add(threading.current_thread())
        return next(self.items)

    def close(self):
        self.closed = True


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in 10 s"
        time.sleep(0.002)


@pytest.mark.parametrize("max_blocks", [1, 2, 7, 100])
@pytest.mark.parametrize("count", [0, 1, 7, 50])
def test_yields_the_same_items_in_order(count, max_blocks):
    assert list(prefetch(range(count), max_blocks)) == list(range(count))
    assert prefetch_threads() == []


def test_passes_none_on_as_an_item():
    assert list(prefetch([None, 1, None])) == [None, 1, None]


def test_produces_in_one_other_thread():
    source = Recorded(range(5))
    list(prefetch(source, 2))
    assert len(source.threads) == 1
    assert threading.current_thread() not in source.threads


def test_runs_ahead_by_no_more_than_allowed():
    source = Recorded(range(100))
    items = prefetch(source, 3)
    assert source.asked == 0
    assert next(items) == 0
    wait_until(lambda: source.asked == 4)  # the one taken and three ahead
    time.sleep(0.05)
    assert source.asked == 4
    items.close()


def test_raises_the_producers_error_after_the_items_before_it():
    def producer():
        yield 1
        yield 2
        raise KeyError("broken")

    items = prefetch(producer(), 4)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(items)
    assert list(items) == []
    assert prefetch_threads() == []


def test_closing_early_ends_the_thread_and_closes_the_producer():
    source = Recorded(iter(int, 1))  # never ends
    items = prefetch(source, 2)
    next(items)
    items.close()
    assert source.closed
    assert prefetch_threads() == []


def test_closing_before_the_first_item_starts_nothing():
    items = prefetch(range(3))
    items.close()
    assert prefetch_threads() == []


@pytest.mark.parametrize("max_blocks", [0, -1])
def test_refuses_no_room_at_the_call(max_blocks):
    with pytest.raises(ValueError, match="at least 1"):
        prefetch(range(3), max_blocks)


def test_refuses_what_cannot_be_iterated_at_the_call():
    with pytest.raises(TypeError):
        prefetch(3)
