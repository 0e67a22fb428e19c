"""What one hour of audio costs each part of a job: processor seconds and bytes, measured on this machine.

Processor seconds are those of this process, the least of some runs, so that other work on the machine counts little.
"""

import platform
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from audio.source import Source
from audio.split import stream_chunks
from audio.stream import open_stream
from engine_bridge import render
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.working import complete_settings
from engine_bridge.cluster.engines import Asked, Recogniser, agree
from engine_bridge.cluster.messages import Cut, Order, Piece
from engine_bridge.cluster.reading import pieces
from engine_bridge.cluster.results import Collector, Entry
from engine_bridge.cluster.rows import MESSAGE, messages_of, packed, rows_of
from engine_bridge.content import content_hash
from engine_bridge.cutting import FILLED, KEPT_SILENCE_SECONDS
from engine_bridge.journal import Journal
from tests.recordings import ENCODINGS, calls, encode

RATE = 16_000
HOUR = 3600.0
FORMATS = ("wav", "flac", "mp3", "opus", "m4a")
MODEL = "tiny.en"


def measure(minutes: float, engine_minutes: float, runs: int) -> dict[str, Any]:
    """Return the figures, each for one hour of audio unless its name says otherwise."""
    speech = np.resize(calls(), round(minutes * 60 * RATE))
    with tempfile.TemporaryDirectory() as folder:
        reading = {name: _reading(speech, Path(folder), name, runs) for name in FORMATS}
        figures = _engine(speech[: round(engine_minutes * 60 * RATE)], Path(folder))
    return {
        "machine": f"{_processor()}, one core",
        "date": time.strftime("%Y-%m-%d"),
        "minutes": minutes,
        "engine_minutes": engine_minutes,
        "reading": reading,
        **figures,
    }


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _least(runs: int, work: Callable[[], Any]) -> float:
    """Return the least processor seconds of some runs."""
    taken = []
    for _ in range(runs):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def _reading(speech: np.ndarray, folder: Path, name: str, runs: int) -> dict[str, float]:
    path = encode(speech, folder / f"talk.{name}", ENCODINGS[name])
    hours = len(speech) / RATE / HOUR

    def read() -> None:
        with open_stream(path, RATE, timeline="container") as stream:
            for _ in stream_chunks(stream, RATE, max_duration=FILLED * 30, keep_silence=KEPT_SILENCE_SECONDS):
                pass

    data = path.read_bytes()  # a file's hash is remembered by its path

    return {
        "bytes": path.stat().st_size / hours,
        "cpu_seconds": _least(runs, read) / hours,
        "hash_cpu_seconds": _least(runs, lambda: content_hash(Source.of(data))) / hours,
    }


def _engine(speech: np.ndarray, folder: Path) -> dict[str, Any]:
    """Return what recognition costs, what its rows weigh, and what the process that gathers them does for them."""
    hours = len(speech) / RATE / HOUR
    path = folder / "spoken.flac"
    soundfile.write(path, speech, RATE)
    spec = f"embedded:{MODEL}"
    contract = agree(spec, {"device": "cpu", "workers": 1}, Asked(None, False, "transcribe", 1, None, ()))
    settings = complete_settings({})
    how = (settings["audio_backend"], settings["timeline"], settings["detector"])
    cut = Cut(RATE, FILLED * 30, contract.options.timestamps, *how)
    order = Order(0, None, str(path), "mean", None, 0.0, None, None, hashes=True)
    told = list(pieces(order, cut))
    asked = [message for message in told if isinstance(message, Piece)]
    rows = sum(len(packed(message)["message"]) for message in asked)
    flat = [replace(message, chunk=replace(message.chunk, samples=message.chunk.samples * 0.7)) for message in asked]
    float_rows = sum(len(packed(message)["message"]) for message in flat)
    station = Recogniser(spec, {"device": "cpu", "workers": 1}, contract.options, per_chunk_language=False)
    started = time.process_time()
    answered = station(rows_of(asked))
    engine_seconds = time.process_time() - started
    back = sum(len(item.as_py()) for item in answered.column(MESSAGE))

    def gather(journal: Journal) -> Any:
        heard = messages_of(answered)
        collector = Collector(contract, journal)
        collector.open(Entry(Recording("spoken", str(path)), 0, order, {}))
        others = [message for message in told if not isinstance(message, Piece)]
        return [collector.take(message) for message in chain(others[:1], heard, others[1:])][-1]

    with Journal(folder / "journal.sqlite") as journal:
        gathering = _least(1, lambda: gather(journal))
    with Journal(folder / "second.sqlite") as journal:
        gathering = min(gathering, _least(1, lambda: gather(journal)))
        result = gather(journal)
        transcript = result.transcript
        text = {name: len(render(transcript, name).encode()) for name in ("txt", "srt", "json")}
    return {
        "chunks": len(asked) / hours,
        "seams": sum(message.seam is not None for message in asked) / hours,
        "row_bytes": rows / hours,
        "float_row_bytes": float_rows / hours,
        "back_bytes": back / hours,
        "engine": f"embedded:{MODEL}, int8",
        "engine_cpu_seconds": engine_seconds / hours,
        "gather_cpu_seconds": gathering / hours,
        "journal_bytes": len(zlib.compress(render(transcript, "json").encode())) / hours,
        "output_bytes": {name: size / hours for name, size in text.items()},
    }
