"""How far word times are from those of a forced aligner, here and in faster-whisper.

    python -m bench.word_times [RECORDING ...] [--methods auricle,faster-whisper,...]

A recording has its segments beside it, as for `bench.quality`. CMU's pocketsphinx (``pip install pocketsphinx``) is
told what is said in each segment and finds when each word begins and ends, in hundredths of a second; it shares
nothing with Whisper. Segments that it cannot align, or with a word that its dictionary lacks, are left out. Compared
are the words that a method heard right: the median and the 95th percentile of the distance of their starts and ends,
and, in brackets, the median of how late they are.

An aligner errs as well. Where two words touch, it and a listener differ by some hundredths of a second. At the edges of
segments the truth is known, and taken instead; how far the aligner is from it there ("own edges": at starts, at ends)
says how far to trust it elsewhere.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jiwer
import numpy as np

from audio import load_audio
from bench.recordings import RATE, SPEECH
from engine_bridge import open_engine, transcribe
from engine_bridge.engines.allocator import keep_large_blocks
from engine_bridge.engines.model_files import locate_model

MARGIN = 0.15  # seconds of its surroundings that the aligner hears with a segment
RECORDINGS = ("calls", "dense", "levels", "silence", "noisy", "music", "faint", "reading")


class Timed(NamedTuple):
    word: str
    start: float
    end: float


def plain(text: str) -> list[str]:
    """Return the words of a text as the aligner's dictionary spells them."""
    return [word.strip("'") for word in re.findall(r"[a-z0-9']+", text.lower()) if word.strip("'")]


class Aligner:
    """Finds when the words of a text are said."""

    def __init__(self) -> None:
        import pocketsphinx

        self._decoder: Any = pocketsphinx.Decoder(
            samprate=RATE, loglevel="FATAL", lm=None, beam=1e-100, wbeam=1e-80, pbeam=1e-100
        )

    def words(self, samples: np.ndarray, text: str) -> list[Timed] | None:
        """Return each word with its seconds in the samples, or None where that cannot be told."""
        words = plain(text)
        if not words or any(self._decoder.lookup_word(word) is None for word in words):
            return None
        loudest = max(float(np.abs(samples).max()), 1e-6)
        data = (samples / loudest * 20_000).astype("<i2").tobytes()
        self._decoder.set_align_text(" ".join(words))
        try:
            self._hear(data)
            self._decoder.set_alignment()
            self._hear(data)
        except RuntimeError:  # it found no way through the sounds with these words
            return None
        found = [
            Timed(re.sub(r"\(\d+\)$", "", entry.name), entry.start / 100, (entry.start + entry.duration) / 100)
            for entry in self._decoder.get_alignment()
            if not entry.name.startswith(("<", "["))
        ]
        return found if [each.word for each in found] == words else None

    def _hear(self, data: bytes) -> None:
        self._decoder.start_utt()
        self._decoder.process_raw(data, full_utt=True)
        self._decoder.end_utt()


def reference(path: Path, aligner: Aligner) -> tuple[list[Timed], list[bool], tuple[list[float], list[float]]]:
    """Return the words of a recording, which of them have times, and how late the aligner is at segments' edges."""
    samples, _ = load_audio(path, sr=RATE)
    described = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    words: list[Timed] = []
    known: list[bool] = []
    at_starts: list[float] = []
    at_ends: list[float] = []
    for segment in described["segments"]:
        begin = max(segment["start"] - MARGIN, 0.0)
        clip = samples[round(begin * RATE) : round((segment["end"] + MARGIN) * RATE)]
        found = aligner.words(clip, segment["text"])
        if found is None:
            words += [Timed(word, 0.0, 0.0) for word in plain(segment["text"])]
            known += [False] * (len(words) - len(known))
            continue
        found = [Timed(word, begin + start, begin + end) for word, start, end in found]
        spoken = [span for span in described["speech"] if segment["start"] - 0.05 <= span[0] < segment["end"]]
        if spoken:
            at_starts.append(found[0].start - spoken[0][0])
            at_ends.append(found[-1].end - spoken[-1][1])
            found[0] = found[0]._replace(start=spoken[0][0])
            found[-1] = found[-1]._replace(end=spoken[-1][1])
        words += found
        known += [True] * len(found)
    return words, known, (at_starts, at_ends)


def compared(true: list[Timed], known: list[bool], heard: list[Timed]) -> tuple[list[float], list[float]]:
    """Return how late the starts and the ends of the words are that were heard right."""
    starts, ends = [], []
    pieces: list[tuple[str, float | None, float | None]] = []
    for text, start, end in heard:
        # Of a word that the aligner takes for several, such as one with a hyphen, the inner edges are not known.
        split = plain(text)
        for number, word in enumerate(split):
            pieces.append((word, start if number == 0 else None, end if number == len(split) - 1 else None))
    result = jiwer.process_words(" ".join(each.word for each in true), " ".join(word for word, _, _ in pieces))
    for part in result.alignments[0]:
        if part.type != "equal":
            continue
        for offset in range(part.ref_end_idx - part.ref_start_idx):
            if known[part.ref_start_idx + offset]:
                expected, (_, start, end) = true[part.ref_start_idx + offset], pieces[part.hyp_start_idx + offset]
                if start is not None:
                    starts.append(start - expected.start)
                if end is not None:
                    ends.append(end - expected.end)
    return starts, ends


def auricle() -> Callable[[Path], list[Timed]]:
    engine = open_engine("embedded:tiny.en")

    def run(path: Path) -> list[Timed]:
        transcript = transcribe(path, engine=engine, language="en")
        return [Timed(word.text, word.start, word.end) for segment in transcript.segments for word in segment.words]

    return run


def faster_whisper(*, batched: bool) -> Callable[[Path], list[Timed]]:
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    whisper = WhisperModel(str(locate_model("tiny.en")), device="cpu", compute_type="int8", cpu_threads=2)
    pipeline = BatchedInferencePipeline(whisper)

    def run(path: Path) -> list[Timed]:
        if batched:
            segments, _ = pipeline.transcribe(str(path), language="en", beam_size=5, word_timestamps=True)
        else:
            segments, _ = whisper.transcribe(str(path), language="en", beam_size=5, word_timestamps=True)
        return [Timed(word.word, word.start, word.end) for segment in segments for word in segment.words or ()]

    return run


METHODS: dict[str, Callable[[], Callable[[Path], list[Timed]]]] = {
    "auricle": auricle,
    "faster-whisper": lambda: faster_whisper(batched=False),
    "faster-whisper-batched": lambda: faster_whisper(batched=True),
}


def figures(late: list[float]) -> str:
    """Return the median and 95th percentile of the distances, and the median of how late they are."""
    if not late:
        return "-"
    distances = np.abs(late)
    return f"{np.median(distances):.3f} / {np.percentile(distances, 95):.3f} ({np.median(late):+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, default=[SPEECH / f"{name}.flac" for name in RECORDINGS])
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    keep_large_blocks()
    compare(arguments.places, arguments.methods.split(","))


def compare(places: Sequence[Path], methods: Sequence[str]) -> None:
    """Print how far each method's word times are from the aligner's."""
    aligner = Aligner()
    running = {name: METHODS[name]() for name in methods}
    every: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in running}
    print("| recording | method | words compared | starts, s: median / 95 % (bias) | ends, s |\n" + "| --- " * 5 + "|")
    for path in places:
        true, known, edges = reference(path, aligner)
        own = f"{len(edges[0])} segments | {figures(edges[0])} | {figures(edges[1])}"
        print(f"| {path.stem} | the aligner's own edges | {own} |", flush=True)
        for name, run in running.items():
            starts, ends = compared(true, known, run(path))
            every[name][0].extend(starts)
            every[name][1].extend(ends)
            print(
                f"| {path.stem} | {name} | {len(starts)} of {len(true)} | {figures(starts)} | {figures(ends)} |",
                flush=True,
            )
    for name, (starts, ends) in every.items():
        print(f"| all | {name} | {len(starts)} | {figures(starts)} | {figures(ends)} |")


if __name__ == "__main__":
    main()
