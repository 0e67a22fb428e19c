"""A job that is killed again and again, against the same job left alone: nothing lost, next to nothing done twice.

    python -m bench.kills --kills 50

A job over recordings of several lengths and formats is run once to its end. Then it is run by a process that gets
SIGKILL at a random moment, and started again, as often as asked; where the job ends before, another begins in a new
folder. At last it is run to its end, and compared: outputs byte for byte, JSON without its timings, and the clips that
the engine began. At most one batch a kill may have been begun again.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
BATCH = 4
FORMATS = ("txt", "srt", "json")
PIECES = ((0, 12), (5, 40), (30, 33), (20, 110), (100, 165), (0, 60), (60, 150), (140, 146))
"""Stretches of the sample recording, in seconds."""


@dataclass
class Tally:
    """What the kills came to.

    Attributes
    ----------
    kills : int
        Processes that were killed before their end.
    jobs : int
        Folders that it took to place so many.
    begun : int
        Clips that the engine began in all.
    needed : int
        Clips of so many uninterrupted jobs.
    different : list of str
        Outputs that are not those of the uninterrupted job.

    """

    kills: int = 0
    jobs: int = 0
    begun: int = 0
    needed: int = 0
    different: list[str] | None = None

    @property
    def repeated(self) -> int:
        """Clips that were begun more than once."""
        return self.begun - self.needed

    @property
    def holds(self) -> bool:
        """Whether what was promised is so."""
        return not self.different and 0 <= self.repeated <= BATCH * self.kills


def work(inputs: str, folder: str, count: str) -> None:
    """Run the job in this process, and write a byte for each clip that the engine begins."""
    sys.path.insert(0, str(ROOT))
    from engine_bridge.engines import embedded
    from engine_bridge.engines import open as engines

    descriptor = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class Counting(embedded.EmbeddedEngine):
        def _process(self, batch: Sequence[Any]) -> Sequence[Any]:
            os.write(descriptor, b"." * len(batch))
            return super()._process(batch)

    def open_engine(_: str) -> Counting:
        return Counting(workers=1, batch_size=BATCH)

    engines.open_engine = open_engine  # type: ignore[assignment]
    import cli

    cli.main(["transcribe", inputs, "-o", folder, "-f", ",".join(FORMATS), "-q"], prog_name="auricle")


def make_recordings(folder: Path, pieces: Sequence[tuple[float, float]]) -> None:
    """Write stretches of the sample as recordings, and a file that is none."""
    samples, rate = soundfile.read(SAMPLES / "reading.flac", dtype="float32")
    for number, (start, end) in enumerate(pieces):
        extension = ("wav", "flac", "ogg")[number % 3]
        soundfile.write(folder / f"piece{number}.{extension}", samples[int(start * rate) : int(end * rate)], rate)
    (folder / "broken.mp3").write_bytes(b"This is no recording. " * 100)
    long_ago = time.time() - 3600
    for path in folder.iterdir():
        os.utime(path, (long_ago, long_ago))


def started(inputs: Path, folder: Path, count: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench.kills", "--work", str(inputs), str(folder), str(count)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def finish(inputs: Path, folder: Path, count: Path) -> float:
    """Run the job to its end and return the seconds it took."""
    before = time.perf_counter()
    code = started(inputs, folder, count).wait()
    if code != 1:  # one recording is broken
        raise RuntimeError(f"the job ended with {code}")
    return time.perf_counter() - before


def outputs(folder: Path) -> dict[str, Any]:
    """The contents of a job's outputs; of JSON all but the timings."""
    found: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json":
            found[path.name] = {**json.loads(path.read_text()), "timings": None}
        elif path.is_file():
            found[path.name] = path.read_bytes()
    return found


def compare(kills: int, seed: int, pieces: Sequence[tuple[float, float]] = PIECES) -> Iterator[str]:
    """Yield what happens, line by line; the last one is the verdict."""
    chance = random.Random(seed)
    tally = Tally(different=[])
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        inputs = place / "in"
        inputs.mkdir()
        make_recordings(inputs, pieces)
        seconds = finish(inputs, place / "plain", place / "plain.count")
        plain, needed = outputs(place / "plain"), (place / "plain.count").stat().st_size
        startup = _startup(inputs, place)
        yield f"uninterrupted: {needed} clips in {seconds:.1f} s, of which {startup:.1f} s are the start"
        while tally.kills < kills:
            folder, count = place / f"job{tally.jobs}", place / f"job{tally.jobs}.count"
            tally.jobs += 1
            killed = _killed(inputs, folder, count, kills - tally.kills, chance, startup, seconds)
            tally.kills += killed
            finish(inputs, folder, count)
            tally.begun += count.stat().st_size
            tally.needed += needed
            found = outputs(folder)
            tally.different = [
                *(tally.different or []),
                *(key for key in sorted({*plain, *found}) if plain.get(key) != found.get(key)),
            ]
            yield f"job {tally.jobs}: killed {killed} times; {count.stat().st_size} clips begun instead of {needed}"
    verdict = "as promised" if tally.holds else "NOT as promised"
    differ = ", ".join(tally.different or ["none"])
    yield (
        f"{tally.kills} kills in {tally.jobs} jobs: {tally.repeated} clips begun again, and {BATCH * tally.kills} "
        f"may be; outputs that differ: {differ}: {verdict}"
    )


def _startup(inputs: Path, place: Path) -> float:
    """Return the seconds until the engine is at work: those of a job in which all is done."""
    return finish(inputs, place / "plain", place / "startup.count")


def _killed(
    inputs: Path, folder: Path, count: Path, most: int, chance: random.Random, startup: float, seconds: float
) -> int:
    """Kill the job at random moments, up to so many times or until it ends, and return how often."""
    for killed in range(most):
        process = started(inputs, folder, count)
        try:
            # Most moments lie where the engine is at work, some in the start.
            process.wait(chance.uniform(0.5 * startup, startup + 0.25 * max(seconds - startup, 1.0)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            return killed
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
        return
    line = ""
    for line in compare(arguments.kills, arguments.seed):
        print(line, flush=True)
    sys.exit(0 if line.endswith(": as promised") else 1)


if __name__ == "__main__":
    main()
