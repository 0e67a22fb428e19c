"""The same recordings through vLLM servers: a stock one by HTTP, Auricle inside one, and a stock one left to itself.

    python -m bench.served [FOLDER_OR_RECORDING ...] [--stock URL] [--plugin URL] [--hours 3]

Servers are started beforehand, both with Whisper tiny.en in float32 (`tests/vllm_server.py` shows how on a CPU):

    vllm serve MODEL                                           --stock http://localhost:8000/v1
    VLLM_PLUGINS=auricle vllm serve MODEL                      --plugin http://localhost:8001/v1

vLLM's own endpoint writes an English-only model a prompt that it does not know; what `python -m tests.vllm_models DIR
--stock-prompt` makes lets it answer all the same. Measured are, in the columns of `bench.quality`:

- `http`: recordings cut here, each chunk sent to the stock server
- `plugin`: each recording in one request to the server with Auricle inside, which answers with times
- `stock`: each recording in one request to the stock server, which answers with times
- `embedded`: the same weights in float32, here

A recording that a server's own endpoint refuses has a row that says so.

With `--hours` one recording of so many hours, made of those given and stored as MP3, goes through `http` and `plugin`
as well; the stock endpoint takes none over ten minutes.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import soundfile

from audio import load_audio
from bench.quality import SAMPLES, Heard, RefusedError, heard, measured, recordings
from bench.wer import word_errors
from engine_bridge import open_engine, transcribe
from engine_bridge.engines.http_engine import HttpEngine
from engine_bridge.engines.protocol import Engine

RATE = 16_000
_ANSWER_SECONDS = 3 * 3600.0


def by_engine(engine: Engine) -> Callable[[Any], Heard]:
    """Return what recognises a waveform, or a file, with chunks sent to an engine."""

    def run(source: Any) -> Heard:
        given = source if isinstance(source, Path) else (source, RATE)
        return heard(transcribe(given, engine=engine, language="en"))

    return run


def in_one_request(client: httpx2.Client) -> Callable[[Any], Heard]:
    """Return what sends a waveform, or a file, to a server's own endpoint and asks for times."""
    model = client.get("models").raise_for_status().json()["data"][0]["id"]
    asked = {"model": model, "language": "en", "response_format": "verbose_json"}

    def run(source: Any) -> Heard:
        file = (source.name, source.read_bytes()) if isinstance(source, Path) else ("recording.flac", _flac(source))
        answer = client.post("audio/transcriptions", files={"file": file}, data=asked)
        if answer.status_code != 200:
            raise RefusedError(f"{client.base_url} answered {answer.status_code}: {answer.text[:500]}")
        told = answer.json()
        segments = [each for each in told["segments"] if not each.get("suspect")]
        return Heard(
            " ".join(each["text"].strip() for each in segments),
            [(each["start"], each["end"]) for each in segments],
            [],
            [(gap["start"], gap["end"]) for gap in told.get("gaps", [])],
        )

    return run


def _flac(waveform: np.ndarray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, waveform, RATE, format="FLAC")
    return file.getvalue()


def write_long(paths: Sequence[Path], path: Path, hours: float) -> tuple[str, float]:
    """Write recordings one after the other until there are `hours`; return their text and the seconds."""
    sounds = [(load_audio(each, sr=RATE)[0], each.with_suffix(".txt").read_text(encoding="utf-8")) for each in paths]
    texts, frames = [], 0
    with soundfile.SoundFile(path, "w", RATE, 1, format="MP3", subtype="MPEG_LAYER_III") as file:
        for samples, text in cycle(sounds):
            file.write(samples)
            texts.append(text)
            frames += len(samples)
            if frames >= hours * 3600 * RATE:
                break
    return " ".join(texts), frames / RATE


def compare_long(paths: Sequence[Path], methods: dict[str, Callable[[Any], Heard]], hours: float) -> None:
    """Print the word errors of each method on a recording of hours."""
    print("\n| method | hours | x real time | words | WER % | deleted | inserted | gaps s | last segment ends |")
    print("| --- " * 9 + "|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "long.mp3")
        reference, seconds = write_long(paths, path, hours)
        for name, run in methods.items():
            start = time.perf_counter()
            found = run(path)
            wall = time.perf_counter() - start
            errors = word_errors(reference, found.text)
            gaps = sum(end - start for start, end in found.gaps)
            last = max((end for _, end in found.segments), default=0.0)
            print(
                f"| {name} | {seconds / 3600:.2f} | {seconds / wall:.1f} | {errors.words} | {100 * errors.wer:.2f}"
                f" | {errors.deletions} | {errors.insertions} | {gaps:.1f} | {last:.1f} of {seconds:.1f} s |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, default=[SAMPLES])
    parser.add_argument("--stock", help="address of a stock server, with /v1")
    parser.add_argument("--plugin", help="address of a server with Auricle inside, with /v1")
    parser.add_argument("--hours", type=float, default=0.0, help="length of one long recording; 0 for none")
    parser.add_argument("--methods", help="only these, with commas")
    arguments = parser.parse_args()
    if not (arguments.stock or arguments.plugin):
        parser.error("name a server, with --stock, --plugin or both")
    with contextlib.ExitStack() as closing:
        compare(recordings(arguments.places), arguments, closing)


def compare(paths: Sequence[Path], arguments: argparse.Namespace, closing: contextlib.ExitStack) -> None:
    """Print what each method makes of each recording."""

    def engine(opened: Engine) -> Callable[[Any], Heard]:
        closing.callback(opened.close)
        return by_engine(opened)

    def endpoint(address: str) -> Callable[[Any], Heard]:
        client = httpx2.Client(base_url=address, timeout=_ANSWER_SECONDS, trust_env=False)
        return in_one_request(closing.enter_context(client))

    methods: dict[str, Callable[[], Callable[[Any], Heard]]] = {}
    if arguments.stock:
        methods["http"] = lambda: engine(HttpEngine(arguments.stock))
        methods["stock"] = lambda: endpoint(arguments.stock)
    if arguments.plugin:
        methods["plugin"] = lambda: endpoint(arguments.plugin)
    methods["embedded"] = lambda: engine(open_engine("embedded:tiny.en", compute_type="float32"))
    if arguments.methods:
        wanted = arguments.methods.split(",")
        if unknown := [name for name in wanted if name not in methods]:
            sys.exit(f"not measured here: {', '.join(unknown)}; there are {', '.join(methods)}")
        methods = {name: methods[name] for name in wanted}
    running = {name: start() for name, start in methods.items()}
    for _ in measured(paths, running):
        pass
    if arguments.hours:
        spoken = [path for path in paths if path.with_suffix(".txt").read_text(encoding="utf-8").strip()]
        compare_long(
            spoken, {name: run for name, run in running.items() if name in ("http", "plugin")}, arguments.hours
        )


if __name__ == "__main__":
    main()
