"""MP4 without FFmpeg's general treatment of edit lists: the same audio, where the edit list only skips the run-up."""

import io
import random

import av
import numpy as np
import pytest

from audio.decoders import open_decoder
from audio.decoders.mp4_edits import plain_edits
from audio.selection import Selection
from audio.source import Source
from tests.audio.media import RATE, signal, written

SECONDS = 8.0


def source(data):
    return Source("<bytes>", data=data, size=len(data))


def mp4(codec="aac", container="ipod", late=0.0, **options):
    """Eight seconds of stereo in MP4, which may begin late."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=RATE, layout="stereo")
        context = stream.codec_context
        resampler = av.AudioResampler(context.format, context.layout, RATE, context.frame_size or 1024)
        frame = av.AudioFrame.from_ndarray(signal(SECONDS, channels=2).reshape(1, -1), format="flt", layout="stereo")
        frame.sample_rate = RATE
        position = round(late * RATE)
        for piece in (frame, None):
            for ready in resampler.resample(piece):
                ready.pts = position
                position += ready.samples
                output.mux(stream.encode(ready))
        output.mux(stream.encode(None))
    return file.getvalue()


@pytest.fixture(scope="module")
def plain():
    return mp4()


def patched(data, box, offset, value, size=4):
    """The file with a number in a box's contents replaced; the edit list of these files has version 0."""
    at = data.index(box) + 4 + offset
    return data[:at] + value.to_bytes(size, "big") + data[at + size :]


def taken(data, **selection):
    """The audio, claim, beginning and warnings of a file."""
    with open_decoder(data, "pyav", selection=Selection(**selection)) as decoder:
        samples = np.concatenate(list(decoder.blocks()))
        return samples, decoder.info.offset, decoder.info.claimed_duration, decoder.info.start_time, decoder.warnings


def test_a_usual_file_has_plain_edits_of_its_length(plain):
    assert plain_edits(source(plain)) == (pytest.approx(SECONDS, abs=0.001),)


@pytest.mark.parametrize("late", [0.0, 1.5])
@pytest.mark.parametrize("timeline", ["file", "container"])
@pytest.mark.parametrize("start", [0.0, 5.25])
def test_the_audio_is_that_of_the_general_treatment(late, timeline, start, monkeypatch):
    data = mp4(late=late)
    assert plain_edits(source(data)) is not None
    found = taken(data, timeline=timeline, start=start)
    monkeypatch.setattr("audio.decoders.pyav_backend.plain_edits", lambda _: None)
    expected = taken(data, timeline=timeline, start=start)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1:] == expected[1:]


def test_a_track_without_an_edit_list_is_plain_and_of_no_stated_length(plain):
    assert plain_edits(source(plain.replace(b"edts", b"free"))) == (None,)


@pytest.mark.parametrize(
    ("what", "offset", "value"),
    [
        ("an edit that ends before the track", 8, 3000),
        ("an edit of nothing", 12, 0xFFFFFFFF),
        ("an edit at half speed", 16, 0x8000),
        ("several edits", 4, 3),
    ],
)
def test_edits_that_do_more_are_left_to_ffmpeg(plain, what, offset, value):
    assert plain_edits(source(patched(plain, b"elst", offset, value))) is None, what


def test_of_such_edits_ffmpeg_plays_what_they_say(plain):
    with open_decoder(patched(plain, b"elst", 8, 3000), "pyav") as decoder:
        assert sum(len(block) for block in decoder.blocks()) / RATE == pytest.approx(3.0, abs=0.07)


def test_other_codecs_fragments_and_formats_are_left_to_ffmpeg():
    assert plain_edits(source(mp4("alac"))) is None
    assert plain_edits(source(mp4(container="mp4", movflags="frag_keyframe+empty_moov"))) is None
    assert plain_edits(source(written(signal(1.0)))) is None


def test_a_codec_that_only_claims_to_be_aac_is_decoded_in_full():
    """MPEG audio in MP4 has the sample entry of AAC; the edit list's beginning is that of its decoder's delay."""
    data = mp4("libmp3lame", container="mp4")
    assert plain_edits(source(data)) is not None
    samples, *_ = taken(data)
    assert len(samples) / RATE == pytest.approx(SECONDS, abs=0.08)


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_to_the_boxes_is_an_error(plain, seed):
    chance = random.Random(seed)
    begin = plain.index(b"moov") - 4
    for _ in range(250):
        data = bytearray(plain)
        for _each in range(chance.choice((1, 2, 8))):
            data[chance.randrange(begin, len(data))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        found = plain_edits(source(bytes(data)))
        assert found is None or all(length is None or length >= 0 for length in found)
