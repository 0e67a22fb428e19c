"""What a second submission of the same ten minutes costs, in each kind of cache.

    python -m bench.cache [--seconds 600] [--repeat 5]

The recording is made for the purpose, in several formats. Printed are the seconds of preparing it the first time
(decoding, one channel, 16 kHz) and of being given it again, found by its content and by a uuid: the medians of so many
repetitions.
"""

import argparse
import io
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import soundfile

from engine_bridge.cache import CACHE_TYPES, open_cache
from engine_bridge.preparation import prepared

FORMATS = (("FLAC", 44_100, 2), ("WAV", 44_100, 2), ("MP3", 44_100, 2), ("OGG", 16_000, 1), ("FLAC", 16_000, 1))


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
    print("| recording | MB | cache | first, s | by content, s | share | by uuid, s | share |\n" + "| --- " * 8 + "|")
    for recording in FORMATS:
        compare(recording, arguments.seconds, arguments.repeat)


def compare(recording: tuple[str, int, int], seconds: float, repeat: int) -> None:
    """Print a line for each kind of cache."""
    form, rate, channels = recording
    data = encoded(form, rate, channels, seconds)
    nothing = open_cache("none")
    first = median_seconds(lambda: prepared(data, cache=nothing), min(repeat, 3))
    for kind in CACHE_TYPES[1:]:
        cache = open_cache(kind, 1.0, name="bench")
        prepared(data, cache=cache)
        prepared(data, cache=cache, uuid="it")
        content = median_seconds(partial(prepared, data, cache=cache), repeat)
        name = median_seconds(partial(prepared, None, cache=cache, uuid="it"), repeat)
        if cache.counters().hits < 2 * repeat:
            raise SystemExit(f"{kind}: not every repetition was found in the cache")
        cache.close()
        print(
            f"| {form} {rate} Hz x {channels} | {len(data) / 1e6:.1f} | {cache.kind} | {first:.3f} | {content:.4f}"
            f" | {100 * content / first:.2f} % | {name:.5f} | {100 * name / first:.3f} % |",
            flush=True,
        )


if __name__ == "__main__":
    main()
