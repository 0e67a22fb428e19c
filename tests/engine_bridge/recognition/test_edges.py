"""Words and speech begin and end where the sound does."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.engines.protocol import ClipSegment, ClipWord
from engine_bridge.recognition.edges import FADE_SECONDS, MOST_HIDDEN, ONSET_SECONDS, settle_edges, speech_edges
from engine_bridge.recognition.frame_levels import Levels
from engine_bridge.testing import clip_result

RATE = 16_000
EXACT = 0.03  # seconds: three frames
OFFSET = 100.0


def chunk(*sounds, seconds=10.0, bed=0.0, kept=None):
    """A chunk that begins at 100 s, with noise at 0.1 in some spans and at the bed's level everywhere else."""
    generator = np.random.default_rng(1)
    samples = bed * generator.standard_normal(round(seconds * RATE))
    for start, end in sounds:
        at = slice(round(start * RATE), round(end * RATE))
        samples[at] += 0.1 * generator.standard_normal(len(samples[at]))
    begin = round(OFFSET * RATE)
    spans = [(0.0, seconds)] if kept is None else kept
    held = np.concatenate([samples[round(a * RATE) : round(b * RATE)] for a, b in spans]).astype(np.float32)
    there = tuple((begin + round(a * RATE), begin + round(b * RATE)) for a, b in spans)
    return Chunk(0, begin, begin + len(samples), RATE, held, there)


def settled(recording, *told):
    """The words of one segment after settling, with times from the chunk's start."""
    moved = [(OFFSET + start, OFFSET + end, text) for start, end, text in told]
    (segment,) = settle_edges(clip_result(moved).segments, Levels.of(recording))
    return [(word.start - OFFSET, word.end - OFFSET) for word in segment.words]


def assert_near(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=EXACT)


@pytest.mark.parametrize("bed", [0.0, 0.01, 0.03])
def test_a_word_that_was_run_on_over_a_pause_ends_before_it_and_the_next_begins_behind_it(bed):
    recording = chunk((1.0, 2.0), (4.0, 5.0), bed=bed)
    assert_near(settled(recording, (1.0, 4.2, "before."), (4.2, 5.0, "after")), [(1.0, 2.0), (4.0, 5.0)])


def test_a_word_that_was_begun_in_the_pause_begins_with_its_sound():
    recording = chunk((1.0, 2.0), (4.0, 5.0), bed=0.01)
    assert_near(settled(recording, (1.0, 2.6, "before."), (2.6, 4.3, "the")), [(1.0, 2.0), (4.0, 5.0)])


def test_a_pause_of_a_tenth_of_a_second_at_a_mark_is_seen():
    recording = chunk((1.0, 2.0), (2.1, 3.0), bed=0.005)
    assert_near(settled(recording, (1.0, 2.15, "before,"), (2.15, 3.0, "after")), [(1.0, 2.0), (2.1, 3.0)])


def test_the_closure_within_a_word_is_no_pause():
    recording = chunk((1.0, 1.3), (1.4, 2.0), (4.0, 5.0), bed=0.005)
    assert_near(settled(recording, (1.0, 4.0, "stopping."), (4.0, 5.0, "after")), [(1.0, 2.0), (4.0, 5.0)])


def test_words_without_a_pause_between_them_keep_their_times():
    recording = chunk((1.0, 3.0), bed=0.005)
    assert_near(
        settled(recording, (1.0, 1.5, "one"), (1.5, 2.0, "two"), (2.0, 3.0, "three")), [(1, 1.5), (1.5, 2), (2, 3)]
    )


def test_where_nothing_stands_out_a_word_still_takes_no_longer_than_words_do():
    recording = chunk(seconds=10.0, bed=0.05)
    (_, end), (start, _) = settled(recording, (1.0, 5.0, "before."), (5.0, 5.4, "after"))
    assert start == pytest.approx(5.0)
    assert 1.0 < end < 2.5


def test_words_stay_in_order():
    recording = chunk((1.0, 1.2), (1.3, 1.5), (3.0, 3.1), bed=0.01)
    found = settled(recording, (0.2, 0.9, "a."), (0.9, 1.0, "b."), (1.0, 3.3, "c."), (3.3, 9.9, "d."))
    flat = [time for word in found for time in word]
    assert all(one <= other + 1e-9 for one, other in pairwise(flat))


def test_segments_without_words_are_left_alone():
    segment = ClipSegment(101.0, 109.0, "all of it")
    assert settle_edges([segment], Levels.of(chunk((1.0, 2.0)))) == [segment]


def test_silence_that_was_left_out_counts_as_silence():
    recording = chunk((1.0, 2.0), (8.0, 9.0), kept=[(0.0, 2.5), (7.5, 10.0)], bed=0.01)
    assert_near(settled(recording, (1.0, 8.2, "before."), (8.2, 9.0, "after")), [(1.0, 2.0), (8.0, 9.0)])


def over_chords(recording, level=0.1, every=0.5):
    """The chunk with low notes under it, struck anew in turn, each with the click of its onset."""
    time = np.arange(len(recording.samples)) / RATE
    notes = sum(np.sin(2 * np.pi * hertz * time) for hertz in (110, 165, 220, 330)) * np.exp(-2 * (time % every))
    return replace(recording, samples=(recording.samples + level * notes).astype(np.float32))


class TestOverMusic:
    def test_words_begin_and_end_where_they_sound_and_not_where_notes_do(self):
        recording = over_chords(chunk((1.3, 2.2), (4.8, 5.7)))
        words = settled(recording, (1.05, 4.2, "before."), (4.2, 5.7, "after."))
        assert_near(words, [(1.3, 2.2), (4.8, 5.7)])

    def test_a_stretch_begins_behind_the_note_that_it_was_taken_to_begin_with(self):
        recording = over_chords(chunk((1.3, 2.2)))
        (edges,) = speech_edges([(OFFSET + 1.0 - ONSET_SECONDS, OFFSET + 2.4 + FADE_SECONDS)], Levels.of(recording))
        assert_near(edges, (OFFSET + 1.3, OFFSET + 2.2))

    def test_high_frequencies_are_listened_to_there_alone(self):
        speech = chunk((1.0, 2.0), (4.0, 5.0), bed=0.01)
        assert Levels.of(over_chords(speech)).bright
        assert not Levels.of(speech).bright
        assert not Levels.of(chunk()).bright


def test_a_tap_before_a_word_is_no_part_of_it():
    recording = chunk((1.0, 2.0), (3.5, 3.55), (4.0, 5.0), bed=0.005)
    assert_near(settled(recording, (1.0, 2.6, "before."), (3.3, 5.0, "after")), [(1.0, 2.0), (4.0, 5.0)])


class TestStretches:
    def edges(self, recording, *stretches):
        moved = [(OFFSET + start, OFFSET + end) for start, end in stretches]
        return [(start - OFFSET, end - OFFSET) for start, end in speech_edges(moved, Levels.of(recording))]

    def test_lose_the_margin_that_the_detector_adds(self):
        recording = chunk((1.0, 2.0), (4.0, 5.0), bed=0.0005)
        given = [(1.0 - ONSET_SECONDS, 2.0 + FADE_SECONDS), (4.0 - ONSET_SECONDS, 5.0 + FADE_SECONDS)]
        assert_near(self.edges(recording, *given), [(1.0, 2.0), (4.0, 5.0)])

    def test_end_later_where_noise_hides_how_they_fade(self):
        given = [(1.0 - ONSET_SECONDS, 2.0 + FADE_SECONDS)]
        ends = [self.edges(chunk((1.0, 2.0), bed=bed), *given)[0][1] for bed in (0.0005, 0.002, 0.01)]
        assert ends == sorted(ends)
        assert ends[0] == pytest.approx(2.0, abs=0.011)
        assert ends[-1] == pytest.approx(2.0 + MOST_HIDDEN, abs=0.011)

    def test_gain_soft_sound_beside_them(self):
        recording = chunk((1.0, 2.0), bed=0.0005)
        soft = 0.008 * np.random.default_rng(2).standard_normal(round(0.15 * RATE)).astype(np.float32)
        recording.samples[round(0.85 * RATE) : RATE] += soft
        assert_near(self.edges(recording, (1.0 - ONSET_SECONDS, 2.0 + FADE_SECONDS)), [(0.85, 2.0)])

    def test_stay_apart_and_in_the_chunk(self):
        recording = chunk((0.0, 9.99), bed=0.01)
        found = self.edges(recording, (0.0, 5.0), (5.1, 10.0))
        assert found[0][0] >= 0
        assert found[0][1] <= found[1][0] + 1e-9
        assert found[1][1] <= 10.0 + 1e-9

    def test_of_nothing_that_sounds_are_kept_within_themselves(self):
        ((start, end),) = self.edges(chunk(seconds=4.0), (1.0, 2.0))
        assert 1.0 - 0.3 <= start <= end <= 2.3


def test_a_word_is_moved_by_half_a_second_at_most_where_it_begins_late():
    recording = chunk((1.0, 2.0), (4.0, 6.0), bed=0.01)
    (_, _), (start, _) = settled(recording, (1.0, 5.0, "before."), (5.0, 6.0, "late"))
    assert start == pytest.approx(5.0, abs=EXACT)


def test_word_texts_and_probabilities_are_kept():
    told = ClipSegment(101.0, 105.0, "a b", (ClipWord(101.0, 104.2, "a.", 0.4), ClipWord(104.2, 105.0, " b", 0.7)))
    (segment,) = settle_edges([told], Levels.of(chunk((1.0, 2.0), (4.0, 5.0))))
    assert [(word.text, word.probability) for word in segment.words] == [("a.", 0.4), (" b", 0.7)]


def test_a_word_that_was_placed_in_the_silence_behind_its_sound_shares_it_with_the_word_before():
    recording = chunk((1.0, 2.1), (6.0, 7.0), bed=0.001)
    told = [(1.0, 3.5, "be"), (3.5, 5.8, "extended."), (6.0, 7.0, "next")]
    assert_near(settled(recording, *told), [(1.0, 1.2), (1.2, 2.1), (6.0, 7.0)])


def test_words_that_were_begun_in_the_pause_before_their_sound_wait_for_it():
    recording = chunk((1.0, 2.0), (4.0, 6.0), bed=0.01)
    told = [(1.0, 2.6, "before."), (3.2, 3.5, "you"), (3.5, 3.8, "are"), (4.5, 6.0, "next")]
    assert_near(settled(recording, *told), [(1.0, 2.0), (4.0, 4.0), (4.0, 4.0), (4.5, 6.0)])


def test_a_stretch_of_even_sound_keeps_its_place():
    levels = Levels.of(chunk(seconds=10.0, bed=0.1))
    (found,) = speech_edges([(OFFSET + 2.0, OFFSET + 6.0)], levels)
    assert_near([found], [(OFFSET + 2.0 + ONSET_SECONDS, OFFSET + 6.0 - FADE_SECONDS)])


SHORT = ("you", "are", "about", "to", "enter", "an", "echo", "test.")


def told(words, at, each=0.2):
    return [(at + index * each, at + (index + 1) * each, word) for index, word in enumerate(words)]


def test_short_words_spoken_fast_keep_their_own_time_however_their_loudness_changes():
    # Unstressed words are soft and short: half as loud, and sounding for half of their time.
    sounds = [(1.0 + 0.2 * index, 1.0 + 0.2 * index + (0.18 if index % 3 == 0 else 0.1)) for index in range(8)]
    recording = chunk(*sounds, bed=0.002)
    for index in range(8):
        if index % 3:
            recording.samples[round((1.0 + 0.2 * index) * RATE) : round((1.2 + 0.2 * index) * RATE)] *= 0.25
    for (start, end), (first, last, _) in zip(settled(recording, *told(SHORT, 1.0)), told(SHORT, 1.0), strict=True):
        assert start == pytest.approx(first, abs=0.1)
        assert end == pytest.approx(last, abs=0.12)


def test_words_are_not_pressed_together_into_a_sound_that_is_too_short_for_them():
    # A click before the speech, and words that are timed from the click on.
    recording = chunk((1.0, 1.05), (1.6, 3.2), bed=0.002)
    words = settled(recording, *told(SHORT, 1.0, 0.27))
    spoken = [end - start for start, end in words]
    assert words[-1][1] - words[0][0] > 1.0
    assert sum(length < 0.02 for length in spoken) <= 2


def test_a_word_without_a_length_has_its_sound_before_the_next_one():
    recording = chunk((1.0, 1.6), (2.2, 2.9), (2.95, 3.6), bed=0.01)
    told = [(1.0, 1.6, "again."), (2.86, 2.86, "Message"), (2.86, 3.6, "from")]
    assert_near(settled(recording, *told), [(1.0, 1.6), (2.2, 2.86), (2.86, 3.6)])


def test_sound_between_two_words_belongs_to_the_first_of_them():
    recording = chunk((1.0, 1.3), (1.5, 1.9), (2.2, 3.0), bed=0.01)
    told = [(1.0, 1.6, "hearted,"), (2.25, 3.0, "rather")]
    ((_, end), (start, _)) = settled(recording, *told)
    assert_near([end, start], [1.9, 2.2])


def test_what_sounds_long_after_a_word_is_no_part_of_it():
    recording = chunk((1.0, 1.6), (2.6, 2.8), (4.0, 5.0), bed=0.01)
    assert_near(settled(recording, (1.0, 1.6, "before."), (4.0, 5.0, "after")), [(1.0, 1.6), (4.0, 5.0)])


def test_a_short_word_before_a_dip_does_not_keep_the_next_one_in_the_silence():
    recording = chunk((1.0, 1.22), (1.4, 2.0), (4.0, 5.0), bed=0.01)
    told = [(1.0, 2.56, "be"), (2.56, 3.7, "extended."), (3.9, 5.0, "Playback")]
    _, (start, end), (following, _) = settled(recording, *told)
    assert start < 1.45
    assert_near([end, following], [2.0, 4.0])
