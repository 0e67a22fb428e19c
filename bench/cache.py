"""What a second submission of the same ten minutes costs, in each kind of cache.

    python -m bench.cache [--seconds 600] [--repeat 5]

The recording is made for the purpose, in several formats. Printed are the seconds of preparing it the first time
(decoding, one channel, 16 kHz) and of being given it again: as bytes, found by their content; as a file that has not
changed; and by a uuid. The medians of so many repetitions.
"""

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from engine_bridge.cache import CACHE_TYPES, open_cache
from engine_bridge.preparation import prepared

FORMATS = (
    ("FLAC", 44_100, 2),
    ("WAV", 44_100, 2),
    ("MP3", 44_100, 2),
    ("OGG", 16_000, 1),
    ("FLAC", 16_000, 1),
    ("WAV", 16_000, 1),
)


def encoded(form: str, rate: int, channels: int, seconds: float) -> bytes:
    """Return a recording of filtered noise, which compresses about as speech in a room does."""
    rng = np.random.default_rng(0)
    noise = np.cumsum(rng.normal(0, 0.02, (round(seconds * rate), channels)), axis=0)
    samples = noise - np.linspace(noise[0], noise[-1], len(noise))
    samples *= 0.5 / np.abs(samples).max()
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, channels, format=form) as writer:
        for start in range(0, len(samples), rate):
            writer.write(samples[start : start + rate])
    return file.getvalue()


def median_seconds(action: Callable[[], object], repeat: int) -> float:
    """Return how long an action takes."""
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print("| recording | MB | cache | first, s | bytes, s | share | file, s | share | uuid, s | share |")
    print("| --- " * 10 + "|")
    for recording in FORMATS:
        compare(recording, arguments.seconds, arguments.repeat)


def compare(recording: tuple[str, int, int], seconds: float, repeat: int) -> None:
    """Print a line for each kind of cache."""
    form, rate, channels = recording
    data = encoded(form, rate, channels, seconds)
    nothing = open_cache("none")
    first = median_seconds(lambda: prepared(data, cache=nothing), min(repeat, 3))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "recording")
        file.write_bytes(data)
        time.sleep(2.5)  # a file is taken as settled when it is two seconds old
        compare_kinds(f"{form} {rate} Hz x {channels}", data, file, first, repeat)


def compare_kinds(title: str, data: bytes, file: Path, first: float, repeat: int) -> None:
    """Print a line for each kind of cache."""
    for kind in CACHE_TYPES[1:]:
        cache = open_cache(kind, 1.0, name="bench")
        prepared(data, cache=cache)
        prepared(data, cache=cache, uuid="it")
        content = median_seconds(partial(prepared, data, cache=cache), repeat)
        prepared(file, cache=cache)
        unchanged = median_seconds(partial(prepared, file, cache=cache), repeat)
        name = median_seconds(partial(prepared, None, cache=cache, uuid="it"), repeat)
        if cache.counters().hits < 3 * repeat:
            raise SystemExit(f"{kind}: not every repetition was found in the cache")
        cache.close()
        shares = " | ".join(f"{taken:.5f} | {100 * taken / first:.3f} %" for taken in (content, unchanged, name))
        print(
            f"| {title} | {len(data) / 1e6:.1f} | {cache.kind} | {first:.3f} | {shares} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
