"""Times for text that came without any, from the speech that it was heard in."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_bridge.engines.protocol import ClipResult, ClipSegment
from engine_bridge.recognition.spread import SLOWEST_PACE, estimated_segments, spoken_length, spread_words

WORDS = st.lists(
    st.sampled_from(["a", "hello,", "world.", "1984", "incomprehensible", "\u4f60\u597d\u3002", "caf\u00e9?"])
)


def stretches(lengths_and_pauses):
    speech, at = [], 0.0
    for length, pause in lengths_and_pauses:
        at += pause
        speech.append((at, at + length))
        at += length
    return speech


SPEECH = st.lists(st.tuples(st.floats(0.05, 20), st.floats(0.05, 30)), min_size=1, max_size=12).map(stretches)


def text_of(words):
    return "".join(word.text for word in words)


def sentence_at(words, first):
    """Return the time at which the word that begins so starts."""
    return next(word.start for word in words if word.text.strip() == first)


class TestWords:
    @settings(max_examples=60)
    @given(WORDS, SPEECH)
    def test_no_text_is_lost_and_every_word_lies_in_speech(self, texts, speech):
        words = spread_words(" ".join(texts), speech)
        assert text_of(words).split() == " ".join(texts).split()
        assert all(before.end <= after.start for before, after in pairwise(words))
        for word in words:
            assert word.start <= word.end
            assert any(start <= word.start and word.end <= end for start, end in speech)

    def test_sentences_end_at_pauses_where_the_pace_alone_would_say_otherwise(self):
        # Two stretches of the same length; the first sentence is spoken a little faster than the second.
        text = "One sentence is quite a bit longer than that. The other one is somewhat shorter."
        words = spread_words(text, [(0.0, 3.0), (4.0, 7.0)])
        assert sentence_at(words, "The") == 4.0
        assert next(word.end for word in words if word.text == " that.") == 3.0

    def test_a_long_pause_attracts_a_sentence_end_before_a_short_one(self):
        text = "The number you have dialled is busy. Please hang up and try your call again later."
        early_long = spread_words(text, [(0.0, 2.0), (5.0, 7.4), (7.6, 8.0)])
        assert sentence_at(early_long, "Please") == 5.0

    def test_text_goes_where_its_share_is_told_to_be(self):
        speech = [(0.0, 4.0), (5.0, 9.0), (10.0, 14.0)]
        words = spread_words("Nobody speaks at first. Nor at last.", speech, [0.0, 1.0, 0.0])
        assert words[0].start == 5.0
        assert words[-1].end <= 9.0

    def test_longer_words_take_longer(self):
        short, long = spread_words("a incomprehensibility", [(0.0, 2.0)])
        assert long.end - long.start > 3 * (short.end - short.start)

    def test_chinese_is_spread_character_by_character_and_joined_without_spaces(self):
        text = "\u4f60\u597d\u3002\u6211\u5728\u8fd9\u91cc\u3002"
        words = spread_words(text, [(0.0, 0.5), (2.0, 3.0)])
        assert text_of(words) == text
        assert sentence_at(words, "\u6211") == 2.0

    def test_a_word_cannot_fill_half_a_minute(self):
        (word,) = spread_words("you", [(3.0, 30.0)])
        assert (word.start, word.end) == (3.0, 3.0 + spoken_length("you") / SLOWEST_PACE)

    def test_without_speech_or_text_there_is_no_time(self):
        assert spread_words("hello", []) == []
        assert spread_words(" ", [(0.0, 1.0)]) == []

    def test_an_absurd_amount_of_text_takes_no_absurd_time(self):
        start = time.thread_time()
        words = spread_words("word " * 5_000, [(0.0, 10.0), (11.0, 20.0)])
        assert time.thread_time() - start < 5
        assert len(words) == 5_000
        assert sum(word.start >= 11.0 for word in words) == pytest.approx(2_360, abs=60)


class TestSpokenLength:
    def test_digits_and_ideographs_take_longer_than_letters(self):
        assert spoken_length("7") > spoken_length("a")
        assert spoken_length("\u4f60") > 4
        assert spoken_length("\u4f60\u597d") == 2 * spoken_length("\u4f60")

    def test_punctuation_is_not_spoken(self):
        assert spoken_length("hello") == spoken_length('"hello!"')
        assert spoken_length("") == 0


def test_segments_are_sentences_with_estimated_times_and_no_words():
    result = ClipResult(
        (ClipSegment(0.0, 8.0, "This is first. This is second."),), language="en", average_log_probability=-0.2
    )
    first, second = estimated_segments(result, [(0.5, 1.8), (3.0, 4.4)])
    assert (first.text, second.text) == ("This is first.", "This is second.")
    # With a margin: what begins or ends softly is not seen.
    assert (first.start, second.start) == pytest.approx((0.42, 2.92))
    assert (first.end, second.end) == pytest.approx((1.9, 4.5))
    assert (first.words, first.estimated, first.language) == ((), True, "en")
    assert first.confidence == pytest.approx(0.8187, abs=1e-4)


def test_a_segment_ends_after_what_fades_but_never_in_the_next_one():
    result = ClipResult((ClipSegment(0.0, 8.0, "This is first. This is second. This is third."),), language="en")
    voiced, speech = [(0.5, 1.8), (1.9, 3.3), (3.7, 5.1)], [(0.5, 5.1)]
    segments = estimated_segments(result, voiced, speech)
    assert [segment.start for segment in segments] == pytest.approx([0.42, 1.85, 3.62])
    assert [segment.end for segment in segments] == pytest.approx([1.85, 3.5, 5.2])
    assert [segment.end for segment in estimated_segments(result, voiced)] == pytest.approx([1.85, 3.4, 5.2])
    assert estimated_segments(ClipResult(()), voiced, speech) == []
