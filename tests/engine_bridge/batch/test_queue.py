"""One queue over many recordings: all accounted for, batches across them, order, back-pressure, and how it ends."""

import itertools
import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from engine_bridge import pipeline, transcribe
from engine_bridge.batch.many import transcribe_many
from engine_bridge.batch.recording import Recording
from engine_bridge.errors import EngineDeadError, EngineError, JournalError, UnsupportedOptionError
from engine_bridge.journal import Journal
from engine_bridge.testing import MULTILINGUAL, FakeEngine, clip_result
from tests.breaking import breaking_after
from tests.recordings import RATE, bursts, silence, write_wav
from tests.waiting import steady, wait_until

SECONDS = 3
SPELLED = [first + last for first in "bdfgklmnprst" for last in ("an", "el", "is", "or", "un", "ay", "eek", "oot")]


def speak(samples, options):
    """Hear a word in each 0.4 s, another first one for other audio."""
    first = int(abs(samples[:RATE]).sum() * 100) % len(SPELLED)
    count = int(len(samples) / RATE / 0.4)
    return clip_result([(0.4 * n, 0.4 * (n + 1), SPELLED[(first + n) % len(SPELLED)]) for n in range(count)])


@pytest.fixture
def engine_of():
    engines = []

    def make(script=speak, **settings):
        engines.append(FakeEngine(script, **settings))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def audio(seed, seconds=SECONDS):
    return bursts(seconds, seed=seed), RATE


def recordings(count, seconds=SECONDS):
    return [Recording(f"r{number}", audio(number, seconds)) for number in range(count)]


def ids(results):
    return [result.recording.id for result in results]


def without_timings(transcript):
    return replace(transcript, timings={})


class TestResults:
    def test_each_is_what_it_is_alone(self, engine_of):
        engine, given = engine_of(), recordings(7)
        results = {result.recording.id: result for result in transcribe_many(given, engine=engine)}
        assert sorted(results) == sorted(recording.id for recording in given)
        for recording in given:
            alone = transcribe(recording.source, engine=engine)
            assert without_timings(results[recording.id].transcript) == without_timings(alone)
            assert results[recording.id].duration == SECONDS

    def test_plain_sources_are_named_by_what_they_are(self, engine_of, tmp_path):
        path = write_wav(tmp_path / "talk.wav", bursts(2))
        named = ids(transcribe_many([str(path), path, audio(1)], engine=engine_of(), ordered=True))
        assert named[0].endswith("talk.wav")
        assert len(set(named)) == 3

    def test_a_long_one_among_short_ones(self, engine_of):
        given = [Recording("long", audio(9, 200)), *recordings(5)]
        engine = engine_of(in_flight=2)
        results = {result.recording.id: result.transcript for result in transcribe_many(given, engine=engine)}
        assert len(results) == 6
        assert without_timings(results["long"]) == without_timings(transcribe(audio(9, 200), engine=engine))

    def test_no_recordings_are_no_results(self, engine_of):
        assert list(transcribe_many([], engine=engine_of())) == []

    def test_clips_of_several_recordings_are_with_the_engine_at_once(self, engine_of):
        engine = engine_of(in_flight=6, delay=lambda number: 1.0)
        list(transcribe_many(recordings(12), engine=engine))
        assert engine.most_in_flight >= 5

    def test_a_recordings_own_settings_come_first(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL)
        given = [Recording("german", audio(1), language="de"), Recording("other", audio(2))]
        results = {each.recording.id: each.transcript for each in transcribe_many(given, engine=engine, language="fr")}
        assert {name: each.language for name, each in results.items()} == {"german": "de", "other": "fr"}

    def test_a_part_of_a_recording(self, engine_of):
        given = [Recording("part", audio(1, 10), from_seconds=2.0, to_seconds=5.0)]
        (result,) = transcribe_many(given, engine=engine_of())
        assert (result.transcript.start, result.transcript.duration, result.duration) == (2.0, 5.0, 3.0)

    def test_each_channel(self, engine_of):
        stereo = (np.stack([bursts(4, seed=1), bursts(4, seed=2)], axis=1), RATE)
        (result,) = transcribe_many([Recording("call", stereo, channels="each")], engine=engine_of())
        assert {segment.channel for segment in result.transcript.segments} == {"left", "right"}

    def test_languages_are_voted_for_in_each(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=lambda samples: (("zh", 0.9), ("en", 0.1)))
        results = list(transcribe_many(recordings(3, 180), engine=engine))
        assert [result.transcript.language for result in results] == ["zh"] * 3

    def test_progress_and_segments_are_told(self, engine_of):
        told, heard = [], []
        given = recordings(4)
        list(
            transcribe_many(
                given,
                engine=engine_of(),
                on_progress=told.append,
                on_segment=lambda recording, segment: heard.append(recording.id),
            )
        )
        assert (told[-1].done, told[-1].finished, told[-1].under_way) == (4, 4, 0)
        assert told[-1].audio_seconds == pytest.approx(4 * SECONDS)
        assert set(heard) == {recording.id for recording in given}


class TestOrder:
    def test_results_come_in_the_order_given_where_that_is_asked_for(self, engine_of):
        engine = engine_of(in_flight=4, delay=lambda number: 0.15 if number % 5 == 0 else 0.0)
        results = transcribe_many(recordings(20), engine=engine, ordered=True)
        assert ids(results) == [f"r{number}" for number in range(20)]

    def test_otherwise_one_that_takes_long_holds_up_nobody(self, engine_of, monkeypatch):
        engine, slow = engine_of(in_flight=4), Future()
        answered = engine.submit

        def submit(samples, options):
            return slow if len(samples) > 1.5 * SECONDS * RATE else answered(samples, options)

        monkeypatch.setattr(engine, "submit", submit)
        taking_long = Recording("slow", audio(9, 2 * SECONDS))
        with transcribe_many([taking_long, *recordings(3)], engine=engine, at_once=2) as results:
            assert sorted(next(results).recording.id for _ in range(3)) == ["r0", "r1", "r2"]
            slow.set_result(speak(taking_long.source[0], None))
            assert ids(results) == ["slow"]

    def test_higher_priorities_are_begun_first(self, engine_of):
        given = [Recording(f"p{level}", audio(level), priority=level) for level in (1, 3, 2)]
        results = list(transcribe_many(given, engine=engine_of(), at_once=1))
        assert ids(results) == ["p3", "p2", "p1"]
        assert [result.position for result in results] == [1, 2, 0]


class TestBounds:
    def test_an_iterator_without_end_is_taken_as_it_is_needed(self, engine_of):
        taken = itertools.count()
        endless = (Recording(f"r{number}", audio(number % 3)) for number in taken)
        with transcribe_many(endless, engine=engine_of(in_flight=2)) as results:
            for _ in range(10):
                assert next(results).failure is None
        assert next(taken) < 10 + 10

    @pytest.mark.parametrize("ordered", [False, True])
    def test_a_reader_that_stops_stops_the_work(self, engine_of, ordered):
        engine = engine_of(in_flight=2)
        taken = itertools.count()
        endless = (Recording(f"r{number}", audio(number % 3)) for number in taken)
        with transcribe_many(endless, engine=engine, ordered=ordered, at_once=2) as results:
            next(results)
            wait_until(lambda: steady(lambda: len(engine.submissions)))
            assert len(engine.submissions) < 14
            for _ in range(20):
                next(results)

    def test_leaving_early_ends_all_threads(self, engine_of):
        before = set(threading.enumerate())
        with transcribe_many(recordings(30), engine=engine_of(in_flight=4)) as results:
            next(results)
        wait_until(lambda: not [each for each in set(threading.enumerate()) - before if "fake" not in each.name])

    def test_a_few_long_recordings_never_wait_for_each_other(self, engine_of):
        engine = engine_of(in_flight=1, capabilities=MULTILINGUAL)
        given = [Recording(f"r{number}", audio(number, 200)) for number in range(4)]
        assert len(list(transcribe_many(given, engine=engine, at_once=4))) == 4


class TestFailures:
    def test_bad_ones_are_named_and_the_others_are_done(self, engine_of, tmp_path):
        junk = tmp_path / "notes.mp3"
        junk.write_text("Dear diary, this is not a recording. " * 40)
        given = [
            Recording("good", audio(1)),
            Recording("junk", str(junk)),
            Recording("missing", str(tmp_path / "missing.wav")),
            Recording("empty", b""),
            Recording("quiet", (silence(3), RATE)),
        ]
        results = {each.recording.id: each for each in transcribe_many(given, engine=engine_of())}
        assert {name for name, each in results.items() if each.failure} == {"junk", "missing", "empty"}
        assert results["junk"].failure.kind == "UnreadableAudioError"
        assert "it is text, not audio" in results["junk"].failure.reason
        assert results["missing"].failure.kind == "AudioFileNotFoundError"
        assert results["quiet"].transcript.segments == ()

    def test_one_that_breaks_off_tells_where(self, engine_of, monkeypatch):
        monkeypatch.setattr(pipeline, "open_stream", breaking_after(90))
        (result,) = transcribe_many([Recording("broken", audio(1, 200))], engine=engine_of())
        assert result.failure.reason == "talk.mp3: the file breaks here"
        assert 60 < result.failure.place < 100

    def test_a_clip_that_fails_is_asked_for_again(self, engine_of):
        asked = itertools.count()

        def script(samples, options):
            if next(asked) in (1, 2):
                raise RuntimeError("out of memory")
            return speak(samples, options)

        results = list(transcribe_many(recordings(4), engine=engine_of(script)))
        assert [result.failure for result in results] == [None] * 4

    def test_one_whose_clips_always_fail_is_a_failure(self, engine_of):
        def script(samples, options):
            if len(samples) > 4 * RATE:
                raise RuntimeError("too much")
            return speak(samples, options)

        engine = engine_of(script)
        given = [*recordings(2), Recording("much", audio(5, 6))]
        results = {each.recording.id: each.failure for each in transcribe_many(given, engine=engine)}
        assert results["r0"] is None
        assert "too much" in results["much"].reason
        assert sum(len(each.samples) > 4 * RATE for each in engine.submissions) == 3

    def test_an_engine_that_is_gone_ends_the_job(self, engine_of):
        asked = itertools.count()

        def script(samples, options):
            return EngineDeadError("the engine is gone") if next(asked) >= 3 else speak(samples, options)

        results = transcribe_many(recordings(50), engine=engine_of(script), at_once=1)
        done = []
        with pytest.raises(EngineDeadError, match="the engine is gone"):
            done.extend(result for result in results)
        results.close()

    def test_a_bug_that_one_recording_brings_out_is_its_own(self, engine_of, monkeypatch):
        from engine_bridge.batch import working

        original = working.stream_transcript

        def faulty(source, **options):
            if source.array is not None and len(source.array.samples) == RATE:
                raise ZeroDivisionError("division by zero")
            return original(source, **options)

        monkeypatch.setattr(working, "stream_transcript", faulty)
        given = [Recording("bug", audio(1, 1)), Recording("fine", audio(2))]
        results = {each.recording.id: each.failure for each in transcribe_many(given, engine=engine_of())}
        assert results["bug"].reason == "unexpected ZeroDivisionError: division by zero"
        assert results["fine"] is None

    def test_an_iterator_that_fails_ends_the_job_after_what_it_gave(self, engine_of):
        def given():
            yield from recordings(2)
            raise OSError("the list is gone")

        results = transcribe_many(given(), engine=engine_of())
        done = []
        with pytest.raises(OSError, match="the list is gone"):
            done.extend(results)
        results.close()

    def test_wrong_options_are_told_at_once(self, engine_of):
        with pytest.raises(TypeError, match="no option 'beams'"):
            transcribe_many([], engine=engine_of(), beams=5)
        with pytest.raises(ValueError, match="at_once must be at least 1"):
            transcribe_many([], engine=engine_of(), at_once=0)
        with pytest.raises(UnsupportedOptionError, match="language 'xx'"):
            transcribe_many([], engine=engine_of(), language="xx")


class TestJournal:
    def test_what_is_done_is_not_done_again(self, engine_of, tmp_path):
        engine = engine_of()
        first = {
            each.recording.id: each for each in transcribe_many(recordings(3), engine=engine, journal=tmp_path / "j")
        }
        asked = len(engine.submissions)
        second = {
            each.recording.id: each for each in transcribe_many(recordings(4), engine=engine, journal=tmp_path / "j")
        }
        assert len(engine.submissions) > asked
        assert {name: each.known for name, each in second.items()} == {"r0": True, "r1": True, "r2": True, "r3": False}
        assert [second[name].transcript for name in first] == [first[name].transcript for name in first]
        assert not any(each.known for each in first.values())

    def test_other_settings_are_other_work(self, engine_of, tmp_path):
        engine = engine_of()
        for beam_size in (1, 2, 2):
            (result,) = transcribe_many(recordings(1), engine=engine, journal=tmp_path / "j", beam_size=beam_size)
        assert result.known
        assert len({each.options.beam_size for each in engine.submissions}) == 2

    def test_restart_does_it_again(self, engine_of, tmp_path):
        engine = engine_of()
        for _ in range(2):
            (result,) = transcribe_many(recordings(1), engine=engine, journal=tmp_path / "j", restart=True)
            assert not result.known

    def test_what_cannot_be_decoded_is_told_again_unless_it_is_to_be_tried_again(self, engine_of, tmp_path):
        given = [Recording("junk", b"this is no recording, and never was one" * 30)]
        told = []
        for retry in (False, False, True):
            (result,) = transcribe_many(given, engine=engine_of(), journal=tmp_path / "j", retry_failed=retry)
            told.append((result.known, result.failure.kind))
        assert told == [
            (False, "UnreadableAudioError"),
            (True, "UnreadableAudioError"),
            (False, "UnreadableAudioError"),
        ]

    def test_what_the_engine_failed_on_is_tried_again(self, engine_of, tmp_path):
        answers = iter([EngineError("out of memory")] * 3)

        def script(samples, options):
            return next(answers, None) or speak(samples, options)

        engine = engine_of(script)
        failures = []
        for _ in range(2):
            (result,) = transcribe_many(recordings(1), engine=engine, journal=tmp_path / "j")
            failures.append(result.failure)
        assert "out of memory" in failures[0].reason
        assert failures[1] is None

    def test_a_recording_that_was_under_way_goes_on_where_it_was(self, engine_of, tmp_path):
        given = [Recording("long", audio(1, 300))]
        plain = transcribe(given[0].source, engine=engine_of())
        answered = itertools.count()

        def gone(samples, options):
            return EngineDeadError("gone") if next(answered) >= 4 else speak(samples, options)

        with (
            transcribe_many(given, engine=engine_of(gone), journal=tmp_path / "j") as results,
            pytest.raises(EngineDeadError),
        ):
            list(results)
        engine = engine_of()
        (result,) = transcribe_many(given, engine=engine, journal=tmp_path / "j")
        assert without_timings(result.transcript).text == plain.text
        total = engine_of()
        transcribe(given[0].source, engine=total)
        assert len(engine.submissions) == len(total.submissions) - 4

    def test_the_same_content_twice_is_done_once(self, engine_of, tmp_path):
        engine = engine_of(delay=lambda number: 0.1)
        given = [Recording("one", audio(1)), Recording("two", audio(1))]
        results = list(transcribe_many(given, engine=engine, journal=tmp_path / "j"))
        assert sorted(each.known for each in results) == [False, True]
        assert results[0].transcript.text == results[1].transcript.text

    def test_two_jobs_share_the_work(self, engine_of, tmp_path):
        at_work = [threading.Event(), threading.Event()]

        def script_of(own, other):
            def script(samples, options):
                at_work[own].set()
                at_work[other].wait(20)
                return speak(samples, options)

            return script

        engines = [engine_of(script_of(0, 1), in_flight=2), engine_of(script_of(1, 0), in_flight=2)]
        found = [[], []]

        def job(number):
            results = transcribe_many(recordings(12), engine=engines[number], journal=tmp_path / "j", at_once=2)
            found[number].extend(results)

        threads = [threading.Thread(target=job, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = engine_of()
        list(transcribe_many(recordings(12), engine=alone))
        assert [len(each) for each in found] == [12, 12]
        assert sum(not each.known for each in (*found[0], *found[1])) == 12
        assert sum(len(engine.submissions) for engine in engines) == len(alone.submissions)
        assert all(engine.submissions for engine in engines)

    def test_a_journal_that_breaks_ends_the_job(self, engine_of, tmp_path, monkeypatch):
        journal = Journal(tmp_path / "j")

        def full(*arguments):
            raise JournalError("the disk is full")

        monkeypatch.setattr(journal, "keep_answer", full)
        results = transcribe_many(recordings(5), engine=engine_of(), journal=journal)
        with pytest.raises(JournalError, match="the disk is full"):
            list(results)
        results.close()
        journal.close()


class TestStopping:
    def test_what_the_engine_has_is_finished_and_kept(self, engine_of, tmp_path):
        engine = engine_of(in_flight=4, delay=lambda number: 0.3)
        journal = Journal(tmp_path / "j")
        results = transcribe_many([Recording("long", audio(1, 300))], engine=engine, journal=journal)

        def stop():
            wait_until(lambda: engine.submissions)
            results.stop()

        threading.Thread(target=stop).start()
        assert list(results) == []
        asked = len(engine.submissions)
        number = journal.begin(next(iter(fingerprints(journal))))
        assert len(journal.answers(number)) == asked
        results.close()
        journal.close()

    def test_recordings_that_are_complete_are_yielded_still(self, engine_of):
        proceed = threading.Event()

        def script(samples, options):
            proceed.wait(20)
            return speak(samples, options)

        engine = engine_of(script, in_flight=2)
        results = transcribe_many(recordings(50), engine=engine, at_once=2)
        done = []
        reader = threading.Thread(target=lambda: done.extend(results))
        reader.start()
        wait_until(lambda: len(engine.submissions) == 2)
        results.stop()
        time.sleep(0.1)
        proceed.set()
        reader.join(20)
        assert not reader.is_alive()
        assert all(each.failure is None for each in done)
        assert 1 <= len(done) <= 2
        results.close()

    def test_nothing_that_was_broken_off_passes_for_done(self, engine_of, tmp_path):
        journal = Journal(tmp_path / "j")
        for moment in (0.02, 0.1, 0.2):
            engine = engine_of(in_flight=2, delay=lambda number: 0.05)
            results = transcribe_many([Recording("long", audio(1, 600))], engine=engine, journal=journal)
            threading.Timer(moment, results.stop).start()
            assert list(results) == []
            results.close()
        plain = transcribe(audio(1, 600), engine=engine_of())
        (result,) = transcribe_many([Recording("long", audio(1, 600))], engine=engine_of(), journal=journal)
        assert result.transcript.text == plain.text
        journal.close()


def fingerprints(journal):
    return [row[0] for row in journal._connection.execute("SELECT fingerprint FROM recordings")]


def test_an_engine_error_after_stop_says_why(engine_of):
    from engine_bridge.batch.retrying import RetryingEngine

    engine = RetryingEngine(engine_of())
    engine.stop()
    with pytest.raises(EngineError, match="takes no more clips"):
        engine.detect_language(silence(1))
