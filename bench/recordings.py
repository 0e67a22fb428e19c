"""Recordings with exact texts and times that nobody tuned on, made from others or spoken by a synthesiser.

    python -m bench.recordings OUT [--speech FOLDER] [--seed 11] [--seconds 600] [--voices slt,rms,awb]

FOLDER holds recordings, `NAME.flac`, with their segments and speech, `NAME.json`:
``{"segments": [{"start", "end", "text"}], "speech": [[start, end]]}`` in seconds. Their segments are put into another
order, with other pauses, levels and noises; another seed makes other recordings. With `flite` installed its voices
read the same texts as well. OUT then holds what `bench.quality` and `bench.cuts` take.
"""

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile as sf

from audio import load_audio

RATE = 16_000
SPEECH = Path(__file__).resolve().parents[1] / "../shared/data/speech"

Noise = Callable[[np.random.Generator, int], np.ndarray]
Gain = Callable[[np.random.Generator], float]


@dataclass
class Recording:
    """Samples at 16 kHz with what is said in them; times in seconds."""

    name: str
    samples: np.ndarray
    segments: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    speech: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    texts: list[str] = field(default_factory=list)


def load_all(folder: Path) -> list[Recording]:
    """Return the recordings of a folder."""
    return [load(path.with_suffix(".flac")) for path in sorted(folder.glob("*.json"))]


def load(path: Path) -> Recording:
    """Return a recording with what is said in it."""
    reference = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    samples, _ = load_audio(path, sr=RATE)
    texts = [entry["text"] for entry in reference["segments"]]
    return Recording(path.stem, samples, spans(reference["segments"]), spans(reference["speech"]), texts)


def spans(entries: list) -> np.ndarray:
    pairs = [(entry["start"], entry["end"]) if isinstance(entry, dict) else tuple(entry) for entry in entries]
    return np.array(pairs, float).reshape(-1, 2)


def write(recording: Recording, folder: Path) -> None:
    """Write a recording with its text and its times beside it."""
    path = folder / f"{recording.name}.flac"
    sf.write(path, recording.samples, RATE, subtype="PCM_16")
    path.with_suffix(".txt").write_text(" ".join(recording.texts) + "\n", encoding="utf-8")
    segments = [
        {"start": round(float(start), 3), "end": round(float(end), 3), "text": text}
        for (start, end), text in zip(recording.segments, recording.texts, strict=True)
    ]
    speech = [[round(float(start), 3), round(float(end), 3)] for start, end in recording.speech]
    described = {"duration": len(recording.samples) / RATE, "segments": segments, "speech": speech}
    path.with_suffix(".json").write_text(json.dumps(described), encoding="utf-8")


# ---- putting together ---------------------------------------------------------------------------------------------


def assemble(
    name: str,
    source: Recording,
    seed: int,
    seconds: float,
    pauses: tuple[float, float],
    noise: Noise,
    gain_db: Gain = lambda _: 0.0,
) -> Recording:
    """Put segments of a recording in another order, with pauses spread evenly on a log scale."""
    draw = np.random.default_rng(seed)
    order = [index for _ in range(20) for index in draw.permutation(len(source.segments))]
    parts: list[np.ndarray] = []
    segments, speech, texts, at = [], [], [], 0
    for index in order:
        pause = round(np.exp(draw.uniform(*np.log(pauses))) * RATE)
        start, end = source.segments[index]
        first, last = round(start * RATE), round(end * RATE)
        ramp = np.minimum(1, np.minimum(np.arange(1, last - first + 1), np.arange(last - first, 0, -1)) / 80)
        clip = source.samples[first:last] * ramp * 10 ** (gain_db(draw) / 20)
        parts += [np.zeros(pause), clip]
        at += pause
        offset = at / RATE - first / RATE
        segments.append((at / RATE, (at + len(clip)) / RATE))
        inside = source.speech[(source.speech[:, 0] >= start - 0.05) & (source.speech[:, 1] <= end + 0.05)]
        speech += [(a + offset, b + offset) for a, b in inside]
        texts.append(source.texts[index])
        at += len(clip)
        if at > seconds * RATE:
            break
    samples = np.concatenate(parts)
    samples = (samples + noise(draw, len(samples))).astype(np.float32)
    return Recording(name, np.clip(samples, -1, 1), np.array(segments), np.array(speech), texts)


def pink(level_db: float) -> Noise:
    def make(draw: np.random.Generator, count: int) -> np.ndarray:
        spectrum = np.fft.rfft(draw.standard_normal(count))
        spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
        spectrum[: int(20 * count / RATE)] = 0
        return scaled(np.fft.irfft(spectrum, count), level_db)

    return make


def hum(level_db: float) -> Noise:
    def make(draw: np.random.Generator, count: int) -> np.ndarray:
        time_axis = np.arange(count) / RATE
        tones = sum(np.sin(2 * np.pi * 50 * k * time_axis + k) / k**1.5 for k in (1, 2, 3, 5, 7))
        return scaled(np.asarray(tones), level_db) + scaled(draw.standard_normal(count), -70)

    return make


def music(level_db: float) -> Noise:
    def make(draw: np.random.Generator, count: int) -> np.ndarray:
        time_axis = np.arange(count) / RATE
        result = np.zeros(count)
        beat = int(RATE * 0.6)
        for start in range(0, count, beat):
            part = time_axis[: min(beat * 2, count - start)]
            root = 110 * 2 ** (draw.choice([0, 3, 5, 7, 8, 10, 12]) / 12)
            decay = np.exp(-2.5 * part)
            for ratio in (1, 1.25, 1.5, 2):
                for harmonic in (1, 2, 3, 4):
                    wave = np.sin(2 * np.pi * root * ratio * harmonic * part)
                    result[start : start + len(part)] += wave * decay / harmonic**1.3
        return scaled(result, level_db)

    return make


def scaled(signal: np.ndarray, level_db: float) -> np.ndarray:
    return signal * (10 ** (level_db / 20) / np.sqrt(np.mean(signal**2)))


def made(recordings: dict[str, Recording], seed: int = 11, seconds: float = 600.0) -> list[Recording]:
    """Return recordings that nobody tuned on, from the clean ones."""
    calls, reading = recordings["calls"], recordings["reading"]

    def two_speakers(draw: np.random.Generator) -> float:
        return float(draw.choice([0, -25])) + draw.uniform(-2, 2)

    def wandering(draw: np.random.Generator) -> float:
        return draw.uniform(-30, -8)

    return [
        assemble("two-levels", calls, seed, seconds, (0.25, 2.0), pink(-68), two_speakers),
        assemble("pink", calls, seed + 1, seconds, (0.25, 1.5), pink(-34)),
        assemble("hum", calls, seed + 2, seconds, (0.2, 3.0), hum(-30), lambda draw: draw.uniform(-6, 0)),
        assemble("bed", calls, seed + 3, seconds, (0.3, 3.0), music(-34)),
        assemble("wandering", reading, seed + 4, seconds, (0.2, 1.5), pink(-72), wandering),
        assemble("tight", reading, seed + 5, seconds, (0.15, 0.6), pink(-60)),
        assemble("far-apart", calls, seed + 6, seconds, (0.5, 60.0), pink(-62)),
    ]


# ---- other voices -------------------------------------------------------------------------------------------------


def spoken(voice: str, texts: Sequence[str]) -> Recording:
    """Return what a voice of flite makes of the texts, one segment each, a tenth of a second apart."""
    parts: list[np.ndarray] = []
    segments, at = [], 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "said.wav")
        for text in texts:
            # flite spells out what it takes for an abbreviation or a file name: it is given words alone.
            words = re.sub(r"[^A-Za-z0-9',?. -]+", " ", text).strip(" .")
            subprocess.run(["flite", "-voice", voice, "-t", words, "-o", file], check=True)
            samples, _ = load_audio(file, sr=RATE)
            first, last = audible(samples)
            gap = np.zeros(RATE // 10, np.float32)
            parts += [gap, samples[first:last] * (0.3 / max(float(np.abs(samples).max()), 1e-6))]
            at += len(gap)
            segments.append((at / RATE, (at + last - first) / RATE))
            at += last - first
    both = np.array(segments)
    return Recording(voice, np.concatenate(parts), both, both.copy(), list(texts))


def audible(samples: np.ndarray) -> tuple[int, int]:
    """Return where sound begins and ends: 40 dB below the loudest hundredth of a second, as noise covers the rest."""
    power = (samples[: len(samples) // 160 * 160].reshape(-1, 160).astype(np.float64) ** 2).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 1e-4)
    return int(loud[0]) * 160, (int(loud[-1]) + 1) * 160


def voices(names: Sequence[str], recordings: dict[str, Recording], seed: int, seconds: float) -> list[Recording]:
    """Return the texts of the clean recordings, read by other voices."""
    found = []
    for number, name in enumerate(names):
        source = recordings["calls" if number % 2 == 0 else "reading"]
        said = spoken(name, source.texts)
        found.append(assemble(f"voice-{name}", said, seed + 20 + number, seconds, (0.3, 2.5), pink(-60)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--speech", type=Path, default=SPEECH)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--voices", default="slt,rms,awb", help="of flite; none where it is not installed")
    arguments = parser.parse_args()
    given = {recording.name: recording for recording in load_all(arguments.speech)}
    found = made(given, arguments.seed, arguments.seconds)
    if shutil.which("flite"):
        found += voices(arguments.voices.split(","), given, arguments.seed, arguments.seconds)
    else:
        print("flite is not installed: made without other voices (apt-get install flite)")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for recording in found:
        write(recording, arguments.out)
        print(
            f"{recording.name}: {len(recording.samples) / RATE:.0f} s, {len(' '.join(recording.texts).split())} words"
        )


if __name__ == "__main__":
    main()
