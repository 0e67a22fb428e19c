"""The word error rate that the benchmarks report."""

import math

import pytest

pytest.importorskip("jiwer", reason="jiwer is a development dependency")
pytest.importorskip("whisper_normalizer", reason="whisper_normalizer is a development dependency")

from bench.wer import word_errors


def test_case_punctuation_spelling_and_contractions_are_not_errors():
    assert word_errors("I'm sure the colour is grey.", "i am sure, the color is gray") == (0.0, 0, 0, 0, 7)


def test_each_kind_of_error_is_counted_apart():
    errors = word_errors("a cat sat down here again", "well a dog sat here again")
    assert errors == (3 / 6, 1, 1, 1, 6)


def test_an_empty_text_deletes_every_word():
    assert word_errors("one small step", "") == (1.0, 0, 3, 0, 3)


def test_words_against_an_empty_reference_are_insertions():
    assert word_errors("", "thank you") == (math.inf, 0, 0, 2, 0)
    assert word_errors("", "") == (0.0, 0, 0, 0, 0)


def test_other_languages_use_the_basic_normaliser():
    assert word_errors("Die Straße, bitte!", "die straße bitte", language="de").wer == 0.0
