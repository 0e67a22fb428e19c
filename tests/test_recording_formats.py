"""One recording in nine formats: the same length, the same sound and the same text, whichever backend reads it."""

import os

import numpy as np
import pytest

from audio import UnreadableAudioError, open_stream
from audio.decoders import AUTO_ORDER, available_backends
from bench.wer import word_errors
from engine_bridge import open_engine, transcribe
from tests.recordings import ENCODINGS, RATE, calls, encode, model_problem, reading

SECONDS = 30.0
LONG_SECONDS = 180.0
READERS = {
    extension: AUTO_ORDER if extension in ("wav", "flac", "mp3", "ogg", "opus") else ("torchcodec", "pyav")
    for extension in ENCODINGS
}
PAIRS = [(extension, backend) for extension, backends in READERS.items() for backend in backends]


def require(backend):
    """Skip where a backend does not work, or fail where the variable AURICLE_REQUIRE names it."""
    problem = available_backends()[backend]
    if problem is not None and backend in os.environ.get("AURICLE_REQUIRE", "").split(","):
        pytest.fail(f"{backend}: {problem}")
    if problem is not None:
        pytest.skip(f"{backend}: {problem}")


def words_apart(one, other):
    """The share of words that two texts differ by, whatever their case, punctuation and spelling."""
    return word_errors(one, other).wer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The recording in every format, by extension."""
    folder = tmp_path_factory.mktemp("formats")
    samples = reading(SECONDS)
    return {name: encode(samples, folder / f"reading.{name}", encoding) for name, encoding in ENCODINGS.items()}


@pytest.fixture(scope="module")
def decoded(files):
    """A function that gives the samples of a format through a backend, each decoded once."""
    known = {}

    def get(extension, backend):
        if (extension, backend) not in known:
            with open_stream(files[extension], RATE, backend=backend) as stream:
                blocks = list(stream)
                known[extension, backend] = np.concatenate(blocks), stream.warnings
        return known[extension, backend]

    return get


@pytest.mark.parametrize(("extension", "backend"), PAIRS)
def test_every_backend_gives_the_length_of_the_wav_without_a_warning(decoded, extension, backend):
    require(backend)
    samples, warnings = decoded(extension, backend)
    assert len(samples) / RATE == pytest.approx(SECONDS, abs=0.050)
    assert warnings == []


@pytest.mark.parametrize(("extension", "backend"), PAIRS)
def test_every_backend_gives_the_sound_of_the_wav_in_its_place(decoded, extension, backend):
    require(backend)
    samples, _ = decoded(extension, backend)
    original = reading(SECONDS)
    shared = min(len(samples), len(original))
    assert np.corrcoef(samples[:shared], original[:shared])[0, 1] >= 0.99


@pytest.mark.parametrize("extension", ENCODINGS)
def test_backends_agree_on_the_samples(decoded, extension):
    require("pyav")
    able = [name for name in READERS[extension] if available_backends()[name] is None]
    if len(able) < 2:
        pytest.skip(f"only {able[0]} reads {extension} here")
    expected, _ = decoded(extension, "pyav")
    for backend in able:
        samples, _ = decoded(extension, backend)
        shared = min(len(samples), len(expected))
        assert abs(len(samples) - len(expected)) <= 0.050 * RATE
        # A decoder of lossy formats may round otherwise than another; a lost or doubled frame is far above this.
        assert np.sqrt(np.mean((samples[:shared] - expected[:shared]) ** 2)) < 1e-3


@pytest.mark.parametrize("extension", [name for name, backends in READERS.items() if "soundfile" not in backends])
def test_a_named_backend_refuses_what_it_cannot_read_and_auto_does_not(files, decoded, extension):
    with pytest.raises(UnreadableAudioError, match=r"soundfile cannot read it"):
        open_stream(files[extension], backend="soundfile")
    require("pyav")
    assert len(decoded(extension, "auto")[0])


@pytest.mark.parametrize("backend", AUTO_ORDER)
def test_minutes_of_vorbis_are_whole_to_the_sample(tmp_path, backend):
    """Non-regression: at a page border torchcodec found nothing more, and what followed was skipped or never read."""
    require(backend)
    path = encode(reading(165.0), tmp_path / "reading.ogg", ENCODINGS["ogg"])
    with open_stream(path, None, backend=backend) as stream:
        assert sum(len(block) for block in stream) == 165 * ENCODINGS["ogg"].rate
        assert stream.warnings == []


@pytest.fixture(scope="module")
def long_files(tmp_path_factory):
    """Minutes of a recording in every format, by extension: in a short one two words are more than 1 %."""
    folder = tmp_path_factory.mktemp("long")
    samples = calls()[: round(LONG_SECONDS * RATE)]
    return {name: encode(samples, folder / f"calls.{name}", encoding) for name, encoding in ENCODINGS.items()}


@pytest.fixture(scope="module")
def recognise(long_files):
    """A function that gives the transcript of a format through a backend, by the real model, each made once.

    By one greedy search: a second one, made where the first is in doubt, would make more of the last bits of a sample.
    """
    problem = model_problem()
    if problem is not None:
        pytest.skip(problem)
    engine = open_engine()
    known = {}

    def get(extension, backend="auto"):
        if (extension, backend) not in known:
            source = long_files[extension]
            known[extension, backend] = transcribe(source, engine=engine, audio_backend=backend, beam_size=1)
        return known[extension, backend]

    yield get
    engine.close()


@pytest.mark.model
@pytest.mark.parametrize("extension", ENCODINGS)
def test_every_format_has_the_text_of_the_wav(recognise, extension):
    expected, transcript = recognise("wav"), recognise(extension)
    assert len(expected.text.split()) > 300
    assert words_apart(expected.text, transcript.text) <= 0.01
    assert transcript.duration == pytest.approx(expected.duration, abs=0.050)
    assert not transcript.gaps


@pytest.mark.model
@pytest.mark.parametrize(
    ("backend", "extension"), [("soundfile", "mp3"), ("torchcodec", "mkv"), ("pyav", "m4a")], ids=lambda name: name
)
def test_every_backend_leads_to_the_text_of_the_wav(recognise, backend, extension):
    require(backend)
    transcript = recognise(extension, backend)
    assert transcript.backend == backend
    assert words_apart(recognise("wav").text, transcript.text) <= 0.01
