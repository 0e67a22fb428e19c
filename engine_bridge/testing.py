"""An engine without a model, for tests of whatever uses engines.

::

    from engine_bridge import transcribe
    from engine_bridge.testing import FakeEngine, clip_result

    engine = FakeEngine(lambda samples, options: clip_result([(0.5, 0.9, "hello")]))
    transcript = transcribe("recording.wav", engine=engine)
    assert engine.submissions[0].options.language is None
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.positions import samples_from_seconds
from engine_bridge.engines.options import check_options
from engine_bridge.engines.protocol import (
    ClipResult,
    ClipSegment,
    ClipWord,
    DecodingOptions,
    EngineCapabilities,
    LanguageProbabilities,
)
from engine_bridge.errors import EngineError, UnsupportedOptionError

Script = Callable[[NDArray[np.float32], DecodingOptions], ClipResult | Exception]
"""Answers one clip: what was heard, or the error that its future fails with."""

LanguageScript = Callable[[NDArray[np.float32]], LanguageProbabilities | Exception]
"""Tells the language of one clip, or the error that its future fails with."""

ENGLISH_ONLY = EngineCapabilities(
    sample_rate=16_000,
    max_clip_seconds=30.0,
    languages=("en",),
    detects_language=False,
    translates=False,
    timestamps=True,
    word_times=True,
    beam_search=True,
)
"""What Whisper's English-only models can do."""

MULTILINGUAL = EngineCapabilities(
    sample_rate=16_000,
    max_clip_seconds=30.0,
    languages=("de", "en", "fr", "zh"),
    detects_language=True,
    translates=True,
    timestamps=True,
    word_times=True,
    beam_search=True,
)
"""What Whisper's multilingual models can do, for four languages."""


@dataclass(frozen=True, eq=False)
class Submission:
    """A clip that an engine was given.

    Attributes
    ----------
    samples : ndarray, shape (frames,), float32 in [-1, 1]
        The clip.
    options : DecodingOptions
        How it was to be recognised.

    """

    samples: NDArray[np.float32]
    options: DecodingOptions


@dataclass(order=True)
class _Waiting:
    """A clip in the queue, ordered by the time at which it is to be answered."""

    due: float
    number: int
    answer: Callable[[], Any] = field(compare=False)
    future: "Future[Any]" = field(compare=False)


def clip_result(
    words: Sequence[tuple[float, float, str]],
    *,
    probability: float = 0.9,
    language: str | None = "en",
    average_log_probability: float | None = -0.1,
    no_speech_probability: float | None = 0.0,
) -> ClipResult:
    """Return a result with one segment of timed words, or an empty one.

    Parameters
    ----------
    words : sequence of (start, end, text)
        Ascending, in seconds from the clip's start; texts without surrounding space.
    probability : float
        The engine's confidence in each word, in [0, 1].
    language : str or None
        ISO 639-1 code.
    average_log_probability, no_speech_probability : float or None
        As in `ClipResult`.

    """
    timed = tuple(ClipWord(start, end, f" {text}", probability) for start, end, text in words)
    text = "".join(word.text for word in timed).strip()
    segments = (ClipSegment(timed[0].start, timed[-1].end, text, timed),) if timed else ()
    return ClipResult(
        segments,
        language=language,
        average_log_probability=average_log_probability,
        no_speech_probability=no_speech_probability,
    )


class FakeEngine:
    """An `Engine` whose answers are scripted.

    Clips are answered by a thread of its own, one after the other: the one that is due first comes first, and among
    those due at once the one submitted first. Everything that was asked is kept for inspection.

    Parameters
    ----------
    script : callable
        Takes a clip's samples and options and returns its `ClipResult`, or an exception to fail with. What it raises
        fails the clip with an EngineError, as a real engine does.
    language_script : callable or None
        Takes a clip's samples and returns its languages with probabilities. Without it every clip is in the first of
        the capabilities' languages.
    capabilities : EngineCapabilities
        What the engine claims; whatever it cannot do it refuses.
    delay : callable or None
        Takes the number of a clip, counted from 0 in the order of submission (language questions count too), and
        returns the seconds after which it is due. Unequal delays make answers come out of order.
    in_flight : int
        What `preferred_in_flight` says.
    prompt_budget : int
        The most words of a prompt that it takes before a clip.
    spec : str
        What `spec` says.

    """

    def __init__(
        self,
        script: Script,
        *,
        language_script: LanguageScript | None = None,
        capabilities: EngineCapabilities = ENGLISH_ONLY,
        delay: Callable[[int], float] | None = None,
        in_flight: int = 8,
        prompt_budget: int = 200,
        spec: str = "fake:scripted",
    ) -> None:
        self._script = script
        self._language_script = language_script
        self._capabilities = capabilities
        self._delay = delay
        self._in_flight = in_flight
        self._prompt_budget = prompt_budget
        self._spec = spec
        self._waiting: list[_Waiting] = []
        self._submissions: list[Submission] = []
        self._language_clips: list[NDArray[np.float32]] = []
        self._asked = 0
        self._open = 0
        self._most_open = 0
        self._seconds = 0.0
        self._closed = False
        self._changed = threading.Condition()
        self._worker = threading.Thread(target=self._work, name="auricle-fake-engine", daemon=True)
        self._worker.start()

    @property
    def spec(self) -> str:
        """The name it was given; it does not open another engine."""
        return self._spec

    @property
    def description(self) -> str:
        """What it is."""
        return "answers from a script"

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it claims to be able to do."""
        return self._capabilities

    @property
    def preferred_in_flight(self) -> int:
        """How many clips it asks for at once."""
        return self._in_flight

    @property
    def submissions(self) -> tuple[Submission, ...]:
        """The clips to recognise, in the order they were submitted."""
        with self._changed:
            return tuple(self._submissions)

    @property
    def language_clips(self) -> tuple[NDArray[np.float32], ...]:
        """The clips whose language was asked for, in order."""
        with self._changed:
            return tuple(self._language_clips)

    @property
    def most_in_flight(self) -> int:
        """The most clips that were ever submitted and not yet answered or cancelled."""
        with self._changed:
            return self._most_open

    def check(self, options: DecodingOptions) -> None:
        """Raise UnsupportedOptionError if the capabilities do not cover `options`."""
        check_options(self._spec, self._capabilities, options)

    def fit_prompt(self, text: str) -> tuple[str, bool]:
        """Return the last words of a prompt, as many as the budget allows, and whether any are left out."""
        words = text.split()
        if len(words) <= self._prompt_budget:
            return text, False
        return " ".join(words[len(words) - self._prompt_budget :]), True

    def submit(self, samples: NDArray[np.float32], options: DecodingOptions) -> "Future[ClipResult]":
        """Hand over one clip, shape (frames,), float32; see `Engine.submit`."""
        self.check(options)
        with self._changed:
            future = self._enqueue(samples, lambda: self._script(samples, options))
            self._submissions.append(Submission(samples, options))
        return future

    def detect_language(self, samples: NDArray[np.float32]) -> "Future[LanguageProbabilities]":
        """Tell the language of one clip by the script; see `Engine.detect_language`."""
        if not self._capabilities.detects_language:
            raise UnsupportedOptionError(f"{self._spec} does not support language detection: name the language")
        with self._changed:
            future = self._enqueue(samples, lambda: self._languages(samples))
            self._language_clips.append(samples)
        return future

    def _languages(self, samples: NDArray[np.float32]) -> LanguageProbabilities | Exception:
        if self._language_script is None:
            return ((self._capabilities.languages[0], 1.0),)
        return self._language_script(samples)

    def _enqueue(self, samples: NDArray[np.float32], answer: Callable[[], Any]) -> "Future[Any]":
        longest = samples_from_seconds(self._capabilities.max_clip_seconds, self._capabilities.sample_rate)
        if samples.ndim != 1 or len(samples) > longest:
            raise ValueError(f"a clip has shape (frames,) with at most {longest} frames, not {samples.shape}")
        if self._closed:
            raise EngineError(f"{self._spec} is closed: open another engine")
        number = self._asked
        self._asked += 1
        due = time.monotonic() + (0.0 if self._delay is None else self._delay(number))
        future: Future[Any] = Future()
        self._open += 1
        self._most_open = max(self._most_open, self._open)
        heapq.heappush(self._waiting, _Waiting(due, number, answer, future))
        self._changed.notify()
        # Called at once in the thread that finishes or cancels the future, which never holds the lock then.
        future.add_done_callback(self._count_done)
        return future

    def _count_done(self, _: "Future[Any]") -> None:
        with self._changed:
            self._open -= 1

    def timings(self) -> Mapping[str, float]:
        """Seconds spent in the script."""
        with self._changed:
            return {"script": self._seconds}

    def close(self) -> None:
        """Stop after the answer at work; clips still waiting are cancelled."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify()
        for request in waiting:
            if request.future.cancel():
                request.future.set_running_or_notify_cancel()
        self._worker.join()

    def _work(self) -> None:
        while (request := self._next()) is not None:
            if not request.future.set_running_or_notify_cancel():
                continue
            started = time.perf_counter()
            try:
                answer = request.answer()
            except Exception as error:  # noqa: BLE001 - whatever a script raises belongs to the clip
                answer = EngineError(f"{self._spec} failed: {type(error).__name__}: {error}")
                answer.__cause__ = error
            with self._changed:
                self._seconds += time.perf_counter() - started
            if isinstance(answer, Exception):
                request.future.set_exception(answer)
            else:
                request.future.set_result(answer)

    def _next(self) -> _Waiting | None:
        """Wait for a clip to be due and take it; None when the engine is closed."""
        with self._changed:
            while not self._closed:
                left = self._waiting[0].due - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._waiting)
                self._changed.wait(left)
            return None
