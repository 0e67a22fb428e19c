"""An engine whose failures are tried again, and that can be told to come to an end."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from engine_bridge.engines.protocol import DecodingOptions, Engine
from engine_bridge.engines.wrapped import Relay, WrappedEngine
from engine_bridge.errors import EngineDeadError, EngineError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine_bridge.engines.protocol import ClipResult, LanguageProbabilities

ATTEMPTS = 3
"""How often the engine is asked about a clip before its failure counts."""


class RetryingEngine(WrappedEngine):
    """Asks an engine again about a clip that it failed on, unless the engine is gone.

    Parameters
    ----------
    engine : Engine
        Shared by all recordings; it stays open.
    attempts : int
        How often it is asked before its failure counts, at least 1.

    """

    def __init__(self, engine: Engine, attempts: int = ATTEMPTS) -> None:
        super().__init__(engine)
        self._attempts = attempts
        self._changed = threading.Condition()
        self._asked: set[Future[Any]] = set()
        self._stopped = False

    def submit(self, samples: "NDArray[np.float32]", options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip. Raises EngineError after `stop`."""
        return self._ask(lambda: self._engine.submit(samples, options))

    def detect_language(self, samples: "NDArray[np.float32]") -> "Future[LanguageProbabilities]":
        """Tell the language of one clip. Raises EngineError after `stop`."""
        return self._ask(lambda: self._engine.detect_language(samples))

    def stop(self) -> None:
        """Take no more clips, and ask for none again. What the engine has begun goes on; what it has not is cancelled.

        An engine that does not tell what it has begun finishes what it was given.
        """
        with self._changed:
            self._stopped = True
        self._cancel_waiting()

    def drain(self) -> None:
        """Wait until the engine has answered all that it was asked and that was not cancelled."""
        with self._changed:
            self._changed.wait_for(lambda: not self._asked)

    def _ask(self, question: "Callable[[], Future[Any]]") -> "Future[Any]":
        if self._stopped:
            raise EngineError(f"{self.spec} takes no more clips: the job is being stopped")
        relay = Relay()
        self._follow(relay, question, question(), 1)
        return relay

    def _follow(self, relay: Relay, question: "Callable[[], Future[Any]]", behind: "Future[Any]", attempt: int) -> None:
        with self._changed:
            self._asked.add(behind)
        relay.follow(behind, lambda done: self._done(relay, question, done, attempt))

    def _done(self, relay: Relay, question: "Callable[[], Future[Any]]", done: "Future[Any]", attempt: int) -> None:
        try:
            self._pass_on(relay, question, done, attempt)
        finally:
            with self._changed:
                self._asked.discard(done)
                stopped = self._stopped
                self._changed.notify_all()
            if stopped:
                self._cancel_waiting()

    def _pass_on(self, relay: Relay, question: "Callable[[], Future[Any]]", done: "Future[Any]", attempt: int) -> None:
        try:
            answer = done.result()
        except CancelledError:
            relay.cancel()
        except EngineError as error:
            if isinstance(error, EngineDeadError) or attempt == self._attempts or self._stopped or relay.cancelled():
                relay.fulfil(error=error)
                return
            try:
                again = question()
            except EngineError as closed:
                relay.fulfil(error=closed)
            else:
                self._follow(relay, question, again, attempt + 1)
        except Exception as error:  # noqa: BLE001 - what else a future holds is its asker's
            relay.fulfil(error=error)
        else:
            relay.fulfil(answer)

    def _cancel_waiting(self) -> None:
        """Cancel what the engine has not begun, where it tells what it has."""
        with self._changed:
            asked = list(self._asked)
        if any(future.running() for future in asked):
            for future in asked:
                future.cancel()
