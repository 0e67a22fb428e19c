"""Where the time goes: the seconds of every stage from the file to the transcript.

Each transcription and each engine keeps a `TimingContext`. All of them report to one for the whole process as well,
which `snapshot` reads: a server's metrics and a transcript's timings name the same stages.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

DECODE_AUDIO = "decode audio"
SPLIT = "split"
FEATURES = "features"
ENCODE = "encode"
DECODE_TEXT = "decode text"
ALIGN = "align"
WAIT = "wait for the engine"
CHECK = "check"
RECOVER = "recover"
WRITE = "write"

STAGES = {
    DECODE_AUDIO: "reading, decoding, reducing channels and resampling",
    SPLIT: "finding speech and cutting chunks",
    FEATURES: "spectrograms",
    ENCODE: "the model's encoder",
    DECODE_TEXT: "the model's text decoder",
    ALIGN: "timing words",
    WAIT: "nothing else left to do than wait for the engine",
    CHECK: "levelling clips, checking texts, estimating times, merging",
    RECOVER: "from noticing that text may be missing until it is there or given up",
    WRITE: "writing transcripts",
}
"""The stages and what they are. An engine may have further ones of its own."""

WALL_SUFFIX = " (wall)"
"""Follows a stage's name where seconds on the clock stand beside the busy ones."""


@dataclass(frozen=True)
class StageSeconds:
    """What a stage has taken so far.

    Attributes
    ----------
    busy : float
        Seconds added up over all that worked on it at once, without what they spent in stages within it.
    wall : float
        Seconds on the clock during which anything worked on it.
    times : int
        How often it was done.
    parallel : int
        The most that ever worked on it at once.

    """

    busy: float = 0.0
    wall: float = 0.0
    times: int = 0
    parallel: int = 0


class _Stage:
    """The running account of a stage; its context's lock guards it."""

    def __init__(self) -> None:
        self.busy = 0.0
        self.wall = 0.0
        self.times = 0
        self.parallel = 0
        self.active = 0
        self.changed = 0.0

    def change(self, now: float, by: int) -> None:
        """Count those at work from now on, after adding up what the ones before have done."""
        passed = max(0.0, now - self.changed)
        self.busy += self.active * passed
        self.wall += passed if self.active else 0.0
        self.changed = now
        self.active += by
        self.parallel = max(self.parallel, self.active)


class Span:
    """Work that is not one thread's: it begins where it is made, and ends in any thread."""

    def __init__(self, context: "TimingContext", stage: str) -> None:
        self._context = context
        self._stage: str | None = stage
        context.change(stage, 1, times=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it. Only the first call counts."""
        stage, self._stage = self._stage, None
        if stage is not None:
            self._context.change(stage, -1)


class TimingContext:
    """Adds up the seconds of stages, from any number of threads.

    ::

        timing = TimingContext()
        with timing.stage("split"):
            with timing.stage("decode audio"):  # does not count as splitting
                ...
        timing.seconds()  # {"split": 0.01, "decode audio": 0.2}

    Parameters
    ----------
    stages : iterable of str
        Stages that are listed from the beginning and in this order.
    parent : TimingContext, optional
        Receives everything as well.

    """

    def __init__(self, stages: Iterable[str] = (), *, parent: "TimingContext | None" = None) -> None:
        self._lock = threading.Lock()
        self._stages = {stage: _Stage() for stage in stages}
        self._parent = parent
        self._entered = threading.local()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time in the block as this stage's. A stage entered within it interrupts it."""
        entered: list[str] = self._entered.__dict__.setdefault("stages", [])
        if entered:
            self.change(entered[-1], -1)
        entered.append(name)
        self.change(name, 1, times=1)
        try:
            yield
        finally:
            self.change(name, -1)
            entered.pop()
            if entered:
                self.change(entered[-1], 1)

    def span(self, name: str) -> Span:
        """Begin work on a stage that ends with `Span.end`, whatever the thread does meanwhile."""
        return Span(self, name)

    def change(self, name: str, by: int, *, times: int = 0) -> None:
        """Count so many more, or fewer, at work on a stage, and so many beginnings."""
        with self._lock:
            # Read under the lock, so that time never runs backwards for a stage.
            now = time.perf_counter()
            stage = self._stages.setdefault(name, _Stage())
            stage.change(now, by)
            stage.times += times
        if self._parent is not None:
            self._parent.change(name, by, times=times)

    def snapshot(self) -> dict[str, StageSeconds]:
        """Return what each stage has taken until now; a stage under way counts up to this moment."""
        with self._lock:
            now = time.perf_counter()
            for stage in self._stages.values():
                stage.change(now, 0)
            return {
                name: StageSeconds(stage.busy, stage.wall, stage.times, stage.parallel)
                for name, stage in self._stages.items()
            }

    def seconds(self) -> dict[str, float]:
        """Return the busy seconds of each stage, and ``"STAGE (wall)"`` where several worked on it at once."""
        seconds: dict[str, float] = {}
        for name, stage in self.snapshot().items():
            seconds[name] = stage.busy
            if stage.parallel > 1:
                seconds[f"{name}{WALL_SUFFIX}"] = stage.wall
        return seconds


PROCESS = TimingContext()
"""What all transcriptions and engines of this process have taken together."""


def snapshot() -> dict[str, StageSeconds]:
    """Return what each stage has taken in this process so far, for metrics; it only grows."""
    return PROCESS.snapshot()
