"""What engines that wrap another have in common."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from engine_bridge.engines.protocol import DecodingOptions, Engine, EngineCapabilities

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine_bridge.engines.protocol import ClipResult, LanguageProbabilities


class WrappedEngine:
    """An engine that is asked through another object, which sees each question and each answer.

    Encoder states are not among them.

    Parameters
    ----------
    engine : Engine
        The engine.

    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def spec(self) -> str:
        """The engine's own specification."""
        return self._engine.spec

    @property
    def description(self) -> str:
        """What the engine runs on."""
        return self._engine.description

    @property
    def capabilities(self) -> EngineCapabilities:
        """What the engine can do."""
        return self._engine.capabilities

    @property
    def preferred_in_flight(self) -> int:
        """How many clips keep the engine busy."""
        return self._engine.preferred_in_flight

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError if the engine cannot honour `options`."""
        self._engine.check(options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return what of a prompt the engine takes, and whether that is less than the whole."""
        return self._engine.fit_prompt(text)

    def submit(self, samples: "NDArray[np.float32]", options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip; see `Engine.submit`."""
        return self._engine.submit(samples, options)

    def detect_language(self, samples: "NDArray[np.float32]") -> "Future[LanguageProbabilities]":
        """Tell the language of one clip; see `Engine.detect_language`."""
        return self._engine.detect_language(samples)

    def timings(self) -> Mapping[str, float]:
        """Seconds spent so far in each of the engine's stages."""
        return self._engine.timings()

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


class Relay(Future[Any]):
    """A future that another one fulfils.

    It can be cancelled exactly as long as that one can: what an engine has begun comes to its end, and is of use.
    """

    def __init__(self) -> None:
        super().__init__()
        self._behind: Future[Any] | None = None

    def follow(self, behind: "Future[Any]", then: "Callable[[Future[Any]], None]") -> None:
        """Wait for a future, and call a function with it when it is done."""
        self._behind = behind
        behind.add_done_callback(then)

    def _let_go(self) -> None:
        """Forget the future behind: its callback holds the clip and leads back here, in a circle that would stay."""
        self._behind = None

    def cancel(self) -> bool:
        """Cancel the future behind this one, and this one with it; return whether that was possible."""
        behind = self._behind
        if behind is not None and not behind.cancelled() and not behind.cancel():
            return False
        self._let_go()
        return super().cancel()

    def fulfil(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Take the result, unless nobody wants it any more."""
        self._let_go()
        if self.set_running_or_notify_cancel():
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(answer)
