"""What a server has done so far, in the form that Prometheus reads."""

import os
import threading
from dataclasses import asdict
from functools import cache

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from engine_bridge import timing
from engine_bridge.cache import InputCache
from engine_bridge.engines.protocol import TRANSCRIBE, TRANSLATE, Engine
from engine_bridge.server.problems import Problem
from engine_bridge.timing import CHECK, DECODE_AUDIO, SPLIT, WAIT
from engine_bridge.transcript import Transcript

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""The media type of `ServerMetrics.text`."""

_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable: the processes of a server add up there
_CACHE_NAMES = {"capacity": "capacity_bytes"}  # names end with the unit
_CACHE_MEANINGS = {
    "hits": "Questions to the cache of decoded audio that it answered",
    "misses": "Questions to the cache of decoded audio that it could not answer",
    "evictions": "Entries of the cache of decoded audio that made room for others",
    "entries": "Entries that the cache of decoded audio holds now",
    "bytes": "Bytes that the cache of decoded audio holds now",
    "capacity": "Bytes that the cache of decoded audio may hold",
}


class ServerMetrics:
    """Counts requests, and tells where the time of their recordings went. Every method may be called from any thread.

    The metrics are prometheus_client's own, whose values are added up over a server's processes where it has several.

    Parameters
    ----------
    registry : prometheus_client.CollectorRegistry, optional
        Where the metrics are found; one of their own by default. No two of these can be in the same registry.

    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = CollectorRegistry() if registry is None else registry
        self._lock = threading.Lock()
        self._busy: dict[str, float] = {}
        self._wall: dict[str, float] = {}
        self._requests = self._counter("requests", "Requests for a text", "task")
        self._refusals = self._counter("refusals", "Requests answered with an error, by the error's code", "kind")
        self._recordings = self._counter("recordings", "Recordings transcribed to their end")
        self._seconds = self._counter("recording_seconds", "Seconds of audio in the recordings transcribed")
        self._gaps = self._counter("gaps", "Stretches of speech that have no text")
        self._gap_seconds = self._counter("gap_seconds", "Seconds of speech that have no text")
        self._stage = self._counter("stage_seconds", "Busy seconds of each stage over all that work on it", "stage")
        self._stage_wall = self._counter(
            "stage_wall_seconds", "Seconds on the clock during which anything worked on a stage", "stage"
        )
        self._cache: dict[str, Gauge] = {}
        for task in (TRANSCRIBE, TRANSLATE):
            self._requests.labels(task)
        for stage in (DECODE_AUDIO, SPLIT, WAIT, CHECK):  # those of every recording, whatever the engine
            self._stage.labels(stage)
            self._stage_wall.labels(stage)

    def asked(self, task: str) -> None:
        """Count a request; `task` is "transcribe" or "translate"."""
        self._requests.labels(task).inc()

    def refused(self, problem: Problem) -> None:
        """Count a request that is answered with an error, or whose answer breaks off."""
        self._refusals.labels(problem.code or ("invalid_request" if problem.status < 500 else "internal")).inc()

    def transcribed(self, transcript: Transcript) -> None:
        """Count a recording that has been transcribed to its end."""
        self._recordings.inc()
        self._seconds.inc(max(0.0, transcript.duration - transcript.start))
        self._gaps.inc(len(transcript.gaps))
        self._gap_seconds.inc(sum(gap.end - gap.start for gap in transcript.gaps))

    def update_stages(self, engine: Engine) -> None:
        """Bring the stages up to this moment: those of this process, and those that the engine alone keeps."""
        stages = timing.snapshot()
        busy = {name: stage.busy for name, stage in stages.items()}
        own = engine.timings()
        busy |= {
            name: seconds for name, seconds in own.items() if name not in busy and not name.endswith(timing.WALL_SUFFIX)
        }
        wall = {name: stage.wall for name, stage in stages.items()}
        with self._lock:
            _advance(self._stage, self._busy, busy)
            _advance(self._stage_wall, self._wall, wall)

    def update_cache(self, inputs: InputCache) -> None:
        """Bring the counters of a cache up to this moment; one that keeps nothing has none."""
        if inputs.kind == "none":
            return
        with self._lock:
            for name, value in asdict(inputs.counters()).items():
                if name not in self._cache:
                    # Processes that share a cache all tell the same; others have each their own.
                    self._cache[name] = Gauge(
                        f"auricle_input_cache_{_CACHE_NAMES.get(name, name)}",
                        _CACHE_MEANINGS[name],
                        ["kind"],
                        registry=self._registry,
                        multiprocess_mode="livemostrecent" if inputs.kind == "shm" else "livesum",
                    )
                self._cache[name].labels(inputs.kind).set(value)

    def text(self) -> bytes:
        """Return all of it in Prometheus's text format, over all processes of a server that has several."""
        registry = self._registry
        if _MULTIPROCESS in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"auricle_{name}", meaning, labels, registry=self._registry)


def _advance(counter: Counter, told: dict[str, float], now: dict[str, float]) -> None:
    """Add to a counter what each stage has grown by since it was last told."""
    for stage, seconds in now.items():
        grown = seconds - told.get(stage, 0.0)
        if grown > 0:
            counter.labels(stage).inc(grown)
            told[stage] = seconds


@cache
def process_metrics() -> ServerMetrics:
    """Return the metrics in prometheus_client's registry of this process, which vLLM's ``/metrics`` shows."""
    return ServerMetrics(REGISTRY)
