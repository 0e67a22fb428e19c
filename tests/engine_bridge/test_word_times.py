"""Word times out of alignment paths. A path lists (token, encoder state) pairs; a state is 20 ms, four are the lag."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_bridge.engines.whisper_tokens import TokenWord
from engine_bridge.engines.word_times import ALIGNMENT_LAG, SECONDS_PER_STATE, words_from_alignment


def words(*texts):
    """Make words of one token for each letter."""
    return [TokenWord(f" {text}", tuple(range(len(text)))) for text in texts]


def times(timed):
    return [(word.text, round(word.start, 6), round(word.end, 6)) for word in timed]


def test_a_word_lasts_from_its_first_state_to_the_next_words_first_state():
    path = [(0, 4), (0, 5), (1, 6), (1, 7), (2, 8), (2, 9), (2, 10), (3, 11)]
    timed = words_from_alignment(words("a", "b", "c"), path, [1, 1, 1], 30.0)
    assert times(timed) == [(" a", 0, 0.04), (" b", 0.04, 0.08), (" c", 0.08, 0.14)]


def test_the_tokens_of_a_word_count_together():
    path = [(0, 9), (1, 14), (2, 24), (3, 34), (4, 44)]
    timed = words_from_alignment(words("ab", "cd"), path, [0.2, 0.4, 0.9, 0.7], 30.0)
    assert times(timed) == [(" ab", 0.1, 0.4), (" cd", 0.4, 0.8)]
    assert [word.probability for word in timed] == pytest.approx([0.3, 0.8])


def test_a_repeated_word_gets_its_own_time_each_time():
    path = [(0, 4), (1, 54), (2, 104), (3, 154)]
    assert times(words_from_alignment(words("a", "a", "a"), path, [1] * 3, 30.0)) == [
        (" a", 0, 1),
        (" a", 1, 2),
        (" a", 2, 3),
    ]


def test_times_end_with_the_clip():
    path = [(0, 4), (1, 44), (2, 64)]
    assert times(words_from_alignment(words("a", "b"), path, [1, 1], 0.5)) == [(" a", 0, 0.5), (" b", 0.5, 0.5)]


def test_a_clip_too_short_to_align_has_no_negative_times():
    assert times(words_from_alignment(words("a"), [(0, -1), (1, -1)], [1], 0.0)) == [(" a", 0, 0)]


def test_a_path_that_ends_early_still_times_every_word():
    timed = words_from_alignment(words("a", "b", "c"), [(0, 4), (1, 14)], [1, 1, 1], 30.0)
    assert times(timed) == [(" a", 0, 0.2), (" b", 0.2, 0.2), (" c", 0.2, 0.2)]


def test_words_are_as_much_earlier_as_attention_is_late():
    path = [(0, 50), (1, 100), (2, 150)]
    assert times(words_from_alignment(words("a", "b"), path, [1, 1], 30.0)) == [(" a", 0.92, 1.92), (" b", 1.92, 2.92)]
    assert times(words_from_alignment(words("a"), [(0, 0), (1, 2)], [1], 30.0)) == [(" a", 0, 0)]


def test_no_words_or_no_path_give_nothing():
    assert words_from_alignment([], [(0, 0)], [], 1.0) == []
    assert words_from_alignment(words("a"), [], [1.0], 1.0) == []


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    steps=st.lists(st.integers(0, 80), min_size=40, max_size=40),
    clip_seconds=st.floats(0, 30),
)
def test_whatever_the_path_words_ascend_within_the_clip(lengths, steps, clip_seconds):
    texts = words(*("x" * length for length in lengths))
    tokens = sum(lengths)
    states = np.cumsum(steps[: tokens + 1])
    timed = words_from_alignment(
        texts, list(zip(range(tokens + 1), states.tolist(), strict=True)), [0.5] * tokens, clip_seconds
    )
    assert [word.text for word in timed] == [word.text for word in texts]
    reached = 0.0
    for word in timed:
        assert reached <= word.start <= word.end <= clip_seconds
        reached = word.end
    assert timed[0].start == min(max(states[0] * SECONDS_PER_STATE - ALIGNMENT_LAG, 0), clip_seconds)
