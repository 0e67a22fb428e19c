"""Dips inside stretches of speech: where a sentence follows another almost without a pause."""

from dataclasses import replace

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.recognition.dips import voiced_seconds
from engine_bridge.recognition.edges import FADE_SECONDS, ONSET_SECONDS

RATE = 16_000


def sound(seconds, level=0.3):
    times = np.arange(round(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * 900 * times)).astype(np.float32)


def chunk_of(*parts):
    """Return a chunk that is one stretch of speech throughout, of parts (seconds, level)."""
    samples = np.concatenate([sound(*part) for part in parts])
    whole = ((0, len(samples)),)
    return Chunk(0, 0, len(samples), RATE, samples, whole, whole)


def test_a_stretch_meets_the_sound_in_it():
    chunk = chunk_of((0.5, 0.0001), (2.0, 0.3), (0.7, 0.0001))
    (found,) = voiced_seconds(replace(chunk, speech=((round(0.46 * RATE), round(2.72 * RATE)),)))
    assert found == (pytest.approx(0.5, abs=0.03), pytest.approx(2.5, abs=0.03))


def test_even_sound_only_loses_what_the_detector_adds():
    assert voiced_seconds(chunk_of((3.0, 0.3))) == [(ONSET_SECONDS, pytest.approx(3.0 - FADE_SECONDS))]


def test_a_short_pause_divides_a_stretch():
    first, second = voiced_seconds(chunk_of((1.0, 0.3), (0.15, 0.001), (1.0, 0.3)))
    assert first == (pytest.approx(0.0, abs=0.05), pytest.approx(1.0, abs=0.03))
    assert second == (pytest.approx(1.15, abs=0.03), pytest.approx(2.15, abs=FADE_SECONDS + 0.01))


def test_a_click_in_a_pause_does_not_divide_it():
    found = voiced_seconds(chunk_of((1.0, 0.3), (0.1, 0.001), (0.02, 0.3), (0.1, 0.001), (1.0, 0.3)))
    assert len(found) == 2
    assert found[1][0] - found[0][1] == pytest.approx(0.22, abs=0.04)


@pytest.mark.parametrize("dip", [(0.05, 0.001), (0.3, 0.15)], ids=["a closure", "a weak syllable"])
def test_what_belongs_to_speech_does_not_divide_it(dip):
    assert len(voiced_seconds(chunk_of((1.0, 0.3), dip, (1.0, 0.3)))) == 1


def test_a_last_sound_that_fades_stays_with_what_it_belongs_to():
    assert len(voiced_seconds(chunk_of((1.0, 0.3), (0.15, 0.001), (0.1, 0.05)))) == 1


def test_a_quiet_speaker_is_measured_by_their_own_level():
    loud_and_quiet = chunk_of((1.0, 0.5), (1.0, 0.0001), (1.0, 0.01), (0.15, 0.0001), (1.0, 0.01))
    speech = ((0, RATE), (2 * RATE, len(loud_and_quiet.samples)))
    assert len(voiced_seconds(replace(loud_and_quiet, speech=speech))) == 3


def test_times_are_the_recordings_where_silence_was_left_out():
    samples = np.concatenate([sound(1.0), sound(0.15, 0.001), sound(1.0)])
    kept = ((5 * RATE, 6 * RATE), (90 * RATE, 90 * RATE + len(samples) - RATE))
    chunk = Chunk(0, 0, 100 * RATE, RATE, samples, kept, ((5 * RATE, 6 * RATE), (90 * RATE + 2400, kept[1][1])))
    first, second = voiced_seconds(chunk)
    assert first == (pytest.approx(5.0, abs=0.05), pytest.approx(6.0, abs=FADE_SECONDS + 0.01))
    assert second == (pytest.approx(90.15, abs=0.05), pytest.approx(91.15, abs=FADE_SECONDS + 0.01))


def test_without_samples_or_speech_nothing_sounds():
    empty = Chunk(0, 0, RATE, RATE, np.zeros(0, np.float32), ())
    assert voiced_seconds(empty) == []
    assert voiced_seconds(replace(chunk_of((1.0, 0.3)), speech=())) == []
