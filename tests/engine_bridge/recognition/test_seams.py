"""Cuts inside speech: nothing doubled, nothing lost, and what is said twice stays twice."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.chunk import Chunk
from engine_bridge import cutting, transcribe
from engine_bridge.errors import EngineError
from engine_bridge.recognition.clips import LEAD_SECONDS
from engine_bridge.recognition.ladder import Outcome
from engine_bridge.recognition.seams import SEAM_SECONDS, join_at_cut, merge_seam, seam_chunk
from engine_bridge.testing import FakeEngine, clip_result
from engine_bridge.transcript import Gap, Segment, Word
from tests.tones import RATE, WORD_GAP, WORD_SECONDS, Recording, hear, listen

CUT = 10.0
SEAM_CLIP_SECONDS = 2 * SEAM_SECONDS + LEAD_SECONDS


def row(text, start, step=0.3, probability=0.9):
    """Return words of a quarter of a second, one each `step` seconds."""
    return [
        Word(start + index * step, start + index * step + 0.25, word, probability)
        for index, word in enumerate(text.split())
    ]


def said(words):
    return " ".join(word.text for word in words)


class TestMerging:
    def test_a_word_that_both_sides_heard_is_there_once(self):
        left, right = row("the quick brown fox", 9.0), row("brown fox jumps", 9.65)
        assert said(merge_seam(left, right, CUT)) == "the quick brown fox jumps"

    def test_a_word_said_three_times_stays_three_times(self):
        left, right = row("no no no", 9.4), row("no no no", 9.4)
        assert said(merge_seam(left, right, CUT)) == "no no no"

    def test_a_word_repeated_across_the_cut_is_not_taken_for_the_same(self):
        # Each side heard three of four; only their times tell.
        left, right = row("no no no", 9.4), row("no no no", 9.72)
        assert said(merge_seam(left, right, CUT)) == "no no no no"

    def test_a_repetition_without_any_overlap_stays(self):
        assert said(merge_seam(row("yes", 9.7), row("yes indeed", 10.0), CUT)) == "yes yes indeed"

    def test_case_and_punctuation_do_not_make_another_word(self):
        left, right = row("we left. Then we", 9.0), row("then, we came", 9.6)
        assert said(merge_seam(left, right, CUT)) in ("we left. Then we came", "we left. then, we came")

    def test_a_word_cut_in_half_by_either_clip_is_dropped_for_the_whole_one(self):
        left = [*row("we all recognise the", 9.0), Word(10.2, 10.3, "sp", 0.4)]
        right = [Word(9.2, 9.3, "all", 0.3), *row("recognise the speech now", 9.6)]
        assert said(merge_seam(left, right, CUT)) == "we all recognise the speech now"

    def test_without_a_common_word_the_fragments_at_the_edges_give_way(self):
        left = [*row("one two", 9.0), Word(9.6, 9.8, "thr", 0.9)]
        right = [Word(9.35, 9.5, "wo", 0.9), *row("three four", 9.6)]
        assert said(merge_seam(left, right, 9.6)) == "one two three four"

    def test_one_word_heard_in_two_ways_is_the_likelier_of_them(self):
        left = [*row("one", 9.0), Word(9.5, 10.1, "their", 0.4)]
        right = [Word(9.7, 10.4, "there", 0.8), *row("four", 10.5)]
        assert said(merge_seam(left, right, CUT)) == "one there four"

    def test_words_one_side_skipped_are_taken_from_the_other(self):
        whole = row("a b c d e f", 9.0)
        assert said(merge_seam([whole[0], whole[1], whole[4]], whole[1:], CUT)) == "a b c d e f"
        assert said(merge_seam(whole[:5], [whole[1], whole[4], whole[5]], CUT)) == "a b c d e f"

    @pytest.mark.parametrize("text", ["", "a", "a b c"])
    def test_an_empty_side_leaves_the_other(self, text):
        assert merge_seam(row(text, 9.0), [], CUT) == row(text, 9.0)
        assert merge_seam([], row(text, 9.0), CUT) == row(text, 9.0)


@st.composite
def spoken_across_a_cut(draw):
    """Draw what was said, and what two clips that overlap by three seconds heard of it."""
    vocabulary = st.sampled_from(["no", "yes", "a", "the", "well", "so"])
    at, truth = 0.0, []
    while at < 20.0:
        length = draw(st.floats(0.2, 0.6))
        truth.append(Word(at, at + length, draw(vocabulary), 0.9))
        at += length + draw(st.floats(0.0, 0.3))

    def heard(words):
        moved = []
        for word in words:
            shift = draw(st.floats(-0.03, 0.03))
            moved.append(replace(word, start=word.start + shift, end=word.end + shift))
        return moved

    first, last = CUT - 1.5, CUT + 1.5
    left = heard([word for word in truth if word.end <= last])
    right = heard([word for word in truth if word.start >= first])
    if draw(st.booleans()):
        left += [replace(word, end=last, text="#") for word in truth if word.start < last < word.end]
        right = [replace(word, start=first, text="#") for word in truth if word.start < first < word.end] + right
    return truth, left, right


@given(spoken_across_a_cut())
def test_two_hearings_merge_to_what_was_said(drawn):
    truth, left, right = drawn
    assert said(merge_seam(left, right, CUT)) == said(truth)


word_rows = st.lists(
    st.tuples(st.floats(0, 20), st.floats(0, 2), st.sampled_from(["no", "yes", "", "?"]), st.floats(0, 1)), max_size=12
).map(lambda drawn: [Word(a, a + b, text, c) for a, b, text, c in sorted(drawn)])


@given(word_rows, word_rows, st.floats(-1, 25))
def test_whatever_is_merged_times_ascend_and_no_word_is_made_up(left, right, cut):
    merged = merge_seam(left, right, cut)
    reached = -np.inf
    for word in merged:
        assert reached <= word.start <= word.end
        reached = word.end
    assert len(merged) <= len(left) + len(right)
    texts = [word.text for word in (*left, *right)]
    assert all(texts.count(word.text) >= 1 for word in merged)


def outcome(heard, gaps=(), **changes):
    if not heard:
        return Outcome((), tuple(gaps))
    segment = Segment(heard[0].start, heard[-1].end, said(heard), tuple(heard), 0.9, language="en")
    return Outcome((replace(segment, **changes),), tuple(gaps))


class TestJoining:
    left, seam, right = row("one two thr", 9.0), row("two three four", 9.3), row("ree four five", 10.0)

    def test_each_side_gets_its_words_and_the_cut_word_is_whole(self):
        seam = [Word(9.3, 9.55, "two", 0.9), Word(9.6, 10.3, "three", 0.9), Word(10.35, 10.6, "four", 0.9)]
        left = [*row("one two", 9.0), Word(9.6, 10.0, "thr", 0.3)]
        right = [Word(10.0, 10.3, "ee", 0.3), *row("four five", 10.35)]
        before, after = join_at_cut(outcome(left), outcome(seam), outcome(right), CUT)
        assert said(word for part in (before, after) for segment in part.segments for word in segment.words) == (
            "one two three four five"
        )
        assert [segment.text for segment in before.segments] == ["one two three"]
        assert {segment.attempts for segment in (*before.segments, *after.segments)} == {2}

    def test_text_far_from_the_cut_is_left_alone(self):
        far = outcome(row("long before", 1.0)).segments
        before, after = join_at_cut(
            Outcome((*far, *outcome(self.left).segments)), outcome(self.seam), outcome(self.right), CUT
        )
        assert before.segments[0] is far[0]
        assert after.segments[-1].words[-1].text == "five"

    def test_a_gap_that_the_seam_fills_is_gone_and_another_stays(self):
        filled, kept = Gap(9.4, 10.0, "nothing"), Gap(2.0, 4.0, "nothing")
        before, _ = join_at_cut(
            outcome(row("one", 9.0), [kept, filled]), outcome(self.seam), outcome(row("four five", 10.0)), CUT
        )
        assert before.gaps == (kept,)

    @pytest.mark.parametrize(
        ("left", "seam"),
        [
            (outcome(left, suspect="repetition"), outcome(seam)),
            (outcome(left), outcome(seam, suspect="repetition")),
            (outcome(left), outcome(seam, words=())),
            (outcome(left), outcome([])),
        ],
        ids=["suspect beside it", "suspect seam", "untimed seam", "nothing heard"],
    )
    def test_without_text_to_trust_both_sides_stay_as_they_were(self, left, seam):
        right = outcome(self.right)
        assert join_at_cut(left, seam, right, CUT) == (left, right)


def test_a_seam_reaches_three_seconds_to_both_sides_as_one_stretch_of_speech():
    frames = 20 * RATE
    samples = np.arange(2 * frames, dtype=np.float32)
    left = Chunk(0, 0, frames, RATE, samples[:frames], ((0, frames),), ((RATE, frames),), forced=True)
    right = Chunk(1, frames, 2 * frames, RATE, samples[frames:], ((frames, 2 * frames),), ((frames, 2 * frames),))
    seam = seam_chunk(left, right)
    reach = round(SEAM_SECONDS * RATE)
    assert (seam.start, seam.stop) == (frames - reach, frames + reach)
    assert np.array_equal(seam.samples, samples[seam.start : seam.stop])
    assert seam.kept == seam.speech == ((seam.start, seam.stop),)


class TestRecordings:
    """Talk without a pause, cut by force in the middle of words."""

    pieces = (0.0, 9.2, 18.65, 31.0)

    @pytest.fixture
    def talk(self):
        return Recording().speak(round(self.pieces[-1] / (WORD_SECONDS + WORD_GAP)))

    @pytest.fixture(autouse=True)
    def cuts_by_force(self, monkeypatch, talk):
        def chunks(blocks, sample_rate, **limits):
            samples = np.concatenate(list(blocks))
            edges = [round(seconds * sample_rate) for seconds in self.pieces[:-1]] + [len(samples)]
            for index, (a, b) in enumerate(pairwise(edges)):
                yield Chunk(index, a, b, sample_rate, samples[a:b], ((a, b),), ((a, b),), forced=b < len(samples))

        inside = [start < cut < end for cut in self.pieces[1:-1] for start, end, _ in talk.words]
        assert sum(inside) == 2
        monkeypatch.setattr(cutting, "stream_chunks", chunks)

    @pytest.fixture
    def text_of(self, talk):
        def transcribed(script, **arguments):
            engine = FakeEngine(script, **arguments)
            try:
                transcript = transcribe(talk.source, engine=engine)
            finally:
                engine.close()
            return transcript, [word.text for segment in transcript.segments for word in segment.words], engine

        return transcribed

    def test_a_word_heard_on_both_sides_of_the_cut_is_there_once(self, talk, text_of):
        transcript, words, _ = text_of(hear)  # which knows a word by half of it
        assert words == talk.names
        assert transcript.gaps == ()

    def test_fragments_of_words_give_way_to_the_whole(self, talk, text_of):
        def hears_fragments(samples, options):
            return clip_result([(a, b, name if b - a > 0.9 * WORD_SECONDS else "uh") for a, b, name in listen(samples)])

        assert text_of(hears_fragments)[1] == talk.names

    def test_times_are_those_of_the_words(self, talk, text_of):
        transcript, _, _ = text_of(hear)
        found = [word for segment in transcript.segments for word in segment.words]
        for word, (start, end, _) in zip(found, talk.words, strict=True):
            assert word.start == pytest.approx(start, abs=0.3)
            assert word.end == pytest.approx(end, abs=0.3)

    def test_no_clip_is_longer_than_two_sides_of_a_seam_or_its_chunk(self, text_of):
        _, _, engine = text_of(hear)
        lengths = sorted(len(submission.samples) / RATE for submission in engine.submissions)
        assert len(lengths) == 5
        assert lengths[:2] == [SEAM_CLIP_SECONDS, SEAM_CLIP_SECONDS]

    def test_answers_out_of_order_change_nothing(self, talk, text_of):
        _, words, _ = text_of(hear, delay=lambda number: 0.2 - 0.04 * number)
        assert words == talk.names

    def test_text_without_timed_words_is_left_as_both_sides_heard_it(self, talk, text_of):
        def untimed(samples, options):
            result = hear(samples, options)
            return replace(result, segments=tuple(replace(segment, words=()) for segment in result.segments))

        transcript, _, _ = text_of(untimed)
        divided = [name for cut in self.pieces[1:-1] for start, end, name in talk.words if start < cut < end]
        expected = [name for name in talk.names for _ in range(1 + divided.count(name))]
        assert transcript.text.split() == expected

    def test_a_seam_that_fails_fails_the_transcription(self, text_of):
        def fails_on_seams(samples, options):
            return EngineError("out of memory") if len(samples) == SEAM_CLIP_SECONDS * RATE else hear(samples, options)

        with pytest.raises(EngineError, match="out of memory"):
            text_of(fails_on_seams)
