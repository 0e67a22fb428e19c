"""What is no recording: one clear sentence, and never a second file opened."""

import gzip
import sys

import numpy as np
import pytest

from audio.decoders import AUTO_ORDER, open_decoder
from audio.decoders.pyav_backend import PyAVDecoder
from audio.errors import (
    AudioError,
    AudioFileNotFoundError,
    BackendUnavailableError,
    DecodeError,
    EmptyAudioError,
    UnreadableAudioError,
)
from audio.limits import DecodeLimits
from audio.source import Source
from tests.audio.media import RATE, decoded, signal, written

EVERY = ["auto", *AUTO_ORDER]


def refusal(source, backend):
    """The error that refuses a source, or a skip where the backend cannot load."""
    try:
        open_decoder(source, backend).close()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    except AudioError as error:
        return error
    pytest.fail("it was taken for audio")


@pytest.fixture
def secret(tmp_path):
    """A recording next to the script under test, which nothing may open."""
    path = tmp_path / "secret.wav"
    path.write_bytes(written(signal(1.0)))
    return path


@pytest.fixture
def opens(secret):
    """The number of times that the secret was opened by way of Python; FFmpeg's own would show as its audio."""
    seen = []
    active = [True]

    def hook(event, arguments):
        if active[0] and event == "open" and "secret" in str(arguments[0]):
            seen.append(arguments[0])

    sys.addaudithook(hook)
    yield seen
    active[0] = False


SCRIPTS = {
    "ffconcat": "ffconcat version 1.0\nfile {path}\n",
    "ffconcat behind blank lines": "\n\n  ffconcat version 1.0\nfile {path}\n",
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{path}\n#EXT-X-ENDLIST\n",
    "hls of an address": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n",
    "dash": '<?xml version="1.0"?><MPD><Period><BaseURL>{path}</BaseURL></Period></MPD>',
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n",
    "pls": "[playlist]\nFile1={path}\nNumberOfEntries=1\n",
    "vobsub": "# VobSub index file, v7 (do not modify this line!)\nid: en, index: 0\n",
}


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_script_named_mp3_opens_nothing(tmp_path, secret, opens, script, backend, as_bytes):
    path = tmp_path / "song.mp3"
    path.write_text(SCRIPTS[script].format(path=secret))
    error = refusal(path.read_bytes() if as_bytes else path, backend)
    assert isinstance(error, UnreadableAudioError)
    assert "never followed" in str(error)
    assert opens == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_pyav_refuses_scripts_even_without_the_first_look(tmp_path, secret, script):
    """The allow-list of containers stands on its own: a script behind a byte that hides it is no audio either."""
    path = tmp_path / "song.mp3"
    path.write_text(SCRIPTS[script].format(path=secret))
    with pytest.raises(Exception, match=r"Invalid|no audio|sample rate"):
        PyAVDecoder(Source.of(path))


@pytest.mark.parametrize("backend", EVERY)
def test_text_and_web_pages_are_named_as_such(tmp_path, backend):
    text = tmp_path / "notes.mp3"
    text.write_text("These are the minutes of the meeting, not its recording.\n" * 40, encoding="utf-8")
    assert "it is text" in str(refusal(text, backend))
    page = b"\n<!DOCTYPE html><html><body>Sign in to download</body></html>"
    assert "web page" in str(refusal(page, backend))


@pytest.mark.parametrize("backend", EVERY)
def test_text_with_letters_of_two_bytes_is_text(backend):
    assert "it is text" in str(refusal(("Größenordnungen, naïve Übung\n" * 400).encode(), backend))


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize(
    "data",
    [
        bytes(5000),
        np.random.default_rng(3).bytes(200_000),
        gzip.compress(b"x" * 100_000),
        b"PK\x03\x04" + np.random.default_rng(4).bytes(3000),
        b"\x89PNG\r\n\x1a\n" + bytes(2000),
        b"RIFF\xff\xff\xff\xffWAVE",
        b"fLaC" + bytes(100),
        b"OggS" + bytes(100),
        b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f",
    ],
    ids=["zeros", "noise", "gzip", "zip", "png", "riff", "flac", "ogg", "id3"],
)
def test_junk_is_refused_in_one_sentence(data, backend):
    error = refusal(data, backend)
    assert isinstance(error, DecodeError)
    assert str(error).startswith("<bytes>: ")
    assert "\n" not in str(error)


def test_torchcodec_is_not_given_what_only_another_library_could_play():
    """The system's FFmpeg may play music modules through libraries that were never meant for strangers' files."""
    module = b"Extended Module: " + bytes(43) + b"\x04\x01" + bytes(3000)
    assert "formats of recordings" in str(refusal(module, "torchcodec"))


@pytest.mark.parametrize("backend", EVERY)
def test_missing_and_empty_files_are_told_apart_from_bad_ones(tmp_path, backend):
    with pytest.raises(AudioFileNotFoundError, match="no such file"):
        open_decoder(tmp_path / "absent.mp3", backend)
    with pytest.raises(AudioFileNotFoundError, match="folder"):
        open_decoder(tmp_path, backend)
    (tmp_path / "empty.mp3").touch()
    with pytest.raises(EmptyAudioError):
        open_decoder(tmp_path / "empty.mp3", backend)


def test_a_wav_of_nothing_but_a_header_is_no_empty_success():
    with pytest.raises(UnreadableAudioError, match="finds no samples"):
        open_decoder(written(np.zeros((0, 1), np.float32)))


def test_absurd_headers_cost_no_memory():
    """Rates and channel counts are claims: nothing is set aside for them."""
    data = bytearray(written(signal(0.5), subtype="PCM_16"))
    data[24:28] = (2**31 - 1).to_bytes(4, "little")
    for backend in ("soundfile", "pyav"):
        try:
            decoder = open_decoder(bytes(data), backend, limits=DecodeLimits())
        except UnreadableAudioError:
            continue
        assert sum(len(block) for block in decoder.blocks()) == RATE // 2
        decoder.close()


def test_a_recording_survives_a_foreign_beginning():
    """A damaged beginning is not mistaken for text: its bytes are no UTF-8."""
    prefix = bytes.fromhex("deadbeef") * 2000
    mp3 = written(signal(2.0), container="MP3", subtype="MPEG_LAYER_III")
    assert len(decoded(open_decoder(prefix + mp3, "pyav"))) >= 1.5 * RATE
