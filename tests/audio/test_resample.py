"""Resampling: whichever library does it, the pieces are the whole, in time, complete, and free of aliases."""

import operator
from importlib import import_module as import_by_name
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.errors import AudioError, BackendUnavailableError, ChannelLayoutError, InvalidSourceError, ResampleError
from audio.resample import (
    IMPLEMENTATIONS,
    MAX_RATE,
    check_rate,
    open_resampler,
    resample,
    resampled_frames,
    resampler_problem,
)
from audio.resamplers.blocks import WindowResampler

# By name: the package exports the function of the same name.
resample_module = import_by_name("audio.resample")

RATES = [(44_100, 16_000), (48_000, 16_000), (8_000, 16_000), (22_050, 16_000), (16_000, 44_100), (50, 16)]
COPRIME = [(16_001, 16_000), (44_101, 16_000), (192_001, 16_000)]


@pytest.fixture(params=IMPLEMENTATIONS, scope="session")
def implementation(request):
    problem = resampler_problem(request.param)
    if problem is not None:
        pytest.skip(f"{request.param} cannot be used here: {problem}")
    return request.param


def noise(frames, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, frames).astype(np.float32)


def tone(frequency, rate, seconds=2.0, amplitude=0.5):
    return (amplitude * np.sin(2 * np.pi * frequency * np.arange(round(rate * seconds)) / rate)).astype(np.float32)


def streamed(samples, cuts, source_rate, target_rate, implementation):
    """Resample in the pieces between the cuts."""
    resampler = open_resampler(source_rate, target_rate, implementation=implementation)
    edges = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    pieces = [resampler.process(samples[start:stop]) for start, stop in pairwise(edges)]
    return np.concatenate([*pieces, resampler.flush()])


def decibels(samples, reference=0.5):
    """Level of the middle of a signal against that of a tone of an amplitude."""
    edge = len(samples) // 8
    middle = samples[edge:-edge].astype(np.float64)
    return 20 * np.log10(max(np.sqrt(2 * np.mean(middle**2)) / reference, 1e-12))


class TestPieces:
    @settings(max_examples=15, derandomize=True)
    @given(
        length=st.integers(0, 60_000),
        cuts=st.lists(st.integers(0, 60_000), max_size=6),
        rates=st.sampled_from(RATES),
    )
    def test_equal_the_whole_bit_for_bit(self, implementation, length, cuts, rates):
        samples = noise(length)
        whole = resample(samples, *rates, implementation=implementation)
        np.testing.assert_array_equal(streamed(samples, cuts, *rates, implementation), whole)
        assert len(whole) == resampled_frames(length, *rates)

    @pytest.mark.parametrize("size", [1, 7, 1024])
    def test_of_one_size_equal_the_whole_over_several_blocks(self, implementation, size):
        samples = noise(3000)
        whole = resample(samples, 1000, 640, implementation=implementation)
        np.testing.assert_array_equal(streamed(samples, range(0, 3000, size), 1000, 640, implementation), whole)

    def test_that_are_empty_change_nothing(self, implementation):
        samples = noise(5000)
        whole = resample(samples, 44_100, 16_000, implementation=implementation)
        pieces = streamed(samples, [0, 0, 2500, 2500, 5000], 44_100, 16_000, implementation)
        np.testing.assert_array_equal(pieces, whole)

    def test_may_be_any_floats_and_any_stride(self, implementation):
        samples = noise(20_000)
        whole = resample(samples[::2].copy(), 44_100, 16_000, implementation=implementation)
        np.testing.assert_array_equal(resample(samples[::2], 44_100, 16_000, implementation=implementation), whole)
        wide = samples[::2].astype(np.float64)
        np.testing.assert_array_equal(resample(wide, 44_100, 16_000, implementation=implementation), whole)

    def test_are_not_changed_by_resampling(self, implementation):
        samples = noise(50_000)
        before = samples.copy()
        resample(samples, 44_100, 16_000, implementation=implementation)
        np.testing.assert_array_equal(samples, before)

    def test_can_be_reused_by_the_caller_after_each_call(self, implementation):
        samples = noise(60_000)
        whole = resample(samples, 44_100, 16_000, implementation=implementation)
        resampler = open_resampler(44_100, 16_000, implementation=implementation)
        buffer = np.empty(30_000, np.float32)
        received = []
        for start in (0, 30_000):
            buffer[:] = samples[start : start + 30_000]
            received.append(resampler.process(buffer))
            buffer[:] = np.nan
        np.testing.assert_array_equal(np.concatenate([*received, resampler.flush()]), whole)


class TestLength:
    @pytest.mark.parametrize("rates", RATES)
    def test_is_one_sample_for_each_output_instant_within_the_recording(self, implementation, rates):
        source_rate, target_rate = rates
        second = source_rate
        for frames in (0, 1, 2, second - 1, second, second + 1):
            expected = sum(k * source_rate < frames * target_rate for k in range(target_rate + 4))
            assert len(resample(noise(frames), *rates, implementation=implementation)) == expected, frames

    def test_of_one_sample_is_at_least_one(self, implementation):
        assert len(resample(noise(1), 48_000, 16_000, implementation=implementation)) == 1

    def test_of_nothing_is_nothing(self, implementation):
        resampler = open_resampler(48_000, 16_000, implementation=implementation)
        assert len(resampler.flush()) == 0

    def test_includes_the_tail(self, implementation):
        """A constant stays one to its last samples, but for the filter's ringing against the silence after it."""
        constant = np.ones(30_000, np.float32)
        result = resample(constant, 44_100, 16_000, implementation=implementation)
        assert np.abs(result[-400:-100] - 1).max() < 0.01
        assert result[-1] > 0.2


class TestTime:
    @pytest.mark.parametrize("rates", RATES[:5])
    @pytest.mark.parametrize("position", [0, 1, 4411, 40_000])
    def test_an_impulse_stays_where_it_is(self, implementation, rates, position):
        source_rate, target_rate = rates
        samples = np.zeros(60_000, np.float32)
        samples[position] = 1
        result = resample(samples, *rates, implementation=implementation)
        assert abs(int(np.argmax(np.abs(result))) - position * target_rate / source_rate) <= 0.5

    @pytest.mark.parametrize("rates", [(44_100, 16_000), (48_000, 16_000), (8_000, 16_000), (16_000, 44_100)])
    def test_a_chirp_stays_in_phase_over_its_length(self, implementation, rates):
        """Against the same chirp computed at the target rate: any delay, drift or seam would show as a difference."""

        def chirp(rate):
            t = np.arange(3 * rate) / rate
            return (0.5 * np.sin(2 * np.pi * (100 * t + 450 * t**2))).astype(np.float32)

        source_rate, target_rate = rates
        result = resample(chirp(source_rate), *rates, implementation=implementation)
        margin = target_rate // 10
        difference = result[margin:-margin] - chirp(target_rate)[margin:-margin]
        assert np.abs(difference).max() < 0.003

    def test_does_not_drift_between_nearly_equal_rates(self):
        """16 001 Hz: over ten seconds the rates drift ten samples apart, and a tone has to follow."""
        result = resample(tone(440, 16_001, 10), 16_001, 16_000)
        difference = result[500:-500] - tone(440, 16_000, 10)[500 : len(result) - 500]
        assert np.abs(difference).max() < 0.001


class TestQuality:
    @pytest.mark.parametrize("source_rate", [44_100, 48_000])
    @pytest.mark.parametrize("frequency", [50, 1000, 4000, 7200])
    def test_tones_to_7200_hz_keep_their_level(self, implementation, source_rate, frequency):
        result = resample(tone(frequency, source_rate), source_rate, 16_000, implementation=implementation)
        assert abs(decibels(result)) < 0.1

    @pytest.mark.parametrize("source_rate", [44_100, 48_000])
    @pytest.mark.parametrize("frequency", [8_900, 12_000, 19_000])
    def test_tones_above_leave_no_alias(self, implementation, source_rate, frequency):
        result = resample(tone(frequency, source_rate), source_rate, 16_000, implementation=implementation)
        assert decibels(result) < -90

    def test_nothing_folds_back_in_the_default(self):
        """The default's stop band begins where aliasing does, at 8 kHz."""
        for frequency in (8_010, 8_200, 8_500):
            assert decibels(resample(tone(frequency, 48_000), 48_000, 16_000)) < -90

    @pytest.mark.parametrize("frequency", [300, 3400])
    def test_upsampling_leaves_no_image(self, implementation, frequency):
        result = resample(tone(frequency, 8_000), 8_000, 16_000, implementation=implementation)
        assert decibels(result[1000:] - tone(frequency, 16_000)[1000:]) < -60


class TestRates:
    @pytest.mark.parametrize("rates", COPRIME)
    def test_without_a_common_divisor_work_in_the_default(self, rates):
        assert len(resample(noise(5000), *rates)) == resampled_frames(5000, *rates)

    @pytest.mark.parametrize("rates", COPRIME)
    def test_without_a_common_divisor_are_converted_or_refused_before_a_filter_is_made(self, implementation, rates):
        if implementation == "torchaudio" or (implementation == "scipy" and rates != (16_001, 16_000)):
            with pytest.raises(ResampleError, match='use implementation="soxr"'):
                open_resampler(*rates, implementation=implementation)
        else:
            result = resample(noise(5000), *rates, implementation=implementation)
            assert len(result) == resampled_frames(5000, *rates)

    @pytest.mark.parametrize("rates", [(1, 16_000), (MAX_RATE, 16_000), (16_000, 1)])
    def test_at_the_limits_work_in_the_default(self, rates):
        result = resample(np.ones(3, np.float32), *rates)
        assert len(result) == resampled_frames(3, *rates)
        assert np.isfinite(result).all()

    def test_so_far_apart_that_the_filter_would_not_fit_are_refused(self, implementation):
        if implementation == "soxr":
            pytest.skip("soxr converts in stages and needs no such filter")
        with pytest.raises(ResampleError, match=f"{MAX_RATE} Hz to 1 Hz would take"):
            open_resampler(MAX_RATE, 1, implementation=implementation)

    @pytest.mark.parametrize("rate", [0, -1, MAX_RATE + 1, 2**40, 16_000.0, "16000", None, True])
    def test_out_of_range_are_refused_by_name(self, rate):
        with pytest.raises(ResampleError, match=f"the source sample rate is {rate!r}: give a whole number of Hz"):
            open_resampler(rate, 16_000)
        with pytest.raises(ResampleError, match="the target sample rate is"):
            open_resampler(16_000, rate)

    @pytest.mark.parametrize("rate", [1, 7])
    def test_of_a_few_hertz_are_converted_in_blocks_that_outweigh_their_context(self, implementation, rate):
        """Half a second is less than a sample; a window of 137 for each sample at 1 Hz would take hours for a file."""
        resampler = open_resampler(rate, 16_000, implementation=implementation)
        found = len(resampler.process(np.ones(8, np.float32))) + len(resampler.flush())
        assert found == resampled_frames(8, rate, 16_000)
        if isinstance(resampler, WindowResampler):
            assert len(resampler._window) <= 3 * resampler.block_frames

    @pytest.mark.parametrize("rate", [np.int64(16_000), np.uint32(16_000), 16_000])
    def test_may_be_any_integer(self, rate):
        assert check_rate(rate) == 16_000
        assert type(check_rate(rate)) is int

    def test_that_are_equal_give_back_the_same_array(self, implementation):
        samples = noise(100)
        assert resample(samples, 16_000, 16_000, implementation=implementation) is samples
        assert len(resample(noise(0), 16_000, 16_000, implementation=implementation)) == 0


class TestUse:
    def test_after_the_end_is_refused(self, implementation):
        resampler = open_resampler(48_000, 16_000, implementation=implementation)
        resampler.process(noise(100))
        assert len(resampler.flush()) == 34
        assert len(resampler.flush()) == 0
        with pytest.raises(ResampleError, match="has been flushed"):
            resampler.process(noise(100))

    @pytest.mark.parametrize("rates", [(48_000, 16_000), (16_000, 16_000)])
    def test_takes_one_channel_only(self, rates):
        with pytest.raises(ChannelLayoutError, match=r"\(100, 2\)"):
            open_resampler(*rates).process(np.zeros((100, 2), np.float32))

    @pytest.mark.parametrize("rates", [(48_000, 16_000), (16_000, 16_000)])
    def test_takes_no_unscaled_integers(self, rates):
        with pytest.raises(InvalidSourceError, match="int16"):
            open_resampler(*rates).process(np.zeros(100, np.int16))

    def test_several_at_once_do_not_disturb_each_other(self, implementation):
        first, second = noise(40_000, seed=1), noise(40_000, seed=2)
        resamplers = [open_resampler(44_100, 16_000, implementation=implementation) for _ in range(2)]
        received = [[], []]
        for start in range(0, 40_000, 8000):
            for resampler, samples, pieces in zip(resamplers, (first, second), received, strict=True):
                pieces.append(resampler.process(samples[start : start + 8000]))
        for resampler, samples, pieces in zip(resamplers, (first, second), received, strict=True):
            joined = np.concatenate([*pieces, resampler.flush()])
            np.testing.assert_array_equal(joined, resample(samples, 44_100, 16_000, implementation=implementation))


class TestImplementations:
    def test_auto_is_the_first_that_works(self):
        samples = noise(30_000)
        working = next(name for name in IMPLEMENTATIONS if resampler_problem(name) is None)
        named = resample(samples, 44_100, 16_000, implementation=working)
        np.testing.assert_array_equal(resample(samples, 44_100, 16_000), named)

    @pytest.mark.parametrize("ask", [lambda name: open_resampler(8, 4, implementation=name), resampler_problem])
    def test_unknown_ones_are_refused_with_the_known_ones(self, ask):
        with pytest.raises(ResampleError, match="'sox' is not known: choose one of auto, soxr, pyav, scipy"):
            ask("sox")

    def test_agree_with_each_other(self, implementation):
        samples = tone(440, 44_100) + tone(3000, 44_100, amplitude=0.3)
        difference = resample(samples, 44_100, 16_000, implementation=implementation) - resample(
            samples, 44_100, 16_000
        )
        assert np.abs(difference[200:-200]).max() < 0.004

    @pytest.fixture
    def without(self, monkeypatch):
        """Make a library's module fail to import, and forget what was found out before and during the test."""
        broken = {}

        def import_module(name):
            if name in broken:
                raise broken[name]
            return original(name)

        original = resample_module.import_module
        monkeypatch.setattr(resample_module, "import_module", import_module)
        resample_module._loaded.cache_clear()

        def remove(implementation, error):
            broken[resample_module._CLASSES[implementation][0]] = error

        yield remove
        resample_module._loaded.cache_clear()

    @pytest.mark.parametrize("error", [ImportError("No module named 'soxr'"), OSError("libsox.so: not found")])
    def test_absent_or_broken_ones_are_refused_by_name_with_the_remedy(self, without, error):
        without("soxr", error)
        with pytest.raises(BackendUnavailableError) as caught:
            open_resampler(48_000, 16_000, implementation="soxr")
        assert (caught.value.backend, caught.value.remedy) == ("soxr", "Install it with: pip install soxr")
        assert str(error) in str(caught.value)
        assert isinstance(caught.value, AudioError)
        assert isinstance(caught.value, ImportError)

    def test_absent_ones_are_passed_over_by_auto(self, without):
        without("soxr", ImportError("No module named 'soxr'"))
        samples = noise(30_000)
        expected = resample(samples, 44_100, 16_000, implementation="pyav")
        np.testing.assert_array_equal(resample(samples, 44_100, 16_000), expected)

    def test_auto_without_any_says_how_to_get_one(self, without):
        for name in IMPLEMENTATIONS:
            without(name, ImportError("gone"))
        with pytest.raises(BackendUnavailableError, match="pip install soxr"):
            open_resampler(48_000, 16_000)

    def test_are_looked_for_once(self, without, monkeypatch):
        without("soxr", ImportError("gone"))
        assert resampler_problem("soxr") == "ImportError: gone"
        monkeypatch.setattr(resample_module, "import_module", operator.attrgetter("never"))
        assert resampler_problem("soxr") == "ImportError: gone"
