"""Decode mutated recordings through every backend, and report what no file may cause.

    python bench/fuzz.py --count 20000 --seconds 600 --seed 1

Small recordings in many formats are generated, then damaged: bits flipped, ends cut off, headers of one format put
before another, lengths replaced by lies, parts doubled, dropped or zeroed. Each input goes through each backend that
works here, under the limits for strangers' files, in worker processes. What is reported as a finding: a crash, more
than ten seconds for one decode, more memory than allowed, an error that is not this package's own, and a block that
breaks the decoders' promise. An input is determined by the seed and its number; `--only N` repeats one.

Exits with 1 if there is any finding.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import selectors
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.peak import peak_bytes  # noqa: E402 - found by the path above

HANG_SECONDS = 10.0

START_SECONDS = 600.0
"""A worker loads every library first, PyTorch among them, which takes minutes at the lowest priority."""
MEMORY = 512 << 20
"""Bytes by which a decode may raise the worker's peak; address space is bounded at twice that."""

RATE = 16_000
SOUNDFILE = {
    "wav-pcm16": ("WAV", "PCM_16"),
    "wav-pcm24": ("WAV", "PCM_24"),
    "wav-float": ("WAV", "FLOAT"),
    "wav-ulaw": ("WAV", "ULAW"),
    "wav-ima": ("WAV", "IMA_ADPCM"),
    "wav-gsm": ("WAV", "GSM610"),
    "aiff": ("AIFF", "PCM_16"),
    "caf": ("CAF", "PCM_16"),
    "caf-alac": ("CAF", "ALAC_16"),
    "au": ("AU", "PCM_16"),
    "w64": ("W64", "PCM_16"),
    "rf64": ("RF64", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
FFMPEG = {
    "m4a": ("ipod", "aac"),
    "m4a-alac": ("ipod", "alac"),
    "mp4-fragments": ("mp4", "aac"),
    "mov-pcm": ("mov", "pcm_s16le"),
    "mkv-opus": ("matroska", "libopus"),
    "webm-opus": ("webm", "libopus"),
    "mkv-aac": ("matroska", "aac"),
    "aac": ("adts", "aac"),
    "ac3": ("ac3", "ac3"),
    "wma": ("asf", "wmav2"),
    "avi": ("avi", "mp2"),
    "ts": ("mpegts", "mp2"),
    "tta": ("tta", "tta"),
    "wv": ("wv", "wavpack"),
    "flv": ("flv", "libmp3lame"),
}
LIES = [0, 1, 2, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 24, 1 << 20]


def seeds() -> dict[str, bytes]:
    """Return a third of a second of sound in many formats."""
    import soundfile

    noise = np.random.default_rng(5).standard_normal((5000, 2)) * 0.05
    time_axis = np.arange(5000)[:, np.newaxis] / RATE
    samples = (0.4 * np.sin(2 * np.pi * np.array([440, 660]) * time_axis) + noise).astype(np.float32)
    made: dict[str, bytes] = {}
    for name, (container, subtype) in SOUNDFILE.items():
        file = io.BytesIO()
        mono = subtype == "GSM610"
        soundfile.write(file, samples[:, 0] if mono else samples, RATE, format=container, subtype=subtype)
        made[name] = file.getvalue()
    for name, (container, codec) in FFMPEG.items():
        made[name] = encoded(samples, container, codec, fragments=name.endswith("fragments"))
    return made


def encoded(samples: np.ndarray, container: str, codec: str, *, fragments: bool) -> bytes:
    import av

    file = io.BytesIO()
    rate = 48_000 if codec in ("libopus", "ac3") or container == "flv" else RATE
    rate = 44_100 if container == "flv" else rate
    options = {"movflags": "frag_keyframe+empty_moov"} if fragments else {}
    with av.open(file, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=rate, layout="stereo")
        if codec in ("aac", "libopus", "ac3", "wmav2", "mp2", "libmp3lame"):
            stream.bit_rate = 96_000
        context = stream.codec_context
        resampler = av.AudioResampler(context.format, context.layout, rate, context.frame_size or 1024)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="stereo")
        frame.sample_rate = RATE
        for piece in (frame, None):
            for ready in resampler.resample(piece):
                output.mux(stream.encode(ready))
        output.mux(stream.encode(None))
    return file.getvalue()


def mutated(originals: dict[str, bytes], seed: int, number: int) -> tuple[str, bytes]:
    """Return what was done, and the input of a number."""
    chance = random.Random(f"{seed}:{number}")
    name = chance.choice(sorted(originals))
    data = bytearray(originals[name])
    done = [name]
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        act = chance.choice((flip, flip, cut, splice, lie, lie, lie, double, drop, zero, noise))
        act(data, chance, originals)
        done.append(act.__name__)
        if len(data) < 16:
            data.extend(bytes(16))
    return "+".join(done), bytes(data)


def _place(data: bytearray, chance: random.Random) -> int:
    """Headers are where the damage is interesting: two of three places are within the first 512 bytes."""
    most = min(len(data), 512) if chance.random() < 0.67 else len(data)
    return chance.randrange(max(most, 1))


def flip(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    for _each in range(chance.choice((1, 2, 8, 64))):
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def cut(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    del data[_place(data, chance) :]


def splice(data: bytearray, chance: random.Random, originals: dict[str, bytes]) -> None:
    other = originals[chance.choice(sorted(originals))]
    length = chance.choice((12, 44, 64, 200, 1000))
    at = 0 if chance.random() < 0.5 else _place(data, chance)
    if chance.random() < 0.5:
        data[at : at + length] = other[:length]
    else:
        data[at:at] = other[:length]


def lie(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    width = chance.choice((1, 2, 4, 4, 8))
    at = _place(data, chance)
    value = chance.choice((*LIES, len(data), len(data) * 2, chance.getrandbits(32))) & ((1 << 8 * width) - 1)
    data[at : at + width] = value.to_bytes(width, chance.choice(("little", "big")))


def double(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    at, length = _place(data, chance), chance.choice((4, 100, 2000))
    data[at:at] = data[at : at + length] * chance.choice((1, 2, 20))


def drop(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    at = _place(data, chance)
    del data[at : at + chance.choice((1, 2, 4, 100, 2000))]


def zero(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    at, length = _place(data, chance), chance.choice((4, 100, 2000))
    data[at : at + length] = bytes(len(data[at : at + length]))


def noise(data: bytearray, chance: random.Random, _: dict[str, bytes]) -> None:
    at, length = _place(data, chance), chance.choice((4, 100, 2000))
    data[at : at + length] = chance.randbytes(len(data[at : at + length]))


def judged(data: bytes, backend: str) -> tuple[str, str]:
    """Decode an input and return the outcome, and what was said."""
    from audio import AudioError, DecodeLimits, LimitExceededError, open_decoder

    try:
        with open_decoder(data, backend, limits=DecodeLimits.strict()) as decoder:
            for block in decoder.blocks():
                right = block.ndim == 2 and block.shape[1] == decoder.info.channels and block.dtype == np.float32
                if not right or not 0 < len(block) <= decoder.info.sample_rate or not np.isfinite(block).all():
                    return "broken promise", f"{block.shape} {block.dtype} {decoder.info}"
    except LimitExceededError as error:
        return "limit", error.limit
    except AudioError as error:
        return "refused", type(error).__name__
    except Exception as error:  # noqa: BLE001 - any other error is the finding
        return "foreign error", f"{type(error).__name__}: {error}"
    return "decoded", ""


def work(seed: int) -> None:
    """Read numbers of inputs from standard input, and write a line for each decode of them."""
    from audio.decoders import available_backends

    originals = seeds()
    backends = [name for name, fault in available_backends().items() if fault is None]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"backends": backends}), flush=True)
    for line in sys.stdin:
        what, data = mutated(originals, seed, int(line))
        for backend in [*backends, "auto"]:
            before = peak_bytes()
            began = time.monotonic()
            outcome, said = judged(data, backend)
            grown = peak_bytes() - before
            if grown > MEMORY:
                outcome, said = "memory", f"{grown >> 20} MiB"
            taken = time.monotonic() - began
            print(
                json.dumps({"what": what, "backend": backend, "outcome": outcome, "said": said, "s": taken}), flush=True
            )


class Worker:
    """A process that decodes one input after the other, until one of them ends it."""

    def __init__(self, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--seed", str(seed), "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._said = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        first = self._line(START_SECONDS)
        if first is None or "backends" not in first:
            raise RuntimeError(f"the worker did not start: run {__file__} --worker to see why")
        self.backends = [*first["backends"], "auto"]

    def _line(self, seconds: float) -> dict | None:
        """Return the next line, None if the process ended; raise TimeoutError if neither comes."""
        end = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not self._selector.select(max(end - time.monotonic(), 0)):
                raise TimeoutError
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return json.loads(line)

    def run(self, number: int) -> list[dict]:
        """Return a result for each backend; the last one is a crash or a hang if the worker did not survive it."""
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()
        results: list[dict] = []
        for backend in self.backends:
            try:
                result = self._line(HANG_SECONDS)
            except TimeoutError:
                result = {"backend": backend, "outcome": "hang", "said": f"over {HANG_SECONDS:g} s", "s": HANG_SECONDS}
            if result is None:
                result = {"backend": backend, "outcome": "crash", "said": f"status {self._process.wait()}", "s": 0.0}
            results.append(result)
            if result["outcome"] in ("crash", "hang"):
                break
        return results

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._selector.close()


@dataclass
class Report:
    inputs: int = 0
    decodes: int = 0
    slowest: float = 0.0
    outcomes: Counter = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def fuzz(numbers: range, seed: int, seconds: float = float("inf")) -> Report:
    """Try inputs by number until the time is over."""
    report, end = Report(), time.monotonic() + seconds
    worker = Worker(seed)
    try:
        for number in numbers:
            if time.monotonic() > end:
                break
            results = worker.run(number)
            report.inputs += 1
            for result in results:
                report.decodes += 1
                report.slowest = max(report.slowest, result["s"])
                report.outcomes[result["backend"], result["outcome"]] += 1
                if result["outcome"] not in ("decoded", "refused", "limit"):
                    what = f"input {number} {result['backend']}: {result['outcome']} {result['said']}"
                    report.findings.append(what)
            if results[-1]["outcome"] in ("crash", "hang"):
                worker.close()
                worker = Worker(seed)
    finally:
        worker.close()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="inputs to try")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time after which no more are tried")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="number of one input to repeat")
    parser.add_argument("--save", type=Path, help="with --only: where to write that input")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.seed)
        return 0
    first, count = (options.only, 1) if options.only is not None else (options.first, options.count)
    if options.save is not None:
        options.save.write_bytes(mutated(seeds(), options.seed, first)[1])
    began = time.monotonic()
    report = fuzz(range(first, first + count), options.seed, options.seconds)
    for finding in report.findings:
        print(finding)
    for (backend, outcome), number in sorted(report.outcomes.items()):
        print(f"{backend:12} {outcome:16} {number}")
    print(
        f"{report.inputs} inputs, {report.decodes} decodes in {time.monotonic() - began:.0f} s, "
        f"the slowest {report.slowest:.1f} s; {len(report.findings)} findings"
    )
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
