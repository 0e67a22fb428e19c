"""The same recording in every format, through every backend that reads it: the same length and the same sound."""

import io

import numpy as np
import pytest

from audio.decoders import AUTO_ORDER, BACKENDS, open_decoder
from audio.errors import BackendUnavailableError, NoAudioStreamError
from audio.probing import probe
from tests.audio.media import RATE, correlation, decoded, delay, encoded, signal, silent_film, written

MONO, STEREO = signal(), signal(channels=2)
ALL, FFMPEG = AUTO_ORDER, ("torchcodec", "pyav")

LOSSLESS = {
    "wav u8": (ALL, STEREO, 1 / 128, lambda x: written(x, subtype="PCM_U8")),
    "wav s16": (ALL, STEREO, 2**-15, lambda x: written(x, subtype="PCM_16")),
    "wav s24": (ALL, STEREO, 2**-23, lambda x: written(x, subtype="PCM_24")),
    "wav s32": (ALL, STEREO, 2**-23, lambda x: written(x, subtype="PCM_32")),
    "wav f32": (ALL, STEREO, 0, lambda x: written(x, subtype="FLOAT")),
    "wav f64": (ALL, STEREO, 0, lambda x: written(x, subtype="DOUBLE")),
    "wav mu-law": (ALL, STEREO, 0.04, lambda x: written(x, subtype="ULAW")),
    "aiff": (ALL, STEREO, 2**-15, lambda x: written(x, container="AIFF", subtype="PCM_16")),
    "caf": (ALL, STEREO, 2**-15, lambda x: written(x, container="CAF", subtype="PCM_16")),
    "au": (ALL, STEREO, 2**-15, lambda x: written(x, container="AU", subtype="PCM_16")),
    "w64": (ALL, STEREO, 2**-15, lambda x: written(x, container="W64", subtype="PCM_16")),
    "flac": (ALL, STEREO, 2**-15, lambda x: written(x, container="FLAC", subtype="PCM_16")),
    "flac s24": (ALL, MONO, 2**-23, lambda x: written(x, container="FLAC", subtype="PCM_24")),
    "alac in m4a": (FFMPEG, STEREO, 2**-15, lambda x: encoded(x, container="ipod", codec="alac")),
    "pcm in mkv": (FFMPEG, STEREO, 2**-15, lambda x: encoded(x, container="matroska", codec="pcm_s16le")),
    "pcm s24 in mkv": (FFMPEG, STEREO, 2**-23, lambda x: encoded(x, container="matroska", codec="pcm_s24le")),
    "pcm in mov": (FFMPEG, STEREO, 2**-15, lambda x: encoded(x, container="mov", codec="pcm_s16be")),
}

LOSSY = {
    "mp3": (ALL, STEREO, lambda x: encoded(x, container="mp3", codec="libmp3lame")),
    "ogg": (ALL, STEREO, lambda x: written(x, container="OGG", subtype="VORBIS")),
    "opus": (ALL, MONO, lambda x: written(x, container="OGG", subtype="OPUS")),
    "aac in m4a": (FFMPEG, STEREO, lambda x: encoded(x, container="ipod", codec="aac")),
    "aac in mp4 with pictures": (FFMPEG, STEREO, lambda x: encoded(x, container="mp4", codec="aac", picture=True)),
    "aac in mkv": (FFMPEG, MONO, lambda x: encoded(x, container="matroska", codec="aac")),
    "opus in webm": (FFMPEG, MONO, lambda x: encoded(x, container="webm", codec="libopus")),
    "aac in ts": (FFMPEG, MONO, lambda x: encoded(x, container="mpegts", codec="aac")),
}


def cases(table):
    return [(name, backend) for name, (backends, *_) in table.items() for backend in backends]


def opened(source, backend):
    """A decoder by a named backend, or a skip with the reason where that cannot load."""
    try:
        return open_decoder(source, backend)
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("name", "backend"), cases(LOSSLESS))
def test_lossless_formats_come_out_to_the_sample(name, backend):
    _, samples, step, encode = LOSSLESS[name]
    found = decoded(opened(encode(samples), backend))
    assert found.shape == samples.shape
    assert np.abs(found - samples).max() <= step + 1e-7


@pytest.mark.parametrize(("name", "backend"), cases(LOSSY))
def test_lossy_formats_agree_with_what_was_encoded(name, backend):
    _, samples, encode = LOSSY[name]
    decoder = opened(encode(samples), backend)
    found = decoded(decoder)
    rate = decoder.info.sample_rate
    assert found.shape[1] == samples.shape[1]
    # AAC and MPEG frames are padded at the end, and what the encoder ran up is not always marked.
    assert 3.0 - 0.001 <= len(found) / rate <= 3.0 + 2 * 1024 / RATE
    reference = signal(3.0, rate, samples.shape[1]) if rate != RATE else samples
    late = delay(found, reference, 2048) if "aac" in name else 0
    assert correlation(found[late:], reference) > 0.98
    # The tail is there: the last fifth of a second of what was encoded.
    tail = 28 * rate // 10
    assert correlation(found[late + tail :], reference[tail:]) > 0.95


@pytest.mark.parametrize("name", LOSSY)
def test_backends_agree_on_lossy_formats(name):
    backends, samples, encode = LOSSY[name]
    data = encode(samples)
    found = {}
    for backend in backends:
        if BACKENDS_WORK[backend]:
            decoder = open_decoder(data, backend)
            found[backend] = decoded(decoder), decoder.info.sample_rate
    if len(found) < 2:
        pytest.skip("only one backend here reads this format")
    (first, rate), *others = found.values()
    for other, other_rate in others:
        assert abs(len(first) / rate - len(other) / other_rate) <= 0.02
        if rate == other_rate:
            assert correlation(first, other) >= 0.999


def _works(backend):
    try:
        BACKENDS[backend].load()
    except BackendUnavailableError:
        return False
    return True


BACKENDS_WORK = {backend: _works(backend) for backend in AUTO_ORDER}


@pytest.mark.parametrize("channels", [1, 2, 6, 8])
@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le", "aac"])
def test_channels_stay_apart_up_to_eight(channels, codec):
    """Eight planes once crashed the process, and packed frames came out interleaved."""
    samples = signal(1.0, 48_000, channels)
    data = encoded(samples, 48_000, container="matroska", codec=codec, bit_rate=96_000 * channels)
    found = decoded(open_decoder(data, "pyav"))
    assert found.shape[1] == channels
    bass = {3} if codec == "aac" and channels > 4 else set()  # AAC keeps only the lowest tones of that channel
    for channel in set(range(channels)) - bass:
        one, same = found[:, [channel]], samples[:, [channel]]
        late = delay(one, same, 2048)
        assert correlation(one[late:], same) > 0.98


class Pipe:
    def __init__(self, data):
        self._file = io.BytesIO(data)

    def read(self, size):
        return self._file.read(min(size, 777))


@pytest.mark.parametrize("backend", ["auto", *AUTO_ORDER])
def test_a_path_bytes_a_file_and_a_stream_give_the_same(tmp_path, backend):
    data = written(STEREO, container="FLAC")
    path = tmp_path / "a.flac"
    path.write_bytes(data)
    expected = decoded(opened(path, backend))
    with path.open("rb") as file:
        for source in (str(path), data, io.BytesIO(data), file, Pipe(data)):
            np.testing.assert_array_equal(decoded(open_decoder(source, backend)), expected)


@pytest.mark.parametrize("ending", [".png", ".sln", ".txt", ".raw", ".m3u8", "", ".wav"])
@pytest.mark.parametrize("backend", ["auto", *AUTO_ORDER])
def test_the_name_of_a_file_decides_nothing(tmp_path, ending, backend):
    path = tmp_path / f"recording{ending}"
    path.write_bytes(written(MONO, container="FLAC"))
    assert decoded(opened(path, backend)).shape == MONO.shape


def test_a_name_that_looks_like_an_address_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "concat:a|b.wav").write_bytes(written(MONO))
    (tmp_path / "-").write_bytes(written(MONO))
    for name in ("concat:a|b.wav", "-"):
        for backend in ("soundfile", "pyav"):
            assert decoded(open_decoder(name, backend)).shape == MONO.shape


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.int16, 2**15), (np.int32, 2**31), (np.int8, 2**7), (np.float32, 1), (np.float64, 1)]
)
def test_arrays_need_no_backend_and_come_out_scaled(dtype, scale):
    samples = (MONO[:, 0].astype(np.float64) * (scale - 1 if scale > 1 else 1)).astype(dtype)
    decoder = open_decoder((samples, RATE), "pyav")
    found = decoded(decoder)
    assert decoder.info.backend == "array"
    assert np.abs(found[:, 0] - samples.astype(np.float64) / scale).max() < 1e-7


def test_unsigned_arrays_are_centred():
    found = decoded(open_decoder((np.array([0, 128, 255], np.uint8), RATE)))
    np.testing.assert_allclose(found[:, 0], [-1, 0, 127 / 128])


@pytest.mark.parametrize("samples", [STEREO, np.ascontiguousarray(STEREO.T)])
def test_arrays_of_either_orientation_become_frames_first(samples):
    np.testing.assert_array_equal(decoded(open_decoder((samples, RATE))), STEREO)


def test_an_array_without_samples_gives_no_blocks():
    assert len(decoded(open_decoder((np.zeros(0, np.float32), RATE)))) == 0


def test_what_is_not_a_number_becomes_silence_and_is_told():
    samples = MONO.copy()
    samples[[5, 20_000]] = [[np.nan], [np.inf]]
    for source in (written(samples, subtype="FLOAT"), (samples[:, 0], RATE)):
        decoder = open_decoder(source)
        found = decoded(decoder)
        np.testing.assert_array_equal(found[[5, 20_000], 0], 0)
        np.testing.assert_array_equal(np.delete(found, [5, 20_000]), np.delete(samples, [5, 20_000]))
        assert any("2 samples were not numbers" in warning for warning in decoder.warnings)


@pytest.mark.parametrize("default", [0, 1])
def test_the_default_track_is_decoded_and_the_others_are_told(default):
    data = encoded(MONO, container="matroska", codec="pcm_s16le", tracks=2, default=default)
    decoder = open_decoder(data, "pyav")
    found = decoded(decoder)
    np.testing.assert_allclose(found, MONO / 2**default, atol=2**-14)
    assert any("2 audio tracks" in warning for warning in decoder.warnings)
    assert [stream.language for stream in decoder.info.streams] == ["eng", "deu"]
    assert [stream.default for stream in decoder.info.streams] == [default == 0, default == 1]


@pytest.mark.parametrize("backend", ["auto", *FFMPEG])
def test_pictures_without_sound_are_no_recording(backend):
    with pytest.raises(NoAudioStreamError, match="no audio"):
        opened(silent_film(), backend)


@pytest.mark.parametrize("backend", ["auto", *AUTO_ORDER])
def test_probe_tells_what_is_in_a_file(backend):
    data = written(STEREO, container="FLAC")
    try:
        info = probe(data, backend)
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    assert (info.sample_rate, info.channels) == (RATE, 2)
    assert info.claimed_duration == pytest.approx(3.0, abs=0.001)
    assert info.start_time == 0
    assert [stream.channels for stream in info.streams] == [2]
    assert info.backend == ("soundfile" if backend == "auto" else backend)


def test_torchcodec_ranges_join_to_what_one_pass_gives():
    """Ranges that were cut by rounded timestamps once lost or doubled samples at each cut."""
    if not BACKENDS_WORK["torchcodec"]:
        pytest.skip("torchcodec cannot load here")
    from torchcodec.decoders import AudioDecoder

    samples = signal(24.0, 44_100)
    for container, codec in (("matroska", "aac"), ("ipod", "aac"), ("matroska", "pcm_s16le"), ("flv", "aac")):
        data = encoded(samples, 44_100, container=container, codec=codec)
        expected = AudioDecoder(data).get_all_samples().data.numpy().T
        found = decoded(open_decoder(data, "torchcodec"))
        np.testing.assert_array_equal(found[-len(expected) :], expected)
        assert len(found) - len(expected) in (0, 1024)
