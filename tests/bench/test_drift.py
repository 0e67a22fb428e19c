"""What the measurement of drift is made of."""

import numpy as np
import pytest

from audio import load_audio
from bench.drift import errors, write_twice
from bench.recordings import Recording
from tests.recordings import RATE, bursts


def test_the_recording_is_there_at_the_beginning_and_again_after_the_time(tmp_path):
    samples = bursts(4.0)
    write_twice(Recording("bursts", samples), tmp_path / "long.mp3", hours=90 / 3600)
    found, _ = load_audio(tmp_path / "long.mp3", sr=RATE)
    assert len(found) / RATE == pytest.approx(94, abs=0.1)
    for at in (0, 90):
        again = found[at * RATE :][: len(samples)]
        assert np.corrcoef(again, samples[: len(again)])[0, 1] > 0.9
    assert np.abs(found[5 * RATE : 89 * RATE]).max() < 0.001


def test_errors_keep_their_sign_and_look_at_the_nearest_edge():
    assert errors([1.0, 10.0], [0.9, 5.0, 9.9]) == "-0.100 / 0.100"
