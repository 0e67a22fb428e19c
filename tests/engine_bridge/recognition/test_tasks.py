"""Recognitions carried by one thread, and what each asks of its engine."""

import queue
from concurrent.futures import Future

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineError
from engine_bridge.recognition.ladder import Outcome, recognise
from engine_bridge.recognition.stitch import LEAD_SECONDS
from engine_bridge.recognition.tasks import Task
from engine_bridge.testing import MULTILINGUAL, FakeEngine, clip_result
from tests.tones import RATE, Recording, hear, listen


def waiting_for(*rounds):
    """Make a recognition that waits for one list of futures after the other, and what it was resumed with."""
    received = []

    def recognition():
        for futures in rounds:
            results = yield futures
            received.append(results)
        return Outcome()

    return recognition(), received


class TestTasks:
    def test_a_task_is_ready_when_the_last_of_its_futures_is_done(self):
        first, second = Future(), Future()
        ready = queue.SimpleQueue()
        recognition, received = waiting_for([first, second])
        task = Task(recognition, ready)
        task.advance()
        second.set_result(2)
        assert ready.empty()
        first.set_result(1)
        assert ready.get_nowait() is task
        task.advance()
        assert received == [[1, 2]]
        assert task.outcome == Outcome()

    def test_a_task_that_waits_for_nothing_is_done_at_once(self):
        task = Task(waiting_for()[0], queue.SimpleQueue())
        task.advance()
        assert task.outcome == Outcome()

    def test_a_failure_is_kept_and_raised_by_nobody_else(self):
        future = Future()
        ready = queue.SimpleQueue()
        task = Task(waiting_for([future])[0], ready)
        task.advance()
        failure = EngineError("out of memory")
        future.set_exception(failure)
        ready.get_nowait().advance()
        assert task.failure is failure
        assert task.outcome is None

    def test_a_future_cancelled_by_the_engine_is_an_engine_error(self):
        future = Future()
        ready = queue.SimpleQueue()
        task = Task(waiting_for([future])[0], ready)
        task.advance()
        future.cancel()
        ready.get_nowait().advance()
        assert isinstance(task.failure, EngineError)

    def test_cancelling_cancels_what_it_waits_for(self):
        futures = [Future(), Future()]
        task = Task(waiting_for(futures)[0], queue.SimpleQueue())
        task.advance()
        task.cancel()
        assert all(future.cancelled() for future in futures)


class TestRecognition:
    @pytest.fixture
    def run(self):
        """Recognise a chunk with a script, and return the outcome and what the engine was asked."""
        engines = []

        def recognised(chunk, script=hear, options=None, *, language=None, **arguments):
            engine = FakeEngine(script, **arguments)
            engines.append(engine)
            recognition = recognise(chunk, engine, options or DecodingOptions(), language)
            results = None
            while True:
                try:
                    futures = recognition.send(results)
                except StopIteration as stop:
                    return stop.value, engine.submissions
                results = [future.result(10) for future in futures]

        yield recognised
        for engine in engines:
            engine.close()

    @staticmethod
    def chunk(recording, *, start=0.0, kept=None, speech=None):
        """Make a chunk of a recording that begins `start` seconds into a longer one; spans in seconds from there."""
        offset = round(start * RATE)

        def spans(pairs):
            return tuple((offset + round(a * RATE), offset + round(b * RATE)) for a, b in pairs)

        whole = recording.samples
        kept = spans(kept or [(0, recording.seconds)])
        samples = np.concatenate([whole[a - offset : b - offset] for a, b in kept])
        words = recording.words
        return Chunk(
            3, offset, offset + len(whole), RATE, samples, kept, spans(speech or [(words[0][0], words[-1][1])])
        )

    @staticmethod
    def texts(outcome):
        return " ".join(segment.text for segment in outcome.segments).split()

    def test_times_are_the_recordings_own(self, run):
        recording = Recording().pause(1).speak(4).pause(1)
        outcome, _ = run(self.chunk(recording, start=1_000))
        assert self.texts(outcome) == recording.names
        assert outcome.segments[0].start == pytest.approx(1_001 - LEAD_SECONDS, abs=0.02)
        assert outcome.gaps == ()

    def test_a_chunk_without_speech_is_not_sent(self, run):
        silent = Chunk(0, 0, RATE, RATE, np.zeros(RATE, dtype=np.float32), ((0, RATE),))
        left_out = Chunk(0, 0, RATE, RATE, np.zeros(0, dtype=np.float32), ())
        assert run(silent) == (Outcome(), ())
        assert run(left_out) == (Outcome(), ())

    def test_a_chunk_is_sent_at_one_level(self, run):
        recording = Recording().pause(0.5).speak(3, level=0.5).pause(1).speak(3, level=0.05).pause(0.5)
        quiet = recording.words[3][0]
        chunk = self.chunk(recording, speech=[(0.5, quiet - 1), (quiet, recording.words[-1][1])])
        _, (submission,) = run(chunk)
        assert np.abs(submission.samples[round(quiet * RATE) :]).max() == pytest.approx(0.5, rel=0.05)

    def test_a_missing_passage_is_sent_without_prompt_by_beam_search_and_by_itself(self, run):
        recording = Recording().pause(1).speak(30).pause(1)

        def skips(samples, options):
            words = listen(samples)
            return clip_result(words[:10] + words[20:] if options.prompt else words)

        outcome, (_, again) = run(self.chunk(recording), skips, DecodingOptions(prompt="Names."))
        assert self.texts(outcome) == recording.names
        assert again.options.prompt is None
        assert again.options.beam_size > 1
        lost = recording.words[19][1] - recording.words[10][0]
        assert abs(len(again.samples) / RATE - lost) < 1.0

    def test_a_missing_passage_across_left_out_silence_is_cut_from_what_was_kept(self, run):
        recording = Recording().pause(1).speak(10).pause(6).speak(10).pause(1)
        words = recording.words
        kept = [(0.0, words[9][1] + 0.5), (words[10][0] - 0.5, recording.seconds)]
        speech = [(words[0][0], words[9][1]), (words[10][0], words[-1][1])]

        def loses_the_second_half(samples, options):
            heard = listen(samples)
            return clip_result(heard[:5] if options.beam_size == 1 else heard)

        outcome, submissions = run(self.chunk(recording, start=50, kept=kept, speech=speech), loses_the_second_half)
        assert self.texts(outcome) == recording.names
        assert len(submissions) == 3
        last = outcome.segments[-1].words[-1]
        assert last.start == pytest.approx(50 + words[-1][0], abs=0.02)

    def test_what_is_still_missing_is_a_gap_with_its_place(self, run):
        recording = Recording().pause(1).speak(30).pause(1)

        def deaf(samples, options):
            return clip_result([word for word in listen(samples) if not 10 <= int(word[2][1:]) < 20])

        outcome, _ = run(self.chunk(recording, start=200), deaf)
        (gap,) = outcome.gaps
        assert gap.start == pytest.approx(200 + recording.words[10][0], abs=0.5)
        assert gap.end == pytest.approx(200 + recording.words[19][1], abs=0.5)
        assert gap.reason

    def test_a_loop_in_a_second_attempt_is_not_taken_over(self, run):
        recording = Recording().pause(1).speak(30).pause(1)

        def loops_when_asked_again(samples, options):
            if options.beam_size == 1:
                return clip_result(listen(samples)[:10])
            return clip_result([(index * 0.1, index * 0.1 + 0.1, "la") for index in range(40)])

        outcome, _ = run(self.chunk(recording), loops_when_asked_again)
        assert self.texts(outcome) == recording.names[:10]
        assert len(outcome.gaps) == 1

    def test_the_language_is_waited_for_and_used_in_every_request(self, run):
        language = Future()
        language.set_result("de")
        chunk = self.chunk(Recording().pause(1).speak(12).pause(1))

        def loses_the_tail(samples, options):
            words = listen(samples)
            return clip_result(words[:4] if options.beam_size == 1 else words, language=options.language)

        outcome, submissions = run(chunk, loses_the_tail, language=language, capabilities=MULTILINGUAL)
        assert [submission.options.language for submission in submissions] == ["de", "de"]
        assert {segment.language for segment in outcome.segments} == {"de"}

    def test_an_echo_of_the_prompt_is_asked_for_again_without_it(self, run):
        prompt = "The names are Elinor, Marianne and Margaret."

        def echoes(samples, options):
            if options.prompt is None:
                return hear(samples, options)
            words = options.prompt.split()
            return clip_result([(1 + 0.2 * index, 1.2 + 0.2 * index, word) for index, word in enumerate(words)])

        recording = Recording().pause(1).speak(6).pause(1)
        outcome, submissions = run(self.chunk(recording), echoes, DecodingOptions(prompt=prompt))
        assert self.texts(outcome) == recording.names
        assert len(submissions) == 2
        assert {segment.attempts for segment in outcome.segments} == {2}
