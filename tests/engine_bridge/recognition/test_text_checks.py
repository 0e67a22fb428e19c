"""Which texts are taken for invented, and which are left in peace."""

# ruff: noqa: RUF001 (full-width punctuation is part of what is tested)

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_bridge.recognition.text_checks import (
    Repetition,
    characters_per_second,
    compression_ratio,
    echoes_prompt,
    longest_repetition,
    only_described,
    only_symbols,
    repeated_ngrams,
    why_suspect,
    words_of,
)

COUNTING = (
    "Twenty-one, twenty-two, twenty-three, twenty-four, twenty-five, twenty-six, twenty-seven, twenty-eight, "
    "twenty-nine, thirty, thirty-one, thirty-two, thirty-three, thirty-four, thirty-five, thirty-six, thirty-seven, "
    "thirty-eight, thirty-nine, forty, forty-one, forty-two, forty-three, forty-four, forty-five, forty-six."
)
CHORUS = "We are going home tonight, down the long and winding river road. "
PROSE = (
    "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country. "
    "My fellow citizens of the world, ask not what America will do for you, but what together we can do for the "
    "freedom of man."
)


# Loops


@pytest.mark.parametrize(
    "text",
    [
        "thank you " * 20,
        "Thank you. " * 10,
        "I'm going to the store. " * 4,
        "So the first thing we did was look. " + "And I was like, oh my God. " * 12,
        "And then we went on. " * 5 + "That was the end of it, and everybody left the room in silence.",
        "you " * 60,
        "ご視聴ありがとうございました。" * 6,
        "谢谢大家收看" * 8,
        "ขอบคุณครับ" * 8,
        "감사합니다. " * 16,
        "ha" * 60,
        "a" * 200,
    ],
)
def test_a_loop_is_suspect(text):
    assert why_suspect(text, 30.0) == "repetition"


def test_a_loop_that_varies_a_little_is_suspect():
    text = " ".join(f"I'm going to go to the store and {thing}." for thing in ["buy", "see", "get", "look", "buy"] * 4)
    assert longest_repetition(words_of(text)).times < 5
    assert why_suspect(text, 30.0) == "repetition"


@pytest.mark.parametrize(
    "text",
    [
        "No, no, no.",
        "No, no, no, no, no, no, no!",
        "Bye. Bye. Bye-bye.",
        "Yeah, yeah, yeah, I know. Right, right, right.",
        "My number is five five five, one two one two, extension zero zero zero zero.",
        "5 5 5 0 1 0 0 5 5 5 0 1 0 0",
        "0800 0000 0000",
        CHORUS * 3,
        COUNTING,
        ", ".join(str(number) for number in range(1, 80)),
        "One hundred and one, one hundred and two, one hundred and three, one hundred and four, one hundred and five.",
        "Left, right, left, right, left, right.",
        "I'm going to the store. I'm going to the store.",
        "はははははは",
        "对对对对对",
        "我们今天晚上一起回家，沿着那条又长又弯的河边小路慢慢走。" * 3,
        PROSE,
    ],
)
def test_what_people_do_repeat_is_not_suspect(text):
    assert why_suspect(text, 30.0) is None


def test_counting_compresses_like_a_loop_and_still_passes():
    text = " ".join(
        f"number one hundred and {tens}," for tens in ["ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy"]
    )
    assert compression_ratio(text) > 2.4
    assert why_suspect(text, 20.0) is None


def test_a_short_chorus_is_let_pass_three_times_and_not_five():
    assert why_suspect(CHORUS * 3, 30.0) is None
    assert why_suspect(CHORUS * 5, 30.0) == "repetition"


# Symbols


@pytest.mark.parametrize(
    "text", ["!!!!!", "!", "...", "♪♪♪", " - - ", "Hello!!!!!!!!!!!!!!!!!!!!!!!!", "____________ so"]
)
def test_symbols_in_place_of_speech_are_suspect(text):
    assert why_suspect(text, 5.0) == "only symbols"


@pytest.mark.parametrize("text", ["What?!?!", "Well...", "C++", "5%", "Wait... what...?", "₂ of 3"])
def test_ordinary_punctuation_is_not_suspect(text):
    assert why_suspect(text, 5.0) is None


@pytest.mark.parametrize(
    "text",
    [
        "(upbeat music)",
        "[Music] [Applause].",
        "♪ (soft music) ♪",
        "*coughs*",
        "（音乐）",
        "【拍手】",
        "(音楽) - (拍手)",
    ],
)
def test_a_sound_that_is_described_is_not_said(text):
    assert why_suspect(text, 5.0) == "only a description"


@pytest.mark.parametrize(
    "text",
    ["(laughs) Oh well.", "He said (quietly) no.", "f(x) (of x)", "2 * 3 * 4", "(so they said", "I [think]"],
)
def test_what_is_said_beside_brackets_is_let_pass(text):
    assert not only_described(text)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_a_blank_text_is_not_suspect(text):
    assert not only_symbols(text)
    assert why_suspect(text, 5.0, "a prompt that was given before") is None


# Echoes of the prompt

PROMPT = "This lecture covers Kubernetes, Grafana and Prometheus. Speaker: Dr. Ada Byron."


@pytest.mark.parametrize(
    "text",
    [PROMPT, PROMPT.lower(), "Kubernetes, Grafana and Prometheus.", f"{PROMPT} {PROMPT}", f"{PROMPT} Thank you."],
)
def test_the_prompt_given_back_is_suspect(text):
    assert why_suspect(text, 30.0, PROMPT) == "echo of the prompt"
    assert why_suspect(text, 30.0) is None


@pytest.mark.parametrize(
    "text",
    [
        "Prometheus.",
        "Dr. Ada Byron.",
        "Today Dr. Ada Byron shows how Grafana reads from Prometheus, and why Kubernetes needs neither of them.",
    ],
)
def test_words_of_the_prompt_in_other_speech_are_not_suspect(text):
    assert why_suspect(text, 30.0, PROMPT) is None


def test_a_prompt_of_a_few_names_may_be_said():
    assert not echoes_prompt("Ada Byron", "Ada Byron")


# Speed


def test_more_text_than_anyone_can_say_is_suspect():
    assert why_suspect(PROSE, 3.0) == "too much text for its time"
    assert (
        why_suspect("我们今天要讲的是如何在很短的时间里说很多的话而且每一句都不一样", 1.0)
        == "too much text for its time"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (PROSE, 11.0),
        ("Yes, of course, sir.", 0.2),
        ("我们今天要讲的是如何在很短的时间里说很多的话", 3.0),
        (PROSE, 0.0),
    ],
)
def test_fast_speech_short_answers_and_unknown_lengths_are_not_suspect(text, seconds):
    assert why_suspect(text, seconds) is None


def test_characters_are_counted_without_white_space():
    assert characters_per_second("ab cd\n", 2.0) == 2.0
    assert characters_per_second("ab", 0.0) == math.inf
    assert characters_per_second("  ", 0.0) == 0.0


# The measures themselves


def test_compression_ratio_is_that_of_openai_whisper():
    assert compression_ratio("") == 0.0
    assert compression_ratio(PROSE) < 2.0
    assert compression_ratio("thank you " * 20) > 2.4


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Repetition()),
        ("a b c", Repetition()),
        ("a b a", Repetition()),
        ("x a a a y", Repetition(("a",), 3, 1)),
        ("x a b a b a b a", Repetition(("a", "b"), 3, 1)),
        ("a a b c d b c d", Repetition(("b", "c", "d"), 2, 2)),
        ("a a a a", Repetition(("a",), 4, 0)),
    ],
)
def test_the_repetition_that_covers_most_is_found(words, expected):
    assert longest_repetition(words.split()) == expected


@given(st.lists(st.sampled_from("abc"), max_size=14))
def test_no_other_repetition_covers_more(words):
    found = longest_repetition(words)
    stretch = list(found.phrase) * found.times
    assert words[found.start : found.start + len(stretch)] == stretch
    most = max(
        (
            length * times
            for length in range(1, len(words) + 1)
            for start in range(len(words))
            for times in range(2, len(words) // length + 1)
            if words[start : start + length * times] == words[start : start + length] * times
        ),
        default=0,
    )
    assert len(stretch) == most


def test_the_share_of_repeated_runs():
    assert repeated_ngrams(["a", "b", "c", "d", "e"], 2) == 0.0
    assert repeated_ngrams(["a", "b", "a", "b", "a"], 2) == 0.5
    assert repeated_ngrams(["a"], 2) == 0.0


def test_words_are_compared_without_case_and_punctuation():
    assert words_of("Bye. Bye-bye, don't!") == ["bye", "bye", "bye", "dont"]
    assert words_of("我用Python写") == ["我", "用", "python", "写"]
    assert words_of("안녕 하세요") == ["안녕", "하세요"]
    assert words_of("ขอบคุณ") == ["ข", "อ", "บ", "คุ", "ณ"]


@given(st.text(max_size=80), st.floats(-1, 60), st.none() | st.text(max_size=40))
def test_any_text_can_be_judged(text, seconds, prompt):
    assert why_suspect(text, seconds, prompt) in {
        None,
        "only symbols",
        "only a description",
        "echo of the prompt",
        "repetition",
        "too much text for its time",
    }
