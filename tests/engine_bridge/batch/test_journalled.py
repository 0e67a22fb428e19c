"""An engine whose answers are kept: it answers as the plain engine does, once from it and then from the journal."""

import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

from engine_bridge.batch.journalled import JournalledEngine
from engine_bridge.batch.retrying import RetryingEngine
from engine_bridge.engines.protocol import ClipResult, ClipSegment, ClipWord, DecodingOptions
from engine_bridge.errors import EngineDeadError, EngineError, JournalError, UnsupportedOptionError
from engine_bridge.journal import Journal
from engine_bridge.testing import MULTILINGUAL, FakeEngine, clip_result
from tests.recordings import bursts, model_problem, reading

ANSWERS = [
    clip_result([(0.1, 0.7000000000000001, "Größe"), (0.8, 1.1, "\u65e5\u672c")], probability=1 / 3),
    clip_result([], language=None, average_log_probability=None, no_speech_probability=None),
    ClipResult(
        (ClipSegment(0.0, 1.0, "no words"), ClipSegment(1.0, 2.0, "two", (ClipWord(1.0, 2.0, " two", 0.5),))),
        "de",
        0.25,
    ),
]
OPTIONS = DecodingOptions(language="en")


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as opened:
        yield opened


@pytest.fixture
def engine_of():
    engines = []

    def make(script=lambda samples, options: ANSWERS[0], **settings):
        engines.append(FakeEngine(script, capabilities=MULTILINGUAL, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def journalled(engine, journal, name="recording"):
    return JournalledEngine(engine, journal, journal.begin(name))


class TestAnswers:
    @pytest.mark.parametrize("answer", ANSWERS)
    def test_they_are_the_same_from_the_engine_and_from_the_journal(self, engine_of, journal, answer):
        engine = engine_of(lambda samples, options: answer)
        for _ in range(2):
            assert journalled(engine, journal).submit(bursts(2), OPTIONS).result(10) == answer
        assert len(engine.submissions) == 1

    def test_numbers_of_the_engines_own_kind_are_numbers(self, engine_of, journal):
        result = clip_result([(np.float64(0.5), np.float32(0.75), "word")], probability=np.float32(0.5))
        engine = engine_of(lambda samples, options: result)
        answers = [journalled(engine, journal).submit(bursts(2), OPTIONS).result(10) for _ in range(2)]
        assert answers[0] == answers[1] == result

    def test_languages_are_kept_as_well(self, engine_of, journal):
        engine = engine_of(language_script=lambda samples: (("de", 0.75), ("en", 0.1 + 0.2)))
        answers = [journalled(engine, journal).detect_language(bursts(2)).result(10) for _ in range(2)]
        assert answers == [(("de", 0.75), ("en", 0.1 + 0.2))] * 2
        assert len(engine.language_clips) == 1

    def test_another_clip_other_options_and_another_recording_are_other_questions(self, engine_of, journal):
        engine = engine_of()
        asked = journalled(engine, journal)
        asked.submit(bursts(2), OPTIONS).result(10)
        asked.submit(bursts(2, seed=1), OPTIONS).result(10)
        asked.submit(bursts(2), DecodingOptions(language="de")).result(10)
        asked.detect_language(bursts(2)).result(10)
        journalled(engine, journal, "other").submit(bursts(2), OPTIONS).result(10)
        assert (len(engine.submissions), len(engine.language_clips)) == (4, 1)

    def test_a_failure_is_passed_on_and_not_kept(self, engine_of, journal):
        answers = iter([EngineError("out of memory"), ANSWERS[0]])
        engine = engine_of(lambda samples, options: next(answers))
        with pytest.raises(EngineError, match="out of memory"):
            journalled(engine, journal).submit(bursts(2), OPTIONS).result(10)
        assert journalled(engine, journal).submit(bursts(2), OPTIONS).result(10) == ANSWERS[0]

    def test_an_answer_is_kept_before_it_is_given(self, engine_of, journal, monkeypatch):
        def full(*arguments):
            raise JournalError("the disk is full")

        monkeypatch.setattr(journal, "keep_answer", full)
        with pytest.raises(JournalError, match="the disk is full"):
            journalled(engine_of(), journal).submit(bursts(2), OPTIONS).result(10)

    def test_an_option_that_the_engine_refuses_is_refused_at_once(self, engine_of, journal):
        with pytest.raises(UnsupportedOptionError, match="language 'xx'"):
            journalled(engine_of(), journal).submit(bursts(2), DecodingOptions(language="xx"))

    def test_what_nobody_waits_for_any_more_is_kept_once_it_was_begun(self, engine_of, journal):
        begun, proceed = threading.Event(), threading.Event()

        def script(samples, options):
            begun.set()
            proceed.wait(20)
            return ANSWERS[0]

        engine = engine_of(script)
        asked = journalled(engine, journal)
        first = asked.submit(bursts(2), OPTIONS)
        second = asked.submit(bursts(3), OPTIONS)
        begun.wait(20)
        assert not first.cancel()
        assert second.cancel()
        proceed.set()
        first.result(10)
        with pytest.raises(CancelledError):
            second.result(10)
        assert len(journal.answers(journal.begin("recording"))) == 1

    @pytest.mark.model
    @pytest.mark.skipif(model_problem() is not None, reason=str(model_problem()))
    def test_the_real_model_answers_the_same(self, tiny_en, journal):
        clip = reading(6)
        plain = tiny_en.submit(clip, OPTIONS).result(60)
        assert [journalled(tiny_en, journal).submit(clip, OPTIONS).result(60) for _ in range(2)] == [plain] * 2


class TestRetrying:
    def failing(self, engine_of, failures):
        answers = iter(failures)
        return engine_of(lambda samples, options: next(answers, ANSWERS[0]))

    def test_a_failure_that_passes_is_not_told(self, engine_of):
        engine = self.failing(engine_of, [EngineError("busy"), EngineError("busy")])
        assert RetryingEngine(engine).submit(bursts(2), OPTIONS).result(10) == ANSWERS[0]
        assert len(engine.submissions) == 3

    def test_one_that_stays_is_told_after_three_attempts(self, engine_of):
        engine = self.failing(engine_of, [EngineError("busy")] * 9)
        with pytest.raises(EngineError, match="busy"):
            RetryingEngine(engine).submit(bursts(2), OPTIONS).result(10)
        assert len(engine.submissions) == 3

    def test_an_engine_that_is_gone_is_not_asked_again(self, engine_of):
        engine = self.failing(engine_of, [EngineDeadError("gone")])
        with pytest.raises(EngineDeadError, match="gone"):
            RetryingEngine(engine).submit(bursts(2), OPTIONS).result(10)
        assert len(engine.submissions) == 1

    def test_the_language_is_asked_for_again_as_well(self, engine_of):
        answers = iter([EngineError("busy")])
        engine = engine_of(language_script=lambda samples: next(answers, (("de", 1.0),)))
        assert RetryingEngine(engine).detect_language(bursts(2)).result(10) == (("de", 1.0),)

    def test_after_stop_what_was_begun_ends_and_the_rest_is_cancelled(self, engine_of):
        begun, proceed = threading.Event(), threading.Event()

        def script(samples, options):
            begun.set()
            proceed.wait(20)
            return ANSWERS[0]

        engine = RetryingEngine(engine_of(script))
        futures = [engine.submit(bursts(2), OPTIONS) for _ in range(3)]
        begun.wait(20)
        engine.stop()
        assert [future.cancelled() for future in futures] == [False, True, True]
        proceed.set()
        engine.drain()
        assert futures[0].result(0) == ANSWERS[0]
        with pytest.raises(EngineError, match="takes no more clips"):
            engine.submit(bursts(2), OPTIONS)

    def test_it_is_the_engine_in_all_else(self, engine_of):
        engine = engine_of(in_flight=5)
        wrapped = RetryingEngine(engine)
        assert (wrapped.spec, wrapped.preferred_in_flight, wrapped.capabilities) == (
            engine.spec,
            5,
            engine.capabilities,
        )
        assert wrapped.fit_prompt("some words") == engine.fit_prompt("some words")
        assert set(wrapped.timings()) == set(engine.timings())
