"""Many files at once: every one accounted for, and how fast short ones are against a peer that is called for each.

    python -m bench.many --files 2000 [--python PATH] [--rounds 3]

First a folder of files of all kinds is made from the sample recording (short ones in five formats, long ones, silence,
and what is no recording) and given to the command in one call. Its report has to name each of them, as done or with
the reason. Its peak memory is set against that for twenty of them, five times, taken at even distances (on Linux).

Then the short ones of speech are timed: `transcribe_many` in one process, and faster-whisper called for one file after
the other in another, with the same model, int8 and all cores; starting and loading the model are not counted. Greedy
search is set against greedy search, and the defaults of one against those of the other (a beam of 5 for doubtful texts
against one for all). `--python` is the interpreter that has faster-whisper, if it is not this one.
Rounds alternate, figures are medians.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "samples" / "reading.flac"
FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
LONG, SILENT, BROKEN = 0.01, 0.03, 0.04
"""Shares of the files; all others are short speech."""

WARM_UP = 4
FEW, SETS = 20, 5
"""Files whose memory is set against that of all, and how many such sets."""

_LOOK_SECONDS = 0.05


def make_files(folder: Path, count: int, seed: int = 0) -> dict[str, str]:
    """Make files and return what each is: "short", "long", "silent" or "broken"."""
    chance = random.Random(seed)
    samples, rate = soundfile.read(SAMPLE, dtype="float32")
    kinds: dict[str, str] = {}
    for number in range(count):
        draw = chance.random()
        kind = (
            "long"
            if draw < LONG
            else "silent"
            if draw < LONG + SILENT
            else "broken"
            if draw < LONG + SILENT + BROKEN
            else "short"
        )
        extension = list(FORMATS)[number % len(FORMATS)]
        path = folder / f"{number % 20:02d}" / f"{kind}{number}.{extension}"
        path.parent.mkdir(exist_ok=True)
        if kind == "broken":
            path.write_bytes(_broken(chance, number))
        else:
            seconds = chance.uniform(60, 160) if kind == "long" else chance.uniform(2, 10)
            start = chance.randrange(max(1, len(samples) - int(seconds * rate)))
            piece = samples[start : start + int(seconds * rate)]
            if kind == "silent":
                piece = np.zeros_like(piece)
            form, subtype = FORMATS[extension]
            with soundfile.SoundFile(path, "w", rate, 1, format=form, subtype=subtype) as file:
                for at in range(0, len(piece), rate):
                    file.write(piece[at : at + rate])
        kinds[str(path.relative_to(folder))] = kind
    return kinds


def _broken(chance: random.Random, number: int) -> bytes:
    """What is no recording: nothing, text, noise, or a header with nothing behind it."""
    return (
        b"",
        b"Dear diary, this is not a recording. " * 40,
        chance.randbytes(5000),
        b"RIFF\xff\xff\xff\x7fWAVEfmt ",
    )[number % 4]


def _watched(folder: Path, out: Path) -> tuple[int, str, float]:
    """Give a folder to the command; return its exit code, what it said, and its peak memory in MiB, 0 if not told."""
    from bench.peak import peak_bytes  # here, as one measurement runs this file by its path

    command = [sys.executable, "-m", "cli", "transcribe", str(folder), "-o", str(out), "-f", "txt", "-q"]
    peak = 0
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said)
        while process.poll() is None:
            with contextlib.suppress(OSError):
                peak = max(peak, peak_bytes(process.pid))
            time.sleep(_LOOK_SECONDS)
        said.seek(0)
        return process.returncode, said.read(), peak / (1 << 20)


def cross_sections(kinds: dict[str, str]) -> list[list[str]]:
    """Return sets of a few files, each taken at even distances from all, so that nobody picks what is in them."""
    names = sorted(kinds)
    step = max(1, len(names) // FEW)
    return [names[number * step // SETS :: step][:FEW] for number in range(SETS)]


def memory_for_few(folder: Path, kinds: dict[str, str], place: Path) -> list[float]:
    """Return the peak memory, in MiB, of jobs over few files."""
    peaks = []
    for number, names in enumerate(cross_sections(kinds)):
        for name in names:
            linked = place / f"few-{number}" / name
            linked.parent.mkdir(parents=True, exist_ok=True)
            linked.hardlink_to(folder / name)
        peaks.append(_watched(place / f"few-{number}", place / f"of-few-{number}")[2])
    return peaks


def account(folder: Path, kinds: dict[str, str], out: Path, few: Sequence[float] = ()) -> list[str]:
    """Give all files to the command, and return what its report says of them and what is wrong with that.

    `few` has the peak memory, in MiB, of jobs over few of them, where it is known.
    """
    before = time.perf_counter()
    code, told_on_terminal, peak = _watched(folder, out)
    seconds = time.perf_counter() - before
    report = json.loads((out / ".auricle" / "report.json").read_text())
    told = {entry["id"]: entry for entry in report["recordings"]}
    faults = [f"{name} is not in the report" for name in kinds.keys() - told.keys()]
    for name, kind in kinds.items():
        entry = told.get(name, {})
        failed = entry.get("state") == "failed"
        if failed != (kind == "broken"):
            faults.append(f"{name} is {kind} and {entry.get('state')}: {entry.get('reason')}")
        elif failed and (name not in told_on_terminal or not entry["reason"]):
            faults.append(f"{name} failed without a word")
        elif not failed:
            text = Path(entry["outputs"][0]).read_text()
            if bool(text.strip()) == (kind == "silent"):
                faults.append(f"{name} is {kind} and its text is {text[:40]!r}")
    audio = report["audio_seconds"]
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds.values()).most_common())
    lines = [
        f"{len(kinds)} files ({counts}): {seconds:.1f} s, {audio / seconds:.1f} times real time, exit code {code}",
        f"accounted for: {len(told)} of {len(kinds)}; {report['counts']}",
    ]
    if peak and few and min(few):
        lines.append(
            f"peak memory: {peak:.0f} MiB; of {len(few)} jobs with {FEW} of the files each {min(few):.0f} to "
            f"{max(few):.0f} MiB ({peak / max(few) - 1:+.0%} to {peak / min(few) - 1:+.0%})"
        )
    return [*lines, *(f"FAULT: {fault}" for fault in faults)]


def time_ours(paths: list[str], beam: int | None) -> dict[str, float]:
    sys.path.insert(0, str(ROOT))
    from engine_bridge import open_engine, transcribe_many
    from engine_bridge.engines.allocator import keep_large_blocks

    keep_large_blocks()
    engine = open_engine()
    list(transcribe_many(paths[:WARM_UP], engine=engine, beam_size=beam))
    before, cpu = time.perf_counter(), time.process_time()
    results = list(transcribe_many(paths, engine=engine, beam_size=beam))
    seconds = time.perf_counter() - before
    if any(result.failure for result in results):
        raise RuntimeError("a short file failed")
    return {"seconds": seconds, "cpu": time.process_time() - cpu}


def time_peer(paths: list[str], model: str, beam: int) -> dict[str, float]:
    from faster_whisper import WhisperModel

    cores = len(os.sched_getaffinity(0))
    whisper: Any = WhisperModel(model, device="cpu", compute_type="int8", cpu_threads=cores)

    def transcribe(path: str) -> str:
        segments, _ = whisper.transcribe(path, beam_size=beam, language="en")
        return "".join(segment.text for segment in segments)

    for path in paths[:WARM_UP]:
        transcribe(path)
    before, cpu = time.perf_counter(), time.process_time()
    for path in paths:
        transcribe(path)
    return {"seconds": time.perf_counter() - before, "cpu": time.process_time() - cpu}


def measured(python: str, arguments: list[str], paths: list[str]) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [python, str(Path(__file__)), "--one", *arguments],
        input="\n".join(paths),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(paths: list[str], python: str, rounds: int) -> list[str]:
    """Time both on the same files, and return the table."""
    from engine_bridge.engines.model_files import locate_model

    model = str(locate_model("tiny.en"))
    pairs = {
        name: ((sys.executable, ["ours", ours]), (python, ["peer", model, peer]))
        for name, ours, peer in (("greedy", "1", "1"), ("their defaults", "default", "5"))
    }
    found: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for name, pair in pairs.items():
            for side, (interpreter, arguments) in enumerate(pair):
                found[name, side].append(measured(interpreter, arguments, paths))
    audio = sum(soundfile.info(path).duration for path in paths)
    lines = [f"{len(paths)} short files, {audio:.0f} s of audio; medians of {rounds} rounds"]
    for name in pairs:
        first = _median(found[name, 0], "seconds")
        for side, tool in enumerate(("auricle, one queue", "faster-whisper for each file")):
            seconds, cpu = _median(found[name, side], "seconds"), _median(found[name, side], "cpu")
            lines.append(
                f"  {f'{tool}, {name}':46} {seconds:7.1f} s  {len(paths) / seconds:6.1f} files/s  {cpu:7.1f} s of CPU  "
                f"{seconds / first:5.2f} times ours"
            )
    return lines


def _median(measurements: Sequence[dict[str, float]], key: str) -> float:
    return statistics.median(each[key] for each in measurements)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--short", type=int, default=100, help="how many short files are timed")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has faster-whisper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        paths = sys.stdin.read().splitlines()
        kind, *rest = arguments.one
        if kind == "ours":
            print(json.dumps(time_ours(paths, None if rest[0] == "default" else int(rest[0]))))
        else:
            print(json.dumps(time_peer(paths, rest[0], int(rest[1]))))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "in")
        folder.mkdir()
        kinds = make_files(folder, arguments.files)
        few = memory_for_few(folder, kinds, Path(place))
        lines = account(folder, kinds, Path(place, "out"), few)
        print("\n".join(lines), flush=True)
        short = [str(folder / name) for name, kind in kinds.items() if kind == "short"][: arguments.short]
        if short and arguments.rounds:
            print("\n".join(compare(short, arguments.python, arguments.rounds)))
    sys.exit(1 if any(line.startswith("FAULT") for line in lines) else 0)


if __name__ == "__main__":
    main()
