"""Clips that wait for the workers of an engine in this process, handed out in batches."""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineError


@dataclass(frozen=True, eq=False)
class ClipRequest:
    """A clip that waits for a worker.

    Attributes
    ----------
    samples : ndarray, shape (frames,), float32
        The clip; empty where its encoder states are given.
    options : DecodingOptions or None
        How it is to be recognised. Without options only its language is asked for, or its encoder states.
    future : Future
        Takes the answer.
    wants_states : bool
        Whether the encoder's states are asked for.
    states : ndarray, shape (frames, hidden size), float32, or None
        The encoder's states, where they are known.
    embedded_frames : int or None
        Length of the audio that the states stand for.

    """

    samples: NDArray[np.float32]
    options: DecodingOptions | None
    future: "Future[Any]"
    wants_states: bool = False
    states: NDArray[np.float32] | None = None
    embedded_frames: int | None = None

    @property
    def frames(self) -> int:
        """Length of the audio, in samples."""
        return len(self.samples) if self.embedded_frames is None else self.embedded_frames

    def goes_with(self, other: "ClipRequest") -> bool:
        """Tell whether both can be decoded together."""
        return (self.options, self.wants_states) == (other.options, other.wants_states)


class ClipQueue:
    """A queue that hands out clips which can be decoded together.

    Parameters
    ----------
    spec : str
        The engine's specification, for messages.

    """

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._waiting: deque[ClipRequest] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, request: ClipRequest) -> "Future[Any]":
        """Add a clip and return its future. Raises EngineError once the queue is closed."""
        with self._changed:
            if self._closed:
                raise EngineError(f"{self._spec} is closed")
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def take(self, most: int, workers: int) -> list[ClipRequest] | None:
        """Wait for clips and take those that can be decoded together; None when the queue is closed.

        Parameters
        ----------
        most : int
            The largest batch.
        workers : int
            How many share the queue: each takes a fair share, so that a short queue keeps all busy rather than one.

        """
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            share = -(-len(self._waiting) // workers)
            first = self._waiting.popleft()
            batch = [first]
            kept: deque[ClipRequest] = deque()
            while self._waiting and len(batch) < min(share, most):
                request = self._waiting.popleft()
                (batch if request.goes_with(first) else kept).append(request)
            self._waiting.extendleft(reversed(kept))
            if self._waiting:
                self._changed.notify()
            return batch

    def close(self) -> None:
        """Let the workers end; clips still waiting are cancelled."""
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        # Outside the lock, for callbacks run here and may ask the engine. The second call wakes who waits.
        for request in waiting:
            if request.future.cancel():
                request.future.set_running_or_notify_cancel()
