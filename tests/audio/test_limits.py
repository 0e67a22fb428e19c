"""What a decode may cost holds while it runs, whatever the headers claim."""

import io
import subprocess
import sys
import time
import tracemalloc
from dataclasses import fields
from fractions import Fraction
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest

from audio.decoders import AUTO_ORDER, open_decoder
from audio.decoders.checked import _between
from audio.decoders.pyav_frames import FrameConverter
from audio.errors import AudioError, BackendUnavailableError, LimitExceededError
from audio.limits import DecodeLimits
from audio.load import load_audio
from audio.probing import probe
from audio.stream import open_stream
from tests.audio.media import RATE, encoded, signal, with_data_size, written

EVERY = ["auto", *AUTO_ORDER]
STRICT = DecodeLimits.strict()


def taken(source, backend="auto", **limits):
    """The frames that were given before a limit was met, and the error that tells of it."""
    frames = 0
    try:
        with opened(source, backend, DecodeLimits(**limits)) as decoder:
            for block in decoder.blocks():
                frames += len(block)
    except LimitExceededError as error:
        return frames, error
    pytest.fail(f"all of its {frames} frames were given")


def opened(source, backend, limits):
    try:
        return open_decoder(source, backend, limits=limits)
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def recordings():
    """Five seconds of stereo in the forms that most people have."""
    samples = signal(5.0, channels=2)
    return {
        "wav": written(samples),
        "flac": written(samples, container="FLAC"),
        "mp3": written(samples, container="MP3", subtype="MPEG_LAYER_III"),
        "ogg": written(samples, container="OGG", subtype="VORBIS"),
        "m4a": encoded(samples, container="ipod", codec="aac"),
        "mkv": encoded(samples, container="matroska", codec="aac"),
    }


FORMS = ["wav", "flac", "mp3", "ogg", "m4a", "mkv"]


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("form", FORMS)
def test_decoding_ends_at_the_seconds_allowed(recordings, form, backend):
    if backend == "soundfile" and form in ("m4a", "mkv"):
        pytest.skip("libsndfile does not read it")
    frames, error = taken(recordings[form], backend, max_seconds=3.0)
    assert 1.5 * RATE <= frames <= 3 * RATE
    assert error.limit == "max_seconds"


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("form", FORMS)
def test_decoding_ends_at_the_bytes_allowed(recordings, form, backend):
    if backend == "soundfile" and form in ("m4a", "mkv"):
        pytest.skip("libsndfile does not read it")
    allowed = 3 * RATE * 2 * 4
    frames, error = taken(recordings[form], backend, max_decoded_bytes=allowed)
    assert 0.5 * allowed <= frames * 2 * 4 <= allowed
    assert error.limit == "max_decoded_bytes"


@pytest.mark.parametrize("backend", EVERY)
def test_a_recording_within_its_limits_is_whole(recordings, backend):
    allowed = DecodeLimits(
        max_encoded_bytes=len(recordings["wav"]), max_seconds=5.0, max_decoded_bytes=5 * RATE * 8, max_channels=2
    )
    with opened(recordings["wav"], backend, allowed) as decoder:
        assert sum(len(block) for block in decoder.blocks()) == 5 * RATE


@pytest.mark.parametrize("limits", [DecodeLimits(), DecodeLimits.generous(), STRICT])
def test_the_named_limits_allow_what_people_record(recordings, limits):
    for data in recordings.values():
        with open_decoder(data, limits=limits) as decoder:
            assert sum(len(block) for block in decoder.blocks()) >= 5 * RATE


@pytest.mark.parametrize("backend", EVERY)
def test_channels_and_rate_are_refused_by_the_header(recordings, backend):
    _, error = taken(recordings["wav"], backend, max_channels=1)
    assert (error.limit, "2 channels" in str(error)) == ("max_channels", True)
    _, error = taken(recordings["wav"], backend, max_sample_rate=8000)
    assert (error.limit, "16000 Hz" in str(error)) == ("max_sample_rate", True)


@pytest.mark.parametrize(("channels", "rate"), [(65, 16_000), (1, 800_000)])
def test_absurd_headers_are_refused_unless_asked_for(channels, rate):
    data = written(np.zeros((100, channels), np.float32), rate)
    with pytest.raises(LimitExceededError):
        open_decoder(data)
    with open_decoder(data, limits=DecodeLimits()) as decoder:
        assert sum(len(block) for block in decoder.blocks()) == 100


def test_arrays_pass_the_same_door():
    _, error = taken((np.zeros(RATE * 2, np.float32), RATE), max_seconds=1.0)
    assert error.limit == "max_seconds"


def test_the_message_is_one_sentence_with_source_limit_value_and_remedy(tmp_path):
    path = tmp_path / "talk.wav"
    path.write_bytes(written(signal(2.0)))
    _, error = taken(path, max_seconds=1.5)
    assert str(error) == (
        f"{path}: the audio is longer than the limit of 1.5 s allows; raise max_seconds of the DecodeLimits, or "
        "--limit max_seconds=..., if you trust it"
    )
    assert error.source == str(path)


@pytest.mark.parametrize("field", [field.name for field in fields(DecodeLimits)])
def test_limits_are_above_zero(field):
    with pytest.raises(ValueError, match=field):
        DecodeLimits(**{field: 0})


class Pipe:
    """A stream that cannot be rewound, and never ends."""

    def __init__(self):
        self.given = 0

    def seekable(self):
        return False

    def read(self, size=-1):
        self.given += size
        return bytes(size)


def test_an_endless_stream_is_read_no_further_than_allowed():
    pipe = Pipe()
    _, error = taken(pipe, max_encoded_bytes=1_000_000)
    assert error.limit == "max_encoded_bytes"
    assert pipe.given <= 1_000_000 + (1 << 18)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "huge.wav"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    for source in (path, bytearray(2000), io.BytesIO(bytes(2000))):
        _, error = taken(source, max_encoded_bytes=1000)
        assert error.limit == "max_encoded_bytes"


class Slow(io.BytesIO):
    """A file on storage that takes its time."""

    def read(self, size=-1):
        time.sleep(0.03)
        return super().read(min(size, 1 << 12) if size > 0 else size)


@pytest.mark.parametrize("backend", EVERY)
def test_opening_takes_no_longer_than_allowed(backend):
    data = written(signal(10.0), subtype="FLOAT")
    opened(data, backend, DecodeLimits()).close()  # loads the library, which is no part of opening
    began = time.monotonic()
    with pytest.raises(LimitExceededError) as caught:
        open_decoder(Slow(data), backend, limits=DecodeLimits(max_open_seconds=0.02))
    assert caught.value.limit == "max_open_seconds"
    assert time.monotonic() - began < 5.0


def test_a_search_for_a_beginning_ends_in_time():
    """A damaged beginning makes decoders search on and on."""
    data = b"ID3\x04\x00\x00\x00\x00\x00\x00" + np.random.default_rng(1).bytes(2_000_000)
    with pytest.raises(LimitExceededError) as caught:
        open_decoder(Slow(data), "pyav", limits=DecodeLimits(max_open_seconds=0.2))
    assert caught.value.limit == "max_open_seconds"


def test_a_slow_recording_goes_on_once_it_is_open():
    data = written(signal(10.0), subtype="FLOAT")
    with open_decoder(Slow(data), limits=DecodeLimits(max_open_seconds=1.0)) as decoder:
        assert sum(len(block) for block in decoder.blocks()) == 10 * RATE


def test_every_way_in_takes_limits(recordings):
    limits = DecodeLimits(max_seconds=1.0)
    with pytest.raises(LimitExceededError):
        load_audio(recordings["mp3"], limits=limits)
    with pytest.raises(LimitExceededError):
        load_audio(recordings["mp3"], mono=False, limits=limits)
    with pytest.raises(LimitExceededError), open_stream(recordings["mp3"], limits=limits) as stream:
        list(stream)
    with pytest.raises(LimitExceededError):
        probe(recordings["mp3"], limits=DecodeLimits(max_channels=1))


@pytest.mark.parametrize("claim", [0, 100, 0xFFFFFFFF])
def test_a_claimed_length_neither_admits_nor_refuses(claim):
    """What counts is what is there: two seconds."""
    data = with_data_size(written(signal(2.0), subtype="PCM_16"), claim)
    assert taken(data, "pyav", max_seconds=0.001)[1].limit == "max_seconds"
    with open_decoder(data, "pyav", limits=STRICT) as decoder:
        assert sum(len(block) for block in decoder.blocks()) <= 2 * RATE


BOMB = """
import sys
sys.path.insert(0, {root!r})
from audio import DecodeLimits, LimitExceededError, open_decoder
from tests.peak_memory import peak_kib
open_decoder(sys.argv[1], sys.argv[2]).close()
before = peak_kib()
limits, frames = DecodeLimits(max_decoded_bytes=40_000_000), 0
try:
    with open_decoder(sys.argv[1], sys.argv[2], limits=limits) as decoder:
        for block in decoder.blocks():
            frames += len(block)
except LimitExceededError as error:
    print(error.limit, frames, peak_kib() - before)
"""


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """Small files of much silence: 16 million samples of FLAC, and six million of Opus."""
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "a.flac").write_bytes(written(np.zeros((16_000_000, 1), np.int16), 48_000, container="FLAC"))
    silence = np.zeros((6_000_000, 2), np.float32)
    (folder / "a.opus").write_bytes(encoded(silence, 48_000, container="ogg", codec="libopus", bit_rate=6000))
    return folder


@pytest.mark.parametrize("backend", AUTO_ORDER)
@pytest.mark.parametrize("name", ["a.flac", "a.opus"])
def test_a_bomb_stops_within_its_limit_and_in_little_memory(bombs, name, backend):
    opened(written(signal(0.1)), backend, DecodeLimits()).close()
    path = bombs / name
    assert path.stat().st_size < 200_000
    script = BOMB.format(root=str(Path(__file__).resolve().parents[2]))
    run = subprocess.run(
        [sys.executable, "-c", script, str(path), backend], capture_output=True, text=True, check=True, timeout=120
    )
    limit, frames, grown_kib = run.stdout.split()
    assert limit == "max_decoded_bytes"
    assert int(frames) * 4 * (2 if name == "a.opus" else 1) <= 40_000_000
    assert int(grown_kib) < 40_000


@pytest.mark.parametrize("backend", ["soundfile", "pyav"])
def test_a_header_of_one_hertz_costs_no_more_than_its_audio(backend):
    """Five seconds of audio at 16 kHz, stated as nearly a day at 1 Hz."""
    data = bytearray(written(signal(5.0), subtype="PCM_16"))
    data[24:28] = (1).to_bytes(4, "little")
    began = time.process_time()
    with open_decoder(bytes(data), backend) as decoder:
        assert sum(len(block) for block in decoder.blocks()) == 5 * RATE
    assert time.process_time() - began < 10.0
    began = time.process_time()
    hour = DecodeLimits(max_seconds=3600)
    with pytest.raises(LimitExceededError), open_stream(bytes(data), backend=backend, limits=hour) as stream:
        for _ in stream:
            pass
    assert time.process_time() - began < 10.0


def frame(rate, samples):
    made = av.AudioFrame.from_ndarray(np.zeros((1, samples), np.int16), format="s16", layout="mono")
    made.sample_rate = rate
    return made


def test_a_frame_at_one_hertz_amid_others_does_not_come_at_once():
    """4096 samples at 1 Hz, at the rate of the frame before them, are three thousand million samples."""
    converter = FrameConverter(frame(768_000, 1024))
    assert sum(len(block) for block in converter.convert([frame(768_000, 1024)])) == 0
    later = list(islice(converter.convert([frame(1, 4096)]), 8))
    assert [len(block) for block in later[:1]] == [1024]
    assert max(len(block) for block in later) <= 4 * 768_000


def test_finding_the_place_to_go_on_from_holds_nothing_of_what_lies_before():
    """Ten minutes before the place where one backend failed are decoded again by the next, and let go of."""
    blocks = (np.ones((RATE, 1), np.float32) for _ in range(600))
    tracemalloc.start()
    try:
        around = _between(blocks, 590 * RATE, 592 * RATE)
        assert tracemalloc.get_traced_memory()[1] < 10 * RATE * 4
    finally:
        tracemalloc.stop()
    assert len(around) == 2 * RATE


def test_a_text_that_claims_to_be_long_costs_nothing():
    """Headers alone, with absurd lengths in them, are refused in a moment."""
    claims = [
        with_data_size(written(np.zeros((1, 1), np.float32)), 0xFFFFFFF0),
        b"fLaC\x00\x00\x00\x22" + bytes.fromhex("10001000000000000000") + b"\x0a\xc4\x42\xff" + b"\xff" * 4 + bytes(16),
        b"caff\x00\x01\x00\x00desc" + (32).to_bytes(8, "big") + b"\x40\xe5\x88\x80" + bytes(4) + b"lpcm" + b"\xff" * 20,
        b".snd" + (24).to_bytes(4, "big") + b"\xff\xff\xff\xf0" + b"\0\0\0\3\0\0\xac\x44\0\0\0\1",
    ]
    began = time.process_time()
    for data in claims:
        try:
            with open_decoder(data, limits=STRICT) as decoder:
                assert sum(len(block) for block in decoder.blocks()) <= 8
        except AudioError:
            continue
    assert time.process_time() - began < 5.0


def opus_all_at_once(packets):
    """Matroska with twenty milliseconds of Opus, again and again, all timed to its first fifth of a second."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream = output.add_stream("libopus", rate=48_000, layout="mono")
        stream.bit_rate = 128_000
        noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1, 960 * 8)).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(noise, format="flt", layout="mono")
        frame.sample_rate = 48_000
        encoded = [*stream.encode(frame), *stream.encode(None)]
        for number in range(packets):
            packet = av.Packet(bytes(encoded[4]))
            packet.stream, packet.time_base = stream, Fraction(1, 1000)
            packet.pts = packet.dts = 200 * number // packets
            output.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize("backend", ["torchcodec", "pyav"])
def test_false_times_do_not_make_the_first_block_the_whole_file(backend):
    """A limit can look at what was decoded only between blocks."""
    data = opus_all_at_once(20_000)
    read = []

    class Counted(io.BytesIO):
        def read(self, size=-1):
            found = super().read(size)
            read.append(len(found))
            return found

    try:
        decoder = open_decoder(Counted(data), backend)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    with decoder:
        assert sum(read) < len(data) / 2
        assert sum(len(block) for block in islice(decoder.blocks(), 50)) / 48_000 > 10
        assert sum(read) < len(data)
