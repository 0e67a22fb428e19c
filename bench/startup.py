"""Seconds until Python has started, `import audio` is done, and `auricle --help` has ended; medians of ten runs.

    python bench/startup.py [--runs 10]

The runs take turns, so that a busy machine troubles all alike.
"""

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python alone": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import audio": ["-c", "import audio"],
    "import engine_bridge": ["-c", "import engine_bridge"],
    "auricle --help": ["-m", "cli", "--help"],
    "auricle transcribe --help": ["-m", "cli", "transcribe", "--help"],
}


def seconds_of(arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for arguments in COMMANDS.values():
        seconds_of(arguments)  # fills the caches
    for _ in range(runs):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds_of(arguments))
    print("| what | seconds |\n| --- | ---: |")
    for name, taken in times.items():
        print(f"| {name} | {statistics.median(taken):.3f} |")


if __name__ == "__main__":
    main()
