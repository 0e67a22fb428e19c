"""FFmpeg's frames as blocks: whatever a stream changes to, nothing of it is lost."""

from fractions import Fraction

import av
import numpy as np
import pytest

from audio.decoders.pyav_frames import FrameConverter
from tests.audio.media import RATE, signal

LENGTH = 1024


def frames(samples, form="fltp", rate=RATE, time_base=None):
    """The samples, shape (frames, channels), as FFmpeg frames of 1024 samples."""
    layout = "mono" if samples.shape[1] == 1 else "stereo"
    for start in range(0, len(samples), LENGTH):
        part = np.ascontiguousarray(samples[start : start + LENGTH].T)
        frame = av.AudioFrame.from_ndarray(part if form.endswith("p") else part.T.reshape(1, -1), form, layout)
        frame.sample_rate = rate
        frame.time_base = time_base or Fraction(1, rate)
        frame.pts = start
        yield frame


def converted(*parts):
    everything = [frame for part in parts for frame in part]
    converter = FrameConverter(everything[0])
    blocks = [*converter.convert(everything), *converter.flush()]
    return np.concatenate(blocks), converter.warnings


@pytest.mark.parametrize("form", ["fltp", "flt"])
@pytest.mark.parametrize("channels", [1, 2])
def test_planes_and_packed_samples_are_the_same_block(form, channels):
    samples = signal(2.0, channels=channels)
    found, warnings = converted(frames(samples, form))
    np.testing.assert_array_equal(found, samples)
    assert warnings == []


def test_a_new_time_base_loses_nothing():
    samples = signal(2.0)
    half = len(samples) // 2
    found, warnings = converted(frames(samples[:half]), frames(samples[half:], time_base=Fraction(1, 1000)))
    np.testing.assert_array_equal(found, samples)
    assert warnings == []


def test_a_new_sample_format_loses_nothing():
    samples = signal(2.0)
    half = len(samples) // 2
    found, warnings = converted(frames(samples[:half]), frames(samples[half:], "flt"))
    np.testing.assert_array_equal(found, samples)
    assert warnings == []


def test_a_new_rate_is_converted_and_told():
    samples = signal(2.0)
    found, warnings = converted(frames(samples), frames(signal(2.0, rate=2 * RATE), rate=2 * RATE))
    assert abs(len(found) - 2 * len(samples)) <= 64
    assert "32000 Hz" in warnings[0]


def test_frames_with_channels_in_no_known_order_become_silence_of_their_length():
    samples = signal(2.0, channels=2)
    strange = av.AudioFrame(format="fltp", layout="19 channels", samples=RATE)
    strange.sample_rate = 2 * RATE
    sound = list(frames(samples))
    converter = FrameConverter(sound[0])
    whole = np.concatenate([*converter.convert([*sound[:10], strange, *sound[10:]]), *converter.flush()])
    before, lost = 10 * LENGTH, RATE // 2
    np.testing.assert_array_equal(np.delete(whole, np.s_[before : before + lost], axis=0), samples)
    assert not whole[before : before + lost].any()
    assert converter.unconverted == 1
