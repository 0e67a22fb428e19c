"""Speed and quality of every resampler, side by side in one run, printed as Markdown.

    python bench/resample.py [--seconds 60] [--rounds 5]

Speed is seconds of audio per second of processor time, with every library held to one thread: the best of several
rounds in which all take turns, so that a busy machine troubles all alike. The input is noise, one channel.

Quality is measured with tones of amplitude 0.5, two seconds each, looking at the middle of the output:

- *ripple*: the largest deviation from the tone's level, over tones up to the pass band's edge: 7.2 kHz, or nine tenths
  of the source's Nyquist frequency where that is lower;
- *spurious*: the strongest remainder beside such a tone (images, rounding, wrong phases), against the tone;
- *alias 8.0*: the strongest output of a tone from 8.0 kHz, where aliasing begins, to the source's Nyquist frequency;
- *alias 8.8*: the same from 8.8 kHz. A tone of 8.0 to 8.8 kHz folds to 7.2 to 8.0 kHz, above the pass band, so a
  filter may let its transition end there; the two columns differ for those which do.
"""

import os

# Before the libraries are imported: they read these once.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import datetime as dt
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from audio.resample import resample, resampler_problem
from audio.resamplers.blocks import BLOCK_SECONDS, BlockResampler
from audio.resamplers.pyav_stream import FILTER_SIZE, PyavResampler
from audio.resamplers.soxr_stream import QUALITY, SoxrResampler

TARGET_RATE = 16_000
SOURCE_RATES = (8_000, 22_050, 44_100, 48_000, 16_001)
BLOCKS = (0.02, 0.1, 0.25, 0.5, 1.0, 30.0)
AMPLITUDE = 0.5

Samples = NDArray[np.float32]
Convert = Callable[[Samples, int], Samples]


def through(opener: Callable[[int, int], BlockResampler], samples: Samples, source_rate: int) -> Samples:
    """Resample with a variant that is not among the public ones."""
    resampler = opener(source_rate, TARGET_RATE)
    return np.concatenate((resampler.process(samples), resampler.flush()))


def by_name(implementation: str, samples: Samples, source_rate: int) -> Samples:
    return resample(samples, source_rate, TARGET_RATE, implementation=implementation)


def variants() -> dict[str, Convert]:
    """Return what is compared: each implementation, and other settings of the native ones."""
    found: dict[str, Convert] = {}
    for name in ("soxr", "pyav", "scipy", "torchaudio"):
        problem = resampler_problem(name)
        if problem is None:
            found[name] = partial(by_name, name)
        else:
            print(f"{name} is left out: {problem}", file=sys.stderr)
    for quality in ("VHQ", "MQ"):
        found[f"soxr {quality}"] = partial(through, partial(SoxrResampler, quality=quality))
    found["pyav, filter 32"] = partial(through, partial(PyavResampler, filter_size=32))
    return found


def tone(frequency: float, rate: int) -> Samples:
    return (AMPLITUDE * np.sin(2 * np.pi * frequency * np.arange(2 * rate) / rate)).astype(np.float32)


def middle(samples: Samples) -> NDArray[np.float64]:
    return samples[TARGET_RATE // 2 : -TARGET_RATE // 2].astype(np.float64)


def level(samples: NDArray[np.float64]) -> float:
    """Return the level against a tone of `AMPLITUDE`, in dB."""
    return float(20 * np.log10(max(np.sqrt(2 * np.mean(samples**2)) / AMPLITUDE, 1e-10)))


def pass_band(convert: Convert, source_rate: int) -> tuple[float, float]:
    """Return the ripple and the strongest spurious remainder, in dB."""
    edge = min(7200.0, 0.45 * source_rate)
    ripple, spurious = 0.0, -200.0
    for frequency in [50.0, *np.linspace(edge / 12, edge, 12)]:
        output = middle(convert(tone(frequency, source_rate), source_rate))
        phase = 2 * np.pi * frequency * np.arange(len(output)) / TARGET_RATE
        basis = np.stack([np.sin(phase), np.cos(phase)], axis=1)
        fitted = basis @ np.linalg.lstsq(basis, output, rcond=None)[0]
        ripple = max(ripple, abs(level(fitted)))
        spurious = max(spurious, level(output - fitted))
    return ripple, spurious


def alias(convert: Convert, source_rate: int, lowest: float) -> float | None:
    """Return the strongest alias of tones from a frequency up, in dB; None where there is no room for them."""
    highest = source_rate / 2 - 50
    if highest < lowest + 100:
        return None
    frequencies = [*np.arange(lowest + 10, min(lowest + 1000, highest), 100), *np.arange(lowest, highest, 397)]
    return max(level(middle(convert(tone(frequency, source_rate), source_rate))) for frequency in frequencies)


def processor_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def best_of_turns(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return each work's least processor time over rounds in which all take turns, after one round to warm up."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(rounds + 1):
        for name, work in works.items():
            elapsed = processor_seconds(work)
            if turn:
                best[name] = min(best[name], elapsed)
    return best


def print_pair(source_rate: int, seconds: int, rounds: int) -> None:
    """Print the table of one source rate."""
    samples = (0.1 * np.random.default_rng(0).standard_normal(source_rate * seconds)).astype(np.float32)
    works: dict[str, Callable[[], object]] = {}
    converters: dict[str, Convert] = {}
    refused: dict[str, str] = {}
    for name, convert in variants().items():
        try:
            convert(samples[:100], source_rate)
        except ValueError as error:
            refused[name] = str(error)
            continue
        converters[name] = convert
        works[name] = partial(convert, samples, source_rate)
    best = best_of_turns(works, rounds)
    print(f"\n## {source_rate} Hz to {TARGET_RATE} Hz\n")
    print("| implementation | times real time | against soxr | ripple dB | spurious dB | alias 8.0 dB | alias 8.8 dB |")
    print("|---|---|---|---|---|---|---|")
    for name, convert in converters.items():
        ripple, spurious = pass_band(convert, source_rate)
        aliases = [alias(convert, source_rate, lowest) for lowest in (8000.0, 8800.0)]
        shown = " | ".join("" if value is None else f"{value:.0f}" for value in aliases)
        speed, ratio = seconds / best[name], best["soxr"] / best[name]
        print(f"| {name} | {speed:.0f} | {ratio:.2f} | {ripple:.4f} | {spurious:.0f} | {shown} |")
    for name, reason in refused.items():
        print(f"\n{name} refuses: {reason}")


def print_blocks(source_rate: int, seconds: int, rounds: int) -> None:
    """Print how the speed depends on the block size, and on whether channels are mixed before."""
    import soxr

    samples = (0.1 * np.random.default_rng(0).standard_normal(source_rate * seconds)).astype(np.float32)
    stereo = np.stack([samples, samples], axis=1)

    def soxr_blocks(size: int) -> None:
        stream = soxr.ResampleStream(source_rate, TARGET_RATE, 1, dtype="float32", quality=QUALITY)
        for start in range(0, len(samples), size):
            stream.resample_chunk(samples[start : start + size])

    def mixed_after() -> None:
        soxr.resample(stereo, source_rate, TARGET_RATE, quality=QUALITY).mean(axis=1)

    def mixed_before() -> None:
        resample((stereo[:, 0] + stereo[:, 1]) * np.float32(0.5), source_rate, TARGET_RATE)

    works: dict[str, Callable[[], object]] = {
        f"soxr {QUALITY} alone, blocks of {length:g} s": partial(soxr_blocks, round(length * source_rate))
        for length in BLOCKS
    }
    works["stereo: whole array resampled, then averaged"] = mixed_after
    works["stereo: averaged, then resampled in blocks"] = mixed_before
    best = best_of_turns(works, rounds)
    print(f"\n## Block size and order, {source_rate} Hz\n")
    print("| | times real time |\n|---|---|")
    for name, elapsed in best.items():
        print(f"| {name} | {seconds / elapsed:.0f} |")


def machine() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.machine()


def versions() -> str:
    found = []
    for package in ("numpy", "soxr", "av", "scipy", "torch", "torchaudio"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the resamplers' speed and quality.")
    parser.add_argument("--seconds", type=int, default=60, help="length of the noise that is timed")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the best counts")
    arguments = parser.parse_args()
    if resampler_problem("torchaudio") is None:
        import torch

        torch.set_num_threads(1)
    print(f"- Machine: {machine()}; Python {platform.python_version()}; {versions()}")
    print(f"- Date: {dt.datetime.now(dt.UTC):%Y-%m-%d}")
    print(f"- Command: `python bench/resample.py --seconds {arguments.seconds} --rounds {arguments.rounds}`")
    print(f"- soxr is {QUALITY}; pyav has filter_size {FILTER_SIZE}; blocks of {BLOCK_SECONDS} s")
    for source_rate in SOURCE_RATES:
        print_pair(source_rate, arguments.seconds, arguments.rounds)
    for source_rate in (44_100, 48_000):
        print_blocks(source_rate, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
