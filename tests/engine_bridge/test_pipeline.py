"""From a source to a transcript, with engines that fail in the ways that real ones do."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

import engine_bridge.pipeline as pipeline
from audio.errors import AudioError, UnreadableAudioError
from audio.stream import open_stream
from engine_bridge import stream_transcript, transcribe
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.errors import EngineError, UnsupportedOptionError
from engine_bridge.recognition.language import VOTES
from engine_bridge.testing import ENGLISH_ONLY, MULTILINGUAL, FakeEngine, clip_result
from tests.breaking import breaking_after
from tests.tones import RATE, Recording, hear, listen
from tests.waiting import steady, wait_until


@pytest.fixture(autouse=True)
def no_thread_survives():
    before = set(threading.enumerate())
    yield
    # Engines that a test leaves open end with it; nothing else may still run.
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name != "auricle-fake-engine"] == []


@pytest.fixture
def engine_of():
    """Make engines, and close them after the test."""
    engines = []

    def make(script=hear, **arguments):
        engines.append(FakeEngine(script, **arguments))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def heard(transcript):
    return [word.text for segment in transcript.segments for word in segment.words]


def silently_lost(recording, transcript):
    """Return the words that are neither in the transcript nor under a gap."""
    texts = heard(transcript)
    return [
        name
        for start, end, name in recording.words
        if name not in texts and not any(gap.start < end and gap.end > start for gap in transcript.gaps)
    ]


def is_first_request(options):
    """Tell a whole chunk's first request from those that ask again."""
    return options.beam_size == 1 and options.temperature == 0


def assert_times_are_sound(transcript):
    reached = 0.0
    for segment in transcript.segments:
        assert reached <= segment.start <= segment.end <= transcript.duration
        reached = segment.end
        at = segment.start
        for word in segment.words:
            assert at <= word.start <= word.end <= segment.end
            at = word.end


class TestSoundEngines:
    def test_every_word_is_found_once_in_order_at_its_time(self, engine_of):
        recording = Recording().phrases(18)
        transcript = transcribe(recording.source, engine=engine_of())
        assert heard(transcript) == recording.names
        assert transcript.gaps == ()
        assert transcript.duration == recording.seconds
        assert_times_are_sound(transcript)
        words = [word for segment in transcript.segments for word in segment.words]
        for word, (start, end, _) in zip(words, recording.words, strict=True):
            assert abs(word.start - start) < 0.3
            assert abs(word.end - end) < 0.3

    def test_the_words_joined_are_the_segments_text(self, engine_of):
        transcript = transcribe(Recording().phrases(12).source, engine=engine_of())
        for segment in transcript.segments:
            assert " ".join(word.text for word in segment.words) == segment.text

    def test_times_do_not_drift_over_forty_minutes(self, engine_of):
        random = np.random.default_rng(40)
        recording = Recording()
        while recording.seconds < 2_400:
            recording.pause(float(random.uniform(0.4, 2.5))).speak(int(random.integers(3, 9)))
        transcript = transcribe(recording.source, engine=engine_of())
        words = [word for segment in transcript.segments for word in segment.words]
        assert [word.text for word in words] == recording.names
        late = np.array([word.start - start for word, (start, _, _) in zip(words, recording.words, strict=True)])
        # First words of a stretch meet its edge, which lies a little before them; the others are where the engine
        # heard them, to the sample.
        assert np.abs(late).max() < 0.3
        assert np.median(np.abs(late)) < 0.001
        tenth = len(late) // 10
        assert abs(late[-tenth:].mean() - late[:tenth].mean()) < 0.01
        assert transcript.duration == recording.seconds

    def test_answers_out_of_order_give_the_same_transcript(self, engine_of):
        recording = Recording().phrases(40)
        backwards = engine_of(delay=lambda number: 0.3 - 0.05 * number if number < 6 else 0.0)
        expected = transcribe(recording.source, engine=engine_of())
        transcript = transcribe(recording.source, engine=backwards)
        assert transcript.segments == expected.segments
        assert heard(transcript) == recording.names

    def test_the_transcript_says_where_it_comes_from(self, engine_of, tmp_path):
        path = tmp_path / "talk.wav"
        soundfile.write(path, Recording().phrases(3).samples, RATE)
        transcript = transcribe(str(path), engine=engine_of(spec="fake:one"))
        assert transcript.source == str(path)
        assert transcript.engine == "fake:one"
        assert transcript.backend == "soundfile"
        assert transcript.language == "en"
        assert transcript.claimed_duration == pytest.approx(transcript.duration)
        stages = {"decode audio", "split", "wait for the engine", "check", "recover", "script", "total"}
        assert stages <= set(transcript.timings)

    def test_an_engine_that_worked_before_counts_only_what_this_recording_took(self, engine_of):
        engine = engine_of(lambda samples, options: time.sleep(0.05) or hear(samples, options))
        first, second = (transcribe(Recording().phrases(1).source, engine=engine) for _ in range(2))
        assert first.timings["script"] == pytest.approx(second.timings["script"], abs=0.04)

    def test_segments_carry_language_confidence_and_one_attempt(self, engine_of):
        transcript = transcribe(Recording().phrases(3).source, engine=engine_of())
        assert {segment.language for segment in transcript.segments} == {"en"}
        assert {segment.attempts for segment in transcript.segments} == {1}
        assert {segment.suspect for segment in transcript.segments} == {None}
        assert all(segment.confidence == pytest.approx(0.9) for segment in transcript.segments)

    def test_progress_is_told_after_each_chunk_and_reaches_the_end(self, engine_of):
        recording = Recording().phrases(40)
        told = []
        engine = engine_of()
        transcribe(recording.source, engine=engine, on_progress=told.append)
        assert len(told) >= recording.seconds // 30
        seconds = [progress.audio_seconds for progress in told]
        assert seconds == sorted(seconds)
        assert seconds[-1] == recording.seconds
        assert all(progress.speed > 0 for progress in told)
        assert told[-1].seconds_left == 0

    def test_a_prompt_comes_before_every_chunk(self, engine_of):
        engine = engine_of()
        transcribe(Recording().phrases(40).source, engine=engine, prompt="Names: Auricle.")
        assert len(engine.submissions) > 2
        assert {submission.options.prompt for submission in engine.submissions} == {"Names: Auricle."}

    def test_options_reach_the_engine(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL)
        transcribe(Recording().phrases(2).source, engine=engine, language="de", task="translate", beam_size=3)
        options = engine.submissions[0].options
        assert (options.language, options.task, options.beam_size) == ("de", "translate", 3)

    def test_what_the_engine_cannot_do_is_refused_at_the_call(self, engine_of):
        with pytest.raises(UnsupportedOptionError, match="'de'"):
            stream_transcript(Recording().phrases(1).source, engine=engine_of(), language="de")

    def test_an_engine_without_word_times_gives_its_own_segments(self, engine_of):
        recording = Recording().phrases(6)

        def untimed(samples, options):
            result = hear(samples, options)
            return replace(result, segments=tuple(replace(segment, words=()) for segment in result.segments))

        transcript = transcribe(recording.source, engine=engine_of(untimed))
        assert transcript.text.split() == recording.names
        assert transcript.gaps == ()
        first_start, last_end = recording.words[0][0], recording.words[-1][1]
        assert transcript.segments[0].start == pytest.approx(first_start, abs=0.3)
        assert transcript.segments[-1].end == pytest.approx(last_end, abs=0.3)


class TestNothingToHear:
    def test_an_empty_recording_gives_an_empty_transcript(self, engine_of):
        engine = engine_of()
        transcript = transcribe((np.zeros(0, dtype=np.float32), RATE), engine=engine)
        assert (transcript.segments, transcript.gaps, transcript.duration, transcript.text) == ((), (), 0.0, "")
        assert engine.submissions == ()

    @pytest.mark.parametrize("seconds", [0.01, 5.0, 300.0])
    def test_silence_gives_an_empty_transcript_that_keeps_its_duration(self, engine_of, seconds):
        engine = engine_of()
        transcript = transcribe(Recording().pause(seconds).source, engine=engine)
        assert (transcript.segments, transcript.gaps, transcript.duration) == ((), (), seconds)
        assert engine.submissions == ()

    def test_a_long_silence_between_speech_is_never_sent(self, engine_of):
        recording = Recording().phrases(2).pause(400).phrases(2)

        def inventive(samples, options):
            result = hear(samples, options)
            return result if result.segments else clip_result([(0.0, 2.0, "Thanks"), (2.0, 3.0, "for watching")])

        engine = engine_of(inventive)
        transcript = transcribe(recording.source, engine=engine)
        assert heard(transcript) == recording.names
        assert sum(len(submission.samples) for submission in engine.submissions) < 40 * RATE
        assert all(listen(submission.samples) for submission in engine.submissions)
        assert transcript.segments[-1].end == pytest.approx(recording.words[-1][1], abs=0.3)


class TestEnginesThatLoseText:
    def test_what_lies_after_an_early_stop_is_sent_again_and_found(self, engine_of):
        recording = Recording().phrases(10)

        def stops_early(samples, options):
            words = listen(samples)
            return clip_result(words[: len(words) // 2] if is_first_request(options) else words)

        engine = engine_of(stops_early)
        transcript = transcribe(recording.source, engine=engine)
        assert heard(transcript) == recording.names
        assert transcript.gaps == ()
        assert {segment.attempts for segment in transcript.segments} == {1, 2}
        assert_times_are_sound(transcript)

    def test_a_skipped_passage_is_sent_again_on_its_own(self, engine_of):
        recording = Recording().phrases(10)
        skipped = {f"w{number}" for number in range(20, 30)}

        def skips(samples, options):
            words = listen(samples)
            return clip_result([word for word in words if not (is_first_request(options) and word[2] in skipped)])

        engine = engine_of(skips)
        transcript = transcribe(recording.source, engine=engine)
        assert heard(transcript) == recording.names
        again = [submission for submission in engine.submissions if not is_first_request(submission.options)]
        assert {name for submission in again for _, _, name in listen(submission.samples)} >= skipped
        assert sum(len(submission.samples) for submission in again) < 8 * RATE

    def test_a_word_kept_in_the_middle_of_a_skipped_passage_does_not_come_twice(self, engine_of):
        recording = Recording().pause(1).speak(30).pause(1)
        kept = {"w15"}

        def skips(samples, options):
            words = listen(samples)
            skipped = [f"w{number}" for number in range(8, 22)]
            whole = is_first_request(options)
            return clip_result([word for word in words if not whole or word[2] not in skipped or word[2] in kept])

        found = heard(transcribe(recording.source, engine=engine_of(skips)))
        assert found == sorted(found, key=lambda name: int(name[1:]))
        assert len(found) == len(set(found))
        assert len(found) >= 26  # a word beside a known one may lie within the tolerance of its time

    def test_a_lost_tail_is_found(self, engine_of):
        recording = Recording().phrases(5)

        def loses_the_tail(samples, options):
            words = listen(samples)
            return clip_result(words[:-5] if is_first_request(options) else words)

        transcript = transcribe(recording.source, engine=engine_of(loses_the_tail))
        assert heard(transcript) == recording.names

    def test_an_engine_that_returns_nothing_leaves_gaps_over_all_speech(self, engine_of):
        recording = Recording().phrases(20)
        transcript = transcribe(recording.source, engine=engine_of(lambda samples, options: clip_result([])))
        assert transcript.segments == ()
        assert silently_lost(recording, transcript) == []
        assert all(gap.reason for gap in transcript.gaps)
        assert transcript.gaps[0].start == pytest.approx(recording.words[0][0], abs=0.3)
        assert transcript.gaps[-1].end == pytest.approx(recording.words[-1][1], abs=0.3)
        edges = [edge for gap in transcript.gaps for edge in (gap.start, gap.end)]
        assert edges == sorted(edges)

    def test_what_is_never_recognised_is_a_gap_where_it_was_spoken(self, engine_of):
        recording = Recording().phrases(10)
        deaf_to = {f"w{number}" for number in range(20, 30)}

        def deaf(samples, options):
            return clip_result([word for word in listen(samples) if word[2] not in deaf_to])

        transcript = transcribe(recording.source, engine=engine_of(deaf))
        assert silently_lost(recording, transcript) == []
        assert heard(transcript) == [name for name in recording.names if name not in deaf_to]
        lost = [(start, end) for start, end, name in recording.words if name in deaf_to]
        (gap,) = transcript.gaps
        assert lost[0][0] - 0.5 < gap.start < lost[0][1]
        assert lost[-1][0] < gap.end < lost[-1][1] + 0.5

    def test_text_the_model_itself_takes_for_silence_is_dropped_and_its_speech_becomes_a_gap(self, engine_of):
        recording = Recording().phrases(5)

        def unsure(samples, options):
            return clip_result(listen(samples), average_log_probability=-1.5, no_speech_probability=0.9)

        transcript = transcribe(recording.source, engine=engine_of(unsure))
        assert transcript.segments == ()
        assert silently_lost(recording, transcript) == []
        assert transcript.gaps != ()

    def test_a_guess_about_a_missing_passage_is_not_believed(self, engine_of):
        recording = Recording().phrases(5)

        def guesses(samples, options):
            return clip_result([]) if is_first_request(options) else clip_result(listen(samples), probability=0.1)

        transcript = transcribe(recording.source, engine=engine_of(guesses))
        assert transcript.segments == ()
        assert silently_lost(recording, transcript) == []

    def test_an_improbable_text_of_what_was_heard_at_once_is_believed_and_the_likeliest_taken(self, engine_of):
        recording = Recording().phrases(5)
        chances = {1: -1.7, 5: -1.2}

        def garbled(samples, options):
            words = listen(samples)
            if options.beam_size == 1:
                words = [(start, end, f"un{name}") for start, end, name in words]
            chance = -1.4 if options.timestamps == "both" else chances[options.beam_size]
            return clip_result(words, average_log_probability=chance)

        engine = engine_of(garbled)
        transcript = transcribe(recording.source, engine=engine)
        assert heard(transcript) == recording.names
        assert {(segment.suspect, segment.attempts) for segment in transcript.segments} == {(None, 3)}
        assert not any(submission.options.temperature for submission in engine.submissions)

    def test_an_improbable_text_is_not_believed_where_the_first_attempt_was_not(self, engine_of):
        """As in music, of which the second attempt gives thanks for watching, each word but the first probable."""
        recording = Recording().phrases(5)

        def thanks(samples, options):
            if is_first_request(options):
                return clip_result([(0.0, 0.4, "thanks")], probability=0.3)
            return clip_result(listen(samples), probability=0.9, average_log_probability=-1.2)

        transcript = transcribe(recording.source, engine=engine_of(thanks))
        assert {segment.suspect for segment in transcript.segments} == {"doubted by the engine"}
        assert silently_lost(recording, transcript) == []
        assert transcript.gaps != ()

    @pytest.mark.parametrize("timed", [True, False])
    def test_nor_where_the_first_attempt_heard_nothing(self, engine_of, timed):
        recording = Recording().phrases(5)
        capabilities = replace(ENGLISH_ONLY, word_times=timed, timestamps=timed)

        def thanks(samples, options):
            if is_first_request(options):
                return clip_result([])
            return clip_result(listen(samples), probability=0.9, average_log_probability=-1.2)

        transcript = transcribe(recording.source, engine=engine_of(thanks, capabilities=capabilities))
        assert transcript.segments == ()
        assert transcript.gaps != ()


class TestEnginesThatLoop:
    @staticmethod
    def looping(samples):
        end = len(samples) / RATE
        return clip_result([(index * end / 60, (index + 1) * end / 60, "la") for index in range(60)])

    def test_a_loop_is_asked_for_again_by_beam_search_then_with_timestamps_then_by_sampling(self, engine_of):
        recording = Recording().phrases(5)

        def loops_until_sampled(samples, options):
            return hear(samples, options) if options.temperature > 0 else self.looping(samples)

        engine = engine_of(loops_until_sampled)
        transcript = transcribe(recording.source, engine=engine, prompt="Names: Auricle.")
        assert heard(transcript) == recording.names
        assert {segment.attempts for segment in transcript.segments} == {4}
        assert {segment.suspect for segment in transcript.segments} == {None}
        first, beam, timed, sampled = (submission.options for submission in engine.submissions)
        assert (first.beam_size, first.temperature) == (1, 0)
        assert beam.beam_size > 1
        assert (timed.beam_size, timed.timestamps) == (beam.beam_size, "both")
        assert sampled.temperature > 0
        # The prompt itself may be what the model loops on.
        assert [each.prompt for each in (first, beam, timed, sampled)] == ["Names: Auricle.", None, None, None]

    def test_the_ladder_ends_at_the_first_sound_answer(self, engine_of):
        recording = Recording().phrases(5)
        engine = engine_of(
            lambda samples, options: hear(samples, options) if options.beam_size > 1 else self.looping(samples)
        )
        transcript = transcribe(recording.source, engine=engine)
        assert heard(transcript) == recording.names
        assert {segment.attempts for segment in transcript.segments} == {2}
        assert len(engine.submissions) == 2

    def test_a_text_that_loops_on_every_rung_is_kept_and_marked(self, engine_of):
        engine = engine_of(lambda samples, options: self.looping(samples))
        transcript = transcribe(Recording().phrases(5).source, engine=engine)
        assert {segment.suspect for segment in transcript.segments} == {"repetition"}
        assert {segment.attempts for segment in transcript.segments} == {4}
        assert transcript.segments[0].text.startswith("la la la")

    @pytest.mark.parametrize(
        ("asked", "searches"), [({}, (1, 5)), ({"beam_size": 1}, (1, 1)), ({"beam_size": 3}, (3, 1))]
    )
    def test_a_doubtful_text_is_searched_for_with_beams_unless_a_beam_size_is_named(self, engine_of, asked, searches):
        engine = engine_of(lambda samples, options: self.looping(samples))
        transcribe(Recording().phrases(5).source, engine=engine, **asked)
        first, *later = [submission.options for submission in engine.submissions]
        assert (first.beam_size, first.doubt_beam_size) == searches
        assert {options.doubt_beam_size for options in later} == {1}

    def test_an_engine_without_beam_search_is_not_asked_for_it(self, engine_of):
        capabilities = replace(ENGLISH_ONLY, beam_search=False)
        engine = engine_of(lambda samples, options: self.looping(samples), capabilities=capabilities)
        transcript = transcribe(Recording().phrases(5).source, engine=engine)
        assert {submission.options.beam_size for submission in engine.submissions} == {1}
        assert {submission.options.doubt_beam_size for submission in engine.submissions} == {1}
        assert {segment.attempts for segment in transcript.segments} == {3}

    def test_an_engine_that_writes_no_timestamps_is_not_asked_for_them(self, engine_of):
        capabilities = replace(ENGLISH_ONLY, timestamps=False)
        engine = engine_of(lambda samples, options: self.looping(samples), capabilities=capabilities)
        transcript = transcribe(Recording().phrases(5).source, engine=engine)
        assert {submission.options.timestamps for submission in engine.submissions} == {"align"}
        assert {segment.attempts for segment in transcript.segments} == {3}


class TestEnginesThatStopAfterAWord:
    def test_timestamps_carry_them_on(self, engine_of):
        recording = Recording().speak(9)

        def stops(samples, options):
            return hear(samples, options) if options.timestamps == "both" else clip_result(listen(samples)[:1])

        transcript = transcribe(recording.source, engine=engine_of(stops))
        assert heard(transcript) == recording.names
        assert transcript.gaps == ()

    def test_what_stops_them_again_is_left_out(self, engine_of):
        """The speech is one stretch to the detector; its longest dip divides it."""
        recording = Recording().speak(3).pause(0.25).speak(8)

        def stops(samples, options):
            words = listen(samples)
            return clip_result([], probability=0.1) if words and words[0][2] == "w0" else clip_result(words)

        transcript = transcribe(recording.source, engine=engine_of(stops))
        assert heard(transcript) == recording.names[3:]
        assert silently_lost(recording, transcript) == []


class TestFailures:
    @staticmethod
    def failing_at(name):
        def script(samples, options):
            words = listen(samples)
            return EngineError("out of memory") if any(word[2] == name for word in words) else clip_result(words)

        return script

    def test_an_engine_error_comes_after_the_segments_of_earlier_chunks(self, engine_of):
        recording = Recording().phrases(17)
        # The chunk that fails is answered first, the one before it last.
        delays = engine_of(self.failing_at("w84"), delay=lambda number: 0.2 if number == 0 else 0.0)
        segments = []
        with stream_transcript(recording.source, engine=delays) as transcription:
            with pytest.raises(EngineError, match="out of memory"):
                segments.extend(transcription)
            found = [word.text for segment in segments for word in segment.words]
            assert len(found) >= 20
            assert found == recording.names[: len(found)]
            assert list(transcription) == []

    def test_a_failed_transcription_has_no_result_that_passes_for_the_whole(self, engine_of):
        recording = Recording().phrases(17)
        with stream_transcript(recording.source, engine=engine_of(self.failing_at("w84"))) as transcription:
            with pytest.raises(EngineError):
                list(transcription)
            with pytest.raises(EngineError, match="out of memory"):
                transcription.result()

    def test_a_script_that_raises_fails_with_an_engine_error_that_names_the_cause(self, engine_of):
        def broken(samples, options):
            raise ZeroDivisionError("a bug")

        with pytest.raises(EngineError, match="ZeroDivisionError: a bug"):
            transcribe(Recording().phrases(2).source, engine=engine_of(broken))

    def test_an_engine_closed_by_somebody_else_is_an_engine_error(self, engine_of):
        engine = engine_of(delay=lambda number: 60.0)
        with stream_transcript(Recording().phrases(5).source, engine=engine) as transcription:
            closer = threading.Timer(0.3, engine.close)
            closer.start()
            with pytest.raises(EngineError, match="closed"):
                list(transcription)
            closer.join()

    def test_an_engine_closed_while_languages_are_asked_is_an_engine_error_too(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, delay=lambda number: 60.0)
        with stream_transcript(Recording().phrases(30).source, engine=engine) as transcription:
            closer = threading.Timer(0.3, engine.close)
            closer.start()
            with pytest.raises(EngineError, match="closed"):
                list(transcription)
            closer.join()
        assert engine.submissions == ()

    def test_a_source_that_breaks_midway_gives_all_that_was_decoded_first(self, engine_of, monkeypatch):
        recording = Recording().phrases(60)
        monkeypatch.setattr(pipeline, "open_stream", breaking_after(90))
        segments = []
        with stream_transcript(recording.source, engine=engine_of()) as transcription:
            with pytest.raises(UnreadableAudioError, match="breaks here"):
                segments.extend(transcription)
            with pytest.raises(UnreadableAudioError):
                transcription.result()
        found = [word.text for segment in segments for word in segment.words]
        decoded = [name for _, end, name in recording.words if end <= 90]
        assert found[: len(decoded)] == decoded

    def test_an_engine_opened_for_the_call_is_closed_when_the_source_cannot_be_opened(self, engine_of, monkeypatch):
        engine = engine_of()
        monkeypatch.setattr(pipeline, "open_engine", lambda spec: engine)
        with pytest.raises(AudioError):
            transcribe(b"this is no recording", engine="fake")
        with pytest.raises(EngineError, match="closed"):
            engine.submit(np.zeros(1, dtype=np.float32), DecodingOptions())


class TestStoppingEarly:
    def test_everything_is_given_back(self, tmp_path):
        path = tmp_path / "talk.wav"
        soundfile.write(path, Recording().phrases(200).samples, RATE)
        before = set(threading.enumerate())

        def hear_once_others_wait(samples, options):
            wait_until(lambda: engine.most_in_flight > 1)
            return hear(samples, options)

        engine = FakeEngine(hear_once_others_wait, delay=lambda number: 0.0 if number == 0 else 60.0)
        with stream_transcript(path, engine=engine) as transcription:
            first = next(iter(transcription))
            assert first.words[0].text == "w0"
            assert str(path) in open_files()
        assert str(path) not in open_files()
        assert [thread for thread in threading.enumerate() if thread not in before] == [engine._worker]
        assert engine.most_in_flight > 1
        assert all(request.future.cancelled() for request in engine._waiting)
        engine.close()
        assert [thread for thread in threading.enumerate() if thread not in before] == []

    def test_closing_before_iterating_and_closing_twice_are_fine(self, engine_of):
        transcription = stream_transcript(Recording().phrases(5).source, engine=engine_of())
        transcription.close()
        transcription.close()
        assert list(transcription) == []

    def test_a_transcription_stopped_early_has_no_result(self, engine_of):
        with stream_transcript(Recording().phrases(60).source, engine=engine_of()) as transcription:
            next(iter(transcription))
        with pytest.raises(RuntimeError, match="stopped before its end"):
            transcription.result()

    def test_an_engine_handed_in_stays_open_and_one_opened_for_the_call_is_closed(self, engine_of, monkeypatch):
        recording = Recording().phrases(2)
        engine = engine_of()
        transcribe(recording.source, engine=engine)
        assert heard(transcribe(recording.source, engine=engine)) == recording.names
        monkeypatch.setattr(pipeline, "open_engine", lambda spec: engine)
        transcribe(recording.source, engine="fake")
        with pytest.raises(EngineError, match="closed"):
            transcribe(recording.source, engine=engine)

    def test_results_can_be_asked_for_after_or_instead_of_iterating(self, engine_of):
        recording = Recording().phrases(20)
        with stream_transcript(recording.source, engine=engine_of()) as transcription:
            segments = list(transcription)
            assert list(transcription.result().segments) == segments
            assert transcription.result().segments == transcription.result().segments


def open_files():
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(link.readlink()))
        except FileNotFoundError:  # the listing's own descriptor
            continue
    return links


class TestMemory:
    def test_the_producer_never_runs_ahead_further_than_its_bound(self, engine_of, monkeypatch):
        recording = Recording().phrases(300)
        opened = []

        def opening(*arguments, **options):
            opened.append(open_stream(*arguments, **options))
            return opened[-1]

        monkeypatch.setattr(pipeline, "open_stream", opening)
        proceed = threading.Event()

        def held(samples, options):
            proceed.wait()
            return hear(samples, options)

        engine = engine_of(held, in_flight=10)
        bound = 10
        with stream_transcript(recording.source, engine=engine) as transcription:
            segments = []
            consumer = threading.Thread(target=lambda: segments.extend(transcription))
            consumer.start()
            wait_until(lambda: len(engine.submissions) == bound)
            wait_until(lambda: steady(lambda: opened[0].frames))
            assert len(engine.submissions) == bound
            # Ahead of the chunks handed over there is the chunker's own look-ahead: four chunks, and three pages of
            # half a minute and a minute each in detection and condensing.
            assert opened[0].duration < (bound + 1) * 30 + 4 * 30 + 5 * 60 < recording.seconds
            proceed.set()
            consumer.join()
        assert [word.text for segment in segments for word in segment.words] == recording.names
        assert engine.most_in_flight <= bound


class TestLanguage:
    @staticmethod
    def by_first_word(languages):
        """Return a script that gives the language listed for a chunk's first word, and "fr" elsewhere."""

        def script(samples):
            language = languages.get(listen(samples)[0][2], "fr")
            return ((language, 0.9), ("zh" if language != "zh" else "en", 0.1))

        return script

    def test_an_intro_in_another_language_does_not_decide(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=self.by_first_word({"w0": "en"}))
        transcript = transcribe(Recording().phrases(100).source, engine=engine)
        assert transcript.language == "fr"
        assert len(engine.language_clips) == VOTES
        assert {submission.options.language for submission in engine.submissions} == {"fr"}
        assert {segment.language for segment in transcript.segments} == {"fr"}

    def test_a_silent_intro_does_not_vote(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=self.by_first_word({}))
        transcript = transcribe(Recording().pause(150).phrases(10).source, engine=engine)
        assert transcript.language == "fr"
        assert all(listen(clip) for clip in engine.language_clips)

    def test_long_silences_between_the_voters_do_not_hold_the_vote_up(self, engine_of):
        recording = Recording()
        for _ in range(8):
            recording.phrases(1).pause(130)
        engine = engine_of(capabilities=MULTILINGUAL, language_script=self.by_first_word({}), in_flight=1)
        transcript = transcribe(recording.source, engine=engine)
        assert heard(transcript) == recording.names

    def test_a_short_recording_votes_with_what_it_has(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=self.by_first_word({}))
        assert transcribe(Recording().phrases(1).source, engine=engine).language == "fr"
        assert len(engine.language_clips) == 1

    def test_silence_has_no_language(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL)
        assert transcribe(Recording().pause(20).source, engine=engine).language is None
        assert engine.language_clips == ()

    def test_a_named_language_is_not_asked_about(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL)
        assert transcribe(Recording().phrases(2).source, engine=engine, language="zh").language == "zh"
        assert engine.language_clips == ()

    def test_a_failing_detection_is_an_engine_error(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=lambda samples: EngineError("no detector"))
        with pytest.raises(EngineError, match="no detector"):
            transcribe(Recording().phrases(5).source, engine=engine)

    def test_the_certainty_of_the_vote_is_told(self, engine_of):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=self.by_first_word({}))
        assert transcribe(Recording().phrases(1).source, engine=engine).language_probability == pytest.approx(0.9)
        assert transcribe(Recording().phrases(1).source, engine=engine, language="fr").language_probability is None
        assert transcribe(Recording().phrases(1).source, engine=engine_of()).language_probability is None


class TestLanguageOfEachChunk:
    """Talk that changes between languages: the first words of a chunk tell its language to the script."""

    recording = Recording().phrases(100)

    def transcribed(self, engine_of, script, **options):
        engine = engine_of(capabilities=MULTILINGUAL, language_script=script)
        return transcribe(self.recording.source, engine=engine, per_chunk_language=True, **options), engine

    @staticmethod
    def is_high(samples):
        return int(listen(samples)[0][2][1:]) >= 45

    def test_each_segment_is_in_the_language_of_its_chunk(self, engine_of):
        transcript, engine = self.transcribed(
            engine_of, lambda samples: (("de" if self.is_high(samples) else "fr", 0.9), ("en", 0.1))
        )
        assert len(engine.language_clips) == len(engine.submissions) > VOTES
        assert {segment.language for segment in transcript.segments} == {"de", "fr"}
        for submission in engine.submissions:
            assert submission.options.language == ("de" if self.is_high(submission.samples) else "fr")
        assert transcript.language in ("de", "fr")
        assert heard(transcript) == self.recording.names

    def test_a_chunk_that_is_unsure_is_in_the_recordings_language(self, engine_of):
        transcript, _ = self.transcribed(
            engine_of,
            lambda samples: (("zh", 0.4), ("fr", 0.3)) if self.is_high(samples) else (("fr", 0.9), ("zh", 0.1)),
        )
        assert transcript.language == "fr"
        assert {segment.language for segment in transcript.segments} == {"fr"}

    def test_a_detection_that_fails_after_the_vote_fails_the_transcription(self, engine_of):
        asked = []

        def fails_late(samples):
            asked.append(samples)
            return EngineError("no detector") if len(asked) > VOTES else (("fr", 0.9),)

        with pytest.raises(EngineError, match="no detector"):
            self.transcribed(engine_of, fails_late)

    def test_a_named_language_is_refused_beside_it(self, engine_of):
        with pytest.raises(UnsupportedOptionError, match="'fr'"):
            self.transcribed(engine_of, None, language="fr")

    def test_an_engine_that_detects_no_language_is_refused(self, engine_of):
        with pytest.raises(UnsupportedOptionError, match="cannot detect"):
            transcribe(self.recording.source, engine=engine_of(), per_chunk_language=True)
