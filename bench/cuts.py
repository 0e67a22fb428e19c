"""Where the cuts fall, how full the chunks are, what speech is lost, and what it costs.

    python -m bench.cuts [--speech FOLDER] [--hours 3.1]

Reads recordings with their exact segments and speech, puts further ones together from their segments
(`bench.recordings`), and prints for each recording and method:

- cuts in audible speech and cuts inside a segment, of all cuts
- mean fill: samples given to the engine over chunks times 30 s
- the longest chunk, in seconds
- speech lost: reference speech that no chunk's samples hold
- speech found: reference speech under the detected stretches, and how much of the rest was detected as well

The last line is the cost of the whole path, in times real time, on samples in memory with one thread.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from audio.split import split_audio, stream_chunks
from bench.recordings import RATE, SPEECH, Recording, load_all, made

LIMIT = 30.0
INSIDE = 0.02  # seconds from an edge within which a cut is not inside
AUDIBLE_DB = 12.0  # above the recording's background, on both sides of a cut


@dataclass
class Division:
    cuts: list[float]  # seconds
    lengths: list[float]  # seconds of samples in each chunk that has any
    kept: np.ndarray  # by 10 ms
    found: np.ndarray | None = None
    empty: int = 0
    forced: int = 0


def mask(intervals: np.ndarray, frames: int) -> np.ndarray:
    result = np.zeros(frames, bool)
    for start, end in intervals:
        result[round(start * 100) : round(end * 100)] = True
    return result


# ---- methods ------------------------------------------------------------------------------------------------------


def ours(keep_silence: float | None) -> Callable[[Recording], Division]:
    def divide(recording: Recording) -> Division:
        frames = len(recording.samples) // 160 + 1
        kept, found = np.zeros(frames, bool), np.zeros(frames, bool)
        lengths, cuts, forced, empty = [], [], 0, 0
        for chunk in stream_chunks(blocks(recording.samples), RATE, keep_silence=keep_silence):
            for start, stop in chunk.kept:
                kept[start // 160 : stop // 160] = True
            for start, stop in chunk.speech:
                found[start // 160 : stop // 160] = True
            if len(chunk.samples):
                lengths.append(len(chunk.samples) / RATE)
            else:
                empty += 1
            cuts.append(chunk.stop_seconds)
            forced += chunk.forced
        return Division(cuts[:-1], lengths, kept, found, empty, forced)

    return divide


def by_split_audio(recording: Recording) -> Division:
    lengths = [len(clip) for clip in split_audio(recording.samples, RATE, LIMIT, 1, 1600)]
    return whole(recording, lengths)


def fixed(recording: Recording) -> Division:
    size, count = round(LIMIT * RATE), len(recording.samples)
    return whole(recording, [min(size, count - start) for start in range(0, count, size)])


def whole(recording: Recording, lengths: list[int]) -> Division:
    cuts = (np.cumsum(lengths)[:-1] / RATE).tolist()
    kept = np.ones(len(recording.samples) // 160 + 1, bool)
    return Division(cuts, [length / RATE for length in lengths], kept)


def blocks(samples: np.ndarray, size: int = RATE) -> Iterator[np.ndarray]:
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


# ---- measures -----------------------------------------------------------------------------------------------------


def inside(cuts: list[float], intervals: np.ndarray) -> list[float]:
    return [cut for cut in cuts if np.any((intervals[:, 0] + INSIDE < cut) & (cut < intervals[:, 1] - INSIDE))]


def audible(recording: Recording, cuts: list[float]) -> int:
    """Count the cuts inside the reference's speech with sound on both sides."""
    power = recording.samples[: len(recording.samples) // 160 * 160].reshape(-1, 160).astype(np.float64) ** 2
    background = np.percentile(decibels(power.mean(axis=1)), 5)

    def loud(start: int, stop: int) -> bool:
        return bool(decibels(np.mean(recording.samples[start:stop] ** 2)) > background + AUDIBLE_DB)

    positions = [round(cut * RATE) for cut in inside(cuts, recording.speech)]
    return sum(loud(at - 400, at) and loud(at, at + 400) for at in positions)


def decibels(power: np.ndarray) -> np.ndarray:
    return 10 * np.log10(power + 1e-12)


@dataclass
class Total:
    cuts: int = 0
    audible: int = 0
    inside: int = 0
    fills: list[float] = field(default_factory=list)
    found: float = 0.0
    reference: float = 0.0


def report(name: str, recording: Recording, division: Division, total: Total) -> None:
    cuts = len(division.cuts)
    bad, poor = audible(recording, division.cuts), len(inside(division.cuts, recording.segments))
    fill = sum(division.lengths) / (len(division.lengths) * LIMIT) if division.lengths else float("nan")
    reference = mask(recording.speech, len(division.kept))
    spoken = max(int(reference.sum()), 1)
    lost = 100 * (reference & ~division.kept).sum() / spoken
    found = ""
    if division.found is not None:
        hit = (reference & division.found).sum()
        rest = (division.found & ~reference).sum() / max((~reference).sum(), 1)
        found = f"found {100 * hit / spoken:6.2f} %  of the rest {100 * rest:5.1f} %  forced {division.forced:3d}"
        total.found += hit
        total.reference += reference.sum()
    total.cuts += cuts
    total.audible += bad
    total.inside += poor
    if division.lengths:
        total.fills.append(fill)
    longest = max(division.lengths, default=0.0)
    print(
        f"{recording.name:13s}{name:22s}chunks {len(division.lengths):3d} + {division.empty:2d} empty  "
        f"audible {share(bad, cuts)}  inside {share(poor, cuts)}  fill {fill:5.3f}  longest {longest:5.2f}  "
        f"lost {lost:5.2f} %  {found}"
    )


def share(count: int, of: int) -> str:
    return f"{count:3d} {100 * count / max(of, 1):5.1f} %"


def summary(title: str, totals: dict[str, Total]) -> None:
    for name, total in totals.items():
        found = f"  found {100 * total.found / total.reference:6.2f} %" if total.reference else ""
        print(
            f"{title:13s}{name:22s}cuts {total.cuts:4d}  audible {share(total.audible, total.cuts)}  "
            f"inside {share(total.inside, total.cuts)}  mean fill {np.mean(total.fills):5.3f}{found}"
        )


def speed(recordings: list[Recording], hours: float) -> None:
    joined = np.concatenate([recording.samples for recording in recordings if len(recording.segments)])
    samples = np.tile(joined, int(np.ceil(hours * 3600 * RATE / len(joined))))[: round(hours * 3600 * RATE)]
    paths = {
        "one array": ([samples], None),
        "blocks of 1 s": (list(blocks(samples)), None),
        "one array, silence 1 s": ([samples], 1.0),
    }
    for name, (parts, keep) in paths.items():
        costs = []
        for _ in range(5):
            start = time.process_time()
            for _chunk in stream_chunks(parts, RATE, keep_silence=keep):
                pass
            costs.append(time.process_time() - start)
        best, median = min(costs), sorted(costs)[2]
        print(
            f"cost, {name}: {len(samples) / RATE / 3600:.2f} h in {best:.2f} s of processor time "
            f"({len(samples) / RATE / best:,.0f} times real time; median run {len(samples) / RATE / median:,.0f})"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speech", type=Path, default=SPEECH)
    parser.add_argument("--hours", type=float, default=3.1, help="length of the recording whose cost is measured")
    options = parser.parse_args()
    given = load_all(options.speech)
    if not given:
        print(f"{options.speech}: no recordings with references; name a folder with --speech", file=sys.stderr)
        return 1
    compare({"given": given, "made": made({recording.name: recording for recording in given})})
    speed(given, options.hours)
    return 0


def compare(groups: dict[str, list[Recording]]) -> None:
    """Print where each method cuts the recordings of each group."""
    methods = {"ours": ours(None), "ours, silence 1 s": ours(1.0), "split_audio": by_split_audio, "fixed 30 s": fixed}
    for title, recordings in groups.items():
        totals = {name: Total() for name in methods}
        for recording in recordings:
            counted = len(recording.segments) and recording.name != "dense"
            for name, method in methods.items():
                report(name, recording, method(recording), totals[name] if counted else Total())
        summary(f"{title}*", totals)
    print("* all recordings with speech but `dense`")


if __name__ == "__main__":
    raise SystemExit(main())
