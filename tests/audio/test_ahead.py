"""Reading ahead in a thread: same items, same failures, bounded, and nothing left behind."""

import gc
import threading

import pytest

from audio.ahead import Ahead

WAIT = 10  # seconds, for a thread on a slow machine


def threads(name):
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.mark.parametrize("most", [1, 4])
def test_gives_what_the_iterator_gives(most):
    assert list(Ahead(iter(range(100)), most, "reader")) == list(range(100))


def test_gives_what_came_before_a_failure_and_then_the_failure():
    def failing():
        yield 1
        raise LookupError("the third")

    ahead = Ahead(failing(), 4, "reader")
    assert next(ahead) == 1
    with pytest.raises(LookupError, match="the third"):
        next(ahead)
    assert next(ahead, None) is None


def test_begins_only_when_something_is_asked_for():
    Ahead(iter([1]), 4, "idle-reader")
    assert not threads("idle-reader")


def test_makes_no_more_than_is_allowed_ahead_of_what_was_read():
    made, enough = [], threading.Event()

    def counted():
        for number in range(100):
            made.append(number)
            if number == 3:  # one was read, three are allowed
                enough.set()
            yield number

    ahead = Ahead(counted(), 3, "reader")
    next(ahead)
    assert enough.wait(WAIT)
    ahead.close()
    assert len(made) == 4


def test_refuses_to_go_on_after_it_was_closed():
    ahead = Ahead(iter(range(100)), 4, "reader")
    next(ahead)
    ahead.close()
    ahead.close()
    with pytest.raises(ValueError, match="closed"):
        next(ahead)


def test_waits_for_the_item_being_made_when_it_is_closed():
    begun, done = threading.Event(), threading.Event()

    def slow():
        yield 1
        begun.set()
        threading.Event().wait(0.05)
        done.set()
        yield 2

    ahead = Ahead(slow(), 4, "reader")
    next(ahead)
    assert begun.wait(WAIT)
    ahead.close()
    assert done.is_set()
    assert not threads("reader")


def test_leaves_no_thread_behind_when_it_is_forgotten():
    ahead = Ahead(iter(range(100)), 4, "forgotten-reader")
    next(ahead)
    del ahead
    gc.collect()
    assert not threads("forgotten-reader")
