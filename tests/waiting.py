"""Waiting for what other threads and processes do, with a bound."""

import time


def wait_until(condition, seconds=20.0):
    """Wait until a condition holds; fail where it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def steady(value):
    """Tell whether a value is the same a moment later."""
    before = value()
    time.sleep(0.2)
    return value() == before
