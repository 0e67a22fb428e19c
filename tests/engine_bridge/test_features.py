"""Log-mel features against the values of OpenAI's implementation."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine_bridge.features import HOP_FRAMES, WINDOW_FRAMES, log_mel_spectrogram, mel_filters
from tests.data.make_log_mel_reference import CLIPS, FRAMES, reference_signal

REFERENCE = Path(__file__).resolve().parents[1] / "data" / "log_mel_reference.npz"


@cache
def signal(name):
    return reference_signal(CLIPS[name])


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("clip", ["part", "full"])
def test_features_equal_openais(clip, mels):
    with np.load(REFERENCE) as reference:
        expected = reference[f"{clip}_{mels}"]
    features = log_mel_spectrogram(signal(clip), mels)
    np.testing.assert_allclose(features[:, FRAMES[clip]], expected, atol=1e-4)


def test_features_have_the_encoders_shape_and_type():
    features = log_mel_spectrogram(signal("part"))
    assert features.shape == (80, 3000)
    assert features.dtype == np.float32


def test_features_of_a_short_clip_equal_those_of_the_clip_padded_with_zeros():
    clip = signal("part")
    padded = np.zeros(WINDOW_FRAMES, dtype=np.float32)
    padded[: len(clip)] = clip
    np.testing.assert_allclose(log_mel_spectrogram(clip), log_mel_spectrogram(padded), atol=1e-5)


@pytest.mark.parametrize("frames", [1, 79, 159, 160, 161, 199, 200, 201, 400, 479_800, 479_999])
def test_every_length_is_like_zero_padding_at_the_clips_end(frames):
    clip = signal("full")[-frames:]
    padded = np.zeros(WINDOW_FRAMES, dtype=np.float32)
    padded[:frames] = clip
    np.testing.assert_allclose(log_mel_spectrogram(clip), log_mel_spectrogram(padded), atol=1e-5)


@pytest.mark.parametrize("frames", [0, 1, 16_000])
def test_silence_and_nothing_are_the_floor_everywhere(frames):
    features = log_mel_spectrogram(np.zeros(frames, dtype=np.float32))
    assert features.shape == (80, 3000)
    np.testing.assert_array_equal(features, np.float32(-1.5))  # (log10(1e-10) + 4) / 4


def test_nothing_lies_more_than_eight_decades_of_power_below_the_loudest():
    features = log_mel_spectrogram(signal("part"))
    assert features.max() - features.min() == pytest.approx(8 / 4)


def test_a_tone_shows_in_the_filter_at_its_frequency_from_its_first_frame_on():
    onset = 8_000
    tone = np.zeros(32_000, dtype=np.float32)
    tone[onset:] = 0.5 * np.sin(2 * np.pi * 1_000 * np.arange(32_000 - onset) / 16_000)
    features = log_mel_spectrogram(tone)
    loudest = int(features[:, 150].argmax())
    hertz = np.fft.rfftfreq(400, 1 / 16_000)
    assert abs(hertz[mel_filters(80)[loudest].argmax()] - 1_000) <= 40
    heard = np.flatnonzero(features[loudest] > features[loudest].max() - 0.5)
    assert abs(int(heard[0]) - onset // HOP_FRAMES) <= 1


@pytest.mark.parametrize("mels", [80, 128])
def test_filters_have_equal_areas_per_hertz(mels):
    filters = mel_filters(mels)
    assert filters.shape == (mels, 201)
    wide = filters[-10:]  # wide enough for the sum over bins of 40 Hz to stand for the integral
    np.testing.assert_allclose(wide.sum(axis=1) * 40, 1.0, rtol=0.05)


def test_a_clip_with_channels_is_refused():
    with pytest.raises(ValueError, match="reduce the channels first"):
        log_mel_spectrogram(np.zeros((16_000, 2), dtype=np.float32))


def test_a_clip_longer_than_the_window_is_refused_instead_of_cut():
    with pytest.raises(ValueError, match="split it first"):
        log_mel_spectrogram(np.zeros(WINDOW_FRAMES + 1, dtype=np.float32))
