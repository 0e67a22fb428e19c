"""Which backend decodes: the order of `auto`, and the difference between a missing backend and a bad file."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from audio.decoders import AUTO_ORDER, BACKENDS, available_backends, open_decoder
from audio.decoders.base import BackendBase, DecoderBase
from audio.errors import BackendUnavailableError, UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from tests.audio.media import RATE, decoded, encoded, signal, written

SAMPLES = signal(2.0)


class Broken(BackendBase):
    """A backend whose library fails in a way of its own."""

    remedy = "Install it with: pip install it"

    def __init__(self, name, error):
        super().__init__()
        self.name = name
        self.error = error
        self.tries = 0

    def _open(self, source, selection):
        self.tries += 1
        raise self.error


class Canned(BackendBase):
    """A backend that gives prepared blocks, and then an error if there is one."""

    remedy = "It is always there"

    def __init__(self, name, blocks, *, error=None, claimed=None, rate=RATE, doubt=None):
        super().__init__()
        self.name = name
        self.contents = blocks, error
        self.doubt = doubt
        channels = blocks[0].shape[1] if blocks else 1
        self.info = AudioInfo(
            "can", "canned", rate, channels, None, claimed, 0.0, (StreamInfo(0, "canned", rate, 1),), name
        )

    def load(self):
        pass

    def _open(self, source, selection):
        decoder = _CannedDecoder(self.info, self.doubt)
        decoder.contents = self.contents
        return decoder


class _CannedDecoder(DecoderBase):
    def blocks(self):
        blocks, error = self.contents
        yield from blocks
        if error is not None:
            raise error

    def close(self):
        pass


def install(monkeypatch, *backends):
    """Put backends in the places of soundfile, torchcodec and pyav."""
    for name, backend in zip(AUTO_ORDER, backends, strict=True):
        backend.name = name
        if isinstance(backend, Canned):
            backend.info = AudioInfo(**{**vars(backend.info), "backend": name})
        monkeypatch.setitem(BACKENDS, name, backend)


def absent():
    return Broken("", ImportError("not there"))


DATA = b"\0\1\2\3" * 100
WAYS_TO_FAIL = [
    ImportError("No module named 'x'"),
    OSError("libavutil.so.59: cannot open shared object file"),
    RuntimeError("Could not load libtorchcodec"),
    AttributeError("module 'x' has no attribute 'y'"),
    ValueError("unsupported version"),
    UnreadableAudioError("a test clip", "it is not read"),
]


@pytest.mark.parametrize("error", WAYS_TO_FAIL, ids=lambda error: type(error).__name__)
def test_a_backend_that_cannot_load_is_passed_over_by_auto_and_refused_by_name(monkeypatch, error):
    monkeypatch.setitem(BACKENDS, "soundfile", Broken("soundfile", error))
    monkeypatch.setitem(BACKENDS, "torchcodec", Broken("torchcodec", error))
    data = written(SAMPLES, subtype="FLOAT")
    decoder = open_decoder(data)
    np.testing.assert_array_equal(decoded(decoder), SAMPLES)
    assert decoder.info.backend == "pyav"
    with pytest.raises(BackendUnavailableError) as caught:
        open_decoder(data, "soundfile")
    assert caught.value.backend == "soundfile"
    assert str(error) in str(caught.value)
    assert "pip install" in caught.value.remedy


def test_the_verdict_on_a_backend_is_reached_once():
    broken = Broken("soundfile", OSError("no library"))

    def load():
        with pytest.raises(BackendUnavailableError):
            broken.load()

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken.tries == 1


def test_a_backend_that_gives_too_little_of_the_test_clip_does_not_work():
    class Short(Canned):
        load = BackendBase.load

    with pytest.raises(BackendUnavailableError, match="10 of the 800 samples"):
        Short("soundfile", [np.zeros((10, 1), np.float32)]).load()


def test_a_missing_backend_is_not_called_a_bad_file(monkeypatch):
    """An M4A where only soundfile is installed is a good file, and the message says what to install."""
    data = encoded(SAMPLES, container="ipod", codec="aac")
    monkeypatch.setitem(BACKENDS, "torchcodec", Broken("torchcodec", ImportError("absent")))
    monkeypatch.setitem(BACKENDS, "pyav", Broken("pyav", ImportError("absent")))
    with pytest.raises(BackendUnavailableError, match="pip install") as caught:
        open_decoder(data)
    assert caught.value.backend == "pyav"
    assert "<bytes>" in str(caught.value)


def test_without_any_backend_the_first_is_asked_for(monkeypatch):
    install(monkeypatch, absent(), absent(), absent())
    with pytest.raises(BackendUnavailableError):
        open_decoder(DATA)


def test_a_named_backend_has_no_fallback():
    data = encoded(SAMPLES, container="ipod", codec="aac")
    with pytest.raises(UnreadableAudioError, match="soundfile cannot read it"):
        open_decoder(data, "soundfile")
    assert len(decoded(open_decoder(data, "pyav"))) >= len(SAMPLES)


def test_an_unknown_backend_is_a_wrong_argument():
    with pytest.raises(ValueError, match="choose auto, soundfile, torchcodec, pyav"):
        open_decoder(DATA, "ffmpeg")


def test_available_backends_says_why_not(monkeypatch):
    install(monkeypatch, Canned("", []), Broken("", OSError("libavutil is missing")), absent())
    found = available_backends()
    assert list(found) == list(AUTO_ORDER)
    assert found["soundfile"] is None
    assert "libavutil is missing" in found["torchcodec"]
    assert "pip install" in found["torchcodec"]


def blocks_of(samples, size=3000):
    return [samples[start : start + size] for start in range(0, len(samples), size)]


@pytest.mark.parametrize("workers", [1, 2])
def test_auto_gives_to_ffmpeg_first_what_that_decodes_faster(monkeypatch, workers):
    faster = [written(SAMPLES, container="OGG", subtype=subtype) for subtype in ("OPUS", "VORBIS")]
    faster.append(encoded(SAMPLES, container="ipod", codec="aac"))
    others = [written(SAMPLES, container=container) for container in ("WAV", "FLAC")]
    install(monkeypatch, *(Canned(name, [signal(0.5)]) for name in AUTO_ORDER))
    assert {open_decoder(data, workers=workers).info.backend for data in faster} == {"pyav"}
    assert {open_decoder(data, workers=workers).info.backend for data in others} == {"soundfile"}


def test_auto_keeps_what_it_has_and_goes_on_with_the_next(monkeypatch):
    error = UnreadableAudioError("<bytes>", "soundfile cannot read it (bad block)")
    install(
        monkeypatch, Canned("", blocks_of(SAMPLES)[:4], error=error), absent(), Canned("", blocks_of(SAMPLES, 1111))
    )
    decoder = open_decoder(DATA)
    np.testing.assert_array_equal(decoded(decoder), SAMPLES)
    assert decoder.warnings == ["at 0.75 s soundfile cannot read it (bad block); pyav went on from there"]


@pytest.mark.parametrize("shift", [-500, -1, 0, 1, 500])
def test_the_seam_is_found_where_backends_begin_at_different_samples(monkeypatch, shift):
    """An encoder's delay that one backend skips and another does not would otherwise repeat or drop audio."""
    other = SAMPLES[-shift:] if shift < 0 else np.concatenate([np.zeros((shift, 1), np.float32), SAMPLES])
    error = UnreadableAudioError("<bytes>", "it failed")
    install(monkeypatch, Canned("", blocks_of(SAMPLES)[:4], error=error), absent(), Canned("", blocks_of(other)))
    np.testing.assert_array_equal(decoded(open_decoder(DATA)), SAMPLES)


def test_a_backend_that_lost_the_middle_is_not_followed_by_the_end_twice(monkeypatch):
    without_middle = np.concatenate([SAMPLES[:8000], SAMPLES[20_000:]])
    install(
        monkeypatch, Canned("", [without_middle], claimed=2.0), absent(), Canned("", blocks_of(SAMPLES), claimed=2.0)
    )
    decoder = open_decoder(DATA)
    np.testing.assert_array_equal(decoded(decoder), without_middle)
    assert decoder.warnings == [
        "the file claims 2.00 s but only 1.25 s could be decoded: it looks truncated or damaged"
    ]


def test_a_backend_that_ends_early_is_followed_by_the_rest(monkeypatch):
    install(monkeypatch, Canned("", [SAMPLES[:9000]], claimed=2.0), absent(), Canned("", [SAMPLES]))
    decoder = open_decoder(DATA)
    np.testing.assert_array_equal(decoded(decoder), SAMPLES)
    assert decoder.warnings == ["at 0.56 s soundfile gave no more; pyav went on from there"]


@pytest.mark.parametrize("other", [Canned("", [SAMPLES], rate=8000), Canned("", [signal(2.0, channels=2)])])
def test_audio_of_another_form_is_not_appended(monkeypatch, other):
    error = UnreadableAudioError("<bytes>", "soundfile cannot read it (bad block)")
    install(monkeypatch, Canned("", [SAMPLES[:8000]], error=error, claimed=2.0), absent(), other)
    decoder = open_decoder(DATA)
    np.testing.assert_array_equal(decoded(decoder), SAMPLES[:8000])
    assert any("decoding stopped at 0.50 s" in warning for warning in decoder.warnings)
    assert any("claims 2.00 s but only 0.50 s" in warning for warning in decoder.warnings)


def test_a_backend_in_doubt_comes_last(monkeypatch):
    doubtful = Canned("", [SAMPLES[:100]], doubt="it loses audio of this codec")
    install(monkeypatch, doubtful, absent(), Canned("", [SAMPLES]))
    decoder = open_decoder(DATA)
    assert decoder.info.backend == "pyav"
    np.testing.assert_array_equal(decoded(decoder), SAMPLES)
    install(monkeypatch, doubtful, absent(), Broken("", OSError("no library")))
    decoder = open_decoder(DATA)
    assert len(decoded(decoder)) == 100
    assert decoder.warnings == ["it loses audio of this codec"]


def test_long_blocks_are_cut_to_seconds(monkeypatch):
    install(monkeypatch, Canned("", [signal(3.5)]), absent(), absent())
    assert [len(block) for block in open_decoder(DATA).blocks()] == [RATE, RATE, RATE, RATE // 2]


def test_importing_audio_loads_no_heavy_library():
    heavy = ("torch", "scipy", "av", "soundfile", "torchcodec")
    code = f"import sys, audio, audio.decoders, audio.info; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
