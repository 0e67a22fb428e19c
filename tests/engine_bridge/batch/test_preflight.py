"""What is known of a job before it begins."""

import os
import threading
import tracemalloc

import fsspec
import numpy as np
import pytest

from engine_bridge.batch.failing import failing
from engine_bridge.batch.inputs import find_recordings
from engine_bridge.batch.measuring import Speed, measured_speed
from engine_bridge.batch.preflight import Preflight, folder_problem, preflight, report, shown_bytes, shown_time
from engine_bridge.batch.recording import Recording
from engine_bridge.errors import EngineError, InputError
from engine_bridge.testing import FakeEngine, clip_result
from tests.recordings import RATE, bursts, wav_bytes, write_wav


def speak(samples, options):
    count = int(len(samples) / RATE / 0.5)
    return clip_result([(0.5 * n, 0.5 * (n + 1), f"word{n}") for n in range(count)])


@pytest.fixture
def engine():
    engine = FakeEngine(speak)
    yield engine
    engine.close()


@pytest.fixture
def talks(tmp_path):
    folder = tmp_path / "talks"
    folder.mkdir()
    for number, seconds in enumerate((4, 8, 12)):
        write_wav(folder / f"{number}.wav", bursts(seconds, seed=number))
    (folder / "notes.mp3").write_text("Dear diary, this is not a recording. " * 40)
    (folder / "empty.wav").touch()
    return folder


class TestRecordings:
    def test_all_are_looked_at_and_the_bad_ones_named(self, talks):
        found = preflight(find_recordings([str(talks), str(talks / "missing.wav")]))
        assert (found.recordings, found.unreadable) == (6, 3)
        assert [name for name, _ in found.reasons] == ["empty.wav", "notes.mp3", "missing.wav"]
        assert found.audio_seconds == pytest.approx(24.0)
        assert not found.is_clear

    def test_what_is_not_wanted_of_them_does_not_count(self, talks):
        recordings = [
            Recording("a", talks / "2.wav", from_seconds=2.0, to_seconds=5.0),
            Recording("b", talks / "2.wav", from_seconds=11.0),
            Recording("c", talks / "2.wav", from_seconds=30.0),
            Recording("d", talks / "2.wav", track=3),
            Recording("e", talks / "2.wav", channels=4),
        ]
        found = preflight(recordings)
        assert found.audio_seconds == pytest.approx(4.0)
        assert [name for name, _ in found.reasons] == ["c", "d", "e"]
        assert preflight(recordings[:1], options={"from_seconds": 1.0}).audio_seconds == pytest.approx(3.0)

    def test_addresses_bytes_and_arrays_are_looked_at_too(self):
        fsspec.filesystem("memory").pipe_file("/flight/a.wav", wav_bytes(bursts(2)))
        found = preflight(
            [
                Recording("a", "memory://flight/a.wav"),
                Recording("b", wav_bytes(bursts(1))),
                Recording("c", (np.zeros(RATE, np.float32), RATE)),
                Recording("d", "memory://flight/no.wav"),
            ]
        )
        assert found.audio_seconds == pytest.approx(4.0)
        assert found.reasons == (("d", "memory://flight/no.wav: there is no such file; check the address"),)

    def test_what_looking_would_use_up_is_left_alone(self, talks):
        with (talks / "0.wav").open("rb") as file:
            found = preflight([Recording("stdin", file), failing("list.csv:3", InputError("no audio"))])
            assert file.tell() == 0
        assert (found.recordings, found.unseen, found.unreadable) == (2, 1, 1)

    def test_only_the_first_reasons_are_kept(self):
        found = preflight(failing(str(number), InputError(f"{number} is bad")) for number in range(40))
        assert (found.unreadable, len(found.reasons)) == (40, 10)
        assert list(report(found))[-1] == "unreadable  30 more"

    def test_memory_does_not_grow_with_them(self):
        def peak(count):
            tracemalloc.start()
            preflight(failing(str(number), InputError(f"{number} is bad")) for number in range(count))
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most

        peak(100)
        assert peak(4000) < 2 * peak(400)

    def test_some_are_looked_at_at_the_same_time(self, monkeypatch):
        meeting = threading.Barrier(4, timeout=20)

        def look(recording, options, real=preflight.__globals__["_look"]):
            meeting.wait()
            return real(recording, options)

        monkeypatch.setitem(preflight.__globals__, "_look", look)
        assert preflight([Recording(str(number), wav_bytes(bursts(1))) for number in range(8)]).is_clear

    def test_how_far_it_has_come_is_told(self, talks):
        told = []
        preflight(find_recordings([str(talks)]), on_progress=told.append)
        assert told == [1, 2, 3, 4, 5]


class TestSpeed:
    def test_it_is_measured_on_the_first_recordings(self, talks, engine):
        found = preflight(find_recordings([str(talks)]), engine=engine)
        assert found.speed.measured_seconds == pytest.approx(24.0, abs=0.1)
        assert found.expected_seconds == pytest.approx(24.0 / found.speed.factor)

    def test_it_is_the_engines(self, engine, talks):
        slow = FakeEngine(speak, delay=lambda number: 1.0)
        try:
            fast = measured_speed([Recording("a", talks / "2.wav")], engine, {})
            assert 1 < measured_speed([Recording("a", talks / "2.wav")], slow, {}).factor < 12 < fast.factor
        finally:
            slow.close()

    def test_measuring_ends_in_time(self, engine, monkeypatch):
        monkeypatch.setattr("engine_bridge.batch.measuring._PILOT_SECONDS", 0.0)
        endless = (Recording(str(number), wav_bytes(bursts(1))) for number in range(10))
        assert measured_speed(list(endless), engine, {}) is None
        assert engine.submissions == ()

    def test_one_that_is_known_is_not_measured_again(self, talks, engine):
        found = preflight(find_recordings([str(talks)]), engine=engine, speed=Speed(2.0, 3600.0, earlier=True))
        assert engine.submissions == ()
        assert found.expected_seconds == pytest.approx(12.0)

    def test_an_engine_that_fails_is_a_problem_of_the_job(self, talks):
        broken = FakeEngine(lambda samples, options: EngineError("the graphics card is on fire"))
        try:
            found = preflight(find_recordings([str(talks / "0.wav")]), engine=broken)
        finally:
            broken.close()
        assert found.problems == ("the graphics card is on fire",)
        assert not found.is_clear


class TestOutput:
    def test_room_and_size_are_told_and_nothing_is_left(self, talks, tmp_path):
        found = preflight([Recording("a", talks / "2.wav")], output=tmp_path / "out" / "deep", formats=("txt", "json"))
        assert found.is_clear
        assert found.free_bytes > 0
        assert found.output_bytes == round(12 / 3600 * (50_000 + 950_000 + 150_000))
        assert [path.name for path in tmp_path.iterdir()] == ["talks"]

    def test_a_disk_with_too_little_room_is_a_problem(self, talks, tmp_path, monkeypatch):
        monkeypatch.setattr("engine_bridge.batch.preflight.free_bytes", lambda folder: 100)
        (problem,) = preflight([Recording("a", talks / "2.wav")], output=tmp_path).problems
        assert problem.startswith(f"{tmp_path}: 100 bytes are free and about 667 bytes are needed; free some")

    @pytest.mark.parametrize("below", ["notes.mp3", "notes.mp3/out"])
    def test_a_folder_that_cannot_be_is_a_problem(self, talks, below):
        assert folder_problem(talks / below) == f"{talks / below}: nothing can be written there (not a directory); " + (
            "choose a folder you may write to"
        )

    def test_so_is_one_that_refuses(self, tmp_path, monkeypatch):
        def refuse(*_, **__):
            raise OSError(30, os.strerror(30))

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        assert "(read-only file system)" in folder_problem(tmp_path)


class TestReport:
    def test_it_can_be_read_aloud(self):
        found = Preflight(
            recordings=2000,
            unreadable=12,
            reasons=(("x.wav", "talks/x.wav: it is text"), ("list.csv:3", "no audio")),
            unseen=1,
            audio_seconds=412.345 * 3600,
            unclaimed=38,
            output_bytes=27_000_000,
            free_bytes=120_000_000_000,
            speed=Speed(18.4, 95.0),
            problems=("out: read-only",),
        )
        assert list(report(found)) == [
            "recordings  2000, 12 of them cannot be read",
            "audio       412.35 h claimed (37 do not say how long they are, 1 not seen)",
            "speed       18.4 times real time, measured on the first 95 s",
            "time        about 22 h 25 min",
            "size        about 27 MB, and 120 GB are free",
            "unreadable  talks/x.wav: it is text",
            "unreadable  list.csv:3: no audio",
            "unreadable  10 more",
            "problem     out: read-only",
        ]

    @pytest.mark.parametrize(("seconds", "shown"), [(40, "40 s"), (720, "12 min"), (12_000, "3 h 20 min")])
    def test_times(self, seconds, shown):
        assert shown_time(seconds) == shown

    @pytest.mark.parametrize(
        ("count", "shown"), [(0, "0 bytes"), (950_000, "950 kB"), (1_240_000_000, "1.2 GB"), (5e12, "5.0 TB")]
    )
    def test_bytes(self, count, shown):
        assert shown_bytes(count) == shown
