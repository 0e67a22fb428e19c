"""What users of other programs report of their transcripts, one engine for each way of failing, and what comes here."""

from dataclasses import replace

import numpy as np
import pytest

from engine_bridge import render, transcribe
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine, clip_result
from tests.tones import RATE, WORD_GAP, WORD_SECONDS, Recording, hear, listen

FIRST_IDEOGRAPH = 0x4E00


@pytest.fixture
def answered():
    """Transcribe a recording with a script in the engine's place; returns the transcript and the engine."""
    engines = []

    def answer(recording, script, *, engine=None, **options):
        if engine is None:
            engine = FakeEngine(script)
            engines.append(engine)
        source = recording.source if isinstance(recording, Recording) else recording
        return transcribe(source, engine=engine, **options), engine

    yield answer
    for engine in engines:
        engine.close()


def heard(transcript):
    return [word.text for segment in transcript.segments if segment.suspect is None for word in segment.words]


def is_first_request(options):
    return options.beam_size == 1 and options.temperature == 0


def spread(texts, samples):
    """Return words spread evenly over a clip."""
    step = len(samples) / RATE / len(texts)
    return [(index * step, (index + 1) * step, text) for index, text in enumerate(texts)]


def at_first(bad):
    """Return a script that gives a clip's bad answer at first and hears it when it is asked otherwise."""
    return lambda samples, options: bad(samples) if is_first_request(options) else hear(samples, options)


def noise(seconds, level):
    samples = np.random.default_rng(5).normal(0, level, round(seconds * RATE))
    return samples.astype(np.float32), RATE


def ideograph(name):
    return chr(FIRST_IDEOGRAPH + int(name[1:]))


def symbols(samples):
    return clip_result(spread(["!!!!!!!!"] * 10, samples))


def flood(samples):
    rng = np.random.default_rng(len(samples))
    return clip_result(
        spread(["".join(rng.choice(list("abcdefghijklmnop"), 12)) for _ in range(len(samples) // 1_600)], samples)
    )


def loop(samples):
    return clip_result(spread(["thank", "you"] * 30, samples))


def lonely_guess(samples):
    return clip_result([(0.0, 0.4, "you")], probability=0.1)


def nothing(samples):
    return clip_result([])


FAILURES = [symbols, flood, loop, lonely_guess, nothing]


class TestTextThatNobodySaid:
    @pytest.mark.parametrize("bad", FAILURES)
    def test_a_bad_answer_is_asked_for_again_and_replaced(self, answered, bad):
        recording = Recording().phrases(12)
        transcript, _ = answered(recording, at_first(bad))
        assert heard(transcript) == recording.names
        assert {segment.suspect for segment in transcript.segments} == {None}
        assert transcript.gaps == ()
        assert min(segment.attempts for segment in transcript.segments) > 1

    @pytest.mark.parametrize("bad", FAILURES)
    def test_what_stays_bad_costs_a_bounded_number_of_requests_and_is_never_text_without_a_mark(self, answered, bad):
        recording = Recording().phrases(12)
        transcript, engine = answered(recording, lambda samples, options: bad(samples))
        chunks = sum(is_first_request(submission.options) for submission in engine.submissions)
        stretches = 12
        assert len(engine.submissions) <= 3 * chunks + stretches
        assert transcript.text == ""
        assert render(transcript, "srt") == ""
        for start, end, _ in recording.words:
            assert any(gap.start < end and gap.end > start for gap in transcript.gaps)

    def test_an_echo_of_the_prompt_is_asked_for_again_without_it(self, answered):
        recording = Recording().phrases(5)
        prompt = "A call about radio waves and their friends."

        def echoes(samples, options):
            return clip_result(spread(options.prompt.split(), samples)) if options.prompt else hear(samples, options)

        transcript, engine = answered(recording, echoes, prompt=prompt)
        assert heard(transcript) == recording.names
        assert [submission.options.prompt for submission in engine.submissions] == [prompt, None]

    @pytest.mark.parametrize("level", [0.0, 0.0005, 0.02])
    def test_silence_and_room_noise_are_kept_from_an_engine_that_would_invent(self, answered, level):
        transcript, engine = answered(noise(60, level), lambda samples, options: loop(samples))
        assert engine.submissions == ()
        assert (transcript.segments, transcript.gaps, transcript.duration) == ((), (), 60.0)

    def test_nothing_of_one_recording_reaches_the_next(self, answered):
        spoken, engine = answered(Recording().phrases(3), hear)
        assert heard(spoken)
        silent, _ = answered(Recording().pause(20), hear, engine=engine)
        assert (silent.segments, silent.gaps, silent.warnings, silent.text) == ((), (), (), "")


class TestTimes:
    @pytest.mark.parametrize("silence", [0, 75, 300])
    def test_the_first_word_after_a_silence_starts_with_its_speech(self, answered, silence):
        recording = Recording().phrases(2).pause(silence).phrases(2)

        def starts_early(samples, options):
            # Alignment without a notion of silence gives half of the pause before a word to the word.
            words = listen(samples)
            before = [0.0] + [end for _, end, _ in words]
            return clip_result([((before[n] + start) / 2, end, name) for n, (start, end, name) in enumerate(words)])

        transcript, _ = answered(recording, starts_early)
        words = [word for segment in transcript.segments for word in segment.words]
        assert [word.text for word in words] == recording.names
        for word, (start, _, _) in zip(words, recording.words, strict=True):
            assert word.start == pytest.approx(start, abs=0.3)

    def test_no_segment_reaches_over_a_silence_that_was_left_out(self, answered):
        recording = Recording().phrases(2).pause(20).phrases(2).pause(8).phrases(2)
        transcript, _ = answered(recording, hear)
        assert heard(transcript) == recording.names
        assert all(segment.end - segment.start < 5 for segment in transcript.segments)
        lasts = [segment.end for segment in transcript.segments]
        for _, end, _ in (recording.words[9], recording.words[19], recording.words[29]):
            assert min(abs(last - end) for last in lasts) < 0.3

    @pytest.mark.parametrize(
        "damage",
        [
            lambda start, end, seconds: (start, start),
            lambda start, end, seconds: (seconds + 5, seconds + 9),
            lambda start, end, seconds: (seconds, seconds),
            lambda start, end, seconds: (seconds - end, seconds - start),
        ],
        ids=["no length", "beyond the clip", "piled at its end", "backwards"],
    )
    def test_impossible_times_are_brought_in_and_no_word_is_lost(self, answered, damage):
        recording = Recording().phrases(6)

        def damaged(samples, options):
            seconds = len(samples) / RATE
            return clip_result([(*damage(start, end, seconds), name) for start, end, name in listen(samples)])

        transcript, _ = answered(recording, damaged)
        assert set(recording.names) <= {word.text for segment in transcript.segments for word in segment.words}
        reached = 0.0
        for segment in transcript.segments:
            assert reached <= segment.start <= segment.end <= recording.seconds
            assert all(segment.start <= word.start <= word.end <= segment.end for word in segment.words)
            reached = segment.end
        assert render(transcript, "vtt").startswith("WEBVTT")

    def test_a_word_said_again_and_again_keeps_its_own_time_each_time(self, answered):
        recording = Recording().phrases(6, words=2)

        def same(samples, options):
            return clip_result([(start, end, "hey") for start, end, _ in listen(samples)])

        transcript, _ = answered(recording, same)
        words = [word for segment in transcript.segments for word in segment.words]
        assert len(words) == len(recording.words)
        for word, (start, end, _) in zip(words, recording.words, strict=True):
            assert word.start == pytest.approx(start, abs=0.3)
            assert word.end == pytest.approx(end, abs=0.3)


class TestJoinedTexts:
    recording = Recording().phrases(30)

    def test_words_of_two_chunks_have_one_space_between_them(self, answered):
        transcript, engine = answered(self.recording, hear)
        assert len(engine.submissions) > 1
        assert transcript.text == " ".join(self.recording.names)

    def test_chinese_has_none_inside_a_chunk_or_between_two(self, answered):
        def chinese(samples, options):
            result = clip_result([(a, b, ideograph(name)) for a, b, name in listen(samples)])
            return replace(
                result,
                segments=tuple(
                    replace(
                        segment,
                        text=segment.text.replace(" ", ""),
                        words=tuple(replace(word, text=word.text.strip()) for word in segment.words),
                    )
                    for segment in result.segments
                ),
            )

        transcript, engine = answered(self.recording, chinese)
        assert len(engine.submissions) > 1
        assert transcript.text == "".join(ideograph(name) for name in self.recording.names)


def test_nothing_after_the_engines_longest_clip_is_dropped(answered):
    # Talk with pauses too short to be told from speech, and an engine that takes ten seconds.
    recording = Recording().speak(round(65 / (WORD_SECONDS + WORD_GAP)))
    engine = FakeEngine(hear, capabilities=replace(ENGLISH_ONLY, max_clip_seconds=10.0))
    try:
        transcript, _ = answered(recording, None, engine=engine)
    finally:
        engine.close()
    assert heard(transcript) == recording.names
    assert max(len(submission.samples) for submission in engine.submissions) <= 10 * RATE
