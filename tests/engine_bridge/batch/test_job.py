"""Jobs whose outputs go to a folder: what is written, what is kept, and what is left when they end early."""

import errno
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import cli
from engine_bridge import read_json
from engine_bridge.batch import job as jobs
from engine_bridge.errors import OutputError
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine, clip_result
from tests.recordings import ROOT, bursts, write_wav


def speak(samples, options):
    """Hear a word in each 0.4 s, another first one for other audio."""
    first = int(abs(samples[:16_000]).sum() * 100) % 600
    words = [chr(97 + n % 26) + chr(97 + n // 26 % 26) + "o" for n in range(first, first + int(len(samples) / 6400))]
    return clip_result([(0.4 * n, 0.4 * (n + 1), word) for n, word in enumerate(words)])


SCRIPTED = """
import atexit, pathlib, sys, time
from engine_bridge.engines import open as engines
from engine_bridge.testing import FakeEngine, clip_result
from tests.peak_memory import peak_kib
{speak}
def slowly(samples, options):
    with open({count!r}, "a") as file:
        file.write(".")
    time.sleep({seconds})
    return speak(samples, options)
class Forgetful(FakeEngine):
    def submit(self, samples, options):
        self._submissions.clear()  # its clips would be the job's memory
        return super().submit(samples, options)

engines.open_engine = lambda spec: Forgetful(slowly, in_flight=2)
atexit.register(lambda: pathlib.Path({count!r} + ".peak").write_text(str(peak_kib())))
sys.argv[0] = "auricle"
import cli
cli.main()
"""


def run(*arguments):
    result = CliRunner().invoke(cli.main, ["transcribe", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def engine(monkeypatch):
    """A scripted engine in the place of all others; `asked` counts its clips."""
    given = SimpleNamespace(asked=0)

    def script(samples, options):
        given.asked += 1
        return speak(samples, options)

    monkeypatch.setattr(
        "engine_bridge.engines.open.open_engine", lambda spec: FakeEngine(script, capabilities=ENGLISH_ONLY)
    )
    monkeypatch.setattr("engine_bridge.engines.allocator.keep_large_blocks", lambda: False)
    return given


@pytest.fixture
def folder(tmp_path):
    """A tree of five recordings."""
    for number, name in enumerate(("a.wav", "b.wav", "deep/a.wav", "deep/deeper/c.wav", "z.wav")):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_wav(path, bursts(2 + number / 2, seed=number))
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return tmp_path / "in"


def contents(out):
    """The outputs below a folder, by their names; of JSON all but the timings."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.is_file() and not name.startswith("."):
            text = path.read_text()
            found[name] = {**json.loads(text), "timings": None} if path.suffix == ".json" else text
    return found


def report(out):
    return json.loads((out / ".auricle" / "report.json").read_text())


@pytest.mark.usefixtures("engine")
class TestOutputs:
    def test_they_mirror_the_folder(self, folder, tmp_path):
        result = run(folder, "-o", tmp_path / "out", "-f", "txt,json")
        assert result.exit_code == 0
        assert result.stdout == ""
        names = {"a", "b", "deep/a", "deep/deeper/c", "z"}
        assert set(contents(tmp_path / "out")) == {f"{name}.{kind}" for name in names for kind in ("txt", "json")}

    def test_no_two_recordings_share_one(self, folder, tmp_path):
        (folder / "a.flac").write_bytes((folder / "b.wav").read_bytes())
        (folder / "A.ogg").write_bytes((folder / "z.wav").read_bytes())
        run(folder, "-o", tmp_path / "out")
        names = set(contents(tmp_path / "out"))
        assert {"a.wav.txt", "a.flac.txt", "A.ogg.txt", "b.txt", "deep/a.txt"} <= names

    def test_names_that_differ_in_case_alone_are_told_apart(self, folder, tmp_path):
        (folder / "A.wav").write_bytes((folder / "b.wav").read_bytes())
        run(folder, "-o", tmp_path / "out")
        names = [name.casefold() for name in contents(tmp_path / "out")]
        assert len(names) == len(set(names)) == 6

    def test_none_takes_the_place_of_a_recording(self, folder):
        (folder / "a.wav").rename(folder / "a.txt")
        content = (folder / "a.txt").read_bytes()
        run(folder / "a.txt", folder / "b.wav", "-o", folder)
        assert (folder / "a.txt").read_bytes() == content
        assert (folder / "a.txt.txt").is_file()

    def test_outputs_beside_the_recordings_are_no_inputs_of_the_next_run(self, folder):
        for _ in range(2):
            assert run(folder, "-o", folder).exit_code == 0
        assert report(folder)["counts"] == {"recordings": 5, "done": 0, "known": 5, "failed": 0}

    def test_a_list_that_can_be_read_only_once_is_read_once(self, folder, tmp_path):
        pipe = tmp_path / "calls.jsonl"
        os.mkfifo(pipe)
        lines = "".join(json.dumps({"path": str(folder / name)}) + "\n" for name in ("a.wav", "b.wav"))
        threading.Thread(target=lambda: pipe.write_text(lines), daemon=True).start()
        assert run(pipe, "-o", tmp_path / "out").exit_code == 0
        names = contents(tmp_path / "out")
        assert len(names) == 2
        assert all(name.endswith(".wav.txt") for name in names)

    def test_a_single_recording_is_printed_also_where_it_is_known(self, folder, tmp_path):
        first, second = (run(folder / "a.wav", "-o", tmp_path / "out") for _ in range(2))
        assert first.stdout == second.stdout != ""
        assert second.stderr == f"auricle: kept {tmp_path / 'out' / 'a.txt'}, which is done already\n"


class TestAgain:
    def test_nothing_is_done_twice(self, engine, folder, tmp_path):
        run(folder, "-o", tmp_path / "out")
        before, asked = contents(tmp_path / "out"), engine.asked
        result = run(folder, "-o", tmp_path / "out")
        assert (result.exit_code, engine.asked) == (0, asked)
        assert "wrote" not in result.stderr
        assert contents(tmp_path / "out") == before

    def test_outputs_that_are_missing_come_from_the_journal(self, engine, folder, tmp_path):
        run(folder, "-o", tmp_path / "out", "-f", "txt,json")
        before, asked = contents(tmp_path / "out"), engine.asked
        (tmp_path / "out" / "a.txt").unlink()
        shutil.rmtree(tmp_path / "out" / "deep")
        run(folder, "-o", tmp_path / "out", "-f", "txt,json,srt")
        after = contents(tmp_path / "out")
        assert engine.asked == asked
        assert {name: text for name, text in after.items() if not name.endswith("srt")} == before
        assert sum(name.endswith("srt") for name in after) == 5

    def test_a_recording_that_changed_is_done_again(self, engine, folder, tmp_path):
        run(folder, "-o", tmp_path / "out")
        before, asked = contents(tmp_path / "out"), engine.asked
        write_wav(folder / "a.wav", bursts(3, seed=9))
        run(folder, "-o", tmp_path / "out")
        after = contents(tmp_path / "out")
        assert engine.asked == asked + 1
        assert {name for name in after if after[name] != before[name]} == {"a.txt"}

    def test_other_settings_write_the_outputs_anew(self, engine, folder, tmp_path):
        run(folder, "-o", tmp_path / "out")
        asked = engine.asked
        result = run(folder, "-o", tmp_path / "out", "--beam-size", "5")
        assert engine.asked > asked
        assert result.stderr.count("wrote") == 5

    def test_a_recording_that_moved_keeps_its_work_under_its_new_name(self, engine, folder, tmp_path):
        run(folder, "-o", tmp_path / "out", "-f", "json")
        asked = engine.asked
        (folder / "z.wav").rename(folder / "y.wav")
        run(folder, "-o", tmp_path / "out", "-f", "json")
        assert engine.asked == asked
        assert read_json((tmp_path / "out" / "y.json").read_text()).source == str(folder / "y.wav")

    def test_restart_does_all_again(self, engine, folder, tmp_path):
        run(folder, "-o", tmp_path / "out")
        asked = engine.asked
        result = run(folder, "-o", tmp_path / "out", "--restart")
        assert engine.asked == 2 * asked
        assert result.stderr.count("wrote") == 5

    def test_failures_are_told_again_or_tried_again(self, engine, folder, tmp_path):
        (folder / "notes.mp3").write_text("Dear diary, this is not a recording. " * 40)
        told = [run(folder, "-o", tmp_path / "out", *options) for options in ((), (), ("--retry-failed",))]
        assert [result.exit_code for result in told] == [1, 1, 1]
        reasons = [re.search(r"notes\.mp3: it is text.*", result.stderr)[0] for result in told]
        assert [reason.endswith("(as before; --retry-failed tries it again)") for reason in reasons] == [
            False,
            True,
            False,
        ]


@pytest.mark.usefixtures("engine")
class TestReport:
    def test_every_recording_is_accounted_for(self, folder, tmp_path):
        (folder / "empty.wav").touch()
        (folder / "notes.mp3").write_text("no recording")
        result = run(folder, "-o", tmp_path / "out", "--report", tmp_path / "report.json")
        assert result.exit_code == 1
        told = report(tmp_path / "out")
        assert json.loads((tmp_path / "report.json").read_text())["recordings"] == told["recordings"]
        assert (told["state"], told["counts"]) == ("complete", {"recordings": 7, "done": 5, "known": 0, "failed": 2})
        assert told["audio_seconds"] == pytest.approx(2 + 2.5 + 3 + 3.5 + 4)
        entries = {entry["id"]: entry for entry in told["recordings"]}
        assert entries["deep/a.wav"]["outputs"] == [str(tmp_path / "out" / "deep" / "a.txt")]
        assert entries["empty.wav"]["kind"] == "EmptyAudioError"
        assert "2 failed; see " in result.stderr

    def test_results_are_one_table_in_the_order_of_the_inputs(self, folder, tmp_path):
        for _ in range(2):
            run(folder, "-o", tmp_path / "out", "--results", tmp_path / "all.jsonl")
            rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
            assert [row["id"] for row in rows] == ["a.wav", "b.wav", "deep/a.wav", "deep/deeper/c.wav", "z.wav"]
            assert all(row["text"] and row["state"] == "done" for row in rows)

    def test_a_dry_run_does_nothing_and_tells_what_there_is(self, folder, tmp_path):
        result = run(folder, "-o", tmp_path / "out", "--dry-run")
        assert result.exit_code == 0
        assert "recordings  5" in result.stdout
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        "option", ["--restart", "--retry-failed", "--report=r.json", "--results=r.jsonl", "--on=ray"]
    )
    def test_options_of_jobs_need_a_folder(self, folder, option):
        result = run(folder, option)
        assert result.exit_code == 2
        assert f"{option.partition('=')[0]} needs a folder to write to: add -o DIR" in result.stderr


class TestTrouble:
    @pytest.mark.parametrize("number", range(5))
    def test_a_disk_that_is_full_at_any_output_loses_nothing(self, engine, folder, tmp_path, monkeypatch, number):
        plain = tmp_path / "plain"
        run(folder, "-o", plain)
        asked, engine.asked = engine.asked, 0
        written = []

        def full(path, content):
            if len(written) == number:
                error = OutputError(f"{path}: the file cannot be written (no space left on device); free some space")
                error.errno = errno.ENOSPC
                raise error
            written.append(path)
            write(path, content)

        write = jobs.write_atomically
        with monkeypatch.context() as patched:
            patched.setattr(jobs, "write_atomically", full)
            result = run(folder, "-o", tmp_path / "out")
        assert result.exit_code == 1
        assert "no space left on device" in result.stderr
        assert "what was done until now is kept" in result.stderr
        assert report(tmp_path / "out")["state"] == "stopped"
        assert run(folder, "-o", tmp_path / "out").exit_code == 0
        assert contents(tmp_path / "out") == contents(plain)
        assert engine.asked == asked

    def test_a_real_disk_that_is_full(self, engine, folder, tmp_path):
        plain = tmp_path / "plain"
        run(folder, "-o", plain, "-f", "txt,json")
        with small_disk(tmp_path / "disk") as disk:
            (disk / "ballast").write_bytes(b"\0" * 1_900_000)
            # The look beforehand would find too little room, so the disk fills up once the job is on its way.
            (disk / "out" / ".auricle").mkdir(parents=True)
            filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
            stops = 0
            for size in range(40_000, 200_000, 20_000):
                os.ftruncate(filler, 0)
                os.pwrite(filler, b"\0" * max(0, free(disk) - size), 0)
                result = run(folder, "-o", disk / "out", "-f", "txt,json")
                if result.exit_code == 1:
                    stops += 1
                    assert re.search("disk is full|no space left", result.stderr)
            assert stops
            os.close(filler)
            (disk / "ballast").unlink()
            (disk / "filler").unlink()
            assert run(folder, "-o", disk / "out", "-f", "txt,json").exit_code == 0
            assert contents(disk / "out") == contents(plain)

    def test_a_folder_that_may_not_be_written_to_is_told_before_any_work(self, engine, folder, tmp_path):
        with small_disk(tmp_path / "disk", "ro") as disk:
            result = run(folder, "-o", disk)
        assert result.exit_code == 1
        assert re.fullmatch(r"auricle: .*: nothing can be written there \(read-only file system\); .*\n", result.stderr)
        assert engine.asked == 0

    def test_a_folder_that_goes_away_ends_the_job_in_one_sentence(self, engine, folder, tmp_path, monkeypatch):
        write = jobs.write_atomically

        def gone(path, content):
            write(path, content)
            shutil.rmtree(tmp_path / "out")

        with monkeypatch.context() as patched:
            patched.setattr(jobs, "write_atomically", gone)
            result = run(folder, "-o", tmp_path / "out")
        assert result.exit_code == 1
        assert "it was removed while in use" in result.stderr
        assert run(folder, "-o", tmp_path / "out").exit_code == 0
        assert len(contents(tmp_path / "out")) == 5

    def test_an_output_whose_name_is_taken_by_a_folder_fails_alone(self, engine, folder, tmp_path):
        (tmp_path / "out" / "b.txt").mkdir(parents=True)
        result = run(folder, "-o", tmp_path / "out")
        assert result.exit_code == 1
        assert "remove the folder of that name" in result.stderr
        assert len(contents(tmp_path / "out")) == 4
        assert report(tmp_path / "out")["counts"]["failed"] == 1

    def test_a_journal_that_is_none_is_told(self, engine, folder, tmp_path):
        (tmp_path / "out" / ".auricle").mkdir(parents=True)
        (tmp_path / "out" / ".auricle" / "journal.sqlite").write_text("this is no journal " * 50)
        result = run(folder, "-o", tmp_path / "out")
        assert result.exit_code == 1
        assert re.fullmatch(r"auricle: .*journal\.sqlite: .* move it away, .*\n", result.stderr)


class TestProcesses:
    def started(self, folder, out, count, seconds=0.05, **options):
        code = SCRIPTED.format(speak=inspect.getsource(speak), count=str(count), seconds=seconds)
        return subprocess.Popen(
            [sys.executable, "-c", code, "transcribe", str(folder), "-o", str(out), "-f", "txt,json"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            **options,
        )

    def finished(self, process):
        with process:
            _, told = process.communicate(timeout=120)
        return process.returncode, told.decode()

    @pytest.fixture
    def many(self, tmp_path):
        """Twelve recordings, of one chunk and of two."""
        (tmp_path / "in").mkdir()
        for number in range(12):
            path = write_wav(tmp_path / "in" / f"r{number}.wav", bursts(40 if number % 4 == 0 else 2, seed=number))
            os.utime(path, (1_600_000_000, 1_600_000_000))
        return tmp_path / "in"

    def test_two_jobs_on_one_folder_share_the_work_and_both_end_well(self, many, tmp_path):
        assert self.finished(self.started(many, tmp_path / "plain", tmp_path / "plain.count"))[0] == 0
        both = [self.started(many, tmp_path / "out", tmp_path / "count", seconds=0.2) for _ in range(2)]
        ended = [self.finished(process) for process in both]
        assert [code for code, _ in ended] == [0, 0]
        assert contents(tmp_path / "out") == contents(tmp_path / "plain")
        assert (tmp_path / "count").stat().st_size == (tmp_path / "plain.count").stat().st_size

    def test_a_job_that_is_killed_goes_on_where_it_was(self, many, tmp_path):
        assert self.finished(self.started(many, tmp_path / "plain", tmp_path / "plain.count"))[0] == 0
        needed = (tmp_path / "plain.count").stat().st_size
        kills = 0
        for clips in (1, 3, 5, 8, 11, 14):
            process = self.started(many, tmp_path / "out", tmp_path / "count", seconds=0.1)
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if (tmp_path / "count").is_file() and (tmp_path / "count").stat().st_size >= clips + kills:
                    break
                time.sleep(0.005)
            process.kill()
            self.finished(process)
            kills += 1
        assert self.finished(self.started(many, tmp_path / "out", tmp_path / "count"))[0] == 0
        assert contents(tmp_path / "out") == contents(tmp_path / "plain")
        assert needed <= (tmp_path / "count").stat().st_size <= needed + kills

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak without its parent's")
    def test_memory_does_not_grow_with_the_number_of_recordings(self, tmp_path):
        peaks = {}
        content = write_wav(tmp_path / "one.wav", bursts(1)).read_bytes()
        for count in (20, 600):
            folder = tmp_path / f"in{count}"
            folder.mkdir()
            for number in range(count):
                # The last samples differ, so that each is work of its own.
                (folder / f"r{number}.wav").write_bytes(content[:-4] + number.to_bytes(4, "little"))
            assert self.finished(self.started(folder, tmp_path / f"out{count}", tmp_path / "count", seconds=0))[0] == 0
            peaks[count] = int((tmp_path / "count.peak").read_text())
        # Threads and the heap take some hundred recordings to settle, which is 10 to 20 MB; then it stays so.
        assert peaks[600] - peaks[20] < 12 * 1024, peaks


@contextmanager
def small_disk(place, options="rw"):
    """A disk of 2 MB."""
    place.mkdir()
    mount = shutil.which("mount")
    done = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size=2m,{options}", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if not done or done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip() if done else 'there is no mount'}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def free(folder):
    return shutil.disk_usage(folder).free
