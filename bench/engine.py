"""How fast the embedded engine is with different workers, threads and allocator settings.

    python -m bench.engine [--chunks 24] [--rounds 3]

Each configuration runs in a process of its own, in turn, over several rounds; the table gives medians and ratios to the
first row. The recording is the sample `calls`, in chunks of 30 s.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

SAMPLE = Path(__file__).resolve().parent.parent / "samples" / "calls.opus"
CONFIGURATIONS = {
    "1 worker, 2 threads, C library's default memory": {"workers": 1, "threads": 2, "keep": False},
    "1 worker, 2 threads, memory kept": {"workers": 1, "threads": 2, "keep": True},
    "2 workers, 1 thread, C library's default memory": {"workers": 2, "threads": 1, "keep": False},
    "2 workers, 1 thread, memory kept (what the command does)": {"workers": 2, "threads": 1, "keep": True},
}


def run_one(workers: int, threads: int, chunks: int, *, keep: bool) -> None:
    from audio import load_audio
    from engine_bridge.engines.allocator import keep_large_blocks
    from engine_bridge.engines.embedded import EmbeddedEngine
    from engine_bridge.engines.protocol import DecodingOptions

    if keep:
        keep_large_blocks()
    waveform, rate = load_audio(SAMPLE)
    clips = [waveform[at : at + 30 * rate] for at in range(0, len(waveform) - 30 * rate, 30 * rate)]
    engine = EmbeddedEngine(workers=workers, threads=threads)
    engine.submit(clips[0], DecodingOptions()).result()
    before = dict(engine.timings())
    start = time.perf_counter()
    futures = [engine.submit(clips[number % len(clips)], DecodingOptions()) for number in range(chunks)]
    for future in futures:
        future.result()
    wall = time.perf_counter() - start
    stages = {stage: 1000 * (seconds - before[stage]) / chunks for stage, seconds in engine.timings().items()}
    engine.close()
    print(json.dumps({"milliseconds": 1000 * wall / chunks, **stages}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        chosen = CONFIGURATIONS[arguments.one]
        run_one(chosen["workers"], chosen["threads"], arguments.chunks, keep=bool(chosen["keep"]))
        return
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in CONFIGURATIONS}
    for _ in range(arguments.rounds):
        for name, results in measured.items():
            command = [sys.executable, "-m", "bench.engine", "--one", name, "--chunks", str(arguments.chunks)]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    print("| configuration | ms a chunk of 30 s | times real time | ratio | encode | decode | align |")
    print("| --- " * 7 + "|")
    first = None
    for name, results in measured.items():
        middle = {key: median(result[key] for result in results) for key in results[0]}
        first = first or middle["milliseconds"]
        print(
            f"| {name} | {middle['milliseconds']:.0f} | {30_000 / middle['milliseconds']:.0f}"
            f" | {first / middle['milliseconds']:.2f} | {middle['encode']:.0f} | {middle['decode']:.0f}"
            f" | {middle['align']:.0f} |"
        )


if __name__ == "__main__":
    main()
