"""Long MP4 recordings in parts: the packets of one after the other are those of the whole, in less memory."""

import os
import random
import tempfile
from pathlib import Path

import av
import numpy as np
import pytest

from audio.decoders import mp4_parts, open_decoder
from audio.decoders.mp4_parts import parts_of
from audio.errors import AudioError
from audio.limits import DecodeLimits
from audio.selection import Selection
from audio.source import Source
from tests.audio.media import RATE, signal

SECONDS = 8.0


def source(data):
    return Source("<bytes>", data=data, size=len(data))


def mp4(*, late=0.0, sounds=1, **options):
    """Eight seconds of AAC, whose packets lie between those of a small picture that changes."""
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file, av.open(file.name, "w", options=options) as output:
        tracks = [output.add_stream("aac", rate=RATE, layout="mono") for _ in range(sounds)]
        picture = output.add_stream("mpeg4", rate=10, width=32, height=32, pix_fmt="yuv420p")
        samples, step = signal(SECONDS), RATE // 10
        for number in range(int(SECONDS * 10)):
            image = av.VideoFrame.from_ndarray(np.full((32, 32, 3), number, np.uint8))
            output.mux(picture.encode(image))
            for track in tracks:
                piece = samples[number * step : (number + 1) * step].astype(np.float32)
                frame = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="fltp", layout="mono")
                frame.sample_rate = RATE
                frame.pts = round(late * RATE) + number * step
                output.mux(track.encode(frame))
        for track in (picture, *tracks):
            output.mux(track.encode(None))
        output.close()
        return Path(file.name).read_bytes()


@pytest.fixture(scope="module")
def recording():
    return mp4()


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(mp4_parts, "PART_PACKETS", 20)


def taken(data, **selection):
    """What a file yields, and all that is told of it."""
    with open_decoder(data, "pyav", selection=Selection(**selection)) as decoder:
        samples = np.concatenate(list(decoder.blocks()))
        return samples, decoder.info, decoder.warnings


def assert_same_as_whole(data, monkeypatch, **selection):
    found = taken(data, **selection)
    monkeypatch.setattr("audio.decoders.pyav_backend.parts_of", lambda _: None)
    expected = taken(data, **selection)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1:] == expected[1:]
    return found


def table(data, kind, track=b"soun"):
    """The offset of the contents of a box, the first of its kind behind the mark of the track."""
    return data.index(kind, data.index(track)) + 4


def patched(data, at, value, size=4):
    return data[:at] + value.to_bytes(size, "big") + data[at + size :]


@pytest.mark.parametrize("late", [0.0, 1.5])
@pytest.mark.parametrize("timeline", ["file", "container"])
@pytest.mark.parametrize("options", [{}, {"movflags": "faststart"}])
def test_the_parts_hold_what_the_whole_does(late, timeline, options, monkeypatch):
    data = mp4(late=late, **options)
    parts = parts_of(source(data))
    assert parts is not None
    assert len(parts) > 4
    samples, info, warnings = assert_same_as_whole(data, monkeypatch, timeline=timeline)
    assert len(samples) / info.sample_rate >= SECONDS
    assert info.claimed_duration == pytest.approx(len(samples) / info.sample_rate, abs=0.05)
    assert not warnings


@pytest.mark.parametrize("start", [1.0, 5.25])
def test_a_range_is_found_as_in_the_whole(recording, start, monkeypatch):
    assert_same_as_whole(recording, monkeypatch, start=start, stop=start + 1.5)


def test_without_an_edit_list_the_length_is_that_of_all_parts(recording, monkeypatch):
    data = recording.replace(b"edts", b"free")
    _, info, _ = assert_same_as_whole(data, monkeypatch)
    assert info.claimed_duration == pytest.approx(SECONDS, abs=0.1)


def test_a_part_differs_from_the_file_in_its_tables_alone(recording):
    parts = parts_of(source(recording))
    with parts.open(2) as reader:
        seen = reader.read()
    assert len(seen) == len(recording)
    assert seen[: recording.index(b"moov")] == recording[: recording.index(b"moov")]
    shown = int.from_bytes(seen[(at := table(seen, b"stsz") + 8) : at + 4], "big")
    assert 20 <= shown < 30


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_file_that_was_cut_off_loses_no_more_than_the_whole_would(share, monkeypatch):
    data = mp4(movflags="faststart")
    _, _, warnings = assert_same_as_whole(data[: int(share * len(data))], monkeypatch, timeline="container")
    assert warnings


def test_damage_costs_what_it_would_cost_in_the_whole(recording, monkeypatch):
    damaged = bytearray(recording)
    begin = recording.index(b"mdat") + 4
    for at in np.random.default_rng(3).integers(begin, recording.index(b"moov") - 4, 40):
        damaged[at] ^= 0x55
    assert_same_as_whole(bytes(damaged), monkeypatch, timeline="container")


def test_tables_gone_wrong_lose_no_more_than_in_the_whole(recording, monkeypatch):
    """FFmpeg stops where a place lies behind the file's end; the parts behind that one are still read."""
    chance, begin = random.Random(5), recording.index(b"moov")
    parts = mp4_parts.parts_of
    for _ in range(40):
        damaged = bytearray(recording)
        damaged[chance.randrange(begin, len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        monkeypatch.setattr("audio.decoders.pyav_backend.parts_of", parts)
        found = length(bytes(damaged))
        monkeypatch.setattr("audio.decoders.pyav_backend.parts_of", lambda _: None)
        assert found >= length(bytes(damaged))


def length(data):
    """How many samples a file yields, up to a minute; -1 where it is refused."""
    try:
        with open_decoder(data, "pyav", limits=DecodeLimits(max_seconds=60)) as decoder:
            return sum(len(block) for block in decoder.blocks())
    except AudioError:
        return -1


def test_where_the_first_part_cannot_be_read_the_others_are(recording, monkeypatch):
    parts = parts_of(source(recording))
    lost = parts._bounds[1]
    places = table(recording, b"stco") + 8
    data = recording
    for chunk in range(lost[0]):
        data = patched(data, places + 4 * chunk, 0x7FFF_FFFF)
    samples, info, warnings = taken(data)
    expected, whole, _ = taken(recording)
    assert info.streams == whole.streams
    assert len(samples) >= len(expected) - lost[1] * 1024 - 1024
    np.testing.assert_array_equal(samples[4096:], expected[-len(samples) :][4096:])
    assert warnings


def test_a_length_gone_wrong_costs_one_packet(recording, monkeypatch):
    """FFmpeg would take the rest of the file for frames of that packet, and hold all of them at once."""
    data = patched(recording, table(recording, b"stsz") + 12 + 4 * 60, 0x00FF_FFFF)
    samples, _, warnings = assert_same_as_whole(data + bytes(1 << 17), monkeypatch)
    expected, _, _ = taken(recording)
    assert len(expected) - len(samples) == 1024
    np.testing.assert_array_equal(samples[: 57 * 1024], expected[: 57 * 1024])
    np.testing.assert_array_equal(samples[61 * 1024 :], expected[62 * 1024 :])
    assert any("damaged packets were skipped: 1" in warning for warning in warnings)


def test_a_file_that_becomes_shorter_meanwhile_ends_with_a_warning(recording, tmp_path):
    file = tmp_path / "recording.mp4"
    file.write_bytes(recording)
    with open_decoder(file, "pyav") as decoder:
        blocks = decoder.blocks()
        next(blocks)
        os.truncate(file, recording.index(b"moov"))
        assert list(blocks)
        assert any("has become shorter" in warning for warning in decoder.warnings)


def is_divided(data):
    return parts_of(source(data)) is not None


def test_what_cannot_be_divided_with_certainty_is_left_whole(recording):
    assert is_divided(recording)
    sizes, times, chunks = (table(recording, kind) for kind in (b"stsz", b"stts", b"stsc"))
    assert not is_divided(mp4(sounds=2))
    assert not is_divided(mp4(movflags="frag_keyframe"))
    assert not is_divided(patched(recording, sizes + 4, 300))  # all packets of one size
    assert not is_divided(patched(recording, sizes + 8, 0x0FFF_FFFF))  # more packets than the box has room for
    assert not is_divided(patched(recording, times + 8, 7))  # fewer times than packets
    assert not is_divided(patched(recording, chunks + 8, 2))  # no first chunk
    assert not is_divided(patched(recording, chunks + 12, 0))  # a chunk of nothing
    assert not is_divided(recording.replace(b"sgpd", b"saio"))  # where the keys of packets are
    assert not is_divided(recording[: recording.index(b"stsz") + 40])


def test_a_video_is_left_whole(recording, monkeypatch):
    monkeypatch.setattr(mp4_parts, "_FEW_PACKETS", 79)
    assert not is_divided(recording)


def test_a_short_file_is_left_whole(recording, monkeypatch):
    monkeypatch.setattr(mp4_parts, "PART_PACKETS", 1 << 16)
    assert not is_divided(recording)
