"""Whether all backends make the same of a file, for every file of a folder: a table of files by backend.

    python bench/conformance.py ../shared/data/odd              # a folder with an INDEX.tsv, or any folder of files
    python bench/conformance.py ../shared/data/odd --all        # every row, not only those with something to tell

Each file is decoded by every backend that works here and by `auto`, in a process of its own that is ended after a time
limit. `auto` is what users get, so it is what the others are held against. A cell is

- `ok`: the same channels, the same duration (to the sample for lossless codecs, else within 20 ms), and a mono mix
  that correlates (0.999 for lossless codecs, 0.99 for others);
- `refuses`: the backend says in one of this package's errors that it cannot read the file;
- a letter of `EXPLAINED`, a class of differences that has a reason;
- `!` and what is wrong: nothing explains it. Then the exit status is 1.

Where there is an index, `auto` has to decode what any decoder of the index decodes, and each backend what its library
does.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from audio import AudioError, available_backends, open_decoder, resample  # noqa: E402 - run from anywhere

BACKENDS = ("auto", "soundfile", "torchcodec", "pyav")
TIMEOUT = 60.0
STARTUP = 300.0
COMPARED_SECONDS = 30
LONGEST_LAG = 0.08
DURATION_SECONDS = 0.02

LOSSLESS = ("pcm", "float", "double", "flac", "alac", "wavpack", "ulaw", "alaw", "tta", "ape", "dsd", "truehd", "mlp")
"""How the names of codecs begin that give back what went in, or that have one right decoding."""

EXPLAINED = {
    "T": "told: less or other audio, and this package's warnings say that the file is damaged, that it lies about its "
    "length, or that the backend loses audio of its kind; auto goes on with another",
    "P": "passed over: the library opens the file by its ending, or gives the first part of what it cannot read to "
    "the end; the backend refuses, and auto decodes it with another",
    "R": "refused by policy: scripts and manifests, formats outside the list of recordings, forms beyond limits, and "
    "formats without any header, which take every file for samples",
    "D": "decoder's run-up: lossy audio alike, but beginning or ending up to 80 ms apart, where the file does not say "
    "how much of its first and last frame to drop (MPEG audio without a LAME header, AAC without an edit list), or "
    "releases of FFmpeg differ in it (HE-AAC)",
    "C": "the channels or the rate change within the file: a backend converts to the first or stops, and tells",
    "V": "VOC: libsndfile takes the terminating block for samples",
    "M": "more: decodes where the library's plain use gives an error or nothing",
}
"""The classes of differences that are no faults, each with its reason."""


@dataclass
class Decoded:
    """What one backend makes of one file.

    Attributes
    ----------
    error : str or None
        Why it refuses; the class of the error in angle brackets first where that is not one of this package's.
    frames, rate, channels : int
        What it gives.
    lossless : bool
        Whether the codec is.
    warnings : list of str
        What it tells.
    correlation : float or None
        Of the mono mix with that of `auto`, at the best lag; None where there is nothing to correlate.
    lag : float
        Seconds by which it is later than `auto`.
    level : float
        Level against that of `auto`, in dB.

    """

    error: str | None = None
    frames: int = 0
    rate: int = 0
    channels: int = 0
    codec: str = ""
    container: str = ""
    lossless: bool = False
    warnings: list[str] = field(default_factory=list)
    correlation: float | None = None
    lag: float = 0.0
    level: float = 0.0

    @property
    def duration(self) -> float:
        """Seconds decoded."""
        return self.frames / self.rate if self.rate else 0.0


Mix = NDArray[np.float32]


def decoded(path: str, backend: str) -> tuple[Decoded, Mix]:
    """Decode a file and return what came, with the mono mix of its beginning."""
    found = Decoded()
    kept: list[Mix] = []
    try:
        with open_decoder(path, backend) as decoder:
            info = decoder.info
            found.rate, found.channels, found.codec = info.sample_rate, info.channels, info.codec
            found.container = info.container
            found.lossless = info.codec.startswith(LOSSLESS)
            for block in decoder.blocks():
                if found.frames < COMPARED_SECONDS * info.sample_rate:
                    kept.append(block.mean(axis=1, dtype=np.float32))
                found.frames += len(block)
            found.warnings = decoder.warnings
    except AudioError as error:
        found.error = str(error)
    # Anything else that escapes is what this program is there to find.
    except Exception as error:  # noqa: BLE001
        found.error = f"<{type(error).__name__}> {error}"
    return found, np.concatenate(kept) if kept else np.zeros(0, np.float32)


def compare(found: Decoded, mix: Mix, reference: Decoded, expected: Mix) -> None:
    """Fill in correlation, lag and level against a reference."""
    rate = min(found.rate, reference.rate)
    if found.rate != reference.rate:
        mix, expected = resample(mix, found.rate, rate), resample(expected, reference.rate, rate)
    count = min(len(mix), len(expected))
    one, other = mix[:count].astype(np.float64), expected[:count].astype(np.float64)
    energies = float(np.dot(one, one)), float(np.dot(other, other))
    if count < rate // 20 or min(energies) < 1e-9 * count:
        return
    found.level = 10 * float(np.log10(energies[0] / energies[1]))
    found.correlation = float(np.dot(one, other) / np.sqrt(energies[0] * energies[1]))
    if found.correlation < (0.999 if found.lossless else 0.99):
        correlation, lag = _best_lag(one, other, round(LONGEST_LAG * rate))
        if correlation > found.correlation:
            found.correlation, found.lag = correlation, lag / rate


def _best_lag(one: NDArray[np.float64], other: NDArray[np.float64], most: int) -> tuple[float, int]:
    """Return the correlation at the lag up to `most` where it is greatest, and the lag."""
    size = 1 << int(len(one) * 2 - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(one, size) * np.conj(np.fft.rfft(other, size)), size)
    lags = np.arange(-most, most + 1)
    lag = int(lags[np.argmax(product[lags])])
    a, b = (one[lag:], other[: len(other) - lag]) if lag >= 0 else (one[:lag], other[-lag:])
    norm = float(np.sqrt(np.dot(a, a) * np.dot(b, b)))
    return (float(np.dot(a, b)) / norm if norm else 0.0), lag


def summary(path: str) -> dict[str, dict[str, Any]]:
    """Return what every backend that works here makes of a file."""
    working = [name for name, problem in available_backends().items() if problem is None]
    reference, expected = decoded(path, "auto")
    rows = {"auto": reference}
    for name in working:
        found, mix = decoded(path, name)
        if found.error is None and reference.error is None:
            compare(found, mix, reference, expected)
        rows[name] = found
    return {name: asdict(row) for name, row in rows.items()}


class Worker:
    """A process that decodes one file after the other, and is replaced when it hangs or dies."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    def summary(self, path: str) -> dict[str, Decoded] | str:
        """Return what every backend makes of a file, or what became of the process."""
        if self._process is None:
            command = [sys.executable, __file__, "--worker"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            # Loading the libraries is not the file's time.
            self._answer(STARTUP)
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018 - both are pipes
        process.stdin.write(json.dumps(path) + "\n")
        process.stdin.flush()
        line = self._answer(self._timeout)
        if not line:
            status = process.poll()
            self.close()
            return f"no answer within {self._timeout:.0f} s" if status is None else f"the process died ({status})"
        return {name: Decoded(**row) for name, row in json.loads(line).items()}

    def _answer(self, timeout: float) -> str:
        """Return the next line of the process, or nothing where it gives none in time."""
        if self._process is None or self._process.stdout is None:
            return ""
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        return self._process.stdout.readline() if ready else ""

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve() -> None:
    """Answer paths from standard input with summaries."""
    # FFmpeg and libsndfile write to the descriptors of output and error by themselves.
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    print(json.dumps(available_backends()), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(summary(json.loads(line))), file=answers, flush=True)


_INDEX_COLUMNS = {"soundfile": (("sf_n", "sf_rate"),), "torchcodec": (("tc_n", "tc_rate"),)}
_INDEX_COLUMNS["pyav"] = (("av_n", "av_rate"), ("avp_n", "av_rate"))

_FOREIGN = re.compile(r"<\w+> ")
"""How the text of an error begins that is none of this package's."""

_HEADERLESS = (".sln", ".ul", ".al", ".g722", ".g726", ".vox", ".raw", ".gsm")
"""Endings of raw samples: FFmpeg and libsndfile take any bytes for them, a text named .sln as well."""

_BY_POLICY = ("formats of recordings", "script", "playlist", "manifest", "Hz", "channels")
"""What refusals by policy say."""


def in_index(index: dict[str, str] | None, backends: list[str]) -> float | None:
    """Return the longest duration that the libraries of some backends give, by the index; None if it does not say."""
    if index is None:
        return None
    found = [0.0]
    for frames, rate in [pair for backend in backends for pair in _INDEX_COLUMNS[backend]]:
        if int(index.get(frames) or 0) > 0:
            found.append(int(index[frames]) / int(index.get(rate) or index["ffm_rate"] or 1))
    return max(found)


def cell(rows: dict[str, Decoded], backend: str, name: str, index: dict[str, str] | None) -> str:
    """Return a cell of the table: "ok", "refuses", the letter of an explanation, or "!" and what is wrong.

    Parameters
    ----------
    rows : dict
        What each backend makes of the file; "auto" is among them.
    backend : str
        Whose cell it is.
    name : str
        The file's name.
    index : dict or None
        The file's row of the index.

    """
    found, reference = rows[backend], rows["auto"]
    expected = in_index(index, [each for each in rows if each != "auto"] if backend == "auto" else [backend])
    if found.error is not None:
        return _refusal(found, reference, name, expected)
    if backend != "auto" and (wrong := _differences(found, reference)):
        return _explained(found, reference, wrong) or "!" + ", ".join(wrong)
    if backend == "auto" and expected and found.duration < expected - LONGEST_LAG:
        return "T" if found.warnings else f"!{found.duration:.2f} s, and {expected:.2f} s by the index"
    return "M" if expected == 0 else "ok"


def _refusal(found: Decoded, reference: Decoded, name: str, expected: float | None) -> str:
    error = found.error or ""
    if _FOREIGN.match(error):
        return f"!{error[:60]}"
    if not expected:
        return "refuses"
    if name.lower().endswith(_HEADERLESS) or any(words in error for words in _BY_POLICY):
        return "R"
    return "P" if reference.error is None else f"!refuses: {error[-80:]}"


def _differences(found: Decoded, reference: Decoded) -> list[str]:
    wrong = []
    if found.channels != reference.channels:
        wrong.append(f"{found.channels} channels, not {reference.channels}")
    lossless = found.lossless and reference.lossless
    apart = found.duration - reference.duration
    exact = lossless and found.rate == reference.rate
    if found.frames != reference.frames if exact else abs(apart) > DURATION_SECONDS:
        wrong.append(f"{apart * 1000:+.1f} ms")
    if found.correlation is not None and found.correlation < (0.999 if lossless else 0.99):
        wrong.append(f"correlation {found.correlation:.3f}")
    elif found.lag:
        wrong.append(f"{found.lag * 1000:+.1f} ms late")
    if abs(found.level) > 1:
        wrong.append(f"{found.level:+.1f} dB")
    return wrong


def _explained(found: Decoded, reference: Decoded, wrong: list[str]) -> str | None:
    """Return the letter of what explains differences, if anything does."""
    told = [*found.warnings, *reference.warnings]
    if found.container == "voc" or reference.container == "voc":
        return "V"
    if any("has" in each and "channels at" in each for each in told):
        return "C"
    if told:
        return "T"
    short = abs(found.duration - reference.duration) <= LONGEST_LAG
    kinds = {each.split()[-1] for each in wrong}
    if not found.lossless and short and kinds <= {"ms", "late"} and found.channels == reference.channels:
        return "D"
    return None


def index_of(folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a folder's INDEX.tsv by path; none without one."""
    table = folder / "INDEX.tsv"
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as file:
        return {row["path"]: row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


def report(folder: Path, names: list[str], timeout: float = TIMEOUT) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each file's name and its cells by backend."""
    index = index_of(folder)
    with Worker(timeout) as worker:
        for name in names:
            rows = worker.summary(str(folder / name))
            if isinstance(rows, str):
                yield name, {"auto": f"!{rows}"}
            else:
                yield (
                    name,
                    {backend: cell(rows, backend, name, index.get(name)) for backend in BACKENDS if backend in rows},
                )


def unexplained(cells: dict[str, str]) -> list[str]:
    """Return the backends whose cells nothing explains."""
    return [backend for backend, text in cells.items() if text.startswith("!")]


def names_in(folder: Path) -> list[str]:
    """Return the files of an index, or of a folder without one."""
    found = list(index_of(folder))
    if found:
        return [name for name in found if (folder / name).exists()]
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Print the table and return the exit status."""
    if sys.argv[1:2] == ["--worker"]:
        serve()
        return 0
    parser = argparse.ArgumentParser(description="A table of files by backend.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="print the rows of files that are ok everywhere too")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds for a file")
    parser.add_argument("--match", default="", help="only files whose path has this in it")
    arguments = parser.parse_args()
    names = [name for name in names_in(arguments.folder) if arguments.match in name]
    counts: dict[str, Counter[str]] = {backend: Counter() for backend in BACKENDS}
    bad, began = 0, time.monotonic()
    for name, cells in report(arguments.folder, names, arguments.timeout):
        for backend, text in cells.items():
            counts[backend]["!" if text.startswith("!") else text] += 1
        bad += len(unexplained(cells))
        if arguments.all or not set(cells.values()) <= {"ok", "refuses"}:
            print(f"{name:70s} " + "  ".join(f"{backend}: {text}" for backend, text in cells.items()), flush=True)
    print(f"\n{len(names)} files in {time.monotonic() - began:.0f} s")
    for backend, count in counts.items():
        if count:
            print(f"{backend:12s}" + "  ".join(f"{text} {number}" for text, number in count.most_common()))
    print("\n" + "\n".join(f"{letter}  {reason}" for letter, reason in EXPLAINED.items()))
    print(f"\nunexplained cells: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
