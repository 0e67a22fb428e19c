"""How texts that follow one another become one text."""

# ruff: noqa: RUF001 (full-width characters are what is tested)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_bridge.joining import is_spaceless, join_texts
from engine_bridge.transcript import Segment, Transcript


def test_latin_texts_get_exactly_one_space():
    assert join_texts(["Hello there.", " General Kenobi. ", "You are bold."]) == (
        "Hello there. General Kenobi. You are bold."
    )


def test_empty_and_blank_texts_leave_no_double_space():
    assert join_texts(["one", "", "  ", "two"]) == "one two"


def test_no_texts_give_an_empty_text():
    assert join_texts([]) == ""


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("今天天气很好", "我们出去走走"),
        ("今日は天気が", "いいですね"),
        ("カタ", "カナ"),
        ("ﾊﾝｶｸ", "ｶﾀｶﾅ"),
        ("สวัสดี", "ครับ"),
        ("ສະບາຍ", "ດີ"),
        ("សួស្តី", "បង"),
        ("မင်္ဂ", "လာပါ"),
        ("བཀྲ་ཤིས་", "བདེ་ལེགས"),
        ("𠮷野家", "𠮷田"),
    ],
)
def test_scripts_written_without_spaces_get_none(left, right):
    assert join_texts([left, right]) == left + right


def test_korean_keeps_its_spaces():
    assert join_texts(["안녕하세요", "반갑습니다"]) == "안녕하세요 반갑습니다"


@pytest.mark.parametrize(
    ("left", "right"), [("你好。", "OpenAI"), ("OpenAI", "，你好"), ("「はい」", "2024"), ("好！", "OK")]
)
def test_cjk_punctuation_brings_its_own_white(left, right):
    assert join_texts([left, right]) == left + right


def test_han_beside_latin_gets_a_space():
    assert join_texts(["我用", "Python", "写程序"]) == "我用 Python 写程序"


def test_full_width_latin_words_stay_two_words():
    assert join_texts(["ＡＢＣ", "ＤＥＦ"]) == "ＡＢＣ ＤＥＦ"
    assert join_texts(["ＡＢＣ", "の本"]) == "ＡＢＣの本"


def test_a_transcript_joins_its_segments_by_the_same_rule():
    segments = (Segment(0.0, 1.0, "你好"), Segment(1.0, 2.0, "世界"))
    transcript = Transcript(segments, (), 2.0, "zh", "a.wav", "embedded:tiny", "soundfile")
    assert transcript.text == "你好世界"


@given(st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1), max_size=8))
def test_words_of_latin_texts_survive_joining(texts):
    assert join_texts(texts).split(" ") == (texts or [""])


@given(st.lists(st.text(max_size=6), max_size=6))
def test_joining_neither_drops_nor_adds_a_character_other_than_spaces(texts):
    assert "".join(join_texts(texts).split()) == "".join("".join(text.split()) for text in texts)


@pytest.mark.parametrize(
    ("character", "spaceless"),
    [("漢", True), ("。", True), ("ส", True), ("한", False), ("a", False), ("é", False), ("ह", False)],
)
def test_scripts_are_told_apart(character, spaceless):
    assert is_spaceless(character) is spaceless
