"""The command as a process: terminals, pipes, interruptions, and the real model."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from engine_bridge import read_json
from tests.recordings import ROOT, bursts, model_problem, reading, reading_text, wav_bytes, write_wav

SCRIPTED = """
import signal, sys, time
# Who is started in the background of a script is handed down to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
from engine_bridge.engines import open as engines
from engine_bridge.testing import FakeEngine, clip_result

clips = []

def speak(samples, options):
    clips.append(samples)
    if len(clips) > 1:
        time.sleep({seconds})
    count = int(len(samples) / 16_000 / 0.4)
    return clip_result([(0.4 * n, 0.4 * (n + 1), chr(97 + n % 26) + chr(97 + n % 25)) for n in range(count)])

engines.open_engine = lambda spec: FakeEngine(speak, in_flight=2)
sys.argv[0] = "auricle"
import cli
cli.main()
"""
"""The command with an engine that needs no model, and that takes its time for all clips but the first."""


def command(*arguments, seconds=0.0):
    return [sys.executable, "-c", SCRIPTED.format(seconds=seconds), *map(str, arguments)]


def environment(**variables):
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


def run(arguments, **options):
    return subprocess.run(
        arguments, cwd=ROOT, env=environment(), capture_output=True, timeout=60, check=False, **options
    )


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    """Ninety seconds, so several clips."""
    return write_wav(tmp_path_factory.mktemp("process") / "talk.wav", bursts(90))


def read_terminal(descriptor, process):
    """Everything that a process writes to a terminal until it ends."""
    written = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if ready:
            written += os.read(descriptor, 65_536)
        elif process.poll() is not None:
            return written.decode()


class TestTerminal:
    @pytest.fixture
    def terminal(self):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 120))
        yield ours, theirs
        os.close(ours)
        os.close(theirs)

    def shown(self, terminal, arguments):
        ours, theirs = terminal
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=theirs)
        text = read_terminal(ours, process)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return text, printed.decode()

    def test_shows_audio_time_speed_and_time_left(self, terminal, talk):
        text, printed = self.shown(terminal, command("transcribe", talk, seconds=0.05))
        assert re.search(r"talk\.wav: 0:00:\d\d of 0:01:30, \d+x, 0:00:\d\d left", text)
        assert "talk.wav: 0:01:30 of 0:01:30" in text
        assert all(re.match(r"\d:\d\d:\d\d\.\d\d  ", line) for line in printed.splitlines())

    def test_shows_how_far_a_job_is(self, terminal, talk, tmp_path):
        (tmp_path / "in").mkdir()
        for number in range(3):
            write_wav(tmp_path / "in" / f"talk{number}.wav", bursts(40, seed=number))
        text, printed = self.shown(
            terminal, command("transcribe", tmp_path / "in", "-o", tmp_path / "out", seconds=0.1)
        )
        assert re.search(r"[012] of 3 recordings: 0:0\d:\d\d of 0:02:00 of audio, \d+x, 0:00:\d\d left", text)
        assert "3 of 3 recordings: 0:02:00 of 0:02:00 of audio" in text
        assert "auricle: 3 recordings: 3 done; see " in text
        assert printed == ""

    def test_shows_nothing_when_quiet(self, terminal, talk, tmp_path):
        text, printed = self.shown(terminal, command("transcribe", talk, "-q", "-o", tmp_path))
        assert text.splitlines() == [f"auricle: wrote {tmp_path / 'talk.txt'}"]
        assert printed == ""


class TestInterruption:
    def interrupted(self, talk, folder, *, times, seconds):
        """Interrupt a job once its first clip is done, a second time after it has said something, and read on."""
        process = subprocess.Popen(
            command("transcribe", talk, "-o", folder, "-f", "txt,json", seconds=seconds),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                assert process.stdout.readline()  # the first clip is done, and the engine is at work on the second
                started, told = time.monotonic(), b""
                for _ in range(times):
                    process.send_signal(signal.SIGINT)
                    told += process.stderr.readline()
                _, rest = process.communicate(timeout=30)
            finally:
                process.kill()
        assert process.returncode == 130
        return (told + rest).decode().splitlines(), time.monotonic() - started

    def test_once_what_the_engine_is_at_is_finished_and_the_job_goes_on_from_there(self, talk, tmp_path):
        told, _ = self.interrupted(talk, tmp_path / "out", times=1, seconds=2)
        assert [line.partition(";")[0] for line in told] == [
            "auricle: interrupted: finishing what the engine is at, and keeping it",
            "auricle: interrupted",
        ]
        assert [path.name for path in (tmp_path / "out").iterdir()] == [".auricle"]
        again = run(command("transcribe", talk, "-o", tmp_path / "out"))
        plain = run(command("transcribe", talk))
        assert again.returncode == 0
        assert again.stdout == plain.stdout

    def test_twice_it_ends_at_once_without_a_traceback_and_without_partial_files(self, talk, tmp_path):
        told, seconds = self.interrupted(talk, tmp_path / "out", times=2, seconds=50)
        assert seconds < 10
        assert told[0].startswith("auricle: interrupted: finishing")
        assert told[1] == "auricle: stopped; what was done until now is kept, and the same command goes on from there"
        assert [path.name for path in (tmp_path / "out").iterdir()] == [".auricle"]

    def test_a_reader_that_leaves_ends_it_without_a_traceback(self, talk):
        process = subprocess.Popen(
            command("transcribe", talk, seconds=0.2),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=30) == 1
        assert told == b""


class TestPipes:
    def test_standard_input_need_not_be_seekable(self):
        result = run(command("transcribe", "-", "-f", "json"), input=wav_bytes(bursts(5)))
        assert (result.returncode, result.stderr) == (0, b"")
        assert read_json(result.stdout.decode()).duration == pytest.approx(5.0)

    def test_a_name_that_the_encoding_lacks_is_printed_escaped(self, tmp_path):
        paths = [write_wav(tmp_path / name, bursts(2)) for name in ("日本.wav", "plain.wav")]
        result = subprocess.run(
            command("transcribe", *paths),
            cwd=ROOT,
            env=environment(PYTHONIOENCODING="latin-1"),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, b"")
        assert rb"/\u65e5\u672c.wav" in result.stdout

    def test_a_name_that_is_no_text_is_a_name(self, tmp_path):
        path = write_wav(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.wav")), bursts(2))
        result = run(command("transcribe", path, "-o", tmp_path / "out"))
        assert result.returncode == 0
        assert {os.fsencode(path.name) for path in (tmp_path / "out").iterdir()} == {b"caf\xe9.txt", b".auricle"}


@pytest.mark.model
@pytest.mark.skipif(model_problem() is not None, reason=str(model_problem()))
class TestRealModel:
    def test_a_recording_becomes_its_text(self, tmp_path):
        path = write_wav(tmp_path / "reading.wav", reading(10.9))
        result = run([sys.executable, "-m", "cli", "transcribe", path])
        assert (result.returncode, result.stderr) == (0, b"")
        lines = result.stdout.decode().splitlines()
        assert [line[:6] for line in lines] == ["0:00:0"] * len(lines)
        text = re.sub(r"[^a-z ]", "", " ".join(line.split("  ", 1)[1].lower() for line in lines).replace("-", " "))
        heard, spoken = set(text.split()), set(reading_text(10.9).split())
        assert len(heard & spoken) >= 0.9 * len(spoken)

    def test_silence_becomes_no_text(self, tmp_path):
        path = write_wav(tmp_path / "quiet.wav", reading(10.9) * 0)
        result = run([sys.executable, "-m", "cli", "transcribe", path])
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
