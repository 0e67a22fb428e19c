"""Ctrl-C during a job: once to finish what the engine is at and keep it, twice to stop at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 130
"""What shells expect of a process that was interrupted: 128 and the signal's number."""

FINISHING = "interrupted: finishing what the engine is at, and keeping it; press Ctrl-C again to stop at once"
AT_ONCE = "stopped; what was done until now is kept, and the same command goes on from there"


@contextmanager
def stopping_on_interrupt(stop: Callable[[], None] | None) -> Iterator[None]:
    """Call a function at the first interruption of this process, and end the process at the second.

    SIGTERM counts as Ctrl-C does. Where interruptions are ignored, as by what a shell starts in the background, they
    stay so.

    Parameters
    ----------
    stop : callable or None
        Returns at once. Without it the first interruption is a KeyboardInterrupt.

    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interruptions = 0

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is called with
        nonlocal interruptions
        interruptions += 1
        if interruptions > 1:
            _say(AT_ONCE)
            os._exit(EXIT_CODE)
        if stop is None:
            raise KeyboardInterrupt
        _say(FINISHING)
        stop()

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """Write a line to standard error past Python's buffers, which the interrupted code may be using."""
    os.write(2, f"auricle: {text}\n".encode())
