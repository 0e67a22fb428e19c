"""Recordings at addresses, read in place."""

import re
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from audio import AudioFileNotFoundError, BackendUnavailableError, UnreadableAudioError, load_audio
from audio.source import Source
from engine_bridge.batch.manifests import read_manifest
from engine_bridge.batch.remote import opened, shown_address
from tests.recordings import ENCODINGS, bursts, encode, wav_bytes

SOUND = bursts(6)


@pytest.fixture
def talk():
    system = fsspec.filesystem("memory")
    system.pipe_file("/remote/talk.wav", wav_bytes(SOUND))
    yield "memory://remote/talk.wav"
    system.rm("/remote", recursive=True)


def load(address):
    with opened(address) as source:
        return load_audio(source)[0]


class Handler(BaseHTTPRequestHandler):
    """Gives one file; in parts unless it is told to give it whole, or to fail."""

    def do_HEAD(self):
        self.give(head=True)

    def do_GET(self):
        self.give()

    def give(self, head=False):
        server = self.server
        server.asked.append((self.command, self.headers.get("Range")))
        body, status = server.body, server.status
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if server.parts and part and status == 200:
            first, last = int(part[1]), min(int(part[2]), len(body) - 1)
            status, body = 206, body[first : last + 1]
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(server.body)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def served(body, *, parts=True, status=200):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.body, server.parts, server.status, server.asked = body, parts, status, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://me:word@127.0.0.1:{server.server_port}/talks/talk.wav?sign=secret"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class TestReading:
    def test_the_audio_is_that_of_the_file(self, talk):
        np.testing.assert_array_equal(load(talk), load_audio(wav_bytes(SOUND))[0])

    def test_what_is_no_address_is_given_on(self):
        for source in ("talk.wav", b"bytes", (SOUND, 16_000)):
            with opened(source) as same:
                assert same is source

    def test_several_readers_stand_where_they_stand(self, talk):
        with opened(talk) as source, source.open() as one, source.open() as other:
            assert isinstance(source, Source)
            assert one.read(4) == b"RIFF"
            assert other.read(4) == b"RIFF"
            assert one.read(1) == wav_bytes(SOUND)[4:5]

    def test_an_index_at_the_end_is_found(self, tmp_path):
        path = encode(SOUND, tmp_path / "film.mp4", ENCODINGS["mp4"])
        with served(path.read_bytes()) as (_, address):
            np.testing.assert_array_equal(load(address), load_audio(path)[0])

    @pytest.mark.parametrize("parts", [True, False], ids=["in parts", "whole alone"])
    def test_from_web_servers(self, parts):
        with served(wav_bytes(SOUND), parts=parts) as (server, address):
            np.testing.assert_array_equal(load(address), load_audio(wav_bytes(SOUND))[0])
        assert len(server.asked) < 6

    def test_it_is_read_ahead_not_copied(self, monkeypatch):
        monkeypatch.setattr("engine_bridge.batch.remote._BLOCK_BYTES", 1 << 16)
        body = wav_bytes(bursts(30))
        with served(body) as (server, address), opened(address) as source, source.open() as reader:
            reader.read(1000)
        ranges = [int(each.split("-")[1]) for _, each in server.asked if each]
        assert sorted(ranges)[-2] < len(body) // 2


class TestFaults:
    def test_a_read_that_fails_fails_the_recording_though_the_decoder_made_do(self, talk, monkeypatch):
        # Without the error at the end, this recording would be taken for one that is damaged, and done.
        read = MemoryFile.read

        def break_off(file, size=-1):
            if file.tell() >= 100_000:
                raise ConnectionResetError("Connection reset by peer")
            return read(file, min(size, 100_000 - file.tell()) if size > 0 else size)

        monkeypatch.setattr(MemoryFile, "read", break_off)
        decoded = []
        with (
            pytest.raises(
                UnreadableAudioError, match=rf"^{talk}: it cannot be read \(Connection reset by peer\); check"
            ),
            opened(talk) as source,
        ):
            decoded.append(load_audio(source)[0])
        assert 0 < len(decoded[0]) < len(SOUND)

    def test_a_read_that_fails_is_told_in_place_of_what_the_decoder_says(self, talk, monkeypatch):
        def fail(file, size=-1):
            raise TimeoutError

        monkeypatch.setattr(MemoryFile, "read", fail)
        with pytest.raises(UnreadableAudioError, match=r"it cannot be read \(TimeoutError\); check the address"):
            load(talk)

    def test_what_the_body_raises_passes(self, talk):
        with pytest.raises(KeyError), opened(talk):
            raise KeyError("mine")

    def test_a_file_that_is_not_there(self):
        with pytest.raises(AudioFileNotFoundError, match=r"^memory://remote/no\.wav: there is no such file; check the"):
            load("memory://remote/no.wav")

    def test_an_empty_file(self, talk):
        fsspec.filesystem("memory").pipe_file("/remote/empty.wav", b"")
        with pytest.raises(UnreadableAudioError, match="the file at this address is empty"):
            load("memory://remote/empty.wav")

    def test_a_file_that_may_not_be_read(self, talk, monkeypatch):
        def refuse(*_, **__):
            raise PermissionError("403 Forbidden: request id 7")

        monkeypatch.setattr(MemoryFileSystem, "_open", refuse)
        with pytest.raises(UnreadableAudioError, match="it may not be read; check the credentials"):
            load(talk)

    @pytest.mark.parametrize(
        ("status", "error", "told"),
        [
            (404, AudioFileNotFoundError, "there is no such file"),
            (403, UnreadableAudioError, "check the credentials"),
            (500, UnreadableAudioError, r"it cannot be read \(status 500\)"),
        ],
    )
    def test_web_servers_that_refuse(self, status, error, told):
        with served(b"", status=status) as (_, address), pytest.raises(error, match=told) as caught:
            load(address)
        assert "secret" not in str(caught.value)
        assert "word" not in str(caught.value)

    def test_a_web_server_that_is_not_there(self):
        with served(b"") as (_, address):
            pass
        with pytest.raises(UnreadableAudioError, match=r"it cannot be read .*; check the address and the connection"):
            load(address)

    def test_a_scheme_that_nobody_knows(self):
        with pytest.raises(
            UnreadableAudioError, match=r"warp://x/a\.wav: it cannot be read \(Protocol not known: warp\)"
        ):
            load("warp://x/a.wav")

    def test_a_scheme_whose_package_is_absent_names_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "s3fs", None)
        with pytest.raises(BackendUnavailableError, match=r"s3:// cannot be used here: .*s3fs"):
            load("s3://bucket/a.wav")

    def test_fsspec_itself_absent_names_the_extra(self, talk, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(BackendUnavailableError, match=r"pip install 'auricle\[remote\]'"):
            load(talk)

    def test_a_manifest_that_breaks_off_is_told(self, monkeypatch):
        fsspec.filesystem("memory").pipe_file("/lists/list.jsonl", b'{"path": "a.wav"}\n' * 30_000)
        read = MemoryFile.read

        def break_off(file, size=-1):
            if file.tell() >= 1 << 18:
                raise ConnectionResetError("Connection reset by peer")
            return read(file, size)

        monkeypatch.setattr(MemoryFile, "read", break_off)
        *entries, last = read_manifest("memory://lists/list.jsonl")
        assert len(entries) > 10_000
        with pytest.raises(ValueError, match=r"memory://lists/list\.jsonl: it cannot be read \(Connection reset"):
            load_audio(last.source)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://bucket/what?.wav", "s3://bucket/what?.wav"),
        ("https://me:word@host:8000/a.wav?sign=1#x", "https://host:8000/a.wav"),
        ("sftp://me:word@host/a.wav", "sftp://host/a.wav"),
    ],
)
def test_nothing_secret_is_shown(address, shown):
    assert shown_address(address) == shown
