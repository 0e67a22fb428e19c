"""Time on the container's clock, with late starts and holes as silence, and time from the first sample."""

import io
from fractions import Fraction

import av
import numpy as np
import pytest

from audio import load_audio, open_stream
from audio.decoders import AUTO_ORDER
from audio.errors import BackendUnavailableError
from tests.audio.media import signal, written

RATE = 16_000
SAMPLES = signal(6.0)[:, 0]


def film(container, codec="pcm_s16le", *, late=0.0, hole=0.0, picture=True, shift=0.0):
    """Pictures from time `shift` on, and sound that begins later; after three seconds the clock jumps ahead."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        video = output.add_stream("mpeg4", rate=5) if picture else None
        stream = output.add_stream(codec, rate=RATE, layout="mono")
        if not codec.startswith("pcm"):
            stream.bit_rate = 96_000
        if video is not None:
            video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
            for number in range(5):
                image = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * number, np.uint8), format="rgb24")
                image.pts, image.time_base = number + round(5 * shift), Fraction(1, 5)
                output.mux(video.encode(image))
            output.mux(video.encode(None))
        size = stream.codec_context.frame_size or 1024
        for start in range(0, len(SAMPLES), size):
            piece = np.int16(SAMPLES[start : start + size] * 32767)[None, :]
            if stream.format.name == "fltp":
                piece = piece.astype(np.float32) / 32767
            frame = av.AudioFrame.from_ndarray(piece, format=stream.format.name, layout="mono")
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = start + round((late + shift) * RATE) + (round(hole * RATE) if start >= 3 * RATE else 0)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def read(source, backend="auto", timeline="container", **options):
    with open_stream(source, None, backend=backend, timeline=timeline, **options) as stream:
        return np.concatenate(list(stream)), stream


def level(samples, begin, end):
    return float(np.sqrt(np.mean(samples[round(begin * RATE) : round(end * RATE)] ** 2)))


@pytest.mark.parametrize(("container", "codec"), [("matroska", "pcm_s16le"), ("mov", "pcm_s16le"), ("mp4", "aac")])
def test_a_late_start_is_silence_on_the_containers_clock(container, codec):
    data = film(container, codec, late=4.0)
    kept, stream = read(data)
    assert stream.warnings == []
    assert len(kept) == pytest.approx(10 * RATE, abs=0.1 * RATE)
    assert level(kept, 0, 3.9) == 0
    assert level(kept, 4.1, 9.9) > 0.2
    counted, stream = read(data, timeline="file")
    assert stream.warnings == []
    assert len(counted) == pytest.approx(6 * RATE, abs=0.1 * RATE)
    assert level(counted, 0.1, 0.5) > 0.2


def test_a_hole_is_silence_on_the_containers_clock_and_nothing_on_the_files():
    data = film("matroska", hole=2.0)
    kept, stream = read(data)
    assert len(kept) == pytest.approx(8 * RATE, abs=20)
    assert level(kept, 3.1, 4.9) == 0
    np.testing.assert_allclose(kept[: 3 * RATE], SAMPLES[: 3 * RATE], atol=2**-14)
    np.testing.assert_allclose(kept[-2 * RATE :], SAMPLES[-2 * RATE :], atol=2**-14)
    assert stream.warnings == ["the container's clock has holes without audio: 2.00 s of silence fill them"]
    counted, stream = read(data, timeline="file")
    np.testing.assert_allclose(counted, SAMPLES, atol=2**-14)


def test_a_hole_in_an_mp4_is_kept_as_well():
    kept, _ = read(film("mp4", "aac", hole=2.0))
    assert len(kept) == pytest.approx(8 * RATE, abs=0.1 * RATE)
    assert level(kept, 3.3, 4.7) == 0
    assert level(kept, 5.3, 7.8) > 0.2


def test_the_containers_clock_counts_from_the_earliest_stream_where_it_has_no_zero():
    """Broadcasts begin at any time of day; what counts is how much later than the pictures the sound begins."""
    kept, _ = read(film("mpegts", "mp2", late=2.0, shift=900.0))
    assert len(kept) == pytest.approx(8 * RATE, abs=0.2 * RATE)
    assert level(kept, 0, 1.7) == 0
    assert level(kept, 2.3, 7.5) > 0.2


@pytest.mark.parametrize("codec", ["aac", "libopus"])
@pytest.mark.parametrize("container", ["matroska", "mp4"])
def test_an_encoders_delay_is_no_late_start(container, codec):
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 48_000), np.float32) + 0.1, format="flt" if codec == "libopus" else "fltp", layout="mono"
        )
        frame.sample_rate, frame.pts = 48_000, 0
        fitted = av.AudioResampler(stream.format, "mono", 48_000, stream.codec_context.frame_size or 960)
        for piece in [*fitted.resample(frame), *fitted.resample(None)]:
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
    kept, _ = read(file.getvalue(), "pyav")
    counted, _ = read(file.getvalue(), "pyav", "file")
    np.testing.assert_array_equal(kept, counted)


@pytest.mark.parametrize("backend", AUTO_ORDER)
@pytest.mark.parametrize("container", ["WAV", "FLAC", "OGG", "MP3"])
def test_both_timelines_are_one_for_files_of_sound_alone(container, backend):
    data = written(SAMPLES, container=container)
    try:
        np.testing.assert_array_equal(read(data, backend)[0], read(data, backend, "file")[0])
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("begin", [2.5, 4.5, 6.9, 8.25])
def test_a_range_is_found_on_the_clock(begin):
    data = film("matroska", late=2.0, hole=2.0)
    whole, _ = read(data)
    part, stream = read(data, from_seconds=begin, to_seconds=begin + 1)
    np.testing.assert_array_equal(part, whole[round(begin * RATE) : round((begin + 1) * RATE)])
    assert stream.offset == round(begin * RATE)


def test_a_range_within_the_silence_before_a_late_start_is_silence():
    part, _ = read(film("mov", late=4.0), from_seconds=1.0, to_seconds=2.0)
    np.testing.assert_array_equal(part, np.zeros(RATE, np.float32))


def test_auto_passes_over_a_backend_that_does_not_see_the_clock():
    _, stream = read(film("mov", late=4.0))
    assert stream.info.backend == "pyav"


def test_loading_takes_a_timeline_too():
    assert len(load_audio(film("mov", late=4.0), timeline="container")[0]) == 10 * RATE
    assert len(load_audio(film("mov", late=4.0))[0]) == 6 * RATE
