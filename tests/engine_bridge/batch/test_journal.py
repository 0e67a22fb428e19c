"""The journal: what it remembers, what it notices, who may use it at once, and what it says where it cannot."""

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from audio.source import Source
from engine_bridge.batch.fingerprints import engine_identity, recording_fingerprint
from engine_bridge.batch.results import Failure
from engine_bridge.errors import JournalError
from engine_bridge.journal import Journal
from engine_bridge.transcript import Gap, Segment, Transcript, Word
from tests.recordings import ROOT, bursts, write_wav

TRANSCRIPT = Transcript(
    (Segment(0.5, 1.25, "Hello.", (Word(0.5, 1.25, "Hello.", 0.75),), 0.75),),
    (Gap(2.0, 3.0, "engine returned no text"),),
    4.0,
    "en",
    "talk.wav",
    "fake:scripted",
    "soundfile",
)
LONG_AGO = (1_600_000_000, 1_600_000_000)


@pytest.fixture
def journal(tmp_path):
    with Journal.in_folder(tmp_path / "out") as opened:
        yield opened


def again(journal):
    """The same journal, opened once more."""
    return Journal(journal.path)


class TestRecordings:
    def test_what_is_new_is_not_known(self, journal):
        assert journal.find("new") is None

    def test_a_number_stays(self, journal):
        numbers = [journal.begin(name) for name in ("one", "two", "one")]
        assert numbers[0] == numbers[2] != numbers[1]
        assert journal.find("one").state == "begun"

    def test_a_transcript_is_found_again(self, journal):
        number = journal.begin("one")
        journal.finish(number, TRANSCRIPT)
        with again(journal) as other:
            entry = other.find("one")
            assert (entry.number, entry.state, entry.duration) == (number, "done", 4.0)
            assert other.transcript(number) == TRANSCRIPT

    def test_a_transcript_that_is_not_there_is_told(self, journal):
        with pytest.raises(JournalError, match="is not done; transcribe it first"):
            journal.transcript(journal.begin("one"))

    def test_a_failure_is_found_again(self, journal):
        failure = Failure("UnreadableAudioError", "caf\udce9.wav: it is text", 12.5)
        journal.fail(journal.begin("one"), failure)
        with again(journal) as other:
            entry = other.find("one")
        assert entry.state == "failed"
        assert entry.failure == Failure("UnreadableAudioError", "caf\\udce9.wav: it is text", 12.5)

    def test_success_after_a_failure_leaves_none(self, journal):
        number = journal.begin("one")
        journal.fail(number, Failure("EngineError", "it failed"))
        journal.finish(number, TRANSCRIPT)
        assert journal.find("one").failure is None

    def test_what_is_forgotten_is_begun_anew(self, journal):
        number = journal.begin("one")
        journal.finish(number, TRANSCRIPT)
        journal.keep_answer(number, b"clip", b"answer")
        journal.forget(number)
        assert (journal.find("one").state, journal.answers(number)) == ("begun", {})


class TestAnswers:
    def test_they_are_found_by_recording_and_key(self, journal):
        one, two = journal.begin("one"), journal.begin("two")
        journal.keep_answer(one, b"clip", b"first")
        journal.keep_answer(two, b"clip", b"second")
        with again(journal) as other:
            assert [other.answer(number, b"clip") for number in (one, two)] == [b"first", b"second"]
            assert other.answer(one, b"other") is None
            assert other.answers(two) == {b"clip": b"second"}

    def test_they_go_when_the_recording_is_done(self, journal):
        number = journal.begin("one")
        journal.keep_answer(number, b"clip", b"answer")
        journal.finish(number, TRANSCRIPT)
        assert journal.answers(number) == {}

    def test_they_stay_when_it_fails(self, journal):
        number = journal.begin("one")
        journal.keep_answer(number, b"clip", b"answer")
        journal.fail(number, Failure("EngineError", "it failed"))
        assert journal.answers(number) == {b"clip": b"answer"}

    def test_many_threads_may_keep_them_at_once(self, journal):
        number = journal.begin("one")

        def keep(first):
            for index in range(first, first + 25):
                journal.keep_answer(number, index.to_bytes(2), b"x")

        threads = [threading.Thread(target=keep, args=(first,)) for first in range(0, 100, 25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(journal.answers(number)) == 100

    def test_a_killed_process_loses_none(self, journal):
        code = """
import os, signal, sys
from engine_bridge.journal import Journal
journal = Journal(sys.argv[1])
number = journal.begin("one")
for index in range(50):
    journal.keep_answer(number, bytes([index]), b"answer")
os.kill(os.getpid(), signal.SIGKILL)
"""
        killed = subprocess.run(
            [sys.executable, "-c", code, journal.path],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
        assert killed.returncode == -9
        assert len(journal.answers(journal.begin("one"))) == 50


class TestContents:
    def content(self, tmp_path, seed=0):
        path = write_wav(tmp_path / "talk.wav", bursts(1, seed=seed))
        os.utime(path, LONG_AGO)
        return path

    def test_an_unchanged_file_is_not_read_again(self, journal, tmp_path, monkeypatch):
        path = self.content(tmp_path)
        digest = journal.content_digest(Source.of(path))
        monkeypatch.setattr("engine_bridge.journal.content_hash", lambda source: pytest.fail("it was read again"))
        assert journal.content_digest(Source.of(path)) == digest

    def test_a_file_whose_time_or_size_changed_is_read_again(self, journal, tmp_path):
        path = self.content(tmp_path)
        before = journal.content_digest(Source.of(path))
        self.content(tmp_path, seed=1)
        os.utime(path, (1_600_000_001, 1_600_000_001))
        assert journal.content_digest(Source.of(path)) != before

    def test_a_file_that_was_just_written_is_not_believed_to_stay(self, journal, tmp_path):
        path = write_wav(tmp_path / "talk.wav", bursts(1))
        times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        before = journal.content_digest(Source.of(path))
        write_wav(path, bursts(1, seed=1))
        os.utime(path, ns=times)
        assert journal.content_digest(Source.of(path)) != before

    def test_bytes_and_a_file_of_the_same_content_are_the_same(self, journal, tmp_path):
        path = self.content(tmp_path)
        assert journal.content_digest(Source.of(path)) == journal.content_digest(Source.of(path.read_bytes()))

    def test_a_name_that_is_no_text_is_a_name(self, journal, tmp_path):
        path = tmp_path / os.fsdecode(b"caf\xe9.wav")
        self.content(tmp_path).rename(path)
        assert len(journal.content_digest(Source.of(path))) == 32


class TestHolding:
    def test_only_one_holds_a_recording(self, journal):
        number, free = journal.begin("one"), journal.begin("two")
        with again(journal) as other:
            assert journal.hold(number)
            assert not journal.hold(number)
            assert not other.hold(number)
            assert other.hold(free)
            journal.release(number)
            assert other.hold(number)

    def test_closing_lets_go_of_its_own_alone(self, journal):
        numbers = [journal.begin(name) for name in ("one", "two")]
        other = again(journal)
        assert journal.hold(numbers[0])
        assert other.hold(numbers[1])
        other.close()
        with again(journal) as third:
            assert not third.hold(numbers[0])
            assert third.hold(numbers[1])

    def test_a_process_that_dies_lets_go(self, journal):
        code = """
import sys
from engine_bridge.journal import Journal
journal = Journal(sys.argv[1])
print(journal.hold(journal.begin("one")), flush=True)
sys.stdin.read()
"""
        number = journal.begin("one")
        with subprocess.Popen(
            [sys.executable, "-c", code, journal.path],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout.readline() == "True\n"
            assert not journal.hold(number)
            process.kill()
            process.wait(timeout=30)
        assert journal.hold(number)


class TestOutputs:
    def test_what_an_output_was_written_from_is_kept(self, journal, tmp_path):
        assert journal.output_fingerprint(tmp_path / "out" / "talk.txt") is None
        journal.keep_output(tmp_path / "out" / "talk.txt", "one")
        assert journal.output_fingerprint(tmp_path / "out" / "talk.txt") == "one"
        assert journal.output_fingerprint(tmp_path / "out" / "other.txt") is None

    def test_the_folder_may_be_moved(self, journal, tmp_path):
        journal.keep_output(tmp_path / "out" / "talk.txt", "one")
        journal.close()
        (tmp_path / "out").rename(tmp_path / "moved")
        with Journal.in_folder(tmp_path / "moved") as moved:
            assert moved.output_fingerprint(tmp_path / "moved" / "talk.txt") == "one"


class TestTogether:
    @pytest.mark.parametrize("attempt", range(30))
    def test_several_may_begin_the_same_one_at_once(self, tmp_path, attempt):
        """SQLite refuses all but one of those that turn a new file to its log at once, without waiting."""
        together, opened = threading.Barrier(4), []

        def begin():
            together.wait()
            with Journal.in_folder(tmp_path) as journal:
                opened.append(journal.begin("one"))

        threads = [threading.Thread(target=begin) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert opened == [1, 1, 1, 1]


class TestTrouble:
    def test_a_file_that_is_no_journal_is_told(self, tmp_path):
        path = tmp_path / "journal.sqlite"
        path.write_bytes(b"this is no database" * 100)
        with pytest.raises(JournalError, match=r"not a database.*; move it away"):
            Journal(path)

    def test_a_version_that_is_not_known_is_told(self, journal):
        journal.close()
        connection = sqlite3.connect(journal.path)
        connection.execute("PRAGMA user_version=99")
        connection.close()
        with pytest.raises(JournalError, match=r"version 99 .* update the program"):
            Journal(journal.path)

    def test_a_place_that_is_no_folder_is_told(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(JournalError, match=r"the journal cannot be used .*; check the folder"):
            Journal(tmp_path / "file" / "journal.sqlite")

    def test_it_notices_that_its_file_is_gone(self, journal):
        journal.check_in_place()
        journal.path.unlink()
        with pytest.raises(JournalError, match="it was removed while in use"):
            journal.check_in_place()

    def test_a_closed_one_says_so(self, journal):
        journal.close()
        with pytest.raises(JournalError, match="the journal cannot be used"):
            journal.begin("one")

    def test_it_may_be_closed_twice(self, journal):
        journal.close()
        journal.close()


class TestFingerprints:
    def test_each_part_counts(self):
        settings = {"language": "en", "beam_size": 1}
        same = recording_fingerprint(b"content", settings, "engine")
        assert same == recording_fingerprint(b"content", dict(reversed(settings.items())), "engine")
        others = [
            recording_fingerprint(b"other", settings, "engine"),
            recording_fingerprint(b"content", settings | {"beam_size": 2}, "engine"),
            recording_fingerprint(b"content", settings, "other"),
        ]
        assert len({same, *others}) == 4

    def test_the_version_counts(self, monkeypatch):
        before = recording_fingerprint(b"content", {}, "engine")
        monkeypatch.setattr("engine_bridge.batch.fingerprints.package_version", lambda: "99")
        assert recording_fingerprint(b"content", {}, "engine") != before

    def test_an_engine_is_its_specification_and_its_models_content(self, journal, tmp_path):
        model = tmp_path / "model"
        model.mkdir()
        (model / "model.bin").write_bytes(b"weights")
        before = engine_identity(f"embedded:{model}", journal)
        assert engine_identity(f"embedded:{model}", journal) == before
        (model / "model.bin").write_bytes(b"other weights")
        assert engine_identity(f"embedded:{model}", journal) != before

    def test_a_server_is_its_address(self, journal):
        assert "http://host/v1#model" in engine_identity("http://host/v1#model", journal)
