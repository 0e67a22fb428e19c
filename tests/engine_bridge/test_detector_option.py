"""Which detector finds the speech is an option of every way in, and part of what tells finished work apart."""

from contextlib import closing

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from audio.detectors import DETECTORS
from audio.energy import EnergyDetector
from audio.errors import BackendUnavailableError, SplitError
from cli import main
from engine_bridge import transcribe
from engine_bridge.batch.chunking import SplitSettings, cut
from engine_bridge.batch.many import transcribe_many
from engine_bridge.batch.recording import Recording
from engine_bridge.commands.arguments import DETECTORS as CHOICES
from engine_bridge.testing import FakeEngine, clip_result

RATE = 16_000


class SecondHalf:
    """A detector that finds speech from the tenth second on, whatever is heard."""

    def __init__(self, sample_rate):
        assert sample_rate == RATE
        self._count = 0

    def feed(self, samples, levels):
        frames = np.arange(self._count, self._count + len(levels))
        self._count += len(levels)
        return (frames >= 1000).astype(np.float32)

    def finish(self):
        return np.empty(0, np.float32)


@pytest.fixture
def detector(monkeypatch):
    monkeypatch.setattr("audio.silero.SileroDetector", SecondHalf)


@pytest.fixture
def absent(monkeypatch):
    from audio.silero import _session

    _session.cache_clear()
    monkeypatch.setattr("audio.silero.find_spec", lambda name: None)
    yield
    _session.cache_clear()


@pytest.fixture
def noise():
    """Twenty seconds that energy takes for speech throughout."""
    at = np.arange(20 * RATE) / RATE
    draw = np.random.default_rng(1).standard_normal(len(at))
    return (0.05 * draw * (1.1 + np.sin(2 * np.pi * 3 * at))).astype(np.float32)


@pytest.fixture
def file(tmp_path, noise):
    path = tmp_path / "noise.wav"
    soundfile.write(path, noise, RATE, subtype="FLOAT")
    return str(path)


def silent_engine():
    return FakeEngine(lambda samples, options: clip_result([]))


def gap_seconds(transcript):
    return sum(gap.end - gap.start for gap in transcript.gaps)


def test_the_command_offers_what_there_is():
    assert CHOICES == DETECTORS


def test_the_detector_decides_what_has_to_have_text(noise, detector):
    by_energy = transcribe((noise, RATE), engine=silent_engine())
    assert gap_seconds(by_energy) > 15
    by_voice = transcribe((noise, RATE), engine=silent_engine(), detector="silero")
    assert {gap.start >= 9.9 for gap in by_voice.gaps} == {True}
    assert 9 < gap_seconds(by_voice) < 11


def test_the_engine_hears_only_what_the_detector_finds(noise, detector):
    engine = silent_engine()
    transcribe((noise, RATE), engine=engine, detector="silero")
    heard = engine.submissions[0].samples
    assert 10 * RATE <= len(heard) <= 13 * RATE


def test_an_unknown_detector_is_refused(noise):
    with pytest.raises(SplitError, match="no speech detector 'webrtc'"):
        transcribe((noise, RATE), engine=silent_engine(), detector="webrtc")


def test_without_its_packages_no_recording_is_begun(noise, absent):
    engine = silent_engine()
    with pytest.raises(BackendUnavailableError, match=r"auricle\[silero\]"):
        transcribe((noise, RATE), engine=engine, detector="silero")
    with pytest.raises(BackendUnavailableError, match=r"auricle\[silero\]"):
        transcribe_many([(noise, RATE)], engine=engine, detector="silero")
    assert not engine.submissions


def test_what_was_done_with_another_detector_is_done_again(file, tmp_path, detector):
    def known(**options):
        with transcribe_many([file], engine=silent_engine(), journal=tmp_path / "done.sqlite", **options) as results:
            return [(result.known, round(gap_seconds(result.transcript))) for result in results]

    ((first, seconds),) = known()
    assert not first
    assert seconds > 15
    assert known(detector="silero") == [(False, 10)]
    assert known(detector="silero") == [(True, 10)]
    assert known() == [(True, seconds)]


def test_chunks_are_cut_by_the_detector_that_is_named(file, tmp_path, detector):
    counts = {}
    for name in DETECTORS:
        settings = SplitSettings(keep_silence=0.2, detector=name)
        with closing(cut(Recording("noise", file), settings, str(tmp_path), lambda: False)) as chunks:
            counts[name] = sum(entry["frames"] for entry, _ in chunks) / RATE
    assert counts["energy"] == pytest.approx(20, abs=0.5)
    assert counts["silero"] == pytest.approx(10.1, abs=0.2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe", "{file}"],
        ["transcribe", "{file}", "-o", "{folder}"],
        ["split", "{file}", "-o", "{folder}"],
        ["split", "{file}", "-o", "{folder}", "--shards", "webdataset"],
    ],
)
def test_the_command_says_how_to_get_it(arguments, file, tmp_path, absent, monkeypatch):
    monkeypatch.setattr("engine_bridge.engines.open.open_engine", lambda spec: silent_engine())
    given = [argument.format(file=file, folder=tmp_path / "out") for argument in arguments]
    done = CliRunner().invoke(main, [*given, "--detector", "silero"])
    assert done.exit_code == 1, done.output
    assert done.stderr.count("pip install 'auricle[silero]'") == 1
    assert "Traceback" not in done.stderr


def test_the_command_hands_it_on(file, tmp_path, detector, monkeypatch):
    made = []

    class Noted(SecondHalf):
        def __init__(self, sample_rate):
            made.append(sample_rate)
            super().__init__(sample_rate)

    monkeypatch.setattr("audio.silero.SileroDetector", Noted)
    monkeypatch.setattr("engine_bridge.engines.open.open_engine", lambda spec: silent_engine())
    assert CliRunner().invoke(main, ["transcribe", file, "-q", "--detector", "silero"]).exit_code == 0
    assert CliRunner().invoke(main, ["split", file, "-o", str(tmp_path / "out"), "--detector", "silero"]).exit_code == 0
    assert made == [RATE, RATE]
    monkeypatch.setattr("audio.detectors.EnergyDetector", lambda: made.append("energy") or EnergyDetector())
    assert CliRunner().invoke(main, ["transcribe", file, "-q"]).exit_code == 0
    assert made[2:] == ["energy"]
