"""Whether times drift: the same recording at the beginning of a long file and hours later, at another rate.

    python -m bench.drift [RECORDING.flac] [--hours 3] [--model tiny.en]

An MP3 of 44.1 kHz stereo is made of a recording whose segments are known (`.json` beside it; the sample by default),
of hours of faint noise, and of the recording again. It is transcribed from the file, as users do. The errors of where
segments begin and end should be those of the first time, the second time as well. faster-whisper is measured beside
it where it is installed, batched, as its other form takes an hour for the noise.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soundfile as sf
import soxr

from bench.recordings import RATE, Recording, load
from engine_bridge import open_engine, transcribe
from engine_bridge.engines.model_files import locate_model

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "reading.flac"
FILE_RATE = 44_100
NOISE_DB = -80.0
Span = tuple[float, float]


def write_twice(recording: Recording, path: Path, hours: float) -> None:
    """Write a recording, noise up to `hours` of it, and the recording again."""
    draw = np.random.default_rng(0)
    sound = soxr.resample(recording.samples.astype(np.float32), RATE, FILE_RATE)
    with sf.SoundFile(path, "w", FILE_RATE, 2, format="MP3", subtype="MPEG_LAYER_III") as file:

        def put(samples: np.ndarray) -> None:
            file.write(np.stack([samples, samples], axis=1))

        put(sound)
        left = round(hours * 3600 * FILE_RATE) - len(sound)
        while left > 0:
            count = min(left, 60 * FILE_RATE)
            put((10 ** (NOISE_DB / 20) * draw.standard_normal(count)).astype(np.float32))
            left -= count
        put(sound)


def auricle(model: str) -> Callable[[Path], list[Span]]:
    engine = open_engine(f"embedded:{model}")

    def run(path: Path) -> list[Span]:
        transcript = transcribe(path, engine=engine, language="en")
        return [(segment.start, segment.end) for segment in transcript.segments if segment.suspect is None]

    return run


def faster_whisper(model: str) -> Callable[[Path], list[Span]]:
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    pipeline = BatchedInferencePipeline(WhisperModel(str(locate_model(model)), device="cpu", compute_type="int8"))

    def run(path: Path) -> list[Span]:
        segments, _ = pipeline.transcribe(str(path), language="en", beam_size=1, without_timestamps=False)
        return [(segment.start, segment.end) for segment in segments]

    return run


def errors(true: Sequence[float], found: Sequence[float]) -> str:
    """Return the signed median, and the 95th percentile of the distance, of the nearest edge found to each true one."""
    places = np.array(found)
    apart = np.array([(places - edge)[np.argmin(np.abs(places - edge))] for edge in true])
    return f"{np.median(apart):+.3f} / {np.percentile(np.abs(apart), 95):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, default=SAMPLE)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--model", default="tiny.en")
    arguments = parser.parse_args()
    compare(load(arguments.recording), arguments.hours, arguments.model)


def compare(recording: Recording, hours: float, model: str) -> None:
    """Print the errors of each method, at the beginning and after hours."""
    methods = {"auricle": auricle}
    if find_spec("faster_whisper"):
        methods["faster-whisper-batched-1"] = faster_whisper
    print("| method | at | starts s (median / 95 %) | ends s |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.mp3")
        write_twice(recording, path, hours)
        for name, method in methods.items():
            found = np.array(method(model)(path)).reshape(-1, 2)
            for at in (0.0, hours):
                true = recording.segments + at * 3600
                starts, ends = errors(true[:, 0], found[:, 0]), errors(true[:, 1], found[:, 1])
                print(f"| {name} | {at:g} h | {starts} | {ends} |", flush=True)


if __name__ == "__main__":
    main()
