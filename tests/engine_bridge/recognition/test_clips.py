"""What an engine hears of a chunk, and the times of its answer."""

from dataclasses import replace

import numpy as np
import pytest

from audio.chunk import Chunk
from engine_bridge.engines.protocol import DecodingOptions
from engine_bridge.recognition.clips import LEAD_SECONDS, heard
from engine_bridge.recognition.tasks import carry
from engine_bridge.testing import ENGLISH_ONLY, FakeEngine, clip_result
from tests.tones import RATE, Recording, hear

LONGEST = ENGLISH_ONLY.max_clip_seconds


def answered(samples, longest=LONGEST, script=hear):
    """Return what an engine heard of samples as one chunk, and its answer."""
    chunk = Chunk(0, 0, len(samples), RATE, samples, kept=((0, len(samples)),), speech=((0, len(samples)),))
    engine = FakeEngine(script, capabilities=replace(ENGLISH_ONLY, max_clip_seconds=longest))

    def recognition():
        (result,) = yield from heard(engine, [chunk], DecodingOptions())
        return result

    try:
        (task,) = carry([recognition()])
    finally:
        engine.close()
    assert task.failure is None
    (submission,) = engine.submissions
    return submission.samples, task.outcome


def test_silence_goes_before_a_clip_and_its_times_are_the_chunks_own():
    recording = Recording().phrases(3)
    samples = recording.samples
    clip, result = answered(samples)
    lead = round(LEAD_SECONDS * RATE)
    assert not clip[:lead].any()
    np.testing.assert_array_equal(clip[lead:], samples)
    words = [word for segment in result.segments for word in segment.words]
    assert [word.text.strip() for word in words] == recording.names
    for word, (start, end, _) in zip(words, recording.words, strict=True):
        assert word.start == pytest.approx(start, abs=0.02)
        assert word.end == pytest.approx(end, abs=0.02)


@pytest.mark.parametrize(("room", "lead"), [(1.0, LEAD_SECONDS), (0.25, 0.25), (0.0, 0.0)])
def test_no_clip_is_made_longer_than_the_engine_takes(room, lead):
    samples = Recording().phrases(2).samples
    clip, _ = answered(samples, longest=len(samples) / RATE + room)
    assert len(clip) == len(samples) + round(lead * RATE)


def test_what_an_engine_hears_in_the_lead_is_at_the_chunks_beginning():
    _, result = answered(
        np.ones(RATE, np.float32), script=lambda samples, options: clip_result([(0.1, 0.2, "a"), (0.3, 0.9, "b")])
    )
    words = [word for segment in result.segments for word in segment.words]
    assert [(word.start, round(word.end, 3)) for word in words] == [(0.0, 0.0), (0.0, 0.5)]
