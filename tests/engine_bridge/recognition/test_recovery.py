"""Passages that an engine lost the thread in are heard again as a whole, and nothing is written twice for it."""

import numpy as np

from engine_bridge import transcribe
from engine_bridge.recognition.clips import LEAD_SECONDS
from engine_bridge.testing import FakeEngine, clip_result
from tests.tones import RATE, Recording, hear, listen


def heard(transcript):
    return [word.text.rstrip(".") for segment in transcript.segments for word in segment.words]


def transcribed(recording, script):
    engine = FakeEngine(script)
    try:
        return transcribe(recording.source, engine=engine), engine
    finally:
        engine.close()


def is_first_request(options):
    return options.beam_size == 1 and options.temperature == 0


def asked_again(engine):
    """Lengths in seconds of the clips that were sent after the first requests."""
    return [len(each.samples) / RATE for each in engine.submissions if not is_first_request(each.options)]


def keeping(kept, *, doubted=(), text="stray"):
    """Hear only some words at first, others as a doubted word, and everything in later attempts."""

    def script(samples, options):
        words = listen(samples)
        if not is_first_request(options):
            return clip_result(words)
        result = clip_result([(a, b, name) for a, b, name in words if name in kept or name in doubted])
        (segment,) = result.segments
        changed = tuple(
            type(word)(word.start, word.end, f" {text}", 0.2) if word.text.strip() in doubted else word
            for word in segment.words
        )
        return clip_result([]) if not changed else type(result)((type(segment)(0, 30, "", changed),), "en")

    return script


def test_stray_words_between_lost_phrases_are_heard_again_together_with_them():
    recording = Recording().phrases(6, words=6, pause=1.2)
    names = recording.names
    # Of the third to fifth phrase only one word in the middle was written.
    stray = names[20]
    transcript, engine = transcribed(recording, keeping([*names[:12], stray, *names[30:]]))
    assert heard(transcript) == names
    assert transcript.gaps == ()
    assert len(asked_again(engine)) == 1
    assert asked_again(engine)[0] > 3 * 6 * 0.35


def test_a_doubted_word_beside_a_lost_passage_is_heard_again_with_it():
    recording = Recording().phrases(3, words=8, pause=1.2)
    names = recording.names
    lost, doubted = names[9:16], names[8:9]
    transcript, _ = transcribed(recording, keeping([*names[:8], *names[16:]], doubted=doubted, text="I'm"))
    assert lost
    assert heard(transcript) == names


def test_a_word_that_is_sure_of_itself_beside_a_lost_passage_stays():
    recording = Recording().phrases(3, words=8, pause=1.2)
    names = recording.names
    transcript, engine = transcribed(recording, keeping([*names[:9], *names[16:]]))
    assert heard(transcript) == names
    assert max(asked_again(engine)) < 7 * 0.35 + 0.5 + LEAD_SECONDS


def hum(seconds):
    time = np.arange(round(seconds * RATE)) / RATE
    return (0.05 * np.sin(2 * np.pi * 150 * time) * (1 + 0.5 * np.sin(2 * np.pi * 3 * time))).astype(np.float32)


def late(recording, shift):
    """Hear each phrase's words, but the last phrase's only after its sound; hear it rightly when asked again."""
    last, ends = recording.names[-3:], recording.names[2::3]

    def script(samples, options):
        words = [word for word in listen(samples) if word[2] in recording.names]
        if is_first_request(options):
            words = [(a + shift * (name in last), b + shift * (name in last), name) for a, b, name in words]
        return clip_result([(a, b, f"{name}." if name in ends else name) for a, b, name in words])

    return script


def test_words_that_were_timed_after_their_sound_are_not_written_twice():
    # What is behind the words is no speech, but sounds: as music does.
    recording = Recording().phrases(4, words=3, pause=1.2)
    recording._add(hum(3.5))
    transcript, _ = transcribed(recording, late(recording, 2.2))
    assert heard(transcript) == recording.names


def test_words_that_were_said_twice_are_written_twice():
    recording = Recording().pause(1.0).speak(4).pause(1.0)
    again = recording.samples
    recording._add(again)
    names = recording.names
    first_only = iter([True])

    def script(samples, options):
        words = listen(samples)
        # The first answer has the passage once, the later ones as often as it was said.
        return clip_result(words[4:] if next(first_only, False) else words)

    transcript, _ = transcribed(recording, script)
    assert heard(transcript) == [*names, *names]


def test_what_is_heard_at_once_is_asked_for_once():
    recording = Recording().phrases(5)
    transcript, engine = transcribed(recording, hear)
    assert heard(transcript) == recording.names
    assert asked_again(engine) == []
