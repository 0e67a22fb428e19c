"""A job on a Ray cluster of two nodes on this machine, with the real tiny.en; processes and nodes are killed in it."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from engine_bridge import render
from engine_bridge.batch.recording import Recording
from engine_bridge.cluster import transcribe_on_ray
from engine_bridge.cluster.engines import Recogniser
from engine_bridge.cluster.job import LOST
from engine_bridge.cluster.messages import Piece
from engine_bridge.cluster.rows import messages_of
from engine_bridge.errors import ClusterError, ModelNotFoundError
from engine_bridge.journal import Journal
from tests.recordings import ENCODINGS, RATE, ROOT, SAMPLES, encode, model_problem, reading, silence, write_wav

pytest.importorskip("ray", reason="the ray extra is not installed")

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(model_problem() is not None, reason=str(model_problem())),
    pytest.mark.timeout(600),
    # Ray's own: sockets and files that it leaves to the interpreter, and what it means to change.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

CORES = 3
"""Cores that each node claims: room for both engines on one of them, and one to decode."""

STORE_BYTES = 200 << 20
SHORT = 20

ENGINE_ARGS = {"batch_size": 1}
"""Which clips share a batch, and how many threads share a sum, shows in the third decimal of probabilities."""

IN_ONE_PROCESS = """
import dataclasses, json, sys
from pathlib import Path
from engine_bridge import open_engine, render, transcribe_many

engine = open_engine("embedded:tiny.en", device="cpu", **json.loads(sys.argv[1]))
texts = {}
with transcribe_many([Path(path) for path in sys.argv[2:]], engine=engine) as results:
    for result in results:
        if result.failure is None:
            name = Path(result.recording.source).name
            texts[name] = render(dataclasses.replace(result.transcript, timings={}), "json")
engine.close()
print(json.dumps(texts))
"""


@pytest.fixture(scope="module")
def nodes():
    """Run a cluster of two nodes, and let tests add and remove some; give the cluster and its second node."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": CORES,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
            "ray_client_server_port": port,
            # Workers stand back by 15 otherwise, which on a busy machine is for long.
            "_system_config": {"worker_niceness": 0},
        },
    )
    cluster.add_node(num_cpus=CORES, object_store_memory=STORE_BYTES)
    cluster.wait_for_nodes()
    cluster.client_port = port
    yield cluster
    cluster.shutdown()


def sentences(count):
    """The first sentences of the sample recording, as (start, end) in seconds."""
    segments = json.loads((SAMPLES / "reading.json").read_text(encoding="utf-8"))["segments"]
    return [(segment["start"], segment["end"]) for segment in segments[:count]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings: one of several chunks, many of one, one of silence, and one that is damaged."""
    folder = tmp_path_factory.mktemp("recordings")
    encode(reading(40.0), folder / "long.opus", ENCODINGS["opus"])
    speech = reading(120.0)
    for number, (start, end) in enumerate(sentences(SHORT)):
        write_wav(folder / f"short-{number:02}.wav", speech[round((start - 0.2) * RATE) : round((end + 0.2) * RATE)])
    write_wav(folder / "silent.wav", silence(4.0))
    (folder / "damaged.mp3").write_bytes(b"no sound in here " * 400)
    return folder


@pytest.fixture(scope="module")
def entries(folder):
    return [Recording(path.name, str(path)) for path in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def expected(folder):
    """Return what one process makes of the recordings that can be read, as JSON by their names."""
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(ENGINE_ARGS), *sorted(folder.iterdir())],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def job(cluster, entries, **options):
    return transcribe_on_ray(
        entries, **{"address": cluster.address, "engines": 2, "engine_args": ENGINE_ARGS, **options}
    )


def assert_same(results, expected):
    """Assert that each recording is accounted for once, with what one process gives, byte for byte."""
    by_name = {result.recording.id: result for result in results}
    assert len(by_name) == len(results)
    assert by_name.pop("damaged.mp3").failure.kind == "UnreadableAudioError"
    assert [result.failure for result in by_name.values() if result.failure is not None] == []
    assert {name: untimed(result.transcript) for name, result in by_name.items()} == expected


def untimed(transcript):
    return render(replace(transcript, timings={}), "json")


def engine_processes():
    """Return the process and the node of each engine at work."""
    from ray._private.state import actors

    return [
        (actor["Pid"], actor["Address"]["NodeID"])
        for actor in actors().values()
        if "Recogniser" in actor["ActorClassName"] and actor["State"] == "ALIVE"
    ]


class Accident(threading.Thread):
    """Waits until engines are at work, then does something to them.

    Attributes
    ----------
    hit : list
        What was hit; empty if nothing was at work in time.
    """

    def __init__(self, action):
        super().__init__(daemon=True)
        self._action = action
        self._over = threading.Event()
        self.hit = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        while not self._over.wait(0.3):
            if engine_processes():
                self._over.wait(1.0)  # ten clips take an engine some seconds
                self.hit = self._action()
                return


def test_a_job_gives_what_one_process_gives_and_is_done_once(nodes, entries, expected, tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        with job(nodes, entries, journal=journal) as results:
            assert_same(list(results), expected)
        with job(nodes, entries, journal=journal) as results:
            again = list(results)
            assert results.progress.audio_seconds == 0
        assert all(result.known for result in again)
        assert_same(again, expected)


def test_killed_engines_lose_nothing(nodes, entries, expected):
    def kill():
        killed = engine_processes()
        for process, _ in killed:
            os.kill(process, signal.SIGKILL)
        return killed

    with job(nodes, entries) as results, Accident(kill) as accident:
        first = next(results)
        assert accident.hit, "the engines were done before they could be killed"
        assert_same([first, *results], expected)


def test_a_killed_node_loses_nothing(nodes, entries, expected):
    doomed = nodes.add_node(num_cpus=CORES, object_store_memory=STORE_BYTES)
    nodes.wait_for_nodes()

    def kill():
        nodes.remove_node(doomed, allow_graceful=False)
        return [doomed]

    with job(nodes, entries) as results, Accident(kill) as accident:
        first = next(results)
        assert accident.hit, "the job was done before the node could be killed"
        assert_same([first, *results], expected)


def test_a_chunk_that_kills_every_engine_fails_its_recording_alone(nodes, entries, expected, monkeypatch):
    given = [entry for entry in entries if entry.id.startswith(("damaged", "short-0", "silent"))]
    doomed = next(index for index, entry in enumerate(given) if entry.id == "short-03.wav")

    class Killed(Recogniser):
        def __call__(self, batch):
            if any(isinstance(message, Piece) and message.number == doomed for message in messages_of(batch)):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(batch)

    monkeypatch.setattr("engine_bridge.cluster.on_ray.Recogniser", Killed)
    with job(nodes, given) as results:
        found = {result.recording.id: result for result in results}
    failure = found.pop("short-03.wav").failure
    assert (failure.kind, failure.reason) == ("ClusterError", LOST)
    assert_same(list(found.values()), {name: expected[name] for name in found if name in expected})


def test_a_job_that_is_left_goes_on_where_it_was(nodes, entries, expected, tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        with job(nodes, entries, journal=journal) as results:
            first = [next(results) for _ in range(5)]
        with job(nodes, entries, journal=journal) as results:
            rest = list(results)
        assert sum(result.known for result in rest) >= 4  # all but the damaged one, if that was among them
        assert {result.recording.id for result in first} <= {result.recording.id for result in rest}
        assert_same(rest, expected)


FROM_OUTSIDE = """
import sys
from engine_bridge.cluster import parse_address, transcribe_on_ray

with transcribe_on_ray(sys.argv[2:], address=parse_address(sys.argv[1]), engines=1) as results:
    print(*sorted(result.recording.id + ("!" if result.failure else "") for result in results))
"""


def test_a_client_outside_the_cluster_is_given_the_results(nodes, entries):
    wanted = [entry.source for entry in entries if entry.id.startswith(("damaged", "short-00", "silent"))]
    done = subprocess.run(
        [sys.executable, "-c", FROM_OUTSIDE, f"ray://127.0.0.1:{nodes.client_port}", *wanted],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert [name.rpartition("/")[2] for name in names] == ["damaged.mp3!", "short-00.wav", "silent.wav"]


def test_a_model_that_the_cluster_has_not_is_told_at_once(nodes, entries):
    with pytest.raises(ModelNotFoundError, match="nowhere"):
        job(nodes, entries, engine="embedded:/nowhere")


def test_engines_that_leave_no_core_to_decode_are_refused(nodes, entries):
    with pytest.raises(ClusterError, match="leave none of them to decode"):
        transcribe_on_ray(entries, address=nodes.address, engines=50)


def test_a_cluster_that_is_not_there_is_told():
    with pytest.raises(ClusterError, match="cannot be reached"):
        transcribe_on_ray([], address="ray://127.0.0.1:1")


def test_no_samples_are_lost_between_machines():
    """What travels is what is decoded: see `packed`; 16-bit samples at full scale are their own edge."""
    from audio.chunk import Chunk
    from engine_bridge.cluster.messages import Piece
    from engine_bridge.cluster.rows import packed, unpacked

    samples = np.array([-1.0, 1.0 - 2**-15, 0.0], np.float32)
    chunk = Chunk(0, 0, 3, RATE, samples, ((0, 3),))
    assert np.array_equal(unpacked(packed(Piece(0, 0, chunk, None, None, elected=False))).chunk.samples, samples)
