"""`Source`: everything that can be decoded, as something that opens afresh any number of times."""

import array
import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from audio.errors import AudioFileNotFoundError, EmptyAudioError, InvalidSourceError, UnreadableAudioError
from audio.source import READ_SIZE, Source


class Pipe:
    """A stream that can be read once, in pieces smaller than asked for."""

    def __init__(self, data, piece=1000):
        self._file = io.BytesIO(data)
        self._piece = piece

    def read(self, size):
        return self._file.read(min(size, self._piece))


DATA = bytes(range(256)) * 40


def read(source):
    with source.open() as reader:
        return reader.read()


@pytest.mark.parametrize("as_given", [str, Path, os.fspath])
def test_a_path_is_opened_as_often_as_wanted(tmp_path, as_given):
    path = tmp_path / "a.wav"
    path.write_bytes(DATA)
    source = Source.of(as_given(path))
    assert (source.name, source.size) == (str(path), len(DATA))
    assert [read(source), read(source)] == [DATA, DATA]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: array.array("B", data)])
def test_bytes_of_any_kind_are_taken(kind):
    source = Source.of(kind(DATA))
    assert (source.name, source.size, read(source)) == ("<bytes>", len(DATA), DATA)


def test_a_file_object_is_read_from_where_it_stands():
    file = io.BytesIO(b"before" + DATA)
    file.seek(6)
    source = Source.of(file)
    assert (source.name, source.size) == ("<file>", len(DATA))
    assert [read(source), read(source)] == [DATA, DATA]
    assert not file.closed


def test_readers_of_one_file_object_move_alone():
    source = Source.of(io.BytesIO(DATA))
    with source.open() as one, source.open() as other:
        one.seek(5000)
        assert other.read(10) == DATA[:10]
        assert one.read(10) == DATA[5000:5010]


def test_readers_of_one_file_object_work_in_threads():
    data = np.random.default_rng(0).bytes(4 * READ_SIZE)
    source = Source.of(io.BytesIO(data))
    found = []
    threads = [threading.Thread(target=lambda: found.append(read(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [data] * 4


@pytest.mark.parametrize("wrapped", [Pipe(DATA), io.BufferedReader(io.BytesIO(DATA))])
def test_a_stream_gives_the_same_as_its_bytes(wrapped):
    source = Source.of(wrapped)
    assert [read(source), read(source)] == [DATA, DATA]


def test_a_pipe_named_by_a_path_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(DATA,))
    writer.start()
    source = Source.of(path)
    writer.join()
    assert (source.name, source.path, read(source)) == (str(path), None, DATA)


def test_a_part_of_a_source_is_a_reader_of_its_own(tmp_path):
    path = tmp_path / "a.ogg"
    path.write_bytes(DATA)
    for source in (Source.of(path), Source.of(DATA), Source.of(io.BytesIO(DATA))):
        with source.open(100, 300) as reader:
            assert reader.read() == DATA[100:300]
            assert reader.seek(-50, os.SEEK_END) == 150
            assert reader.read(10) == DATA[250:260]


def test_seeking_behind_the_end_reads_nothing(tmp_path):
    path = tmp_path / "a.caf"
    path.write_bytes(DATA)
    for source in (Source.of(path), Source.of(io.BytesIO(DATA))):
        with source.open() as reader:
            reader.seek(2**62)
            assert reader.read(4) == b""
            reader.seek(4)
            assert reader.read(4) == DATA[4:8]


def test_a_reader_shows_no_file_name(tmp_path):
    path = tmp_path / "list.m3u8"
    path.write_bytes(DATA)
    with Source.of(path).open() as reader:
        assert "m3u8" not in str(getattr(reader, "name", ""))


def test_a_source_is_its_own_source():
    source = Source.of(DATA)
    assert Source.of(source) is source


@pytest.mark.parametrize("rate", [16_000, np.int64(16_000), 16_000.0])
def test_an_array_comes_with_its_rate(rate):
    source = Source.of((np.zeros(10, np.float32), rate))
    assert source.name == "<array>"
    assert source.array.sample_rate == 16_000
    assert source.size is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.zeros(10), "pass (array, sample_rate)"),
        ((16_000, np.zeros(10)), "comes second"),
        ((np.zeros(10), "16k"), "whole number"),
        ((np.zeros(10), 0), "above 0"),
        ((np.zeros(10), float("nan")), "whole number"),
        ((np.zeros(10), True), "whole number"),
        ((np.zeros(10), 16_000, 1), "3 items"),
        ((np.zeros(10, complex), 16_000), "real samples"),
        ((np.zeros((2, 2, 2)), 16_000), "3 dimensions"),
        ((np.zeros(10, np.int64), 16_000), "full scale"),
        (io.StringIO("text"), "binary mode|for text"),
        (12, "type int"),
        (None, "type NoneType"),
    ],
)
def test_what_is_no_source_is_refused_with_the_way_out(given, says):
    with pytest.raises(InvalidSourceError, match=says.replace("(", r"\(").replace(")", r"\)")):
        Source.of(given)


def test_a_stream_of_text_is_refused():
    class Words:
        def read(self, size):
            return "words"

    with pytest.raises(InvalidSourceError, match='mode "rb"'):
        Source.of(Words())


@pytest.mark.parametrize("name", ["http://127.0.0.1:9/a.wav", "concat:a.wav|b.wav", "-", "data:,x", "a\0b", "n" * 5000])
def test_a_string_is_a_path_and_never_an_address(name):
    with pytest.raises(AudioFileNotFoundError, match="no such file"):
        Source.of(name)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(AudioFileNotFoundError, match="folder"):
        Source.of(tmp_path)


def test_nothing_at_all_is_refused(tmp_path):
    path = tmp_path / "empty.mp3"
    path.touch()
    ended = io.BytesIO(DATA)
    ended.seek(0, os.SEEK_END)
    for given in (path, b"", io.BytesIO(), ended, Pipe(b"")):
        with pytest.raises(EmptyAudioError):
            Source.of(given)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path):
    path = tmp_path / "secret.wav"
    path.write_bytes(DATA)
    path.chmod(0)
    with pytest.raises(UnreadableAudioError, match="permissions"):
        Source.of(path)
