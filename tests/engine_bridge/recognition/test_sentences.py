"""Segments out of timed words."""

# ruff: noqa: RUF001 (full-width and Arabic marks are what is tested)

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_bridge.engines.protocol import ClipWord
from engine_bridge.recognition.sentences import LONGEST_SENTENCE, sentences_from_words


def said(text, *, pace=0.4, pauses=None):
    """Say words one after the other; `pauses` maps a word to the silence before it, in seconds."""
    words, at = [], 0.0
    for word in text.split():
        at += (pauses or {}).get(word, 0.0)
        words.append(ClipWord(at, at + pace, f" {word}", 1.0))
        at += pace
    return words


def texts(sentences):
    return ["".join(word.text for word in sentence).strip() for sentence in sentences]


def test_a_sentence_ends_after_its_mark():
    assert texts(sentences_from_words(said("Is it? It is! Good. and more"))) == [
        "Is it?",
        "It is!",
        "Good.",
        "and more",
    ]


def test_a_mark_inside_quotes_or_brackets_ends_it_too():
    assert texts(sentences_from_words(said('He said "no." Then (he left.) End'))) == [
        'He said "no."',
        "Then (he left.)",
        "End",
    ]


@pytest.mark.parametrize(
    "text", ["Mr. Dashwood and Dr. Grey", "as J. Austen wrote", "e.g. this", "it costs 3.50 today"]
)
def test_abbreviations_initials_and_numbers_end_none(text):
    assert texts(sentences_from_words(said(text))) == [text]


def test_other_scripts_have_their_own_marks():
    assert texts(sentences_from_words(said("你好。 世界！ हाँ। نعم۔ end"))) == ["你好。", "世界！", "हाँ।", "نعم۔", "end"]


def test_a_pause_ends_a_segment_wherever_it_falls():
    assert texts(sentences_from_words(said("wait for it now", pauses={"it": 0.6}))) == ["wait for", "it now"]
    assert texts(sentences_from_words(said("wait for it now", pauses={"it": 0.4}))) == ["wait for it now"]


def test_a_shorter_pause_ends_a_segment_where_a_clause_ends():
    assert texts(sentences_from_words(said("so, go on", pauses={"go": 0.12}))) == ["so,", "go on"]
    assert texts(sentences_from_words(said("das Haus da", pauses={"Haus": 0.12}))) == ["das Haus da"]


def test_a_shorter_pause_parts_phrases_but_not_single_words():
    assert texts(sentences_from_words(said("a b c d e f", pauses={"d": 0.2}))) == ["a b c", "d e f"]
    assert texts(sentences_from_words(said("a b c d e f", pauses={"e": 0.2}))) == ["a b c d e f"]
    assert texts(sentences_from_words(said("a b c d e. f", pauses={"d": 0.2}))) == ["a b c d e.", "f"]


def test_a_long_sentence_is_broken_at_its_comma_rather_than_between_other_words():
    text = " ".join([*(["a"] * 20), "b,", *(["c"] * 22)])
    first, second = texts(sentences_from_words(said(text)))
    assert first.endswith("b,")
    assert second.startswith("c")


def test_a_long_sentence_without_marks_is_broken_at_its_widest_pause_near_the_middle():
    text = " ".join([*(f"a{n}" for n in range(25)), *(f"b{n}" for n in range(25))])
    sentences = sentences_from_words(said(text, pauses={"b0": 0.8}))
    assert texts(sentences)[1].startswith("b0")


def test_one_very_long_word_is_left_whole():
    (sentence,) = sentences_from_words([ClipWord(0.0, 40.0, " hm", 1.0)])
    assert len(sentence) == 1


def test_no_words_give_no_sentences():
    assert sentences_from_words([]) == []


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3), st.sampled_from(["a", "b,", "c.", "Mr.", "d"])), max_size=50)
)
def test_sentences_are_the_words_in_order_and_none_is_too_long(steps):
    words, at = [], 0.0
    for pause, length, text in steps:
        words.append(ClipWord(at + pause, at + pause + length, f" {text}", 1.0))
        at += pause + length
    sentences = sentences_from_words(words)
    assert [word for sentence in sentences for word in sentence] == words
    for sentence in sentences:
        assert len(sentence) == 1 or sentence[-1].end - sentence[0].start <= LONGEST_SENTENCE
