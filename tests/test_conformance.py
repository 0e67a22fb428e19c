"""All backends make the same of a file, or say why not."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.audio.media import encoded, signal, written

ROOT = Path(__file__).resolve().parents[1]
ODD = ROOT / "../shared/data/odd"
MOST_REAL_FILES = 60


@pytest.fixture(scope="module")
def conformance():
    spec = importlib.util.spec_from_file_location("conformance", ROOT / "bench" / "conformance.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["conformance"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["conformance"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("files")
    mono, stereo = signal(), signal(channels=2)
    wav = written(stereo, container="WAV", subtype="PCM_16")
    flac = written(mono, container="FLAC", subtype="PCM_16")
    files = {
        "mono.wav": written(mono, container="WAV", subtype="PCM_16"),
        "stereo.wav": wav,
        "float.wav": written(stereo, container="WAV", subtype="FLOAT"),
        "24.aiff": written(stereo, container="AIFF", subtype="PCM_24"),
        "a.flac": flac,
        "a.mp3": written(stereo, container="MP3", subtype="MPEG_LAYER_III"),
        "a.ogg": written(stereo, container="OGG", subtype="VORBIS"),
        "a.opus": written(mono, container="OGG", subtype="OPUS"),
        "a.m4a": encoded(stereo, container="ipod", codec="aac"),
        "a.mka": encoded(mono, container="matroska", codec="pcm_s16le"),
        "cut.wav": wav[: len(wav) // 2],
        "cut.flac": flac[: len(flac) // 2],
        "text.mp3": b"This is not a recording.\n" * 40,
        "playlist.mp3": b"#EXTM3U\nmono.wav\n",
    }
    for name, data in files.items():
        (found / name).write_bytes(data)
    return found


@pytest.fixture(scope="module")
def cells(conformance, folder):
    return dict(conformance.report(folder, conformance.names_in(folder)))


def test_no_cell_of_ordinary_and_damaged_files_is_unexplained(conformance, cells):
    assert len(cells) == 14
    assert {name: row for name, row in cells.items() if conformance.unexplained(row)} == {}


@pytest.mark.parametrize("name", ["mono.wav", "stereo.wav", "float.wav", "24.aiff", "a.flac", "a.mp3", "a.ogg"])
def test_backends_agree_on_what_they_all_read(cells, name):
    assert {cells[name][backend] for backend in ("auto", "soundfile", "pyav")} == {"ok"}


@pytest.mark.parametrize("name", ["a.m4a", "a.mka"])
def test_auto_reads_what_one_backend_reads(cells, name):
    assert cells[name]["auto"] == cells[name]["pyav"] == "ok"
    assert cells[name]["soundfile"] == "refuses"


@pytest.mark.parametrize("name", ["text.mp3", "playlist.mp3"])
def test_what_is_no_recording_is_refused_by_all(cells, name):
    assert set(cells[name].values()) == {"refuses"}


def decoded(module, **changes):
    values = {"frames": 32_000, "rate": 16_000, "channels": 1, "codec": "pcm_16", "lossless": True, "correlation": 1.0}
    return module.Decoded(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frames": 31_999}, "ms"),
        ({"frames": 30_000, "lossless": False}, "ms"),
        ({"channels": 2}, "channels"),
        ({"correlation": 0.998}, "correlation"),
        ({"correlation": 0.98, "lossless": False}, "correlation"),
        ({"level": 6.0}, "dB"),
        ({"lag": 0.01}, "late"),
        ({"error": "<ZeroDivisionError> division by zero"}, "ZeroDivisionError"),
    ],
)
def test_a_backend_that_differs_and_does_not_tell_is_unexplained(conformance, changes, said):
    rows = {"auto": decoded(conformance), "pyav": decoded(conformance, **changes)}
    text = conformance.cell(rows, "pyav", "a.wav", None)
    assert text.startswith("!")
    assert said in text


@pytest.mark.parametrize(
    ("changes", "letter"),
    [
        ({"frames": 16_000, "warnings": ["the file claims 2.00 s but only 1.00 s could be decoded"]}, "T"),
        ({"frames": 31_300, "lossless": False}, "D"),
        ({"frames": 8_000, "warnings": ["from 0.50 s on the stream has 2 channels at 8000 Hz"]}, "C"),
        ({"frames": 32_000}, "ok"),
        ({"error": "a.wav: pyav cannot read it"}, "refuses"),
    ],
)
def test_a_difference_with_a_reason_is_explained(conformance, changes, letter):
    rows = {"auto": decoded(conformance), "pyav": decoded(conformance, **changes)}
    assert conformance.cell(rows, "pyav", "a.wav", None) == letter


def test_auto_may_not_give_less_than_the_index_says_without_telling(conformance):
    index = {"sf_n": "64000", "sf_rate": "16000", "ffm_rate": "16000"}
    row = decoded(conformance)
    assert conformance.cell({"auto": row, "soundfile": row}, "auto", "a.wav", index).startswith("!2.00 s, and 4.00 s")
    told = decoded(conformance, warnings=["it is damaged"])
    assert conformance.cell({"auto": told, "soundfile": told}, "auto", "a.wav", index) == "T"


def test_a_worker_that_hangs_is_ended_and_replaced(conformance, folder):
    with conformance.Worker(timeout=0.0) as worker:
        assert worker.summary(str(folder / "mono.wav")) == "no answer within 0 s"
        worker._timeout = 60.0
        assert worker.summary(str(folder / "mono.wav"))["auto"].frames == len(signal())


def test_real_and_made_odd_files_show_no_unexplained_cell(conformance):
    if not (ODD / "INDEX.tsv").exists():
        pytest.skip("the folder of odd files is not here")
    names = conformance.names_in(ODD)
    chosen = names[:: -(-len(names) // MOST_REAL_FILES)]  # spread over all folders and formats
    assert len(chosen) > MOST_REAL_FILES // 2
    found = dict(conformance.report(ODD, chosen))
    assert {name: row for name, row in found.items() if conformance.unexplained(row)} == {}
