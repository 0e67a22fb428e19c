"""A decode in a process of its own: the same audio, and whatever a library does costs one file."""

import importlib
import os
import time
from pathlib import Path

import numpy as np
import pytest

from audio.decoders import open_decoder
from audio.errors import (
    AudioError,
    BackendUnavailableError,
    DecodeError,
    LimitExceededError,
    NoAudioStreamError,
    UnreadableAudioError,
)
from audio.isolation import Isolation, open_isolated
from audio.limits import DecodeLimits
from audio.source import Source
from audio.stream import open_stream
from tests.audio.media import RATE, decoded, encoded, signal, silent_film, written

BOUNDS = Isolation(max_memory_bytes=256 << 20, max_block_seconds=20.0)

MISBEHAVING = """
import ctypes, os, signal, time
import numpy as np
from audio.decoders.array_decoder import ArrayDecoder
from audio.source import ArrayAudio

class Decoder(ArrayDecoder):
    def __init__(self, act):
        super().__init__(ArrayAudio(np.ones((32000, 2), np.float32), 16000))
        self.act = act
    def blocks(self):
        yield from super().blocks()
        self.act()

def crash(): os.kill(os.getpid(), signal.SIGSEGV)
def fault(): ctypes.string_at(8)
def leave(): os._exit(3)
def hang():
    while True: time.sleep(0.01)
def hang_in_c(): ctypes.CDLL(None).pause()
def flood(): held = [np.empty(10_000_000) for _ in range(1000)]
def fail(): raise KeyError("of its own kind")

def later(source, act): return Decoder(globals()[act])
def at_once(source, act):
    globals()[act]()
    return Decoder(crash)
"""


@pytest.fixture
def misbehaving(tmp_path, monkeypatch):
    (tmp_path / "misbehaving_decoders.py").write_text(MISBEHAVING)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("misbehaving_decoders")


@pytest.fixture(scope="module")
def recording():
    return written(signal(2.5, channels=2), container="FLAC")


def given(decoder):
    """The number of frames that a decoder gives, and the error that it ends with."""
    frames = 0
    try:
        for block in decoder.blocks():
            frames += len(block)
    except AudioError as error:
        return frames, error
    return frames, None


def processes():
    """The processes that this one has started."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.parametrize("form", ["path", "bytes"])
def test_it_gives_what_a_decode_here_gives(tmp_path, recording, form):
    path = tmp_path / "talk.flac"
    path.write_bytes(recording)
    source = path if form == "path" else recording
    here, there = open_decoder(source, "soundfile"), open_decoder(source, isolation=BOUNDS)
    assert there.info == here.info
    assert there.doubt == here.doubt
    np.testing.assert_array_equal(decoded(there), decoded(here))
    assert there.warnings == here.warnings


def test_formats_that_only_ffmpeg_reads_are_decoded_there_as_well():
    data = encoded(signal(2.0), container="ipod", codec="aac")
    np.testing.assert_array_equal(decoded(open_decoder(data, isolation=BOUNDS)), decoded(open_decoder(data, "pyav")))


def test_torchcodec_is_used_by_name(recording):
    try:
        wanted = decoded(open_decoder(recording, "torchcodec"))
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    np.testing.assert_array_equal(decoded(open_decoder(recording, "torchcodec", isolation=BOUNDS)), wanted)


def test_warnings_come_across(recording):
    decoder = open_decoder(recording[: len(recording) // 2], isolation=BOUNDS)
    assert len(decoded(decoder)) > 0
    assert any("truncated" in warning for warning in decoder.warnings)


def test_a_stream_takes_it(recording):
    with open_stream(recording, isolation=BOUNDS) as stream:
        assert sum(len(block) for block in stream) == 2.5 * RATE


def test_errors_are_of_the_same_kind():
    with pytest.raises(UnreadableAudioError, match="it is text"):
        open_decoder(b"The minutes of the meeting. " * 50, isolation=BOUNDS)
    with pytest.raises(NoAudioStreamError):
        open_decoder(silent_film(), isolation=BOUNDS)


def test_limits_hold_there(recording):
    with open_decoder(recording, limits=DecodeLimits(max_seconds=1.5), isolation=BOUNDS) as decoder:
        frames, error = given(decoder)
    assert isinstance(error, LimitExceededError)
    assert error.limit == "max_seconds"
    assert 0 < frames <= 1.5 * RATE


@pytest.mark.parametrize(
    ("act", "message"),
    [
        ("crash", "SIGSEGV"),
        ("fault", "SIGSEGV"),
        ("leave", "exit status 3"),
        ("hang", "hung for 1 s"),
        ("hang_in_c", "hung for 1 s"),
        ("flood", "more memory"),
        ("fail", "KeyError"),
    ],
)
def test_whatever_a_decoder_does_costs_one_file(misbehaving, recording, act, message):
    bounds = Isolation(max_memory_bytes=512 << 20, max_block_seconds=1.0 if act.startswith("hang") else 20.0)
    before = processes()
    decoder = open_isolated(Source.of(recording), bounds, misbehaving.later, act=act)
    began = time.monotonic()
    with decoder:
        frames, error = given(decoder)
    assert frames == 32_000
    assert isinstance(error, DecodeError)
    assert str(error).startswith("<bytes>: ")
    assert message in str(error)
    assert time.monotonic() - began < 20.0
    assert processes() <= before


@pytest.mark.parametrize(("act", "message"), [("crash", "SIGSEGV"), ("hang", "hung for 1 s"), ("flood", "more memory")])
def test_so_it_is_while_opening(misbehaving, recording, act, message):
    before = processes()
    bounds = Isolation(512 << 20, 1.0 if act == "hang" else 20.0)
    with pytest.raises(DecodeError, match=message):
        open_isolated(Source.of(recording), bounds, misbehaving.at_once, act=act)
    assert processes() <= before


def test_closing_early_ends_the_process(recording):
    before = processes()
    decoder = open_decoder(recording, isolation=BOUNDS)
    assert len(processes()) == len(before) + 1
    next(iter(decoder.blocks()))
    decoder.close()
    decoder.close()
    assert processes() <= before


def test_a_forgotten_decoder_ends_its_process(recording):
    before = processes()
    decoder = open_decoder(recording, isolation=BOUNDS)
    assert processes() != before
    del decoder
    assert processes() <= before


@pytest.mark.parametrize("bound", ["max_memory_bytes", "max_block_seconds"])
def test_bounds_are_above_zero(bound):
    with pytest.raises(ValueError, match=bound):
        Isolation(**{bound: 0})
