"""Limits and isolation reach the decoder in every way to a transcript, and change no text."""

import pytest
from click.testing import CliRunner

from audio.errors import LimitExceededError
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from cli import main
from engine_bridge import transcribe, transcribe_channels, transcribe_many
from engine_bridge.batch.fingerprints import recording_fingerprint
from engine_bridge.batch.working import complete_settings
from engine_bridge.testing import FakeEngine
from tests.recordings import write_wav
from tests.tones import Recording, hear

SHORT = DecodeLimits(max_seconds=2.0)


@pytest.fixture
def engine():
    opened = FakeEngine(hear)
    yield opened
    opened.close()


@pytest.fixture
def talk(tmp_path):
    recording = Recording().phrases(4)
    path = tmp_path / "talk.wav"
    write_wav(path, recording.samples)
    return path, recording


@pytest.mark.parametrize("way", [transcribe, transcribe_channels])
def test_a_recording_beyond_a_limit_fails_with_its_name(engine, talk, way):
    with pytest.raises(LimitExceededError, match="max_seconds"):
        way(talk[0], engine=engine, limits=SHORT)


def test_in_a_job_it_fails_alone(engine, talk, tmp_path):
    write_wav(tmp_path / "short.wav", Recording().speak(2).samples)
    with transcribe_many([talk[0], tmp_path / "short.wav"], engine=engine, limits=SHORT, ordered=True) as results:
        long, short = results
    assert long.failure.kind == "LimitExceededError"
    assert short.transcript.text


def test_isolation_changes_no_text_and_no_fingerprint(engine, talk):
    path, recording = talk
    isolated = transcribe(path, engine=engine, isolation=Isolation())
    assert [word.text for segment in isolated.segments for word in segment.words] == recording.names
    plain, apart = complete_settings({}), complete_settings({"isolation": Isolation()})
    assert recording_fingerprint(b"", plain, "") == recording_fingerprint(b"", apart, "")
    assert recording_fingerprint(b"", plain, "") != recording_fingerprint(b"", complete_settings({"limits": SHORT}), "")


def test_the_command_to_cut_takes_them(talk, tmp_path):
    out = str(tmp_path / "out")
    done = CliRunner().invoke(main, ["split", str(talk[0]), "-o", out, "--limit", "max_seconds=2"])
    assert done.exit_code == 1
    assert "--limit max_seconds=" in done.output
    write_wav(tmp_path / "short.wav", Recording().speak(2).samples)
    both = ["split", str(talk[0]), str(tmp_path / "short.wav"), "-o", out, "--shards", "webdataset", "--isolate"]
    some = CliRunner().invoke(main, [*both, "--limit", "max_seconds=2"])
    assert some.exit_code == 1
    assert "--limit max_seconds=" in some.output
    assert "1 recordings cut, 1 failed" in some.output
    every = CliRunner().invoke(main, both)
    assert every.exit_code == 0
    assert "1 recordings cut, 1 were there already" in every.output
