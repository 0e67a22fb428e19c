"""Levels, background and speech stretches, on sounds made here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.energy import SILENCE_DB, EnergyDetector, EnvelopeMeter, frame_length, noise_floor, speech_stretches
from audio.errors import SplitError
from audio.running import PagedFilter, dilate, erode, rolling_extreme, true_runs, window_means

RATE = 16_000


def talk(seconds, level_db=-20.0, seed=0, rate=RATE):
    """A voice-like sound: harmonics of a wavering pitch, in syllables at 4 Hz."""
    draw = np.random.default_rng(seed)
    at = np.arange(round(seconds * rate)) / rate
    pitch = np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * at + draw.uniform(0, 6))) / rate
    voice = sum(np.sin(2 * np.pi * k * pitch + k) / k for k in range(1, min(20, rate // 400)))
    voice = voice * (0.15 + np.sin(2 * np.pi * 2 * at + draw.uniform(0, 3)) ** 2)
    return scaled(voice, level_db)


def noise(seconds, level_db, seed=1, rate=RATE):
    return scaled(np.random.default_rng(seed).standard_normal(round(seconds * rate)), level_db)


def pink(seconds, level_db, seed=2, rate=RATE):
    count = round(seconds * rate)
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(count))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    return scaled(np.fft.irfft(spectrum, count), level_db)


def scaled(signal, level_db):
    return (signal * 10 ** (level_db / 20) / np.sqrt(np.mean(signal**2))).astype(np.float32)


def quiet(seconds, rate=RATE):
    return np.zeros(round(seconds * rate), np.float32)


def levels_of(samples, rate=RATE, size=None):
    meter = EnvelopeMeter(rate)
    step = size or max(len(samples), 1)
    parts = [meter.feed(samples[start : start + step]) for start in range(0, len(samples), step)]
    return np.concatenate([*parts, meter.finish()])


def in_seconds(stretches, rate=RATE):
    return [(start / rate, stop / rate) for start, stop in stretches]


# ---- levels -------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(0, 20_000), st.integers(7, 5000), st.sampled_from([1000, 8000, 11_025, 16_000, 44_100]))
def test_levels_do_not_depend_on_the_blocks(count, size, rate):
    samples = np.random.default_rng(count).uniform(-1, 1, count).astype(np.float32)
    assert np.array_equal(levels_of(samples, rate, size), levels_of(samples, rate))


@pytest.mark.parametrize(("count", "frames"), [(0, 0), (1, 1), (159, 1), (160, 1), (161, 2), (1599, 10), (1600, 10)])
def test_there_is_a_level_for_every_frame_begun(count, frames):
    assert len(levels_of(np.full(count, 0.1, np.float32))) == frames


def test_digital_silence_is_at_the_bottom():
    assert np.all(levels_of(quiet(1)) == np.float32(SILENCE_DB))
    assert np.all(levels_of(np.full(RATE, 0.7, np.float32)) == np.float32(SILENCE_DB))  # an offset is no sound


def test_speech_frequencies_pass_and_hum_is_held_back():
    at = np.arange(RATE) / RATE

    def level(frequency):
        return np.median(levels_of(np.sin(2 * np.pi * frequency * at).astype(np.float32)))

    # The comb's gain is 2 sin(pi f 0.25 ms); a sine at full scale has -3.01 dB.
    for frequency in (50, 500, 1000, 2000):
        assert level(frequency) == pytest.approx(20 * np.log10(2 * np.sin(np.pi * frequency * 0.00025)) - 3.01, abs=0.1)
    assert level(50) < level(1000) - 20


def test_broken_samples_count_as_sound_and_raise_no_warning():
    samples = quiet(1)
    samples[4000] = np.nan
    samples[8000] = np.inf
    samples[12_000:12_002] = [3e38, -3e38]
    levels = levels_of(samples)
    assert np.all(np.isfinite(levels))
    assert levels[25] > 0
    assert levels[50] > 0
    assert levels[75] > 0
    assert levels[10] == np.float32(SILENCE_DB)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [(np.zeros((10, 2), np.float32), r"\(10, 2\).*reduce the channels"), (np.zeros(10, np.int16), "int16.*full scale")],
)
def test_other_than_one_channel_of_floats_is_refused(samples, reason):
    with pytest.raises(SplitError, match=reason):
        EnvelopeMeter(RATE).feed(samples)


@pytest.mark.parametrize("rate", [0, -16_000])
def test_a_rate_must_be_positive(rate):
    with pytest.raises(SplitError, match="sample_rate must be positive"):
        frame_length(rate)


@pytest.mark.parametrize(("rate", "length"), [(16_000, 160), (44_100, 441), (11_025, 110), (50, 1)])
def test_a_frame_is_ten_milliseconds(rate, length):
    assert frame_length(rate) == length


# ---- the tools ----------------------------------------------------------------------------------------------------

masks = st.lists(st.booleans(), max_size=40).map(lambda values: np.array(values, bool))


@given(masks, st.integers(0, 6), st.integers(0, 6))
def test_dilating_makes_runs_longer_and_eroding_shorter(mask, before, after):
    wide = [any(mask[max(at - after, 0) : at + before + 1]) for at in range(len(mask))]
    narrow = [all(mask[max(at - before, 0) : at + after + 1]) for at in range(len(mask))]
    assert dilate(mask, before, after).tolist() == wide
    assert erode(mask, before, after).tolist() == narrow


@given(masks)
def test_runs_give_the_mask_back(mask):
    again = np.zeros(len(mask), bool)
    for start, stop in true_runs(mask):
        assert not again[max(start - 1, 0) : stop].any()
        again[start:stop] = True
    assert np.array_equal(again, mask)


@given(st.lists(st.floats(-100, 0, width=32), min_size=1, max_size=30), st.integers(1, 12), st.booleans())
def test_the_extreme_of_the_neighbourhood(values, reach, lowest):
    pick = min if lowest else max
    expected = [pick(values[max(at - reach, 0) : at + reach + 1]) for at in range(len(values))]
    assert rolling_extreme(np.array(values, np.float32), reach, lowest=lowest).tolist() == expected


@given(st.integers(0, 50), st.lists(st.integers(1, 9), max_size=12))
def test_a_paged_filter_sees_the_same_however_rows_arrive(total, sizes):
    def page_sum(rows):
        assert rows.shape == (4 + 2 * 3, 1)
        return np.convolve(rows[:, 0], np.ones(7), "valid")[:, np.newaxis].astype(np.float32)

    rows = np.arange(1, total + 1, dtype=np.float32)[:, np.newaxis]
    filtering = PagedFilter(4, 3, np.zeros(1, np.float32), page_sum)
    results, at = [], 0
    for size in [*sizes, total]:
        results += filtering.feed(rows[at : at + size])
        at = min(at + size, total)
    results += filtering.finish()
    expected = np.convolve(np.pad(rows[:, 0], 3), np.ones(7), "valid") if total else []
    assert np.array_equal(np.concatenate([*results, np.empty((0, 1))])[:, 0], expected)


# ---- the background -----------------------------------------------------------------------------------------------


def floor_of(samples):
    return noise_floor(window_means(levels_of(samples)))


def test_the_background_is_that_of_the_neighbourhood():
    samples = noise(40, -70)
    samples[20 * RATE :] += noise(20, -45, seed=3)
    floor = floor_of(samples)
    assert np.all(floor[:1400] == pytest.approx(-70 + 3, abs=3))  # white noise passes the comb with twice its power
    assert np.all(floor[2600:] == pytest.approx(-45 + 3, abs=3))


def test_digital_silence_between_sounds_does_not_lower_the_background():
    samples = noise(20, -50)
    for second in range(0, 20, 4):
        samples[second * RATE : (second + 1) * RATE] = 0
    assert np.all(floor_of(samples) > -52)


# ---- speech -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 0.001, 0.5, 3, 61, 130])
def test_silence_has_no_speech_and_is_no_error(seconds):
    """pydub fails on an input that is silent throughout."""
    assert speech_stretches(quiet(seconds), RATE) == []


@pytest.mark.parametrize("level", [-80, -60, -40, -20])
@pytest.mark.parametrize("make", [noise, pink])
def test_steady_noise_has_no_speech(make, level):
    assert speech_stretches(make(75, level), RATE) == []


def test_hum_has_no_speech():
    at = np.arange(70 * RATE) / RATE
    hum = sum(np.sin(2 * np.pi * 50 * k * at) / k for k in (1, 2, 3, 5)).astype(np.float32)
    assert speech_stretches(scaled(hum, -30) + noise(70, -80), RATE) == []


def test_dither_is_no_speech():
    draw = np.random.default_rng(4)
    assert speech_stretches((draw.integers(-1, 2, 30 * RATE) / 32768).astype(np.float32), RATE) == []


@pytest.mark.parametrize("level", [-70, -60, -40, -20, -6])
def test_speech_is_found_at_any_level(level):
    """A gate at a fixed level drops quiet recordings whole."""
    samples = np.concatenate([quiet(2), talk(3, level), quiet(2), talk(1, level, seed=1), quiet(2)])
    samples = samples + noise(10, max(level - 35, -95))
    stretches = in_seconds(speech_stretches(samples, RATE))
    assert stretches == [
        (pytest.approx(2, abs=0.1), pytest.approx(5.1, abs=0.2)),
        (pytest.approx(7, abs=0.1), pytest.approx(8.1, abs=0.2)),
    ]


@pytest.mark.parametrize("apart", [18, 30])
def test_a_quiet_speaker_beside_a_loud_one_is_found(apart):
    """Thresholds relative to the loudest, or fixed, drop the far speaker."""
    parts, spoken, at = [], [], 0.0
    for turn in range(12):
        parts += [talk(2.5, -18 - apart * (turn % 2), seed=turn), quiet(0.6)]
        spoken.append((at, at + 2.5))
        at += 3.1
    samples = np.concatenate(parts)
    stretches = in_seconds(speech_stretches(samples + noise(len(samples) / RATE, -70), RATE))
    for start, stop in spoken:
        covered = sum(max(0.0, min(stop, b) - max(start, a)) for a, b in stretches)
        assert covered > 0.98 * (stop - start)


def test_speech_over_noise_is_told_from_it():
    samples = pink(60, -34)
    samples[20 * RATE : 24 * RATE] += talk(4, -22)
    stretches = in_seconds(speech_stretches(samples, RATE))
    assert stretches[0][0] == pytest.approx(20, abs=0.15)
    assert stretches[-1][1] == pytest.approx(24, abs=0.35)
    assert sum(stop - start for start, stop in stretches) > 3.7


def test_sound_that_changes_counts_as_speech():
    """In doubt it is speech: a melody may be a song."""
    at = np.arange(20 * RATE) / RATE
    notes = np.repeat(np.random.default_rng(3).choice([220, 262, 330, 392], 40), RATE // 2)
    melody = np.sin(2 * np.pi * np.cumsum(notes) / RATE) * np.exp(-6 * (at % 0.5))
    stretches = speech_stretches(scaled(melody, -20), RATE)
    assert sum(stop - start for start, stop in stretches) > 10 * RATE


def test_a_click_is_no_speech():
    samples = noise(20, -60)
    samples[5 * RATE : 5 * RATE + 80] += 0.5
    assert speech_stretches(samples, RATE) == []


def test_speech_up_to_the_very_ends_is_covered():
    samples = talk(4, -20)
    stretches = speech_stretches(samples, RATE)
    covered = sum(stop - start for start, stop in stretches)
    assert covered > 0.9 * len(samples)
    assert stretches[-1][1] <= len(samples)


@settings(max_examples=25)
@given(st.integers(100, 80_000), st.sampled_from([1, 60, 61]))
def test_the_detector_answers_for_every_frame_whatever_the_blocks(size, seconds):
    samples = np.concatenate([quiet(0.5, 1000), talk(1, -20, rate=1000), quiet(seconds, 1000)]) + noise(
        seconds + 1.5, -60, rate=1000
    )
    meter, detector, parts = EnvelopeMeter(1000), EnergyDetector(), []
    for start in range(0, len(samples), size):
        block = samples[start : start + size]
        parts.append(detector.feed(block, meter.feed(block)))
    parts += [detector.feed(samples[:0], meter.finish()), detector.finish()]
    evidence = np.concatenate(parts)
    assert len(evidence) == len(samples) // 10
    assert set(evidence.tolist()) <= {0.0, 0.5, 1.0}
    found = [(start * 10, stop * 10) for start, stop in true_runs(evidence >= 0.5)]
    assert found == speech_stretches(samples, 1000)


@pytest.mark.parametrize("rate", [8000, 11_025, 44_100, 48_000])
def test_speech_is_found_at_any_rate(rate):
    samples = np.concatenate([quiet(2, rate), talk(2, -25, rate=rate), quiet(2, rate)]) + noise(6, -65, rate=rate)
    ((start, stop),) = in_seconds(speech_stretches(samples, rate), rate)
    assert start == pytest.approx(2, abs=0.1)
    assert stop == pytest.approx(4.1, abs=0.2)
