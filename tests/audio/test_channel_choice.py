"""One channel of several: by name or number, by the weights of a surround layout, and where a mix cancels."""

import numpy as np
import pytest

from audio import ChannelLayoutError, ChannelReduction, open_stream
from audio.mixing import Mixer, check_choice
from tests.audio.media import encoded, signal, written

RATE = 16_000
STEREO = signal(2.0, channels=2)


def one_channel(samples, choice, rate=RATE):
    with open_stream((samples, rate), None, reduction=choice) as stream:
        return np.concatenate(list(stream)), stream.warnings


@pytest.mark.parametrize(("choice", "channel"), [("left", 0), ("right", 1), (0, 0), (1, 1), ("first", 0)])
def test_one_channel_is_taken_as_it_is(choice, channel):
    np.testing.assert_array_equal(one_channel(STEREO, choice)[0], STEREO[:, channel])


@pytest.mark.parametrize("choice", [2, 17])
def test_a_channel_that_is_not_there_is_refused(choice):
    with pytest.raises(ChannelLayoutError, match=f"no channel {choice}: the recording has 2"):
        open_stream((STEREO, RATE), reduction=choice)


def test_a_mono_recording_has_no_right_channel():
    with pytest.raises(ChannelLayoutError, match="no channel right: the recording has 1"):
        open_stream((STEREO[:, 0], RATE), reduction="right")


@pytest.mark.parametrize("choice", ["loudest", "", -1, True, 1.5, None])
def test_what_is_no_choice_is_refused(choice):
    with pytest.raises(ChannelLayoutError, match="not known: give one of mean, first, max, sum, left, right"):
        check_choice(choice)


class TestSurround:
    @pytest.mark.parametrize("backend", ["auto", "pyav"])
    @pytest.mark.parametrize(("container", "codec"), [("wav", "pcm_s16le"), ("flac", "flac")])
    def test_dialogue_in_the_centre_is_three_decibels_down(self, container, codec, backend):
        """A plain mean of six channels would put it 15.6 dB down."""
        samples = np.zeros((2 * RATE, 6), np.float32)
        samples[:, 2] = signal(2.0)[:, 0]
        data = encoded(samples, container=container, codec=codec)
        with open_stream(data, None, backend=backend) as stream:
            assert stream.info.channel_layout == "5.1"
            mono = np.concatenate(list(stream))
        np.testing.assert_allclose(mono, samples[:, 2] / np.sqrt(2), atol=2**-14)

    @pytest.mark.parametrize(
        ("channel", "weight"), [(0, 0.5), (1, 0.5), (2, 0.7071), (3, 0.0), (4, 0.3536), (5, 0.3536)]
    )
    def test_each_channel_has_its_weight(self, channel, weight):
        block = np.zeros((100, 6), np.float32)
        block[:, channel] = 0.5
        mono = Mixer(ChannelReduction.MEAN, 6, "5.1(side)", RATE).mix(block)
        np.testing.assert_allclose(mono, 0.5 * weight, atol=1e-4)

    def test_a_stereo_pair_counts_as_in_stereo(self):
        block = np.zeros((1000, 8), np.float32)
        block[:, :2] = STEREO[:1000]
        surround = Mixer(ChannelReduction.MEAN, 8, "7.1", RATE).mix(block)
        np.testing.assert_allclose(surround, STEREO[:1000].mean(axis=1), atol=1e-6)

    def test_all_channels_at_full_scale_stay_within_it(self):
        assert Mixer(ChannelReduction.MEAN, 6, "5.1", RATE).mix(np.ones((10, 6), np.float32)).max() == 1.0

    @pytest.mark.parametrize("layout", [None, "6 channels", "7.1"])
    def test_without_a_layout_that_fits_it_is_a_plain_mean(self, layout):
        block = signal(0.1, channels=6)
        np.testing.assert_allclose(
            Mixer(ChannelReduction.MEAN, 6, layout, RATE).mix(block), block.mean(axis=1), atol=1e-6
        )

    def test_other_reductions_know_no_weights(self):
        block = signal(0.1, channels=6)
        np.testing.assert_allclose(Mixer(ChannelReduction.SUM, 6, "5.1", RATE).mix(block), block.sum(axis=1), atol=1e-5)


class TestCancelling:
    LEFT = signal(5.0)[:, 0]

    @pytest.mark.parametrize("choice", ["mean", "sum"])
    def test_a_mix_that_cancels_is_replaced_by_the_first_channel(self, choice):
        mono, warnings = one_channel(np.stack([self.LEFT, -self.LEFT], axis=1), choice)
        np.testing.assert_array_equal(mono, self.LEFT)
        assert warnings == [
            "the channels cancel each other (the mix is silent): "
            "the first channel alone was taken for 5.00 s, from 0.00 s on"
        ]

    def test_it_is_replaced_where_it_cancels_and_nowhere_else(self):
        samples = np.stack([self.LEFT, self.LEFT], axis=1)
        samples[2 * RATE : 4 * RATE, 1] *= -1
        mono, warnings = one_channel(samples, "mean")
        np.testing.assert_allclose(mono, self.LEFT, atol=1e-7)
        assert "taken for 2.00 s, from 2.00 s on" in warnings[0]

    def test_silence_keeps_what_was_decided(self):
        samples = np.stack([self.LEFT, -self.LEFT], axis=1)
        samples[2 * RATE : 3 * RATE] = 0
        assert "taken for 5.00 s" in one_channel(samples, "mean")[1][0]

    def test_a_first_channel_that_is_silent_is_passed_over(self):
        mono, _ = one_channel(np.stack([0 * self.LEFT, self.LEFT, -self.LEFT], axis=1), "mean")
        np.testing.assert_array_equal(mono, self.LEFT)

    @pytest.mark.parametrize("choice", ["first", "max", "right", 0])
    def test_a_choice_that_cannot_cancel_is_left_alone(self, choice):
        assert one_channel(np.stack([self.LEFT, -self.LEFT], axis=1), choice)[1] == []

    def test_a_file_gives_the_same_as_its_samples(self):
        mono, warnings = one_channel(np.stack([self.LEFT, -self.LEFT], axis=1), "mean")
        with open_stream(written(np.stack([self.LEFT, -self.LEFT], axis=1), subtype="FLOAT"), None) as stream:
            np.testing.assert_array_equal(np.concatenate(list(stream)), mono)
            assert stream.warnings == warnings
