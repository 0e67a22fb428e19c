"""Prompt and glossary: before every chunk, within what the engine takes, and never cut in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_bridge import transcribe
from engine_bridge.prompts import compose_prompt
from engine_bridge.testing import FakeEngine
from tests.tones import Recording, hear


@pytest.fixture
def engine_with():
    engines = []

    def make(budget):
        engines.append(FakeEngine(hear, prompt_budget=budget))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def test_the_glossary_comes_before_the_prompt(engine_with):
    composed = compose_prompt(" A call about radio. ", ["Auricle", "Marconi"], engine_with(20))
    assert composed == ("Auricle, Marconi. A call about radio.", ())


@pytest.mark.parametrize(
    ("prompt", "glossary", "expected"),
    [
        (None, [], None),
        ("  ", [" ", ""], None),
        (None, ["Auricle"], "Auricle."),
        ("Only this.", [], "Only this."),
        (None, ["Auricle", " Auricle ", "Marconi"], "Auricle, Marconi."),
    ],
)
def test_blanks_and_repetitions_take_no_room(engine_with, prompt, glossary, expected):
    assert compose_prompt(prompt, glossary, engine_with(20)) == (expected, ())


def test_a_prompt_that_is_too_long_keeps_its_end_and_says_so(engine_with):
    text, (notice,) = compose_prompt("one two three four", [], engine_with(2))
    assert text == "three four"
    assert "cut to its last 10 characters" in notice


def test_a_glossary_that_is_too_long_keeps_its_first_terms_and_names_the_first_that_is_left_out(engine_with):
    text, (notice,) = compose_prompt("A call.", ["Auricle", "Guglielmo Marconi", "Hertz"], engine_with(5))
    assert text == "Auricle, Guglielmo Marconi. A call."
    assert "2 of the glossary's 3 terms" in notice
    assert "'Hertz'" in notice


def test_the_prompt_is_kept_before_the_glossary(engine_with):
    text, notices = compose_prompt("one two three", ["Auricle"], engine_with(2))
    assert text == "two three"
    assert len(notices) == 2


@given(st.lists(st.text("ab ", min_size=1, max_size=9), max_size=30), st.integers(0, 12))
def test_as_many_terms_as_fit_and_no_more(terms, budget):
    engine = FakeEngine(hear, prompt_budget=budget)
    try:
        text, notices = compose_prompt(None, terms, engine)
        assert not engine.fit_prompt(text or "")[1]
        known = list(dict.fromkeys(term.strip() for term in terms if term.strip()))
        kept = [] if text is None else text.removesuffix(".").split(", ")
        assert kept == known[: len(kept)]
        if len(kept) < len(known):
            assert len(notices) == 1
            assert engine.fit_prompt(", ".join(known[: len(kept) + 1]))[1]
        else:
            assert notices == ()
    finally:
        engine.close()


def test_both_are_given_with_every_chunk_and_a_cut_is_told_once(engine_with):
    engine = engine_with(4)
    recording = Recording().phrases(40)
    transcript = transcribe(recording.source, engine=engine, prompt="A call.", glossary=["Auricle", "Marconi", "Hertz"])
    assert len(engine.submissions) > 2
    assert {submission.options.prompt for submission in engine.submissions} == {"Auricle, Marconi. A call."}
    assert len([warning for warning in transcript.warnings if "glossary" in warning]) == 1


def test_what_fits_is_given_without_a_warning(engine_with):
    engine = engine_with(20)
    transcript = transcribe(Recording().phrases(2).source, engine=engine, glossary=["Auricle"])
    assert engine.submissions[0].options.prompt == "Auricle."
    assert transcript.warnings == ()
