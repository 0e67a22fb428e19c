"""Whether memory grows with a recording's length: peak memory of `auricle split` for a short and a long file.

    python bench/memory.py                              # 10 minutes against 10 hours; some GB of disk for a while
    python bench/memory.py --formats opus,wav --hours 2

The files are made with the ffmpeg command: ten minutes are encoded once, and the long file is as many copies of its
packets one after the other, without encoding again. Each run is a process of its own; its peak is what the system
counted for it (resident memory, in MB of 2**20 bytes). The chunks' manifest says how much of it was cut. The exit
status is 1 where a format misses a target, or was not cut to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MOST_GROWTH = 30
"""MB that the long file may take more than the short one."""

MOST = 250
"""MB that a run may take in all."""

FORMATS = {
    "mp3": ["-ar", "44100", "-ac", "2", "-b:a", "64k"],
    "m4a": ["-ar", "44100", "-ac", "2", "-c:a", "aac", "-b:a", "64k"],
    "flac": ["-ar", "16000", "-ac", "1"],
    "opus": ["-ar", "16000", "-ac", "1", "-c:a", "libopus", "-b:a", "24k"],
    "wav": ["-ar", "16000", "-ac", "1"],
}
"""Each format's encoder options."""


def _ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", *arguments], check=True)


def make_pair(folder: Path, kind: str, hours: float) -> tuple[Path, Path]:
    """Return ten minutes in a format, and as many copies of them as the hours hold."""
    short, long = folder / f"short.{kind}", folder / f"long.{kind}"
    sample = str(ROOT / "samples" / "calls.opus")
    _ffmpeg("-stream_loop", "-1", "-i", sample, *FORMATS[kind], "-t", "600", str(short))
    copies = str(round(hours * 6) - 1)
    _ffmpeg("-stream_loop", copies, "-i", str(short), "-c", "copy", str(long))
    return short, long


def peak_of(path: Path, folder: Path) -> tuple[float, float, float]:
    """Run `auricle split` on a file and return its peak memory in MB, its seconds, and the hours that were cut."""
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "cli.py"), "split", str(path), "--output", str(folder / "chunks")]
    with (folder / "plan.txt").open("wb") as plan, (folder / "messages.txt").open("wb") as messages:
        process = subprocess.Popen(command, stdout=plan, stderr=messages, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{path.name}: auricle split failed: {(folder / 'messages.txt').read_text()[-500:]}")
    # Linux counts in KiB, macOS in bytes.
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    last = json.loads((folder / "chunks" / f"{path.stem}.chunks.jsonl").read_text().splitlines()[-1])
    return usage.ru_maxrss / unit, time.monotonic() - began, last["stop_seconds"] / 3600


def main() -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(description="Peak memory of auricle split by format and length.")
    parser.add_argument("--formats", default=",".join(FORMATS), help="which formats, separated by commas")
    parser.add_argument("--hours", type=float, default=10, help="length of the long files (default 10)")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}\n")
    print(f"| format | 10 minutes, MB | {arguments.hours:g} hours, MB | difference | hours cut | seconds for them |")
    print("|---|---|---|---|---|---|", flush=True)
    missed = 0
    for kind in arguments.formats.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            short, long = make_pair(folder, kind, arguments.hours)
            (least, _, _), (most, seconds, hours) = peak_of(short, folder), peak_of(long, folder)
        print(f"| {kind} | {least:.0f} | {most:.0f} | {most - least:+.0f} | {hours:.3f} | {seconds:.0f} |", flush=True)
        missed += most - least > MOST_GROWTH or most > MOST or hours < 0.999 * arguments.hours
    print(f"\nTargets: at most {MOST_GROWTH} MB more, at most {MOST} MB in all; missed by {missed} of the formats.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
