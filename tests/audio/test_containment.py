"""No file makes a decoder open another file or address, on paths and as bytes, whatever its name."""

import ctypes
import os
import socket
import struct

import numpy as np
import pytest

from audio.decoders import AUTO_ORDER, open_decoder
from audio.decoders.containment import is_recording, refuse_scripts
from audio.errors import AudioError, BackendUnavailableError, UnreadableAudioError
from audio.source import Source
from tests.audio.media import RATE, decoded, encoded, signal, written

EVERY = ["auto", *AUTO_ORDER]

IN_OPEN = 0x20


class Decoys:
    """A folder of files that nothing may open, a port that nothing may call, and who looks at them: the kernel."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        tone = 0.9 * np.sin(2 * np.pi * 1000 * np.arange(2 * RATE) / RATE)
        for name in ("secret.wav", "secret.ts", "001.wav", "002.wav"):
            (folder / name).write_bytes(written(tone.astype(np.float32)[:, np.newaxis]))
        self.path = folder / "secret.wav"
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watch = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._libc.inotify_add_watch(self._watch, os.fsencode(folder), IN_OPEN) >= 0

    def touched(self):
        """What was opened or called since the last question."""
        found = []
        try:
            events = os.read(self._watch, 1 << 16)
            while events:
                length = struct.unpack_from("iIII", events)[3]
                found.append(events[16 : 16 + length].rstrip(b"\0").decode())
                events = events[16 + length :]
        except BlockingIOError:
            pass
        try:
            self._server.accept()[0].close()
            found.append("the port")
        except BlockingIOError:
            pass
        return [each for each in found if each]

    def close(self):
        os.close(self._watch)
        self._server.close()


@pytest.fixture
def decoys(tmp_path, monkeypatch):
    made = Decoys(tmp_path / "decoys")
    monkeypatch.chdir(made.folder)  # where relative names would lead
    yield made
    made.close()


def test_the_decoys_notice_who_touches_them(decoys):
    assert decoys.touched() == []
    decoys.path.read_bytes()
    assert decoys.touched() == ["secret.wav"]
    socket.create_connection(decoys.address.split(":")).close()
    assert decoys.touched() == ["the port"]


def id3(size=300):
    """An ID3v2.4 tag."""
    return b"ID3\x04\x00\x00" + bytes([0, 0, size >> 7, size & 0x7F]) + bytes(size)


SDP = b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"
CONCAT = b"ffconcat version 1.0\nfile secret.wav\n"
LOCAL_HLS = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret.ts\n#EXT-X-ENDLIST\n"
HLS = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://{address}/a.ts\n#EXT-X-ENDLIST\n"
DASH = (
    b'<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-on-demand:2011" type="static" '
    b'mediaPresentationDuration="PT9S"><Period><AdaptationSet contentType="audio" mimeType="audio/mp4">'
    b'<Representation id="1" bandwidth="1"><BaseURL>http://{address}/a.mp4</BaseURL></Representation>'
    b"</AdaptationSet></Period></MPD>"
)

SCRIPTS = {
    "ffconcat": CONCAT,
    "ffconcat by full name": b"ffconcat version 1.0\nfile {path}\n",
    "ffconcat of an address": b"ffconcat version 1.0\nfile http://{address}/a.wav\n",
    "ffconcat behind a tag": id3() + CONCAT,
    "ffconcat behind two tags": id3() + id3(5000) + CONCAT,
    "ffconcat behind a mark": b"\xef\xbb\xbf" + CONCAT,
    "hls": HLS,
    "hls of a file": LOCAL_HLS,
    "hls behind a mark": b"\xef\xbb\xbf" + HLS,
    "hls behind blank lines": b"\n \r\n" + LOCAL_HLS,
    "hls behind a tag": id3() + HLS,
    "dash": b'<?xml version="1.0"?>' + DASH,
    "dash behind blanks": b"\n\n" + DASH,
    "dash behind a tag": id3() + DASH,
    "dash in a riff": b"RIFF\x10\x10\x10\x10WAVE" + DASH,
    "dash far behind": b"fLaC" + b"\xfe" * 9000 + DASH,
    "sdp": SDP,
    "sdp in a riff": b"RIFF\xff\n" + SDP,
    "sdp behind a tag": id3() + SDP,
    "imf": b"\xfe<CompositionPlaylist xmlns='x'><Id>urn:uuid:0</Id></CompositionPlaylist>",
    "pls": b"[playlist]\nFile1={path}\nNumberOfEntries=1\n",
    "redirection": b"RTSPtext rtsp://{address}/a\n",
    "subtitle index": b"# VobSub index file, v7 (do not modify this line!)\nid: en, index: 0\n",
}


def attempt(source, backend):
    """The audio that a backend gives, nothing where it refuses, or a skip where it cannot load."""
    try:
        return decoded(open_decoder(source, backend))
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    except AudioError:
        return np.empty((0, 1), np.float32)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_opens_nothing(tmp_path, decoys, script, backend):
    data = SCRIPTS[script].replace(b"{address}", decoys.address.encode()).replace(b"{path}", os.fsencode(decoys.path))
    song = tmp_path / "song.mp3"
    song.write_bytes(data)
    for source in (song, data):
        assert len(attempt(source, backend)) == 0
    assert decoys.touched() == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_refused_before_any_decoder_sees_it(script):
    with pytest.raises(UnreadableAudioError, match=r"never followed|text"):
        refuse_scripts(Source.of(SCRIPTS[script]))


def test_endless_tags_are_not_followed():
    with pytest.raises(UnreadableAudioError, match="tags"):
        refuse_scripts(Source.of(id3(0) * 5000 + CONCAT))


def test_a_recording_behind_a_tag_is_one_and_a_module_is_not():
    mp3 = written(signal(1.0), container="MP3", subtype="MPEG_LAYER_III")
    assert is_recording(Source.of(id3(5000) + mp3))
    assert not is_recording(Source.of(id3() + b"Extended Module: " + bytes(2000)))
    assert len(decoded(open_decoder(id3(5000) + mp3))) > 0.9 * RATE


NAMES = [
    "concat:secret.wav|secret.wav",
    "file:secret.wav",
    "http:__127.0.0.1_a.wav",
    "subfile,,start,0,end,0,,:secret.wav",
    "data:audio;base64,AAAA",
    "crypto:secret.wav",
    "cache:secret.wav",
    "pipe:0",
    "%03d.wav",
    "00[12].wav",
    "-",
    "@secret.wav",
    "a.m3u8",
    "a.sdp",
    "a.ffconcat",
    "a.sln",
]


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(tmp_path, monkeypatch, decoys, name, backend):
    """A recording is decoded under any name; what the name would mean to FFmpeg or libsndfile does not happen."""
    samples = signal(1.0)
    (tmp_path / name).write_bytes(written(samples))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.wav").symlink_to(decoys.path)
    (tmp_path / "001.wav").symlink_to(decoys.path)
    found = attempt(name, backend)
    assert len(found) == RATE
    assert np.abs(found - samples).max() < 1e-3
    assert decoys.touched() == []


def boxed(kind, body):
    return struct.pack(">I", 8 + len(body)) + kind + body


def with_reference(mov, reference):
    """A QuickTime file whose first data reference is replaced; its samples come before its index, and stay put."""
    moov = mov.rindex(b"moov") - 4
    return mov[:moov] + _replaced(mov[moov:], [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"], reference)


def _replaced(data, path, reference):
    result, at = b"", 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + size]
        if kind == path[0] and len(path) == 1:
            body = bytes(4) + struct.pack(">I", 1) + reference
        elif kind == path[0]:
            body = _replaced(body, path[1:], reference)
        result += boxed(kind, body)
        at += size
    return result


def alias(path):
    """A QuickTime alias record with an absolute path."""
    name = os.fsencode(path.name)
    record = bytes(10) + bytes([1]) + b"/".ljust(27, b"\0") + bytes(12) + bytes([len(name)]) + name.ljust(63, b"\0")
    record += bytes(16) + struct.pack(">HH", 1, 1) + bytes(16)
    full = os.fsencode(path)
    for tag, text in ((0, b"decoys"), (2, full), (18, full), (19, b"/")):
        record += struct.pack(">HH", tag, len(text)) + text + (b"\0" if len(text) % 2 else b"")
    return boxed(b"alis", bytes(4) + record + b"\xff\xff\0\0")


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("kind", ["alias", "url", "address"])
def test_samples_outside_of_a_mov_are_not_fetched(tmp_path, decoys, kind, backend):
    reference = {
        "alias": alias(decoys.path),
        "url": boxed(b"url ", bytes(4) + f"file://{decoys.path}\0".encode()),
        "address": boxed(b"url ", bytes(4) + f"http://{decoys.address}/a.mov\0".encode()),
    }[kind]
    mov = encoded(signal(1.0), container="mov", codec="pcm_s16le")
    data = with_reference(mov, reference)
    assert len(attempt(mov, backend)) == (0 if backend == "soundfile" else RATE)
    (tmp_path / "a.mov").write_bytes(data)
    for source in (tmp_path / "a.mov", data):
        found = attempt(source, backend)
        # What is given, if anything, is its own audio: the decoy is a louder, steady tone.
        assert len(found) == 0 or np.abs(found).max() < 0.6
    assert decoys.touched() == []


def with_neighbour(mkv, name):
    """A Matroska file that names the segment to be played after it, in place of the programs that wrote it."""
    for written_by, neighbour, body in (
        (b"\x4d\x80", b"\x3e\xb9\x23", bytes(range(16))),
        (b"\x57\x41", b"\x3e\x83\xbb", name),
    ):
        at = mkv.index(written_by, mkv.index(b"\x15\x49\xa9\x66"))
        size = mkv[at + 2] & 0x7F
        element = neighbour + bytes([0x80 | size - 1]) + body.ljust(size - 1, b"\0")[: size - 1]
        mkv = mkv[:at] + element + mkv[at + 3 + size :]
    return mkv


@pytest.mark.parametrize("backend", EVERY)
def test_the_segment_that_follows_a_matroska_file_is_not_fetched(tmp_path, decoys, backend):
    data = with_neighbour(encoded(signal(1.0), container="matroska", codec="pcm_s16le"), b"secret.wav")
    (tmp_path / "a.mkv").write_bytes(data)
    for source in (tmp_path / "a.mkv", data):
        found = attempt(source, backend)
        assert len(found) == (0 if backend == "soundfile" else RATE)
    assert decoys.touched() == []


@pytest.mark.parametrize("backend", ["torchcodec", "pyav"])
def test_subtitles_in_a_film_that_name_other_files_are_not_read(tmp_path, decoys, backend):
    """An index of pictures for subtitles lies beside a film; only the film is opened."""
    film = encoded(signal(1.0), container="matroska", codec="pcm_s16le", picture=True)
    for ending in ("sub", "idx", "srt", "wav"):
        os.link(decoys.path, decoys.folder / f"film.{ending}")
    (decoys.folder / "film.mkv").write_bytes(film)
    decoys.touched()
    assert len(attempt(decoys.folder / "film.mkv", backend)) == RATE
    assert set(decoys.touched()) == {"film.mkv"}
