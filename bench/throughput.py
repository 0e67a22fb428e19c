"""How fast a recording becomes 16 kHz mono, here and in other decoders, side by side in one run.

    python bench/throughput.py                                    # all formats, whatever is installed here
    python bench/throughput.py --python PATH [--python PATH ...]  # peers from other environments' interpreters
    python bench/throughput.py --long 30 --workers 2              # one file of 30 minutes, decoded by two workers too

The files are made from samples/calls.opus with the ffmpeg command. Each decoder runs in a process of its own, one after
the other and the whole row again in each round, so that a busy machine is as hard on one as on the next. Importing and
a first short file are not counted; every tool ends with the whole recording as one float32 array. Figures are medians
over the rounds: times real time, then CPU seconds (user and system, child processes and threads included) in brackets.
The last line of each format is the ratio to the fastest peer by wall time, and by CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RATE = 16_000
OURS = "auricle"

FORMATS: dict[str, list[str]] = {
    "wav16k.wav": ["-ar", "16000", "-ac", "1"],
    "wav44k.wav": ["-ar", "44100", "-ac", "2"],
    "mp3.mp3": ["-ar", "44100", "-ac", "2", "-b:a", "128k"],
    "m4a.m4a": ["-ar", "44100", "-ac", "2", "-c:a", "aac", "-b:a", "128k"],
    "flac.flac": ["-ar", "44100", "-ac", "2"],
    "ogg.ogg": ["-ar", "44100", "-ac", "2", "-c:a", "libvorbis", "-q:a", "4"],
    "opus.opus": ["-ar", "16000", "-ac", "1", "-c:a", "libopus", "-b:a", "32k"],
    "opus48k.opus": ["-ar", "48000", "-ac", "2", "-c:a", "libopus", "-b:a", "64k"],
    "mp4.mp4": ["-ar", "48000", "-ac", "2", "-c:a", "aac", "-b:a", "128k"],
}
"""Each file by the encoder's options; the mp4 has a moving picture as well."""

Decode = Callable[[str], Any]


def _auricle(backend: str, workers: int) -> Decode:
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from audio import load_audio, open_stream

    def decode(path: str) -> Any:
        if workers == 1:
            return load_audio(path, sr=RATE, backend=backend)[0]
        with open_stream(path, RATE, backend=backend, workers=workers) as stream:
            return np.concatenate(list(stream))

    return decode


def _ffmpeg() -> Decode:
    import numpy as np

    subprocess.run(["ffmpeg", "-version"], check=True, capture_output=True)

    def decode(path: str) -> Any:
        command = ["ffmpeg", "-nostdin", "-v", "error", "-i", path, "-vn", "-f", "f32le", "-ac", "1", "-ar", str(RATE)]
        found = subprocess.run([*command, "-"], check=True, capture_output=True)
        return np.frombuffer(found.stdout, np.float32)

    return decode


def _torchcodec() -> Decode:
    from torchcodec.decoders import AudioDecoder

    return lambda path: AudioDecoder(path, sample_rate=RATE, num_channels=1).get_all_samples().data.numpy()[0]


def _pyav() -> Decode:
    import av
    import numpy as np

    def decode(path: str) -> Any:
        with av.open(path) as container:
            stream = container.streams.audio[0]
            stream.thread_type = "AUTO"
            resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
            frames = chain(container.decode(stream), [None])
            pieces = [piece.to_ndarray()[0] for frame in frames for piece in resampler.resample(frame)]
        return np.concatenate(pieces)

    return decode


def _librosa() -> Decode:
    import librosa

    return lambda path: librosa.load(path, sr=RATE)[0]


def _faster_whisper() -> Decode:
    from faster_whisper import decode_audio

    return lambda path: decode_audio(path, sampling_rate=RATE)


def _vllm() -> Decode:
    from vllm.multimodal.media.audio import load_audio

    return lambda path: load_audio(path, sr=RATE)[0]


PEERS: dict[str, Callable[[], Decode]] = {
    "ffmpeg": _ffmpeg,
    "torchcodec": _torchcodec,
    "pyav": _pyav,
    "librosa": _librosa,
    "faster-whisper": _faster_whisper,
    "vllm": _vllm,
}


def opened(tool: str) -> Decode:
    """Return a tool's decoder by its name: a peer's, or ours as auricle[:backend[:workers]]."""
    if tool in PEERS:
        return PEERS[tool]()
    _, backend, workers = (*tool.split(":"), *("", "auto", "1")[tool.count(":") + 1 :])
    return _auricle(backend, int(workers))


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def measured(tool: str, warm: str, files: list[str]) -> list[dict[str, Any]]:
    """Decode each file once in this process and return what it took.

    The short file of the same name in the folder `warm` goes first, so that no file pays for a library's loading.
    """
    decode = opened(tool)
    rows: list[dict[str, Any]] = []
    for path in files:
        Path(path).read_bytes()
        with contextlib.suppress(Exception):
            decode(str(Path(warm) / Path(path).name))
        wall, cpu = time.perf_counter(), _cpu_seconds()
        try:
            frames = len(decode(path))
        # A peer that fails on a file, in whatever way, has no figure for it.
        except Exception as error:  # noqa: BLE001
            rows.append({"file": path, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
            continue
        rows.append(
            {
                "file": path,
                "wall": time.perf_counter() - wall,
                "cpu": _cpu_seconds() - cpu,
                "seconds": frames / RATE,
            }
        )
    return rows


def _in_process(python: str, tool: str, warm: str, files: list[str]) -> list[dict[str, Any]] | str:
    """Measure a tool under an interpreter; a text says why it cannot run there."""
    command = [python, __file__, "--worker", tool, warm, *files]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        return (found.stderr.strip().splitlines() or [f"exit {found.returncode}"])[-1][:160]
    rows: list[dict[str, Any]] = json.loads(found.stdout.splitlines()[-1])
    return rows


def make_files(folder: Path, seconds: float, formats: list[str]) -> list[str]:
    """Encode the sample recording, repeated to the wanted length, in each format."""
    files = []
    for name in formats:
        command = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-stream_loop", "-1", "-i"]
        command += [str(ROOT / "samples" / "calls.opus")]
        if name == "mp4.mp4":
            command += ["-f", "lavfi", "-i", "testsrc=size=320x180:rate=10", "-c:v", "mpeg4"]
        path = folder / name
        subprocess.run([*command, *FORMATS[name], "-t", str(seconds), str(path)], check=True)
        files.append(str(path))
    return files


class Table:
    """The figures of all rounds by format and tool."""

    def __init__(self, tools: list[str]) -> None:
        self.tools = tools
        self.rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.absent: dict[str, str] = {}

    def add(self, tool: str, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.rows.setdefault((Path(row["file"]).name, tool), []).append(row)

    def median(self, name: str, tool: str, key: str) -> float | None:
        """Return the median of a figure, or None where the tool has none."""
        found = [row[key] for row in self.rows.get((name, tool), []) if key in row]
        return statistics.median(found) if found else None

    def fastest_peer(self, name: str, key: str) -> float | None:
        found = [value for tool in PEERS if (value := self.median(name, tool, key)) is not None]
        return min(found) if found else None

    def lines(self, formats: list[str]) -> list[str]:
        """Return the table in Markdown."""
        tools = [tool for tool in self.tools if tool not in self.absent]
        lines = ["| tool | " + " | ".join(formats) + " |", "|---" * (len(formats) + 1) + "|"]
        lines += [f"| {tool} | " + " | ".join(self._cell(name, tool) for name in formats) + " |" for tool in tools]
        for tool in tools:
            if tool not in PEERS:
                cells = [self._ratio(name, tool) for name in formats]
                lines.append(f"| **{tool}: ratio to the fastest peer** | " + " | ".join(cells) + " |")
        lines += [f"\nNot measured: {tool} ({reason})." for tool, reason in self.absent.items()]
        return lines

    def _cell(self, name: str, tool: str) -> str:
        wall, cpu = self.median(name, tool, "wall"), self.median(name, tool, "cpu")
        seconds = self.median(name, tool, "seconds")
        if wall is None or cpu is None or seconds is None:
            return "-"
        return f"{seconds / wall:.0f} ({cpu:.2f})"

    def _ratio(self, name: str, tool: str) -> str:
        cells = []
        for key in ("wall", "cpu"):
            own, peer = self.median(name, tool, key), self.fastest_peer(name, key)
            cells.append("-" if own is None or peer is None else f"{peer / own:.2f}")
        return f"**{cells[0]}** (CPU {cells[1]})"


def run(arguments: argparse.Namespace, files: list[str], tools: list[str]) -> Table:
    """Run every tool on every file, round by round."""
    table = Table(tools)
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), 2, [Path(file).name for file in files])
        interpreters: dict[str, str] = {}
        for number in range(arguments.rounds):
            for tool in [tool for tool in tools if tool not in table.absent]:
                choices = [interpreters[tool]] if tool in interpreters else [sys.executable, *arguments.python]
                for python in choices if tool in PEERS or arguments.ours is None else [arguments.ours]:
                    found = _in_process(python, tool, folder, files)
                    if not isinstance(found, str):
                        interpreters[tool] = python
                        table.add(tool, found)
                        table.absent.pop(tool, None)
                        break
                    table.absent[tool] = found
            print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr, flush=True)
    return table


def main() -> None:
    """Make the files, measure, and print the table."""
    if sys.argv[1:2] == ["--worker"]:
        tool, warm, *files = sys.argv[2:]
        rows = measured(tool, warm, files)
        print(json.dumps(rows))
        return
    parser = argparse.ArgumentParser(description="Decoding to 16 kHz mono: this package and its peers, side by side.")
    parser.add_argument("--seconds", type=float, default=120, help="length of each file (default 120)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", default=",".join(FORMATS), help="which files, separated by commas")
    parser.add_argument("--tools", help="which tools, separated by commas (default: auricle and every peer)")
    parser.add_argument("--long", type=float, metavar="MINUTES", help="measure one long file of each format instead")
    parser.add_argument("--workers", type=int, default=1, help="measure auricle with this many workers as well")
    parser.add_argument("--python", action="append", default=[], help="another interpreter to look for peers in")
    parser.add_argument("--ours", help="the interpreter that auricle runs under (default: this one)")
    arguments = parser.parse_args()
    formats = arguments.formats.split(",")
    own = [OURS] + ([f"{OURS}:auto:{arguments.workers}"] if arguments.workers > 1 else [])
    tools = arguments.tools.split(",") if arguments.tools else [*own, *PEERS]
    seconds = arguments.long * 60 if arguments.long else arguments.seconds
    with tempfile.TemporaryDirectory() as folder:
        table = run(arguments, make_files(Path(folder), seconds, formats), tools)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{platform.machine()}, {cpus} CPUs, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}; ", end="")
    print(f"{seconds:.0f} s a file, {arguments.rounds} rounds; times real time (CPU seconds)\n")
    print("\n".join(table.lines(formats)))


if __name__ == "__main__":
    main()
