"""What tells one recording's content from every other, and what is remembered of it."""

import os
import signal
import sys
import time

import numpy as np
import pytest

from audio.source import Source
from engine_bridge import content
from engine_bridge.content import content_hash, recalled_hash
from tests.recordings import ROOT

RECORDING = (ROOT / "samples" / "reading.flac").read_bytes()
LARGE = np.random.default_rng(0).bytes((9 << 20) + 5)


@pytest.fixture
def hashed(monkeypatch):
    """Return the lengths of what is hashed from here on; nothing is known before."""
    monkeypatch.setattr(content, "_known_hashes", {})
    pieces, hash_of = [], content._hash_of
    monkeypatch.setattr(content, "_hash_of", lambda piece: (pieces.append(len(piece)), hash_of(piece))[1])
    return pieces


def test_content_is_hashed_to_its_last_byte():
    data = bytearray(RECORDING)
    before = content_hash(Source.of(bytes(data)))
    data[-1] ^= 1
    assert content_hash(Source.of(bytes(data))) != before


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(content, "SETTLED_NANOSECONDS", 0)
    file = tmp_path / "recording.flac"
    file.write_bytes(RECORDING)
    source, reads, read = Source.of(file), [], Source.open
    monkeypatch.setattr(Source, "open", lambda self, *range: (reads.append(self), read(self, *range))[1])
    first = content_hash(source)
    assert content_hash(source) == first
    assert len(reads) == 1
    # Another content of the same length, with the old time of change put back.
    status = file.stat()
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    time.sleep(0.02)
    file.write_bytes(changed)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert content_hash(source) == content_hash(Source.of(bytes(changed))) != first


def test_a_file_that_changed_just_now_may_change_again_unseen_and_is_read_each_time(tmp_path, monkeypatch):
    file = tmp_path / "recording.flac"
    file.write_bytes(RECORDING)
    reads, read = [], Source.open
    monkeypatch.setattr(Source, "open", lambda self, *range: (reads.append(self), read(self, *range))[1])
    assert content_hash(Source.of(file)) == content_hash(Source.of(file))
    assert len(reads) == 2


def test_an_array_counts_with_its_shape_and_rate():
    samples = np.zeros((2, 100), np.float32)
    hashes = [
        content_hash(Source.of((array, rate)))
        for array, rate in ((samples, 8_000), (samples.T, 8_000), (samples, 16_000), (samples.astype("f8"), 8_000))
    ]
    assert len(set(hashes)) == 4


class TestWhatIsGivenInMemoryAgain:
    @pytest.fixture(autouse=True)
    def _authenticating(self):
        pytest.importorskip("cryptography", reason="cryptography is not installed")

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_is_not_hashed_a_second_time(self, hashed, kind):
        first = recalled_hash(Source.of(kind(LARGE)))
        assert sum(hashed) == len(LARGE)
        assert recalled_hash(Source.of(bytes(bytearray(LARGE)))) == first == content_hash(Source.of(LARGE))
        assert sum(hashed) == 2 * len(LARGE)  # by content_hash itself

    @pytest.mark.parametrize("at", [0, 4 << 20, 5 << 20, -1])
    def test_is_another_where_one_bit_differs(self, hashed, at):
        changed = bytearray(LARGE)
        changed[at] ^= 1
        first = recalled_hash(Source.of(LARGE))
        assert recalled_hash(Source.of(bytes(changed))) == content_hash(Source.of(bytes(changed))) != first

    def test_is_another_where_its_pieces_change_places_or_its_end_is_missing(self, hashed):
        piece = 4 << 20
        others = (LARGE, LARGE[piece : 2 * piece] + LARGE[:piece] + LARGE[2 * piece :], LARGE[:-1], LARGE + b"\0")
        assert len({recalled_hash(Source.of(other)) for other in others}) == len(others)

    def test_is_another_as_an_array_of_another_kind(self, hashed):
        samples = np.zeros((2, 1 << 20), np.float32)
        given = [(samples, 8_000), (samples.T, 8_000), (samples, 16_000), (samples.astype("f8"), 8_000)]
        assert len({recalled_hash(Source.of(each)) for each in given}) == 4
        before = sum(hashed)
        assert len({recalled_hash(Source.of(each)) for each in given}) == 4
        assert sum(hashed) == before

    def test_is_not_recalled_for_another_owner(self, hashed):
        assert recalled_hash(Source.of(LARGE), "alice") == recalled_hash(Source.of(LARGE), "bob")
        assert sum(hashed) == 2 * len(LARGE)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
    def test_is_recognised_in_a_child_that_was_forked_afterwards(self, hashed):
        first = recalled_hash(Source.of(LARGE))
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a thread that is not there is waited for without end
            os._exit(0 if recalled_hash(Source.of(LARGE)) == first else 1)
        assert os.waitpid(child, 0)[1] == 0

    def test_is_forgotten_before_what_is_known_grows_without_bound(self, hashed, monkeypatch):
        monkeypatch.setattr(content, "_MOST_KNOWN", 2)
        for number in range(5):
            recalled_hash(Source.of(LARGE + bytes([number])))
            assert len(content._known_hashes) <= 2


def test_without_the_package_for_it_each_content_is_hashed_anew(hashed, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    content._gmac.cache_clear()
    try:
        assert recalled_hash(Source.of(LARGE)) == recalled_hash(Source.of(LARGE))
        assert sum(hashed) == 2 * len(LARGE)
    finally:
        content._gmac.cache_clear()
