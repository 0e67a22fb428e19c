"""Engines that time no words, and that lose text in the ways that real ones do."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engine_bridge import render, transcribe
from engine_bridge.engines.protocol import ClipResult, ClipSegment
from engine_bridge.formats import read_json
from engine_bridge.recognition.clips import LEAD_SECONDS
from engine_bridge.recognition.pace import LAG, MOST_PACE, Pace, is_short
from engine_bridge.recognition.spread import TYPICAL_PACE
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine
from tests.tones import RATE, Recording, listen

UNTIMED = replace(ENGLISH_ONLY, word_times=False, timestamps=False, beam_search=False)
WORDS_IN_PHRASE = 6


def spelled(name):
    """Return the tone's name as a word of three letters, so that tones are spoken at an ordinary pace."""
    number = int(name[1:])
    return "".join(chr(ord("a") + digit) for digit in (number // 26, number % 26, 19))


def answer(words, seconds):
    """Return an untimed answer: the words in one segment as long as the clip, each phrase a sentence."""
    text = ""
    for index, (_, end, name) in enumerate(words):
        last = index + 1 == len(words) or words[index + 1][0] - end > 0.3
        text += f" {spelled(name)}{'.' if last else ''}"
    segments = (ClipSegment(0.0, seconds, text.strip()),) if text else ()
    return ClipResult(segments, language="en", average_log_probability=-0.1, no_speech_probability=0.0)


def losing(keep):
    """Return a script that writes only the words for which `keep(start, seconds of the clip)` holds."""

    def script(samples, options):
        seconds = len(samples) / RATE
        return answer([word for word in listen(samples) if keep(word[0], seconds)], seconds)

    return script


everything = losing(lambda start, seconds: True)
LOSSES = {
    "stops early": losing(lambda start, seconds: start < 11),
    "loses the tail": losing(lambda start, seconds: seconds < 15 or start < seconds - 8),
    "returns nothing": losing(lambda start, seconds: seconds < 15),
    "skips a middle passage": losing(lambda start, seconds: seconds < 15 or not 6 < start < 15),
    "returns a word": losing(lambda start, seconds: seconds < 15 or start < 1.2),
}


@pytest.fixture
def recognised():
    """Transcribe with a script in the engine's place; returns the transcript and the engine."""
    engines = []

    def run(recording, script, **options):
        engine = FakeEngine(script, capabilities=UNTIMED, **options)
        engines.append(engine)
        return transcribe(recording.source, engine=engine), engine

    yield run
    for engine in engines:
        engine.close()


def talk(phrases=24):
    return Recording().phrases(phrases, words=WORDS_IN_PHRASE)


def words_of(transcript):
    return transcript.text.replace(".", "").split()


def expected(recording):
    return [spelled(name) for name in recording.names]


class TestTimes:
    @pytest.mark.parametrize("silence", [0.5, 8, 90])
    def test_each_sentence_has_the_time_of_its_speech_whatever_silence_was_left_out(self, recognised, silence):
        recording = Recording()
        for _ in range(6):
            recording.pause(silence).speak(WORDS_IN_PHRASE)
        transcript, engine = recognised(recording.pause(1), everything)
        assert {submission.options.timestamps for submission in engine.submissions} == {"none"}
        phrases = [recording.words[first : first + WORDS_IN_PHRASE] for first in range(0, 36, WORDS_IN_PHRASE)]
        assert len(transcript.segments) == len(phrases)
        for segment, phrase in zip(transcript.segments, phrases, strict=True):
            assert segment.start == pytest.approx(phrase[0][0], abs=0.15)
            assert segment.end == pytest.approx(phrase[-1][1], abs=0.3)

    def test_times_that_are_estimated_say_so(self, recognised):
        transcript, _ = recognised(talk(4), everything)
        assert all(segment.estimated and segment.words == () for segment in transcript.segments)
        assert read_json(render(transcript, "json")).segments[0].estimated
        assert '"estimated": true' in render(transcript, "json")

    def test_an_engine_that_times_words_is_asked_to(self):
        with_times = FakeEngine(lambda samples, options: answer([], 1.0), capabilities=ENGLISH_ONLY)
        transcribe(talk(1).source, engine=with_times)
        with_times.close()
        assert with_times.submissions[0].options.timestamps == "align"


class TestLostText:
    @pytest.mark.parametrize("loss", LOSSES)
    def test_what_a_long_clip_loses_is_asked_for_in_shorter_ones(self, recognised, loss):
        recording = talk()
        transcript, engine = recognised(recording, LOSSES[loss])
        assert words_of(transcript) == expected(recording)
        assert transcript.gaps == ()
        assert max(segment.attempts for segment in transcript.segments) > 1
        assert max(len(submission.samples) for submission in engine.submissions) <= 28 * RATE

    def test_a_complete_answer_is_not_asked_for_twice(self, recognised):
        transcript, engine = recognised(talk(), everything)
        assert {segment.attempts for segment in transcript.segments} == {1}
        heard = sum(len(submission.samples) / RATE - LEAD_SECONDS for submission in engine.submissions)
        assert heard < 1.01 * talk().seconds

    def test_speech_that_stays_without_text_becomes_a_gap(self, recognised):
        recording = talk(12)
        transcript, _ = recognised(recording, losing(lambda start, seconds: False))
        assert transcript.text == ""
        assert {gap.reason for gap in transcript.gaps} == {"the engine returned no text it stands behind"}
        for start, end, _ in recording.words:
            assert any(gap.start <= start and end <= gap.end + 0.1 for gap in transcript.gaps)

    def test_a_word_for_many_seconds_does_not_cover_them(self, recognised):
        recording = talk(12)

        def one_word(samples, options):
            seconds = len(samples) / RATE
            return answer(listen(samples)[:1] if seconds > 6 else [], seconds)

        transcript, _ = recognised(recording, one_word)
        assert transcript.text
        assert sum(gap.end - gap.start for gap in transcript.gaps) > 0.6 * len(recording.words) * 0.35
        assert {gap.reason for gap in transcript.gaps} == {"the engine returned too little text for so much speech"}

    def test_a_slow_speaker_is_believed_when_shorter_clips_hold_no_more(self, recognised):
        recording = Recording()
        for _ in range(60):
            recording.pause(0.6).speak(1)
        transcript, engine = recognised(recording.pause(1), everything)
        assert words_of(transcript) == expected(recording)
        assert transcript.gaps == ()
        longest = Counter(len(submission.samples) > 11 * RATE for submission in engine.submissions)
        assert longest[False] <= 4 * longest[True]

    @pytest.mark.parametrize(
        ("text", "sign"), [("thank you " * 30, "repetition"), ("(upbeat music)", "only a description")]
    )
    def test_invented_text_is_kept_marked_and_its_speech_is_a_gap(self, recognised, text, sign):
        def invent(samples, options):
            return ClipResult((ClipSegment(0.0, len(samples) / RATE, text.strip()),), language="en")

        recording = talk(6)
        transcript, _ = recognised(recording, invent)
        assert transcript.text == ""
        assert {segment.suspect for segment in transcript.segments} == {sign}
        assert sum(gap.end - gap.start for gap in transcript.gaps) > 0.9 * 36 * 0.35

    def test_the_text_does_not_depend_on_when_answers_come(self, recognised):
        recording = talk(60)
        at_once, _ = recognised(recording, LOSSES["stops early"])
        delays = np.random.default_rng(2).uniform(0, 0.05, 10_000)
        late, _ = recognised(recording, LOSSES["stops early"], delay=lambda number: float(delays[number]))
        assert late.segments == at_once.segments


class TestPace:
    def test_a_recording_begins_with_the_typical_pace(self):
        pace = Pace()
        assert [pace.turn().pace.result(timeout=0) for _ in range(LAG)] == [TYPICAL_PACE] * LAG

    def test_a_slow_speaker_lowers_what_later_chunks_are_held_to(self):
        pace = Pace()
        turns = [pace.turn() for _ in range(40)]
        for turn in turns[:-1]:
            turn.tell("word " * 40, 20.0)  # 16 letters a second
        assert turns[-1].pace.result(timeout=0) == pytest.approx(16.0)

    def test_what_a_chunk_is_held_to_waits_for_earlier_chunks_only(self):
        pace = Pace()
        turns = [pace.turn() for _ in range(LAG + 2)]
        assert not turns[LAG].pace.done()
        turns[1].tell("word " * 40, 20.0)
        assert not turns[LAG].pace.done()
        turns[0].tell("word " * 40, 20.0)
        assert turns[LAG].pace.done()
        assert turns[LAG + 1].pace.done()

    def test_music_and_silence_tell_nothing(self):
        pace = Pace()
        turns = [pace.turn() for _ in range(40)]
        for turn in turns[:-1]:
            turn.tell("", 20.0)
        assert turns[-1].pace.result(timeout=0) == TYPICAL_PACE

    def test_nobody_is_held_to_the_fastest_speakers(self):
        pace = Pace()
        turns = [pace.turn() for _ in range(40)]
        for turn in turns[:-1]:
            turn.tell("word " * 200, 20.0)
        assert turns[-1].pace.result(timeout=0) == MOST_PACE

    @pytest.mark.parametrize(("words", "short"), [(60, False), (50, False), (40, True), (5, True), (0, True)])
    def test_text_is_short_from_about_a_fifth_below_its_due(self, words, short):
        assert is_short("word " * words, 22.0, 22.0) == short
