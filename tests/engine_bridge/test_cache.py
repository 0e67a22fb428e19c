"""Prepared inputs: found again, kept apart by owner, within a budget, and gone with the processes that held them."""

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

import engine_bridge.cache_shared as cache_shared
from audio.errors import AudioError, LimitExceededError
from audio.limits import DecodeLimits
from engine_bridge.cache import CACHE_TYPES, CacheValue, InputCache, ProcessCache, SizedLru, cache_key, open_cache
from engine_bridge.cache_mirrored import MirroredCache, MirroredReceiver, MirroredSender
from engine_bridge.errors import CacheMissError
from engine_bridge.preparation import PreparationSettings, prepared

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
KEEPING = [kind for kind in CACHE_TYPES if kind != "none"]


def unique_name():
    return f"test-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def opened():
    """Open caches that the test closes, each with a name of its own."""
    caches = []

    def open_one(kind, mib=64, name=None):
        cache = open_cache(kind, mib / 1024, name=name or unique_name())
        caches.append(cache)
        if cache.kind != kind:
            pytest.skip("this system has no sealed files in memory or no abstract sockets")
        return cache

    yield open_one
    for cache in caches:
        cache.close()


def recording(seconds=1.0, seed=1, rate=44_100, channels=2):
    samples = np.random.default_rng(seed).uniform(-0.5, 0.5, (round(seconds * rate), channels))
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC")
    return file.getvalue()


def value(mib=1.0, fill=0.5):
    return CacheValue(np.full(round(mib * MIB / 4), fill, np.float32), {"fill": fill})


def key(number):
    return cache_key(None, str(number))


class TestEveryKind:
    @pytest.mark.parametrize("kind", KEEPING)
    def test_what_was_put_in_comes_back_and_cannot_be_changed(self, opened, kind):
        cache = opened(kind)
        assert cache.get(key(1)) is None
        cache.put(key(1), CacheValue(np.arange(6, dtype=np.int16).reshape(2, 3), {"warnings": ["a"], "rate": 16_000}))
        found = cache.get(key(1))
        np.testing.assert_array_equal(found.array, [[0, 1, 2], [3, 4, 5]])
        assert (found.array.dtype, dict(found.notes)) == (np.int16, {"warnings": ["a"], "rate": 16_000})
        with pytest.raises(ValueError, match="read-only"):
            found.array[0, 0] = 1

    @pytest.mark.parametrize("kind", KEEPING)
    def test_counters_tell_what_happened(self, opened, kind):
        cache = opened(kind, mib=4)
        for number in range(6):
            cache.put(key(number), value())
        assert cache.get(key(0)) is None
        assert cache.get(key(5)) is not None
        counters = cache.counters()
        assert (counters.hits, counters.misses, counters.entries, counters.evictions) == (1, 1, 3, 3)
        assert 3 * MIB < counters.bytes <= counters.capacity == 4 * MIB

    @pytest.mark.parametrize("kind", KEEPING)
    def test_the_one_that_was_not_asked_for_the_longest_makes_room(self, opened, kind):
        cache = opened(kind, mib=4)
        for number in range(3):
            cache.put(key(number), value(fill=number))
        assert cache.get(key(0)).array[0] == 0
        cache.put(key(3), value(fill=3))
        assert [cache.get(key(number)) is not None for number in range(4)] == [True, False, True, True]

    @pytest.mark.parametrize("kind", KEEPING)
    def test_what_is_larger_than_the_budget_is_not_kept(self, opened, kind):
        cache = opened(kind, mib=2)
        cache.put(key(1), value(0.5))
        cache.put(key(2), value(3))
        assert cache.get(key(2)) is None
        assert cache.get(key(1)) is not None

    @pytest.mark.parametrize("kind", KEEPING)
    def test_many_threads_share_a_cache_and_its_budget_holds(self, opened, kind):
        cache = opened(kind, mib=4)
        failures = []
        over = []

        def work(seed):
            rng = np.random.default_rng(seed)
            try:
                for _ in range(40):
                    number = int(rng.integers(8))
                    found = cache.get(key(number))
                    if found is None:
                        cache.put(key(number), value(0.7, fill=number))
                    elif found.array[0] != number or found.array[-1] != number:
                        failures.append(number)
                    over.append(cache.counters().bytes > 4 * MIB)
            except Exception as error:  # noqa: BLE001 - told by the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert not any(over)

    def test_none_keeps_nothing(self):
        cache = open_cache("none")
        cache.put(key(1), value())
        assert cache.get(key(1)) is None
        assert type(open_cache("lru", 0)) is InputCache

    @pytest.mark.parametrize(("kind", "gb"), [("disk", 1), ("lru", -1), ("lru", float("inf")), ("lru", float("nan"))])
    def test_nonsense_is_refused(self, kind, gb):
        with pytest.raises(ValueError, match="mm_processor_cache_"):
            open_cache(kind, gb)


class TestKeys:
    def test_a_key_depends_on_the_owner_and_on_each_part(self):
        keys = [
            cache_key(None, "ab", "c"),
            cache_key(None, "a", "bc"),
            cache_key(None, "abc"),
            cache_key("", "ab", "c"),
            cache_key("alice", "ab", "c"),
            cache_key("bob", "ab", "c"),
        ]
        assert len(set(keys)) == len(keys)
        assert {len(each) for each in keys} == {32}

    def test_every_setting_that_matters_changes_the_key_and_isolation_does_not(self):
        from audio.isolation import Isolation

        base = PreparationSettings()
        others = [
            PreparationSettings(sample_rate=8_000),
            PreparationSettings(audio_backend="pyav"),
            PreparationSettings(channel_reduction="left"),
            PreparationSettings(track=1),
            PreparationSettings(from_seconds=0.5),
            PreparationSettings(to_seconds=0.5),
            PreparationSettings(timeline="container"),
            PreparationSettings(limits=DecodeLimits.strict()),
        ]
        assert len({each.fingerprint() for each in (base, *others)}) == 1 + len(others)
        assert PreparationSettings(isolation=Isolation()).fingerprint() == base.fingerprint()


class TestPrepared:
    @pytest.mark.parametrize("kind", KEEPING)
    def test_the_second_submission_is_the_first_ones_result(self, opened, kind):
        cache, data = opened(kind), recording()
        first = prepared(data, cache=cache)
        second = prepared(io.BytesIO(data), cache=cache)
        assert (first.cached, second.cached) == (False, True)
        np.testing.assert_array_equal(first.samples, second.samples)
        assert (second.sample_rate, second.backend, second.duration) == (16_000, first.backend, 1.0)

    @pytest.mark.parametrize("kind", KEEPING)
    def test_a_uuid_alone_works_while_the_entry_lives_and_fails_clearly_after(self, opened, kind):
        cache = opened(kind, mib=1)
        prepared(recording(), cache=cache, uuid="call-7")
        assert prepared(None, cache=cache, uuid="call-7").cached
        for seed in range(20):
            prepared(recording(seed=seed), cache=cache)
        with pytest.raises(CacheMissError, match=r"uuid 'call-7' is not in the cache.*send the audio itself again"):
            prepared(None, cache=cache, uuid="call-7")

    @pytest.mark.parametrize("kind", KEEPING)
    def test_nothing_of_one_owner_is_given_to_another(self, opened, kind):
        cache, data = opened(kind), recording()
        prepared(data, cache=cache, uuid="mine", owner="alice")
        prepared(data, cache=cache, owner="alice")
        for other in ("bob", "", None, "alice "):
            assert not prepared(data, cache=cache, owner=other).cached
            with pytest.raises(CacheMissError):
                prepared(None, cache=cache, uuid="mine", owner=other)

    def test_a_uuid_alone_needs_a_cache(self):
        with pytest.raises(CacheMissError):
            prepared(None, cache=open_cache("none"), uuid="mine")
        with pytest.raises(ValueError, match="neither audio nor a uuid"):
            prepared(None, cache=open_cache("none"))

    def test_what_was_admitted_under_loose_limits_is_refused_under_strict_ones(self, opened):
        cache, data = opened("processor_only"), recording(2.0)
        prepared(data, cache=cache)
        with pytest.raises(LimitExceededError):
            prepared(data, PreparationSettings(limits=DecodeLimits(max_seconds=1.0)), cache=cache)

    def test_what_cannot_be_decoded_leaves_nothing(self, opened):
        cache = opened("processor_only")
        for _ in range(2):
            with pytest.raises(AudioError):
                prepared(b"this is no recording" * 50, cache=cache)
        assert cache.counters().entries == 0


class TestSizedLru:
    def test_the_budget_holds_at_every_moment(self):
        held = []
        lru = SizedLru(10, released=lambda item: held.remove(item))
        rng = np.random.default_rng(3)
        for number in range(300):
            size = int(rng.integers(1, 12))
            if lru.put(key(number % 20), (number, size), size):
                held.append((number, size))
            assert sum(size for _, size in held) == lru.counters.bytes <= 10

    def test_the_number_of_entries_is_bounded_too(self):
        lru = SizedLru(1000, most=3)
        for number in range(9):
            lru.put(key(number), number, 1)
        assert lru.counters.entries == 3


def receive(pipe, capacity):
    """Be the other end of a mirrored cache, in another process."""
    receiver = MirroredReceiver(capacity)
    while (packet := pipe.recv()) is not None:
        try:
            pipe.send((float(receiver.unpack(packet).array.sum()), packet.value is None))
        except CacheMissError as error:
            pipe.send(error)


class TestMirrored:
    def test_a_hit_sends_only_the_key_to_the_other_process(self):
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs, 3 * MIB), daemon=True)
        receiver.start()
        sender = MirroredSender(3 * MIB)
        rng = np.random.default_rng(4)
        short = 0
        for _ in range(60):
            number = int(rng.integers(5))
            packet = sender.short_packet(key(number)) or sender.whole_packet(key(number), value(0.9, fill=number))
            ours.send(packet)
            total, key_alone = ours.recv()
            assert total == pytest.approx(number * round(0.9 * MIB / 4))
            short += key_alone
        assert short == sender.counters().hits > 10
        assert sender.counters().evictions > 5
        ours.send(None)
        receiver.join(60)

    def test_a_receiver_that_was_restarted_is_sent_everything_again(self):
        receivers = [MirroredReceiver(8 * MIB)]
        cache = MirroredCache(8 * MIB, send=lambda packet: receivers[-1].unpack(packet))
        cache.put(key(1), value())
        assert cache.get(key(1)) is not None
        receivers.append(MirroredReceiver(8 * MIB))
        assert cache.get(key(1)) is None
        cache.put(key(1), value())
        assert cache.get(key(1)) is not None


HOLDER = """
    import os, sys, time
    import numpy as np
    from engine_bridge.cache import CacheValue, cache_key
    from engine_bridge.cache_shared import SharedCache

    cache = SharedCache(64 << 20, name=sys.argv[1])
    if sys.argv[2] == "put":
        cache.put(cache_key(None, "theirs"), CacheValue(np.full(1 << 20, 7, np.float32)))
    else:
        held = cache.get(cache_key(None, sys.argv[2]))
        assert held is not None and held.array[0] == 0.5, held
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def process():
    """Start processes that use the shared cache and wait; ended by the test."""
    started = []

    def start(name, what):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLDER), name, what],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def files_in_memory(process):
    """Return the inodes of the cache's files that a process has mapped."""
    maps = Path(f"/proc/{process}/maps").read_text(encoding="utf-8")
    return set(re.findall(r" (\d+) +/memfd:auricle-cache", maps))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sealed files in memory are Linux's")
class TestShared:
    def test_two_processes_share_one_copy(self, opened, process):
        name = unique_name()
        cache = opened("shm", name=name)
        cache.put(key("ours"), value())
        child = process(name, "ours")
        ours = cache.get(key("ours"))
        assert files_in_memory(child.pid) == files_in_memory(os.getpid()) != set()
        assert cache.counters().entries == 1
        assert ours.array[0] == 0.5

    def test_a_killed_process_leaves_nothing_behind_and_the_next_one_takes_its_place(self, opened, process):
        name = unique_name()
        before = set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()  # noqa: PTH208
        child = process(name, "put")
        cache = opened("shm", name=name)
        theirs = cache.get(key("theirs"))
        assert theirs is not None
        address = cache._address[1:]
        assert address in Path("/proc/net/unix").read_text(encoding="utf-8")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert not {entry for entry in set(os.listdir("/dev/shm")) - before if "auricle" in entry}  # noqa: PTH208
        # Its entries are gone; what was handed out stays readable; and the cache goes on.
        assert cache.get(key("theirs")) is None
        assert theirs.array[-1] == 7
        cache.put(key("ours"), value())
        assert cache.get(key("ours")) is not None
        cache.close()
        del theirs
        assert address not in Path("/proc/net/unix").read_text(encoding="utf-8")
        assert files_in_memory(os.getpid()) == set()

    def test_a_reader_that_is_killed_takes_nothing_with_it(self, opened, process):
        name = unique_name()
        cache = opened("shm", name=name)
        cache.put(key("ours"), value())
        child = process(name, "ours")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert cache.get(key("ours")) is not None

    def test_nonsense_from_a_neighbour_ends_only_its_connection(self, opened):
        import socket

        cache = opened("shm")
        cache.put(key(1), value())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as neighbour:
            neighbour.connect(cache._address)
            for nonsense in (b"[1]", b"{}", b"\xff\xfe", b'{"do": "get", "key": 7}'):
                try:
                    neighbour.send(nonsense)
                    neighbour.recv(100)
                except OSError:
                    break
        assert cache.get(key(1)) is not None

    def test_a_file_that_could_still_be_changed_is_not_taken(self, opened):
        cache = opened("shm")
        descriptor = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
        os.write(descriptor, b"x" * 100)
        answer, _ = cache._ask({"do": "put", "key": key(1).hex()}, descriptor)
        os.close(descriptor)
        assert answer == {"kept": False}
        assert cache.get(key(1)) is None

    @pytest.mark.filterwarnings("ignore:This process")  # newer Pythons advise against forking with threads
    def test_a_forked_child_uses_the_parents_cache_and_does_not_keep_it_alive(self, opened):
        cache = opened("shm")
        cache.put(key(1), value())
        pipe, theirs = multiprocessing.Pipe()

        def use():
            theirs.send(cache.get(key(1)) is not None)
            theirs.recv()

        child = multiprocessing.get_context("fork").Process(target=use, daemon=True)
        child.start()
        assert pipe.recv()
        assert cache.get(key(1)) is not None
        cache.close()
        assert f"@{cache._address[1:]}\n" not in Path("/proc/net/unix").read_text(encoding="utf-8")
        pipe.send(None)
        child.join()

    def test_where_there_is_no_shared_memory_each_process_keeps_its_own_and_a_warning_says_so(
        self, monkeypatch, caplog
    ):
        def refuse(*_):
            raise OSError("not here")

        monkeypatch.setattr(cache_shared.os, "memfd_create", refuse)
        cache = open_cache("shm", 0.01)
        assert isinstance(cache, ProcessCache)
        assert cache.kind == "processor_only"
        assert "shared memory cannot be had here (not here)" in caplog.text
