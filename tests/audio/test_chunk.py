"""A chunk's map back to the recording, and its parts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audio.chunk import Chunk


def condensed():
    """Make a chunk of samples 100 to 200 whose middle was left out; each sample is its own position."""
    kept = ((100, 130), (160, 200))
    samples = np.concatenate([np.arange(a, b, dtype=np.float32) for a, b in kept])
    return Chunk(3, 100, 200, 10, samples, kept, ((105, 128), (165, 200)), forced=True)


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_part_holds_the_samples_of_its_stretch(one, other):
    chunk = condensed()
    first, last = min(one, other), max(one, other)
    if last < chunk.start or first > chunk.stop:
        return
    part = chunk.excerpt(first, last)
    expected = [position for position in chunk.samples if first <= position < last]
    assert part.samples.tolist() == expected
    assert part.samples.dtype == np.float32
    assert [position for a, b in part.kept for position in range(a, b)] == expected
    assert chunk.start <= part.start <= part.stop <= chunk.stop
    assert all(part.start <= a < b <= part.stop for a, b in part.speech)
    assert part.forced == (last >= chunk.stop)


def test_a_part_of_the_whole_is_the_whole():
    chunk, part = condensed(), condensed().excerpt(0, 1_000)
    assert (part.start, part.stop, part.kept, part.speech, part.forced) == (
        chunk.start,
        chunk.stop,
        chunk.kept,
        chunk.speech,
        True,
    )


def test_a_frame_leads_back_to_its_place_in_the_recording():
    chunk = condensed()
    assert [chunk.recording_position(frame) for frame in (0, 29, 30, 69)] == [100, 129, 160, 199]
    assert chunk.recording_position(30, ending=True) == 130
    assert chunk.recording_position(1_000) == 200
    assert chunk.recording_position(-5) == 100
