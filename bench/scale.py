"""What a job of a million hours takes: machines, time, money, and what limits first.

    python -m bench.scale --measure             # measures what an hour costs here, and keeps it in bench/scale.json
    python -m bench.scale                       # the model's figures for a million hours
    python -m bench.scale --engines 1000 --engine-speed 404 --format mp3 --hours 1000000

The measured part is `bench.scale_measure`. The rest are parameters, with the assumptions that stand in their help: the
speed of an engine on a GPU, prices, bandwidth, how often machines fail. A simulation of the job's stages as queues,
with the bounded store between them, tells what they reach together; a million hours are carried over from the hours
that it simulates, for what happens in them is the same all the way.
"""

import argparse
import heapq
import json
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_suffix(".json")
CHUNKS_A_BLOCK = 10
SECONDS_AN_HOUR = 3600.0
GB, TB = 1e9, 1e12


@dataclass(frozen=True)
class Job:
    """A job and the cluster it runs on. What is not measured is assumed, and said so in the help."""

    hours: float = 1e6
    format: str = "mp3"
    mean_minutes: float = 30.0
    engines: int = 100
    engine_speed: float = 404.0
    readers: int = 0
    gatherers: int = 1
    storage_gbit: float = 25.0
    network_gbit: float = 25.0
    store_gb: float = 2.0
    hours_between_failures: float = 500.0
    restart_minutes: float = 5.0
    gpu_price: float = 3.0
    core_price: float = 0.04
    transfer_price: float = 0.0
    kept_price: float = 0.023
    simulated_hours: float = 3000.0
    seed: int = 1


ASSUMED = {
    "hours": "hours of audio",
    "format": "what the recordings are stored as: one of those measured",
    "mean_minutes": "mean length of a recording; lengths are taken to be exponentially distributed",
    "engines": "engines, each on a GPU of its own",
    "engine_speed": "seconds of audio that one engine does in a second; assumed: 404, as published by "
    "inferencebench.io for Whisper large-v3-turbo on an H100 at batch 32, without second attempts; not measured here",
    "readers": "cores that decode and cut; 0 for as many as the engines need and a tenth more",
    "gatherers": "processes that gather results, each with its part of the recordings and a journal of its own",
    "storage_gbit": "what the recordings' storage gives all readers together, in Gbit/s; assumed",
    "network_gbit": "what the network between machines carries for rows altogether, in Gbit/s; assumed",
    "store_gb": "shared memory for chunks under way, on all machines together, for each ten engines; assumed",
    "hours_between_failures": "mean hours between failures of an engine's machine; assumed",
    "restart_minutes": "minutes until another takes its place; assumed",
    "gpu_price": "for an hour of a GPU, in dollars; assumed in November 2026: a round figure and no offer",
    "core_price": "for an hour of a core that reads, in dollars; assumed likewise",
    "transfer_price": "for a GB read from storage, in dollars; assumed: none, within one region",
    "kept_price": "for a GB of results kept for a month, in dollars; assumed likewise",
    "simulated_hours": "hours of audio that are simulated",
    "seed": "of the simulation's chance",
}


@dataclass
class _Line:
    """A server with one queue: the storage, the network, or the process that gathers."""

    free_at: float = 0.0
    busy: float = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Return when work that comes now is done."""
        self.free_at = max(self.free_at, now) + seconds
        self.busy += seconds
        return self.free_at


@dataclass
class Outcome:
    """What a simulated job took.

    Attributes
    ----------
    seconds : float
        On the clock, with the beginning and the end, when not all engines have work.
    failures : int
        Engines lost, each with the block that it had.
    steady_speed : float
        Hours of audio done in an hour, in the middle half of the job.
    busy : dict of str to float
        The share of its time that each stage worked.

    """

    seconds: float = 0.0
    steady_speed: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    failures: int = 0


@dataclass(frozen=True)
class _Costs:
    """Seconds that a block of chunks takes in each stage."""

    storage: float
    reading: float
    network: float
    recognising: float
    gathering: float
    block_seconds: float
    places: int


def costs(job: Job, measured: dict[str, Any]) -> _Costs:
    """Return what a block of chunks costs each stage."""
    reading = measured["reading"][job.format]
    hours = CHUNKS_A_BLOCK / measured["chunks"]
    lossless = job.format in ("wav", "flac")
    row_bytes = measured["row_bytes" if lossless else "float_row_bytes"]
    return _Costs(
        storage=hours * reading["bytes"] * 8 / (job.storage_gbit * GB),
        reading=hours * (reading["cpu_seconds"] + reading["hash_cpu_seconds"]),
        network=hours * row_bytes * 8 / (job.network_gbit * GB),
        recognising=hours * SECONDS_AN_HOUR / job.engine_speed,
        gathering=hours * measured["gather_cpu_seconds"] / job.gatherers,
        block_seconds=hours * SECONDS_AN_HOUR,
        # Readers are held back when half of the store is taken.
        places=max(2, int(job.engines / 10 * job.store_gb * GB / 2 / (hours * row_bytes))),
    )


def with_readers(job: Job, measured: dict[str, Any]) -> Job:
    """Return the job with as many readers as its engines need, and a tenth more, unless it names a number."""
    if job.readers:
        return job
    each = costs(job, measured)
    return replace(job, readers=math.ceil(1.1 * job.engines * each.reading / each.recognising))


class Simulation:
    """The stages of a job as queues: readers, a bounded store, engines, and the process that gathers.

    A reader takes one recording after the other, and its blocks in order; it waits where the store is full. Engines
    take blocks as they are there. An engine that is lost comes back after a while, and its block goes to another.
    """

    def __init__(self, job: Job, measured: dict[str, Any]) -> None:
        self._job = job
        self._costs = costs(job, measured)
        self._random = random.Random(job.seed)
        self._recordings = deque(self._lengths())
        self._total = sum(self._recordings)
        self._events: list[tuple[float, int, str, int]] = []
        self._number = 0
        self._left = [0] * job.readers
        self._idle_engines = deque(range(job.engines))
        self._dies_at = [self._lifetime(0.0) for _ in range(job.engines)]
        self._stored = 0
        self._promised = 0
        self._held_back: deque[int] = deque()
        self._storage, self._network, self._gathering = _Line(), _Line(), _Line()
        self._reading = self._recognising = 0.0
        self._done: list[float] = []
        self._failures = 0

    def _lengths(self) -> list[int]:
        """Return the blocks of each recording."""
        blocks, lengths = self._job.simulated_hours * SECONDS_AN_HOUR / self._costs.block_seconds, []
        mean = self._job.mean_minutes * 60 / self._costs.block_seconds
        while blocks > 0:
            lengths.append(max(1, round(self._random.expovariate(1 / mean))))
            blocks -= lengths[-1]
        return lengths

    def _lifetime(self, now: float) -> float:
        return now + self._random.expovariate(1 / (self._job.hours_between_failures * SECONDS_AN_HOUR))

    def _at(self, when: float, what: str, who: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, who))

    def run(self) -> Outcome:
        """Run it to its end."""
        for reader in range(self._job.readers):
            self._read_on(0.0, reader)
        now = 0.0
        while len(self._done) < self._total:
            now, _, what, who = heapq.heappop(self._events)
            getattr(self, f"_{what}")(now, who)
        ending = max(now, self._gathering.free_at)
        quarter, most = self._done[len(self._done) // 4], self._done[3 * len(self._done) // 4]
        hours = len(self._done) / 2 * self._costs.block_seconds / SECONDS_AN_HOUR
        spans = {
            "storage": self._storage.busy / ending,
            "reading": self._reading / self._job.readers / ending,
            "network": self._network.busy / ending,
            "engines": self._recognising / self._job.engines / ending,
            "gathering": self._gathering.busy / ending,
        }
        steady = hours / ((most - quarter) / SECONDS_AN_HOUR) if most > quarter else math.inf
        return Outcome(ending, steady, spans, self._failures)

    def _read_on(self, now: float, reader: int) -> None:
        """Let a reader go on with its recording, or with the next one."""
        if not self._left[reader]:
            if not self._recordings:
                return
            self._left[reader] = self._recordings.popleft()
        if self._stored + self._promised >= self._costs.places:
            self._held_back.append(reader)
            return
        self._promised += 1
        self._left[reader] -= 1
        self._reading += self._costs.reading
        self._at(self._storage.serve(now, self._costs.storage) + self._costs.reading, "read", reader)

    def _read(self, now: float, reader: int) -> None:
        self._at(self._network.serve(now, self._costs.network), "arrived", reader)
        self._read_on(now, reader)

    def _arrived(self, now: float, _: int) -> None:
        self._promised -= 1
        self._stored += 1
        self._feed(now)

    def _feed(self, now: float) -> None:
        while self._stored and self._idle_engines:
            engine = self._idle_engines.popleft()
            self._stored -= 1
            if self._held_back:
                self._read_on(now, self._held_back.popleft())
            done = now + self._costs.recognising
            if self._dies_at[engine] < done:
                self._recognising += max(0.0, self._dies_at[engine] - now)
                self._at(max(now, self._dies_at[engine]), "lost", engine)
            else:
                self._recognising += self._costs.recognising
                self._at(done, "recognised", engine)

    def _recognised(self, now: float, engine: int) -> None:
        self._done.append(self._gathering.serve(now, self._costs.gathering))
        self._idle_engines.append(engine)
        self._feed(now)

    def _lost(self, now: float, engine: int) -> None:
        self._failures += 1
        self._stored += 1
        back = now + self._job.restart_minutes * 60
        self._dies_at[engine] = self._lifetime(back)
        self._at(back, "back", engine)
        self._feed(now)

    def _back(self, now: float, engine: int) -> None:
        self._idle_engines.append(engine)
        self._feed(now)


def figures(job: Job, measured: dict[str, Any]) -> dict[str, str]:
    """Return what the job takes, by name, as text."""
    job = with_readers(job, measured)
    outcome = Simulation(job, measured).run()
    hours_on_clock = job.hours / outcome.steady_speed
    reading = measured["reading"][job.format]
    read_tb = job.hours * reading["bytes"] / TB
    kept_gb = job.hours * (measured["journal_bytes"] + measured["output_bytes"]["json"]) / GB
    money = {
        "GPUs": hours_on_clock * job.engines * job.gpu_price,
        "readers": hours_on_clock * job.readers * job.core_price,
        "transfer": read_tb * 1000 * job.transfer_price,
        "a month's storage": kept_gb * job.kept_price,
    }
    limit = max(outcome.busy, key=lambda stage: outcome.busy[stage])
    return {
        "GPUs": f"{job.engines}",
        "cores": f"{job.readers}",
        "processes": f"{job.gatherers}",
        "hours/h": f"{outcome.steady_speed:,.0f}",
        "days": f"{hours_on_clock / 24:.1f}",
        "dollars": f"{sum(money.values()):,.0f}",
        "limit": limit,
        **{stage: f"{100 * share:.0f} %" for stage, share in outcome.busy.items()},
        "read TB": f"{read_tb:,.0f}",
        "kept GB": f"{kept_gb:,.0f}",
    }


def table(rows: Sequence[dict[str, str]]) -> str:
    """Return rows under their names, in columns."""
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    lines = ["  ".join(name.rjust(widths[name]) for name in names)]
    lines += ["  ".join(row[name].rjust(widths[name]) for name in names) for row in rows]
    return "\n".join(lines)


def costs_table(measured: dict[str, Any]) -> str:
    """Return what an hour of audio costs, as measured."""
    rows = [
        {
            "stored as": name,
            "MB": f"{each['bytes'] / 1e6:.1f}",
            "decode and cut, core s": f"{each['cpu_seconds']:.1f}",
            "hash, core s": f"{each['hash_cpu_seconds']:.2f}",
        }
        for name, each in measured["reading"].items()
    ]
    outputs = ", ".join(f"{name} {size / 1e3:.0f} kB" for name, size in measured["output_bytes"].items())
    return "\n".join(
        [
            f"measured on {measured['date']} on {measured['machine']}, for one hour of audio",
            table(rows),
            f"chunks {measured['chunks']:.0f}, of them cut in speech {measured['seams']:.0f}",
            f"rows to engines {measured['row_bytes'] / 1e6:.0f} MB where samples have 16 bits, else "
            f"{measured['float_row_bytes'] / 1e6:.0f} MB; rows back {measured['back_bytes'] / 1e3:.0f} kB",
            f"recognising with {measured['engine']}: {measured['engine_cpu_seconds']:.0f} core s",
            f"gathering and journal: {measured['gather_cpu_seconds']:.3f} core s in one process",
            f"kept: journal {measured['journal_bytes'] / 1e3:.0f} kB; outputs {outputs}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure what an hour costs, and keep it")
    parser.add_argument("--measured-minutes", type=float, default=15.0, help="minutes of audio to read")
    parser.add_argument("--engine-minutes", type=float, default=8.0, help="minutes of audio to recognise")
    parser.add_argument("--runs", type=int, default=3, help="runs, of which the least counts")
    parser.add_argument("--costs", action="store_true", help="show what was measured")
    for each in fields(Job):
        several = {"nargs": "+"} if each.name == "engines" else {}
        kind = type(each.default)
        default = [each.default] if several else each.default
        told = f"{ASSUMED[each.name]} [{each.default}]"
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=kind, default=default, help=told, **several)
    given = parser.parse_args(arguments)
    if given.measure:
        from bench.scale_measure import measure

        found = measure(given.measured_minutes, given.engine_minutes, given.runs)
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    if given.costs or given.measure:
        print(costs_table(measured))
        return
    chosen = {each.name: getattr(given, each.name) for each in fields(Job)}
    print(table([figures(Job(**{**chosen, "engines": engines}), measured) for engines in given.engines]))


if __name__ == "__main__":
    main()
