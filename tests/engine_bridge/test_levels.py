"""Quiet speakers beside loud ones."""

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.levels import MAX_GAIN, level_speech

RATE = 16_000


def chunk_of(*stretches, silence=0.5):
    """Make a chunk of tones, each a second long at a level in [0, 1], with pauses around them."""
    parts, speech, at = [], [], 0
    pause = np.zeros(round(silence * RATE), dtype=np.float32)
    tone = np.sin(2 * np.pi * 500 * np.arange(RATE) / RATE).astype(np.float32)
    for level in stretches:
        parts += [pause, np.float32(level) * tone]
        speech.append((at + len(pause), at + len(pause) + RATE))
        at += len(pause) + RATE
    samples = np.concatenate([*parts, pause])
    return Chunk(0, 0, len(samples), RATE, samples, ((0, len(samples)),), tuple(speech))


def loudness(samples, chunk):
    return within(samples, chunk.speech)


def test_a_quiet_speaker_is_raised_to_the_level_of_the_loud_one():
    chunk = chunk_of(0.5, 0.06)
    levels = loudness(level_speech(chunk), chunk)
    assert levels[1] == pytest.approx(levels[0], rel=0.01)
    assert levels[0] == pytest.approx(0.5 / np.sqrt(2), rel=0.01)


def test_nothing_is_made_quieter():
    chunk = chunk_of(0.9, 0.1, 0.4)
    levelled = level_speech(chunk)
    assert all(
        after >= before * 0.999
        for before, after in zip(loudness(chunk.samples, chunk), loudness(levelled, chunk), strict=True)
    )


def test_amplification_has_a_limit():
    chunk = chunk_of(0.5, 0.001)
    assert loudness(level_speech(chunk), chunk)[1] == pytest.approx(MAX_GAIN * 0.001 / np.sqrt(2), rel=0.01)


def test_a_peak_keeps_a_stretch_from_being_raised_into_clipping():
    chunk = chunk_of(0.9, 0.1)
    start, _ = chunk.speech[1]
    chunk.samples[start + 8_000] = 0.5
    levelled = level_speech(chunk)
    assert np.abs(levelled).max() <= 1.0
    assert levelled[start + 8_000] == pytest.approx(1.0, abs=0.01)


def test_levels_that_are_close_are_left_alone():
    chunk = chunk_of(0.5, 0.4)
    assert level_speech(chunk) is chunk.samples


@pytest.mark.parametrize("stretches", [(), (0.1,), (0.0, 0.0)])
def test_there_is_nothing_to_level_in_silence_or_a_single_stretch(stretches):
    chunk = chunk_of(*stretches)
    np.testing.assert_array_equal(level_speech(chunk), chunk.samples)


def test_the_gain_changes_in_the_pause_and_not_in_speech():
    chunk = chunk_of(0.5, 0.05)
    raised = Chunk(0, 0, chunk.stop, RATE, np.ones_like(chunk.samples) * 0.02, chunk.kept, chunk.speech)
    raised.samples[chunk.speech[0][0] : chunk.speech[0][1]] = 0.2
    gains = level_speech(raised) / raised.samples
    (first_start, first_stop), (second_start, second_stop) = chunk.speech
    np.testing.assert_allclose(gains[first_start:first_stop], 1.0)
    np.testing.assert_allclose(gains[second_start:second_stop], 10.0, rtol=1e-5)
    assert np.all(np.diff(gains[first_stop:second_start]) >= -1e-6)


def test_the_chunks_own_samples_are_not_changed_and_the_type_is_kept():
    chunk = chunk_of(0.5, 0.05)
    before = chunk.samples.copy()
    levelled = level_speech(chunk)
    np.testing.assert_array_equal(chunk.samples, before)
    assert levelled.dtype == np.float32
    assert levelled.shape == before.shape


def test_speech_is_found_where_silence_was_left_out():
    whole = chunk_of(0.5, 0.05, silence=2.0)
    kept = tuple((start - 800, stop + 800) for start, stop in whole.speech)
    samples = np.concatenate([whole.samples[start:stop] for start, stop in kept])
    condensed = Chunk(0, 0, whole.stop, RATE, samples, kept, whole.speech)
    levelled = level_speech(condensed)
    second = levelled[RATE + 1_600 + 800 : -800]
    assert float(np.sqrt(np.mean(np.square(second)))) == pytest.approx(0.5 / np.sqrt(2), rel=0.01)


def joined(*levels, pause=0.2, seconds=2.0):
    """Make a chunk of tones that lie in one stretch, and return it with where each is."""
    quiet = np.full(round(pause * RATE), 1e-5, dtype=np.float32)
    tone = np.sin(2 * np.pi * 500 * np.arange(round(seconds * RATE)) / RATE).astype(np.float32)
    samples = np.concatenate([part for level in levels for part in (np.float32(level) * tone, quiet)])
    spans = [(at * (len(tone) + len(quiet)), at * (len(tone) + len(quiet)) + len(tone)) for at in range(len(levels))]
    return Chunk(0, 0, len(samples), RATE, samples, ((0, len(samples)),), ((0, len(samples)),)), spans


def within(samples, spans):
    return [float(np.sqrt(np.mean(np.square(samples[start:stop])))) for start, stop in spans]


def test_a_quiet_speaker_who_answers_at_once_is_raised_within_the_stretch():
    chunk, spans = joined(0.5, 0.04, 0.45)
    first, second, third = within(level_speech(chunk), spans)
    assert second == pytest.approx(first, rel=0.02)
    assert third == pytest.approx(first, rel=0.06)  # its level was taken with the pause behind it


def test_the_loud_side_of_a_short_pause_keeps_its_level_to_the_end():
    chunk, spans = joined(0.5, 0.04)
    (start, stop), _ = spans
    np.testing.assert_allclose(level_speech(chunk)[start:stop], chunk.samples[start:stop], rtol=1e-5)


@pytest.mark.parametrize(
    ("levels", "pause", "seconds"),
    [
        ((0.5, 0.3), 0.2, 2.0),  # one speaker, a little softer
        ((0.5, 0.04), 0.0, 2.0),  # no pause to change the gain in
        ((0.5, 0.01), 0.2, 0.7),  # a breath after a word
    ],
)
def test_a_stretch_without_two_speakers_is_left_alone(levels, pause, seconds):
    chunk, _ = joined(*levels, pause=pause, seconds=seconds)
    assert level_speech(chunk) is chunk.samples
