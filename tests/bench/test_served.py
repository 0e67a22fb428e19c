"""The measurement of servers, on one that hears tones."""

import sys

import pytest
import soundfile

from bench import served
from bench.quality import recordings
from tests.speech_server import Fault, SpeechServer
from tests.tones import RATE, Recording


@pytest.fixture
def folder(tmp_path):
    """Return a folder with two short recordings and their texts."""
    for number, phrases in enumerate((3, 5)):
        made = Recording().phrases(phrases)
        path = tmp_path / f"talk{number}.flac"
        soundfile.write(path, made.samples, RATE)
        path.with_suffix(".txt").write_text(" ".join(made.names) + "\n")
    return tmp_path


def test_each_recording_and_a_long_one_go_through_the_server(folder, monkeypatch, capsys):
    with SpeechServer() as server:
        arguments = ["served", str(folder), "--stock", server.url, "--methods", "http,stock", "--hours", "0.02"]
        monkeypatch.setattr(sys, "argv", arguments)
        served.main()
        sent = len(server.heard)
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    measured = {(row[0].strip("| "), row[1]): row for row in rows}
    for name in ("talk0", "talk1"):
        assert measured[name, "http"][4] == measured[name, "stock"][4] == "0.00"
    assert sent > 4
    (long,) = [row for row in rows if row[0] == "| http" and len(row) == 9]
    assert float(long[1]) == pytest.approx(0.02, abs=0.01)
    assert long[4] == "0.00"


def test_the_long_recording_has_the_text_of_what_it_is_made_of(folder, tmp_path):
    text, seconds = served.write_long(recordings([folder]), tmp_path / "long.mp3", 90 / 3600)
    assert seconds == pytest.approx(soundfile.info(tmp_path / "long.mp3").duration, abs=0.1)
    assert 90 <= seconds < 110
    assert text.split()[:15] == Recording().phrases(3).names


def test_without_a_server_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["served"])
    with pytest.raises(SystemExit):
        served.main()
    assert "name a server" in capsys.readouterr().err


def test_a_recording_that_a_server_refuses_has_a_row_and_the_others_are_measured(folder, monkeypatch, capsys):
    shorter, longer = sorted(soundfile.info(path).duration for path in folder.glob("*.flac"))
    judge = lambda clip: Fault(400, {"error": {"message": "too long"}}) if clip.seconds > shorter + 1 else None  # noqa: E731
    assert longer > shorter + 1
    with SpeechServer(judge=judge) as server:
        monkeypatch.setattr(sys, "argv", ["served", str(folder), "--stock", server.url, "--methods", "stock"])
        served.main()
    out, err = capsys.readouterr()
    assert "| talk1 | stock | refused |" in out
    assert [line.split(" | ")[4] for line in out.splitlines() if line.startswith("| talk0")] == ["0.00"]
    assert "talk1.flac" in err
    assert "too long" in err
