"""Times of clips turned into times of the recording, and what is under text and what is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.chunk import Chunk
from engine_bridge.engines.protocol import ClipResult, ClipSegment, ClipWord
from engine_bridge.recognition.coverage import covered_seconds, uncovered_speech
from engine_bridge.recognition.stitch import (
    HELD_SECONDS,
    LEAD_SECONDS,
    TAIL_SECONDS,
    in_order,
    place,
    segments_of,
    snap_words,
    speech_seconds,
)
from engine_bridge.testing import clip_result
from engine_bridge.transcript import Segment, Word

RATE = 16_000


def chunk(start, stop, kept, speech=()):
    """Make a chunk from seconds."""

    def spans(pairs):
        return tuple((round(a * RATE), round(b * RATE)) for a, b in pairs)

    samples = np.zeros(sum(b - a for a, b in spans(kept)), dtype=np.float32)
    return Chunk(0, round(start * RATE), round(stop * RATE), RATE, samples, spans(kept), spans(speech))


def words(*timed):
    return [ClipWord(start, end, f" {text}", 0.9) for start, end, text in timed]


def times(items):
    return [(round(item.start, 4), round(item.end, 4)) for item in items]


class TestPlacing:
    def test_times_are_those_of_the_chunk(self):
        (segment,) = place(clip_result([(1.0, 1.5, "a"), (2.0, 2.5, "b")]), chunk(100, 120, [(100, 120)]))
        assert times([segment]) == [(101, 102.5)]
        assert times(segment.words) == [(101, 101.5), (102, 102.5)]

    def test_silence_that_was_left_out_is_put_back(self):
        left_out = chunk(0, 100, [(10, 15), (90, 95)])
        (segment,) = place(clip_result([(1.0, 2.0, "a"), (6.0, 7.0, "b")]), left_out)
        assert times(segment.words) == [(11, 12), (91, 92)]

    def test_a_word_that_ends_at_a_seam_ends_before_the_silence_and_one_that_starts_there_starts_after(self):
        left_out = chunk(0, 100, [(10, 15), (90, 95)])
        (segment,) = place(clip_result([(4.0, 5.0, "a"), (5.0, 6.0, "b")]), left_out)
        assert times(segment.words) == [(14, 15), (90, 91)]

    def test_times_beyond_the_clip_stay_in_the_chunk(self):
        (segment,) = place(clip_result([(4.0, 40.0, "a")]), chunk(10, 15, [(10, 15)]))
        assert times(segment.words) == [(14, 15)]

    def test_speech_is_told_in_seconds_of_the_recording(self):
        assert speech_seconds(chunk(10, 20, [(10, 20)], [(11, 12.5), (14, 15)])) == [(11, 12.5), (14, 15)]


class TestSnapping:
    def test_first_and_last_word_meet_the_edges_of_their_stretch(self):
        snapped = snap_words(words((1.2, 1.5, "a"), (1.5, 1.9, "b")), [(1.0, 2.0)])
        assert times(snapped) == [(1.0, 1.5), (1.5, 2.0)]

    def test_a_word_that_runs_into_a_pause_ends_with_its_speech(self):
        stretches = [(1, 2), (5, 6)]
        snapped = snap_words(words((1.0, 1.6, "before"), (1.6, 5.2, "pause"), (5.2, 5.6, "after")), stretches)
        assert times(snapped)[1] == (1.6, 2)
        assert times(snapped)[2] == (5, 6)

    def test_a_word_before_a_pause_is_not_drawn_into_what_sounds_after_it(self):
        snapped = snap_words(words((1.0, 1.5, "the"), (1.5, 4.5, "menu,")), [(1, 2), (2.9, 6)])
        assert times(snapped)[1] == (1.5, 2)

    def test_a_word_far_from_the_edges_keeps_its_time(self):
        assert times(snap_words(words((5.0, 5.4, "a")), [(1.0, 9.0)])) == [(5.0, 5.4)]

    def test_a_word_outside_all_speech_keeps_its_time(self):
        assert times(snap_words(words((5.0, 5.4, "a")), [(1.0, 2.0)])) == [(5.0, 5.4)]

    def test_a_word_stretched_over_speech_that_the_engine_skipped_is_shortened(self):
        (word,) = snap_words(words((1.0, 9.0, "so")), [(1.0, 9.0)])
        assert word.start == 1.0
        assert word.end - word.start == pytest.approx(1.0)

    def test_a_long_word_spoken_slowly_is_left_alone(self):
        snapped = snap_words(words((1.0, 3.5, "unquestionably")), [(1.0, 3.5)])
        assert times(snapped) == [(1.0, 3.5)]


class TestSegments:
    def test_sentences_become_segments_with_their_words(self):
        placed = place(clip_result([(0.5, 1.0, "Yes."), (1.2, 1.5, "Go"), (1.5, 2.0, "on.")]), chunk(0, 3, [(0, 3)]))
        segments = segments_of(placed, [(0.5, 2.0)], ClipResult((), language="en"))
        assert [segment.text for segment in segments] == ["Yes.", "Go on."]
        assert [word.text for word in segments[1].words] == ["Go", "on."]
        assert {segment.language for segment in segments} == {"en"}
        assert segments[0].confidence == pytest.approx(0.9)

    def test_sentences_begin_a_little_before_their_first_sound_and_end_a_little_after_their_last(self):
        placed = place(clip_result([(1.0, 2.0, "Yes."), (4.0, 5.0, "Good.")]), chunk(0, 8, [(0, 8)]))
        first, second = segments_of(placed, [(1.0, 2.0), (4.0, 5.0)], ClipResult(()))
        assert times([first]) == [(1 - LEAD_SECONDS, 2 + TAIL_SECONDS)]
        assert times([second]) == [(4 - LEAD_SECONDS, 5 + TAIL_SECONDS)]
        assert (second.words[0].start, second.words[-1].end) == (second.start, second.end)

    def test_sentences_share_a_pause_that_is_too_short_for_both_margins(self):
        placed = place(clip_result([(1.0, 2.0, "Yes."), (2.1, 3.0, "Good.")]), chunk(0, 8, [(0, 8)]))
        first, second = segments_of(placed, [(1.0, 3.0)], ClipResult(()))
        assert first.end == pytest.approx(2.05)
        assert second.start == pytest.approx(2.05)

    def test_a_phrase_is_held_through_a_short_pause_until_it_goes_on(self):
        pause = HELD_SECONDS - 0.05
        told = [(1.0, 2.0, "when it rains,"), (2 + pause, 3.0, "it pours.")]
        first, second = segments_of(place(clip_result(told), chunk(0, 8, [(0, 8)])), [(1.0, 3.0)], ClipResult(()))
        assert first.end == pytest.approx(second.start)

    def test_segments_without_words_lose_the_silence_at_their_ends(self):
        placed = [ClipSegment(0.0, 30.0, "all of it")]
        (segment,) = segments_of(placed, [(3.0, 5.0), (8.0, 9.0)], ClipResult((), average_log_probability=-0.5))
        assert times([segment]) == [(3.0, 9.0)]
        assert segment.confidence == pytest.approx(np.exp(-0.5))

    def test_words_of_blanks_are_left_out(self):
        placed = [ClipSegment(0.0, 1.0, "a", (*words((0.0, 0.5, "a")), ClipWord(0.5, 0.6, " ", 0.5)))]
        (segment,) = segments_of(placed, [(0.0, 1.0)], ClipResult(()))
        assert (segment.text, len(segment.words)) == ("a", 1)


class TestOrder:
    def test_overlaps_are_cut_and_what_lies_outside_is_brought_in(self):
        ordered = in_order([Segment(4, 6, "b"), Segment(1, 5, "a"), Segment(5.5, 99, "c")], 2.0, 10.0)
        assert [(segment.text, segment.start, segment.end) for segment in ordered] == [
            ("a", 2, 5),
            ("b", 5, 6),
            ("c", 6, 10),
        ]

    def test_words_stay_within_their_segment(self):
        segment = Segment(1, 3, "a b", words=(Word(0.5, 1.5, "a", 1), Word(1.2, 4, "b", 1)))
        (ordered,) = in_order([segment], 1.0, 2.5)
        assert times(ordered.words) == [(1, 1.5), (1.5, 2.5)]


@st.composite
def chunks_with_words(draw):
    """Draw a chunk with silence left out, speech in what is kept, and an engine's words with any times."""
    edges = sorted(draw(st.lists(st.integers(0, 600), min_size=2, max_size=10, unique=True)))
    edges = edges[: len(edges) // 2 * 2]
    kept = [(a / 10, b / 10) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    speech = [(a + (b - a) * 0.2, a + (b - a) * 0.8) for a, b in kept]
    start, stop = kept[0][0] - draw(st.sampled_from([0.0, 0.1])), kept[-1][1] + draw(st.sampled_from([0.0, 5.0]))
    made = chunk(max(start, 0.0), stop, kept, speech)
    seconds = st.floats(-1, 70, allow_nan=False)
    timed = draw(st.lists(st.tuples(seconds, seconds, st.sampled_from(["a", "bc.", "def,", "你"])), max_size=12))
    # Engines promise nothing: words may start late, end early, or overlap.
    return made, [ClipWord(max(a, 0.0), max(b, 0.0), f" {text}", 0.5) for a, b, text in timed]


@settings(max_examples=150)
@given(chunks_with_words())
def test_whatever_an_engine_says_times_ascend_within_the_chunk_and_no_word_is_lost(drawn):
    made, said = drawn
    result = ClipResult((ClipSegment(0.0, 1.0, "", tuple(said)),) if said else ())
    segments = in_order(
        segments_of(place(result, made), speech_seconds(made), result), made.start_seconds, made.stop_seconds
    )
    reached = made.start_seconds
    for segment in segments:
        assert reached <= segment.start <= segment.end <= made.stop_seconds
        reached = at = segment.start
        for word in segment.words:
            assert at <= word.start <= word.end <= segment.end
            at = word.end
        reached = segment.end
        assert segment.text == " ".join(word.text for word in segment.words)
    assert sorted(word.text for segment in segments for word in segment.words) == sorted(
        word.text.strip() for word in said
    )


class TestCoverage:
    SPEECH = ((1.0, 5.0), (10.0, 20.0))

    @staticmethod
    def spoken(*spans):
        return [Segment(a, b, "x", words=(Word(a, b, "x", 1.0),)) for a, b in spans]

    def test_speech_under_words_is_covered(self):
        assert uncovered_speech(self.SPEECH, self.spoken((1, 5), (10, 20))) == []

    def test_speech_without_any_text_is_uncovered_whole(self):
        assert uncovered_speech(self.SPEECH, []) == [(1.0, 5.0), (10.0, 20.0)]

    def test_no_speech_leaves_nothing_to_cover(self):
        assert uncovered_speech([], self.spoken((1, 5))) == []

    def test_a_hole_between_words_is_found_inside_one_segment(self):
        segment = Segment(10, 20, "a b", words=(Word(10, 12, "a", 1), Word(18, 20, "b", 1)))
        ((start, end),) = uncovered_speech([(10.0, 20.0)], [segment])
        assert 12 <= start < 13
        assert 17 < end <= 18

    def test_a_tail_without_text_is_found(self):
        ((start, end),) = uncovered_speech([(10.0, 20.0)], self.spoken((10, 15)))
        assert 15 <= start < 16
        assert end == 20.0

    def test_a_breath_is_not_worth_asking_again(self):
        assert uncovered_speech([(1.0, 1.2), (4.0, 4.3)], []) == []

    def test_stretches_that_lie_close_together_are_asked_for_together(self):
        assert uncovered_speech([(1.0, 2.0), (2.3, 3.0), (9.0, 10.0)], []) == [(1.0, 3.0), (9.0, 10.0)]

    def test_stretches_with_a_word_between_them_are_asked_for_apart_lest_it_come_twice(self):
        found = uncovered_speech([(1.0, 5.0)], self.spoken((2.9, 3.1)))
        assert len(found) == 2
        assert found[0][1] <= 2.9
        assert found[1][0] >= 3.1

    def test_segments_without_words_count_whole(self):
        assert uncovered_speech(self.SPEECH, [Segment(0.5, 21.0, "all")]) == []

    def test_covered_seconds_count_speech_under_segments_once(self):
        assert covered_seconds(self.SPEECH, [Segment(0, 3, "a"), Segment(2, 4, "b"), Segment(12, 14, "c")]) == 5.0
        assert covered_seconds(self.SPEECH, []) == 0.0

    @settings(max_examples=80)
    @given(
        st.lists(st.integers(0, 400), min_size=2, max_size=12, unique=True),
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=8),
    )
    def test_what_is_called_uncovered_is_speech_and_touches_no_word(self, edges, said):
        edges = sorted(edges)[: len(edges) // 2 * 2]
        speech = [(a / 10, b / 10) for a, b in zip(edges[::2], edges[1::2], strict=True)]
        segments = self.spoken(*((a / 10, (a + length) / 10) for a, length in sorted(said)))
        found = uncovered_speech(speech, segments)
        assert found == sorted(found)
        for start, end in found:
            assert any(a <= start < b for a, b in speech)
            assert any(a < end <= b for a, b in speech)
            assert not any(segment.start < end and segment.end > start for segment in segments)
