"""A range of time: the very samples of the whole recording there, at a cost that does not depend on where it is."""

import io
import itertools

import numpy as np
import pytest
import soundfile

from audio import Selection, SelectionError, load_audio, open_decoder, open_stream
from audio.decoders import AUTO_ORDER, BACKENDS, pyav_backend
from audio.errors import BackendUnavailableError, UnreadableAudioError
from audio.resample import IMPLEMENTATIONS, resampler_problem
from tests.audio.media import encoded, written

SECONDS = 12
RANGES = [(3.3456, 4.6789), (0.5, 1.5), (9.9, None), (11.97, 12.0)]


def tones(rate, seconds=SECONDS):
    """A rising tone, another that comes and goes; no noise, which some codecs make anew at each decoding."""
    time = np.arange(seconds * rate) / rate
    gate = np.sin(2 * np.pi * 0.7 * time) > 0
    samples = 0.3 * np.sin(2 * np.pi * (300 + 40 * time) * time) + 0.2 * np.sin(2 * np.pi * 1100 * time) * gate
    return samples.astype(np.float32)[:, None]


def vorbis(samples, rate):
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, format="OGG", subtype="VORBIS") as writer:
        for start in range(0, len(samples), rate):
            writer.write(samples[start : start + rate])
    return file.getvalue()


MAKERS = {
    "wav": lambda: written(tones(44_100), 44_100),
    "flac": lambda: written(tones(48_000), 48_000, container="FLAC"),
    "aiff": lambda: written(tones(16_000), 16_000, container="AIFF"),
    "vorbis": lambda: vorbis(tones(44_100), 44_100),
    "mp3": lambda: encoded(tones(44_100), 44_100, container="mp3", codec="libmp3lame"),
    "opus": lambda: encoded(tones(48_000), 48_000, container="ogg", codec="libopus"),
    "m4a": lambda: encoded(tones(44_100), 44_100, container="ipod", codec="aac", bit_rate=192_000),
    "mkv aac": lambda: encoded(tones(44_100), 44_100, container="matroska", codec="aac", bit_rate=192_000),
    "mkv pcm": lambda: encoded(tones(44_100), 44_100, container="matroska", codec="pcm_s16le"),
    "webm": lambda: encoded(tones(48_000), 48_000, container="webm", codec="libopus"),
    "ts": lambda: encoded(tones(44_100), 44_100, container="mpegts", codec="aac", bit_rate=192_000),
    "adts": lambda: encoded(tones(44_100), 44_100, container="adts", codec="aac", bit_rate=192_000),
    "avi mp3": lambda: encoded(tones(44_100), 44_100, container="avi", codec="libmp3lame"),
    "wma": lambda: encoded(tones(44_100), 44_100, container="asf", codec="wmav2"),
}
LOSSLESS = {"wav", "flac", "aiff", "mkv pcm"}


@pytest.fixture(scope="module")
def made():
    """Recordings by format, each made when it is first asked for."""
    files = {}

    def make(name):
        if name not in files:
            files[name] = MAKERS[name]()
        return files[name]

    return make


def samples_of(source, sample_rate, **options):
    with open_stream(source, sample_rate, **options) as stream:
        blocks = list(stream)
        return (np.concatenate(blocks) if blocks else np.zeros(0, np.float32)), stream


@pytest.mark.parametrize("backend", AUTO_ORDER)
@pytest.mark.parametrize("name", MAKERS)
def test_a_range_equals_that_part_of_the_whole(made, name, backend):
    if (name, backend) == ("wma", "torchcodec"):
        pytest.skip("torchcodec loses some of Windows Media, as a whole and in ranges")
    data = made(name)
    try:
        whole, stream = samples_of(data, None, backend=backend)
    except (BackendUnavailableError, UnreadableAudioError) as error:
        pytest.skip(str(error))
    rate = stream.sample_rate
    for begin, end in RANGES:
        part, ranged = samples_of(data, None, backend=backend, from_seconds=begin, to_seconds=end)
        wanted = whole[round(begin * rate) : None if end is None else round(end * rate)]
        assert ranged.offset == round(begin * rate)
        assert len(part) == len(wanted)
        if len(wanted):
            assert np.abs(part - wanted).max() <= (0 if name in LOSSLESS else 1e-3), (begin, end)


@pytest.mark.parametrize("backend", AUTO_ORDER)
@pytest.mark.parametrize("name", ["wav", "mp3", "m4a", "webm"])
def test_a_resampled_range_equals_that_part_of_the_resampled_whole(made, name, backend):
    data = made(name)
    try:
        whole, _ = samples_of(data, 16_000, backend=backend)
    except (BackendUnavailableError, UnreadableAudioError) as error:
        pytest.skip(str(error))
    for begin, end in RANGES:
        part, ranged = samples_of(data, 16_000, backend=backend, from_seconds=begin, to_seconds=end)
        wanted = whole[round(begin * 16_000) : None if end is None else round(end * 16_000)]
        assert ranged.offset == round(begin * 16_000)
        assert len(part) == len(wanted)
        np.testing.assert_allclose(part, wanted, atol=1e-5)


@pytest.mark.parametrize("resampler", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("source_rate", "rate"), [(8_000, 16_000), (11_025, 16_000), (192_000, 16_000), (22_050, 8_000)]
)
def test_every_resampler_gives_a_range_what_it_gives_the_whole(resampler, source_rate, rate):
    if resampler_problem(resampler) is not None:
        pytest.skip(resampler_problem(resampler))
    samples = tones(source_rate, seconds=5)[:, 0]
    whole, _ = samples_of((samples, source_rate), rate, resampler=resampler)
    part, _ = samples_of((samples, source_rate), rate, resampler=resampler, from_seconds=2.345, to_seconds=3.456)
    np.testing.assert_allclose(part, whole[round(2.345 * rate) : round(3.456 * rate)], atol=1e-5)


def test_the_ranges_of_a_recording_join_to_the_whole(made):
    whole, _ = samples_of(made("m4a"), 16_000)
    edges = [0, 2.5, 2.75, 7.123, 100]
    parts = [
        samples_of(made("m4a"), 16_000, from_seconds=begin, to_seconds=end)[0]
        for begin, end in itertools.pairwise(edges)
    ]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-3)


class CountingFile(io.BytesIO):
    """A file that counts the bytes read from it."""

    def __init__(self, data):
        super().__init__(data)
        self.bytes_read = 0

    def read(self, size=-1, /):
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def bytes_read_for(data, begin, backend):
    file = CountingFile(data)
    with open_stream(file, None, backend=backend, from_seconds=begin, to_seconds=begin + 1) as stream:
        assert sum(map(len, stream)) == stream.sample_rate
    return file.bytes_read


@pytest.mark.parametrize(
    ("name", "backend"),
    [("wav", "soundfile"), ("wav", "pyav"), ("flac", "soundfile"), ("mov", "pyav"), ("mkv", "pyav")],
)
def test_a_late_range_reads_no_more_than_an_early_one(name, backend):
    """Four minutes of sound that cannot be compressed: reading up to the late range would be thirty megabytes."""
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, (240 * 48_000, 1)).astype(np.float32)
    if name in ("mov", "mkv"):
        container = {"mov": "mov", "mkv": "matroska"}[name]
        data = encoded(noise, 48_000, container=container, codec="pcm_s16le")
    else:
        data = written(noise, 48_000, container=name.upper())
    early, late = bytes_read_for(data, 5, backend), bytes_read_for(data, 230, backend)
    assert late < early + 4_000_000
    assert late < len(data) / 3


@pytest.mark.parametrize("name", ["mp3", "m4a", "opus", "webm", "ts"])
def test_what_lies_before_a_range_is_not_decoded(made, name, monkeypatch):
    """Bytes may be read, as where MP3 has no index; it is decoding that costs. Matroska is entered at its clusters,
    which are up to five seconds long."""
    decoded_frames = []
    original = pyav_backend.PyAVDecoder._decoded_link

    def counted(self, container, stream):
        for frame in original(self, container, stream):
            decoded_frames.append(frame.samples / frame.sample_rate)
            yield frame

    monkeypatch.setattr(pyav_backend.PyAVDecoder, "_decoded_link", counted)
    BACKENDS["pyav"].load()
    decoded_frames.clear()
    samples_of(made(name), None, backend="pyav", from_seconds=10, to_seconds=10.5)
    assert sum(decoded_frames) < (6.6 if name == "webm" else 2.6)


def test_a_format_that_cannot_be_entered_exactly_is_decoded_from_the_beginning_and_says_so():
    """Vorbis frames are of two lengths, and Matroska rounds their times to milliseconds."""
    import av

    ogg = io.BytesIO(vorbis(tones(44_100), 44_100))
    file = io.BytesIO()
    with av.open(ogg) as given, av.open(file, "w", format="matroska") as output:
        stream = output.add_stream_from_template(given.streams.audio[0])
        for packet in given.demux(given.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = stream
                output.mux(packet)
    data = file.getvalue()
    whole, _ = samples_of(data, None, backend="pyav")
    part, stream = samples_of(data, None, backend="pyav", from_seconds=5.5, to_seconds=6.5)
    np.testing.assert_array_equal(part, whole[round(5.5 * 44_100) : round(6.5 * 44_100)])
    assert "no place in it can be found exactly" in stream.warnings[0]


@pytest.mark.parametrize("backend", ["auto", "soundfile", "pyav"])
@pytest.mark.parametrize("begin", [12.0, 13.0, 500.0])
def test_a_range_behind_the_end_is_refused_with_the_end(made, begin, backend):
    with pytest.raises(SelectionError, match=rf"begins at {begin:.2f} s, but the recording ends at 12\.0"):
        samples_of(made("wav"), 16_000, backend=backend, from_seconds=begin)


def test_a_range_that_reaches_over_the_end_gives_what_there_is_and_no_warning(made):
    part, stream = samples_of(made("wav"), None, from_seconds=11.5, to_seconds=99)
    assert (len(part), stream.warnings) == (round(0.5 * 44_100), [])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"from_seconds": -1.0}, "give a time from 0 on"),
        ({"from_seconds": float("nan")}, "give a time from 0 on"),
        ({"from_seconds": 2.0, "to_seconds": 2.0}, "holds nothing"),
        ({"timeline": "film"}, "'film' is not known"),
        ({"track": -1}, "numbered from 0"),
        ({"track": " "}, "empty name"),
    ],
)
def test_what_is_no_range_is_refused_at_the_call(options, told):
    with pytest.raises(ValueError, match=told):
        open_stream("does-not-exist.wav", **options)


def test_a_decoder_gives_the_frames_of_a_range_and_says_where_they_are():
    samples = tones(16_000)
    with open_decoder((samples[:, 0], 16_000), selection=Selection(start=1.5, stop=2.0)) as decoder:
        np.testing.assert_array_equal(np.concatenate(list(decoder.blocks())), samples[24_000:32_000])
        assert (decoder.info.offset, decoder.info.claimed_duration) == (24_000, 0.5)


def test_the_whole_is_loaded_where_no_range_is_asked_for(made):
    assert load_audio(made("aiff"))[0].shape == (SECONDS * 16_000,)
