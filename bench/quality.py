"""Word errors, lost and invented words, speech coverage and times: Auricle and its peers on the same recordings.

    python -m bench.quality [FOLDER_OR_RECORDING ...] [--methods auricle,auricle-1,faster-whisper-1,...] [--json FILE]

A recording has its text beside it (`.txt`) and, for coverage and times, its segments and speech (`.json`, as in
`samples/`). The number after a method is its beam size; `auricle` alone is the default, greedy with a beam where that
is doubtful. All methods run the same weights (tiny.en, int8, or `--model`). `auricle-untimed` is the same engine as if
it could not time words, so that all times are estimated. `auricle-silero` finds speech with Silero's network, where
`auricle[silero]` is installed. `vllm-cuts` cuts the recording as vLLM does and recognises each chunk once.
faster-whisper is measured where it is installed: `pip install faster-whisper`. Without arguments: the samples.

With `--all` it goes on to where the chunks are cut (`bench.cuts`), to whether times drift in three hours
(`bench.drift`) and, where pocketsphinx is installed, to the times of words (`bench.word_times`).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from audio import DetectorName, load_audio
from bench import cuts, drift, word_times
from bench.recordings import load
from bench.vllm_cuts import vllm_cuts
from bench.wer import word_errors
from engine_bridge import open_engine, transcribe
from engine_bridge.engines.allocator import keep_large_blocks
from engine_bridge.engines.model_files import locate_model
from engine_bridge.engines.protocol import Engine
from engine_bridge.transcript import Transcript

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
SUFFIXES = {".flac", ".wav", ".opus", ".mp3", ".m4a", ".ogg"}
EDGE_SECONDS = 0.05  # speech this close to a segment counts as covered
Span = tuple[float, float]

_HEADER = (
    "| recording | method | x real time | words | WER % | deleted | inserted | speech lost % | gaps s |"
    " start error s (median / 95 %) | end error s |\n" + "| --- " * 11 + "|"
)


class RefusedError(Exception):
    """A method does not take a recording."""


@dataclass
class Heard:
    """What a method made of a recording."""

    text: str
    segments: list[Span]
    words: list[tuple[float, float, str]]
    gaps: list[Span]


@dataclass
class Row:
    recording: str
    method: str
    times_real_time: float
    words: int
    word_error_percent: float | None
    deleted: int
    inserted: int
    lost_speech_percent: float | None
    gap_seconds: float
    start_median: float | None
    start_p95: float | None
    end_median: float | None
    end_p95: float | None


def heard(transcript: Transcript) -> Heard:
    """Return what stands in a transcript, less what it doubts."""
    sound = [segment for segment in transcript.segments if segment.suspect is None]
    return Heard(
        " ".join(segment.text for segment in sound),
        [(segment.start, segment.end) for segment in sound],
        [(word.start, word.end, word.text) for segment in sound for word in segment.words],
        [(gap.start, gap.end) for gap in transcript.gaps],
    )


class WithoutTimes:
    """An engine as it would be if it could neither time words nor search with beams, like most that are shared."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.capabilities = replace(engine.capabilities, timestamps=False, word_times=False, beam_search=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def auricle(
    beam: int | None, model: str, *, timed: bool = True, detector: DetectorName = "energy"
) -> Callable[[Any], Heard]:
    opened = open_engine(f"embedded:{model}")
    engine: Any = opened if timed else WithoutTimes(opened)

    def run(waveform: Any) -> Heard:
        return heard(transcribe((waveform, 16_000), engine=engine, language="en", beam_size=beam, detector=detector))

    return run


def faster_whisper(beam: int, model: str, *, batched: bool) -> Callable[[Any], Heard]:
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    whisper = WhisperModel(str(locate_model(model)), device="cpu", compute_type="int8", cpu_threads=2)
    pipeline = BatchedInferencePipeline(whisper)

    def run(waveform: Any) -> Heard:
        if batched:
            segments, _ = pipeline.transcribe(
                waveform, language="en", beam_size=beam, batch_size=8, without_timestamps=False
            )
        else:
            segments, _ = whisper.transcribe(waveform, language="en", beam_size=beam)
        found = list(segments)
        return Heard(" ".join(s.text.strip() for s in found), [(s.start, s.end) for s in found], [], [])

    return run


def cut_as_vllm(beam: int, model: str) -> Callable[[Any], Heard]:
    recognise = vllm_cuts(beam, model)

    def run(waveform: Any) -> Heard:
        found = recognise(waveform)
        return Heard(" ".join(text for text, _ in found), [span for text, span in found if text], [], [])

    return run


METHODS: dict[str, Callable[[str], Callable[[Any], Heard]]] = {
    "auricle": lambda model: auricle(None, model),
    "auricle-1": lambda model: auricle(1, model),
    "auricle-5": lambda model: auricle(5, model),
    "auricle-untimed": lambda model: auricle(None, model, timed=False),
    "auricle-silero": lambda model: auricle(None, model, detector="silero"),
    "faster-whisper-1": lambda model: faster_whisper(1, model, batched=False),
    "faster-whisper-5": lambda model: faster_whisper(5, model, batched=False),
    "faster-whisper-batched-1": lambda model: faster_whisper(1, model, batched=True),
    "faster-whisper-batched-5": lambda model: faster_whisper(5, model, batched=True),
    "vllm-cuts-1": lambda model: cut_as_vllm(1, model),
    "vllm-cuts-5": lambda model: cut_as_vllm(5, model),
}


def measure(path: Path, method: str, run: Callable[[Any], Heard]) -> Row:
    waveform, sample_rate = load_audio(path)
    reference = path.with_suffix(".txt").read_text(encoding="utf-8")
    start = time.perf_counter()
    heard = run(waveform)
    wall = time.perf_counter() - start
    row = Row(
        path.stem,
        method,
        len(waveform) / sample_rate / wall,
        len(reference.split()),
        None,
        0,
        len(heard.text.split()) if not reference.strip() else 0,
        None,
        sum(end - start for start, end in heard.gaps),
        None,
        None,
        None,
        None,
    )
    if not reference.strip():
        return row
    errors = word_errors(reference, heard.text)
    row.word_error_percent = 100 * errors.wer
    row.deleted, row.inserted, row.words = errors.deletions, errors.insertions, errors.words
    described = path.with_suffix(".json")
    if described.exists():
        truth = json.loads(described.read_text(encoding="utf-8"))
        row.lost_speech_percent = lost(truth["speech"], [*heard.segments, *heard.gaps])
        starts = edge_errors([s["start"] for s in truth["segments"]], [s for s, _ in heard.segments])
        ends = edge_errors([s["end"] for s in truth["segments"]], [e for _, e in heard.segments])
        row.start_median, row.start_p95 = starts
        row.end_median, row.end_p95 = ends
    return row


def lost(speech: Iterable[Span], covered: Sequence[Span]) -> float:
    """Return the share of the reference speech, in percent, that lies under no segment and no reported gap."""
    total = missing = 0.0
    for start, end in speech:
        moments = np.arange(start, end, 0.01)
        under = np.zeros(len(moments), dtype=bool)
        for first, last in covered:
            under |= (moments >= first - EDGE_SECONDS) & (moments <= last + EDGE_SECONDS)
        total += len(moments)
        missing += float((~under).sum())
    return 100 * missing / total if total else 0.0


def edge_errors(true: Sequence[float], found: Sequence[float]) -> Span:
    """Return the median and 95th percentile of the distance from each true edge to the nearest one found."""
    if not found:
        return float("inf"), float("inf")
    distances = [min(abs(edge - other) for other in found) for edge in true]
    return float(np.median(distances)), float(np.percentile(distances, 95))


def recordings(places: Sequence[Path]) -> list[Path]:
    found = [
        path
        for place in places
        for path in (sorted(place.iterdir()) if place.is_dir() else [place])
        if path.suffix in SUFFIXES and path.with_suffix(".txt").exists()
    ]
    if not found:
        sys.exit(f"no recordings with texts in {', '.join(map(str, places))}")
    return found


def shown(value: float | None, places: int = 2) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def line(row: Row) -> str:
    """Return a row of the table that `_HEADER` begins."""
    return (
        f"| {row.recording} | {row.method} | {row.times_real_time:.0f} | {row.words}"
        f" | {shown(row.word_error_percent)} | {row.deleted} | {row.inserted}"
        f" | {shown(row.lost_speech_percent)} | {row.gap_seconds:.1f}"
        f" | {shown(row.start_median)} / {shown(row.start_p95)}"
        f" | {shown(row.end_median)} / {shown(row.end_p95)} |"
    )


def measured(paths: Sequence[Path], methods: Mapping[str, Callable[[Any], Heard]]) -> Iterator[Row]:
    """Measure and print what each method makes of each recording, and each method's mean word error rate."""
    print(_HEADER)
    rows: list[Row] = []
    for path in paths:
        for method, run in methods.items():
            try:
                row = measure(path, method, run)
            except RefusedError as error:
                print(f"| {path.stem} | {method} | refused |", flush=True)
                print(f"{path.name}: {error}", file=sys.stderr)
                continue
            print(line(row), flush=True)
            rows.append(row)
            yield row
    for method in methods:
        errors = [r.word_error_percent for r in rows if r.method == method and r.word_error_percent is not None]
        if errors:
            print(f"| mean of {len(errors)} | {method} | | | {mean(errors):.2f} | | | | | | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, default=[SAMPLES])
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--json", type=Path, help="append one JSON line a row to this file")
    parser.add_argument("--all", action="store_true", help="cuts, drift and the times of words as well")
    arguments = parser.parse_args()
    keep_large_blocks()
    methods = arguments.methods.split(",")
    if find_spec("faster_whisper") is None and any(m.startswith("faster-whisper") for m in methods):
        print("faster-whisper is not installed here: measured without it (pip install faster-whisper)")
        methods = [method for method in methods if not method.startswith("faster-whisper")]
    if "auricle-silero" in methods and not (find_spec("silero_vad") and find_spec("onnxruntime")):
        print("silero-vad is not installed here: measured without it (pip install 'auricle[silero]')")
        methods.remove("auricle-silero")
    running = {method: METHODS[method](arguments.model) for method in methods}
    for row in measured(recordings(arguments.places), running):
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
    if arguments.all:
        rest(recordings(arguments.places), arguments.model)


def rest(paths: Sequence[Path], model: str) -> None:
    """Print where recordings with known speech are cut, whether times drift, and how well words are timed."""
    described = [path for path in paths if path.with_suffix(".json").exists()]
    print("\nCuts\n")
    given = [load(path) for path in described]
    cuts.compare({"given": given})
    cuts.speed(given, hours=3.1)
    print("\nDrift\n")
    drift.compare(next(recording for recording in given if recording.texts), hours=3.0, model=model)
    if find_spec("pocketsphinx") is None:
        print("pocketsphinx is not installed here: the times of words are not measured (pip install pocketsphinx)")
        return
    methods = [name for name in word_times.METHODS if name == "auricle" or find_spec("faster_whisper")]
    print("\nTimes of words\n")
    word_times.compare([path for path in described if path.with_suffix(".txt").read_text().strip()], methods)


if __name__ == "__main__":
    main()
