"""Channels: the layout is known or stated, never guessed, and the mix is taken over the right axis."""

import re

import numpy as np
import pytest

from audio.channels import (
    AudioSpec,
    ChannelReduction,
    channel_axis,
    normalize_audio,
    reduce_block,
    to_frames_first,
)
from audio.errors import AudioError, ChannelLayoutError, InvalidSourceError

MONO = AudioSpec(target_channels=1)


def stereo(frames=48_000):
    """Two channels that no mix confuses: a rising ramp, and a constant."""
    left = np.linspace(-0.5, 0.5, frames, dtype=np.float32)
    right = np.full(frames, 0.25, dtype=np.float32)
    return left, right


class TestLayout:
    @pytest.mark.parametrize(
        ("shape", "axis"),
        [
            ((2, 48_000), 0),
            ((48_000, 2), 1),
            ((1, 48_000), 0),
            ((48_000, 1), 1),
            ((1, 1), 0),
            ((1, 3), 0),
            ((3, 1), 1),
            ((2, 16), 0),
            ((16, 2), 1),
            ((64, 512), 0),
            ((512, 64), 1),
            ((0, 2), 1),
            ((2, 0), 0),
        ],
    )
    def test_is_inferred_where_one_axis_is_clearly_the_channels(self, shape, axis):
        assert channel_axis(shape) == axis

    @pytest.mark.parametrize(
        "shape", [(2, 2), (2, 15), (15, 2), (64, 511), (65, 100_000), (100, 100), (0, 0), (0, 100)]
    )
    def test_is_refused_in_doubt_and_the_message_says_how_to_state_it(self, shape):
        with pytest.raises(ChannelLayoutError, match=r'layout="channels_first".*layout="frames_first"'):
            channel_axis(shape)

    @pytest.mark.parametrize(("layout", "axis"), [("channels_first", 0), ("frames_first", 1)])
    @pytest.mark.parametrize("shape", [(2, 2), (2, 48_000), (48_000, 2), (100, 100)])
    def test_is_taken_at_its_word_when_stated(self, shape, layout, axis):
        assert channel_axis(shape, layout) == axis

    def test_that_is_unknown_is_refused(self):
        with pytest.raises(ChannelLayoutError, match="'planar' is not known"):
            channel_axis((2, 100), "planar")

    def test_without_a_channel_is_refused(self):
        with pytest.raises(ChannelLayoutError, match="no channel"):
            channel_axis((100, 0), "frames_first")

    @pytest.mark.parametrize("shape", [(), (2, 3, 100)])
    def test_needs_one_or_two_dimensions(self, shape):
        with pytest.raises(ChannelLayoutError, match=re.escape(str(shape))):
            normalize_audio(np.zeros(shape, np.float32), MONO)

    def test_errors_belong_to_the_tree_and_are_value_errors(self):
        with pytest.raises(AudioError) as caught:
            channel_axis((2, 2))
        assert isinstance(caught.value, ValueError)


class TestNormalize:
    def test_mean_is_over_channels_in_either_layout(self):
        left, right = stereo()
        expected = (left + right) / 2
        frames_first = normalize_audio(np.stack([left, right], axis=1), MONO)
        channels_first = normalize_audio(np.stack([left, right]), MONO)
        assert frames_first.shape == channels_first.shape == (48_000,)
        assert frames_first.dtype == channels_first.dtype == np.float32
        np.testing.assert_allclose(frames_first, expected, atol=1e-7)
        np.testing.assert_array_equal(frames_first, channels_first)

    @pytest.mark.parametrize("channels", [2, 3, 6])
    @pytest.mark.parametrize("reduction", list(ChannelReduction))
    def test_each_reduction_is_the_plain_formula(self, reduction, channels):
        block = np.random.default_rng(channels).uniform(-1, 1, (500, channels)).astype(np.float32)
        formula = {
            ChannelReduction.MEAN: lambda b: b.astype(np.float64).mean(axis=1),
            ChannelReduction.FIRST: lambda b: b[:, 0],
            ChannelReduction.MAX: lambda b: b.max(axis=1),
            ChannelReduction.SUM: lambda b: b.astype(np.float64).sum(axis=1),
        }[reduction]
        before = block.copy()
        np.testing.assert_allclose(normalize_audio(block, AudioSpec(1, reduction)), formula(block), atol=1e-6)
        np.testing.assert_allclose(reduce_block(block, reduction), formula(block), atol=1e-6)
        np.testing.assert_array_equal(block, before)

    @pytest.mark.parametrize("shape", [(1, 480), (480, 1), (480,)])
    def test_mono_loses_its_channel_axis(self, shape):
        mono = np.linspace(-1, 1, 480, dtype=np.float32)
        result = normalize_audio(mono.reshape(shape), MONO)
        assert result.shape == (480,)
        np.testing.assert_array_equal(result, mono)

    def test_a_silent_second_channel_still_leaves_the_first_one_audible(self):
        left, _ = stereo()
        mixed = normalize_audio(np.stack([left, np.zeros_like(left)]), MONO)
        np.testing.assert_allclose(mixed, left / 2, atol=1e-7)

    def test_fewer_channels_keep_the_first_ones_channels_first(self):
        block = np.arange(600, dtype=np.float32).reshape(200, 3)
        result = normalize_audio(block, AudioSpec(target_channels=2))
        np.testing.assert_array_equal(result, block[:, :2].T)

    @pytest.mark.parametrize("shape", [(300,), (1, 300), (300, 1)])
    def test_mono_is_not_expanded(self, shape):
        with pytest.raises(ChannelLayoutError, match="cannot be expanded to 2"):
            normalize_audio(np.zeros(shape, np.float32), AudioSpec(target_channels=2))

    def test_no_target_returns_the_same_object(self):
        spec = AudioSpec(target_channels=None)
        audio = np.zeros((2, 2), np.int16)
        assert not spec.needs_normalization
        assert normalize_audio(audio, spec) is audio

    def test_an_empty_recording_stays_empty(self):
        assert normalize_audio(np.zeros((0, 2), np.float32), MONO).shape == (0,)

    @pytest.mark.parametrize(
        ("dtype", "values", "expected"),
        [
            (np.int16, [-32768, 0, 16384], [-1.0, 0.0, 0.5]),
            (np.int32, [-(2**31), 0, 2**30], [-1.0, 0.0, 0.5]),
            (np.int8, [-128, 0, 64], [-1.0, 0.0, 0.5]),
            (np.uint8, [0, 128, 192], [-1.0, 0.0, 0.5]),
            (np.float64, [-1.0, 0.0, 0.5], [-1.0, 0.0, 0.5]),
            (np.float16, [-1.0, 0.0, 0.5], [-1.0, 0.0, 0.5]),
        ],
    )
    def test_every_sample_type_comes_out_at_full_scale_one(self, dtype, values, expected):
        result = normalize_audio(np.array(values, dtype), MONO)
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, np.array(expected, np.float32))

    @pytest.mark.parametrize("dtype", [np.int64, np.uint16, np.complex64, np.bool_])
    def test_types_without_a_full_scale_are_refused(self, dtype):
        with pytest.raises(InvalidSourceError, match=np.dtype(dtype).name):
            normalize_audio(np.zeros(100, dtype), MONO)


class TestSpec:
    def test_defaults_to_a_mono_mean(self):
        spec = AudioSpec()
        assert (spec.target_channels, spec.channel_reduction, spec.needs_normalization) == (1, "mean", True)

    def test_takes_a_reduction_by_its_value(self):
        assert AudioSpec(1, "sum").channel_reduction is ChannelReduction.SUM

    def test_refuses_an_unknown_reduction(self):
        with pytest.raises(ChannelLayoutError, match=r"'median'.*mean, first, max, sum"):
            AudioSpec(1, "median")

    def test_refuses_no_channels(self):
        with pytest.raises(ChannelLayoutError, match="at least 1"):
            AudioSpec(target_channels=0)


def test_to_frames_first_is_a_view_where_it_can_be():
    block = np.zeros((2, 100), np.float32)
    result = to_frames_first(block)
    assert result.shape == (100, 2)
    assert np.shares_memory(result, block)
    assert to_frames_first(np.zeros(5, np.float32)).shape == (5, 1)


class TestTensors:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch", reason="torch is not installed")

    @pytest.mark.parametrize("reduction", list(ChannelReduction))
    @pytest.mark.parametrize("frames_first", [True, False])
    def test_give_what_arrays_give_and_stay_tensors(self, torch, reduction, frames_first):
        block = np.random.default_rng(3).uniform(-1, 1, (500, 3)).astype(np.float32)
        spec = AudioSpec(1, reduction)
        result = normalize_audio(torch.from_numpy(block if frames_first else block.T.copy()), spec)
        assert isinstance(result, torch.Tensor)
        assert result.dtype == torch.float32
        np.testing.assert_allclose(result.numpy(), normalize_audio(block, spec), atol=1e-6)

    def test_of_integers_are_scaled(self, torch):
        result = normalize_audio(torch.tensor([[-32768, 0, 16384]], dtype=torch.int16), MONO)
        assert result.tolist() == [-1.0, 0.0, 0.5]
