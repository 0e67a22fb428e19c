"""What is raised on purpose: the trees as they are drawn, messages of one sentence, and the way between processes."""

import builtins
import inspect
import multiprocessing
import pickle
import re

import numpy as np
import pytest

import audio.errors
import engine_bridge.errors
from audio import load_audio, open_stream, resample, split_audio, stream_chunks, to_frames_first
from audio.decoders import BACKENDS
from audio.errors import AudioError, BackendUnavailableError, EmptyAudioError, NoAudioStreamError, UnreadableAudioError
from engine_bridge import open_engine
from engine_bridge.errors import EngineBridgeError, ModelNotFoundError
from tests.recordings import bursts, wav_bytes, write_silent_film

MODULES = [audio.errors, engine_bridge.errors]
DRAWN = re.compile(r"^ *(?P<branch>[│ ]*[├└]── )?(?P<name>\w+Error)\b(?: +\((?P<builtin>\w+)\))?")


def classes_of(module):
    return {
        name: kind for name, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__
    }


def drawn_tree(module):
    """The parents by class name, the built-in one last, as the module's description draws them."""
    parents, path = {}, []
    for line in module.__doc__.splitlines():
        if match := DRAWN.match(line):
            depth = len(match["branch"] or "") // 4
            path = [*path[:depth], match["name"]]
            builtin = [match["builtin"]] if match["builtin"] else []
            parents[match["name"]] = [path[depth - 1] if depth else "Exception", *builtin]
    return parents


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_tree_is_as_it_is_drawn(module):
    real = {name: [base.__name__ for base in kind.__bases__] for name, kind in classes_of(module).items()}
    assert drawn_tree(module) == real


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_built_in_parents_are_built_in(module):
    for parents in drawn_tree(module).values():
        assert all(issubclass(getattr(builtins, name), Exception) for name in parents[1:])


def filled(kind):
    """An error of a kind, with a value for each of its own arguments."""
    if kind.__init__ in (AudioError.__init__, EngineBridgeError.__init__) or "__init__" not in vars(kind):
        own = next(
            (parent for parent in kind.__mro__ if "__init__" in vars(parent) and parent.__module__ == kind.__module__),
            None,
        )
    else:
        own = kind
    if own is None:
        return kind("talk.wav: it went wrong; try again")
    names = list(inspect.signature(own).parameters)
    return kind(*(("here", "there") if name == "tried" else f"the {name}" for name in names))


ALL = [kind for module in MODULES for kind in classes_of(module).values()]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_pickling(kind):
    error = filled(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert str(error)


def decode_nothing(_):
    open_stream(b"")


def test_an_error_crosses_a_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(EmptyAudioError) as caught:
        pool.map(decode_nothing, [0])
    assert caught.value.source == "<bytes>"
    assert str(caught.value) == "<bytes>: there are no bytes; pass the contents of a recording"


def missing_torchcodec(monkeypatch):
    monkeypatch.setattr(BACKENDS["torchcodec"], "_tried", True)
    monkeypatch.setattr(BACKENDS["torchcodec"], "_fault", "No module named 'torchcodec'")
    load_audio(wav_bytes(bursts(1)), backend="torchcodec")


MESSAGES = {
    "missing file": (
        lambda folder, _: load_audio(folder / "talk.wav"),
        "{folder}/talk.wav: there is no such file; check the path",
    ),
    "folder": (lambda folder, _: load_audio(folder), "{folder}: this is a folder; name the recordings in it"),
    "empty file": (
        lambda folder, _: load_audio(touched(folder / "talk.wav")),
        "{folder}/talk.wav: the file is empty; record or copy it again",
    ),
    "array without a rate": (
        lambda *_: load_audio(np.zeros(5, np.float32)),
        "an array alone does not say how fast its samples are to be played; pass (array, sample_rate)",
    ),
    "no source": (
        lambda *_: load_audio(object()),
        "cannot decode an object of type object; pass a path, bytes, a file opened in binary mode, or "
        "(array, sample_rate)",
    ),
    "absent backend": (
        lambda _, monkeypatch: missing_torchcodec(monkeypatch),
        "torchcodec cannot be used here: No module named 'torchcodec'. Install it with: pip install 'auricle[torch]', "
        "and FFmpeg's shared libraries with the system's packages",
    ),
    "ambiguous channels": (
        lambda *_: to_frames_first(np.zeros((2, 2), np.float32)),
        "the shape (2, 2) does not say which axis holds the channels: state it with "
        'layout="channels_first" for (channels, time) or layout="frames_first" for (time, channels).',
    ),
    "impossible rate": (
        lambda *_: resample(np.zeros(5, np.float32), 0, 16_000),
        "the source sample rate is 0: give a whole number of Hz from 1 to 768000.",
    ),
    "impossible lengths": (
        lambda *_: stream_chunks([], 16_000, max_duration=0),
        "max_duration must be at least 0.1 s, not 0.",
    ),
    "impossible overlap": (
        lambda *_: split_audio(np.zeros(5), 16_000, 10, 20, 100),
        "overlap_duration_s must be at least 0 and less than max_clip_duration_s (10 s), not 20.",
    ),
    "unknown engine": (
        lambda *_: open_engine("warp:9"),
        "engine 'warp:9' is not understood: use embedded:MODEL with a model name, a folder or a hub repository, "
        "for example embedded:tiny.en, vllm:MODEL for vLLM in this process, or http://HOST:PORT/v1#MODEL for a server",
    ),
    "unknown model": (
        lambda *_: open_engine("embedded:no-such-model"),
        "model 'no-such-model' was not found: no folder of that name; no installed package carries it; it names no "
        "known hub repository; it names no known hub repository. Name a folder with a CTranslate2 model, or install "
        "'auricle[tiny-en]' for tiny.en without a hub.",
    ),
}


def touched(path):
    path.touch()
    return path


@pytest.mark.parametrize("case", MESSAGES)
def test_a_message_says_what_why_and_what_next(case, tmp_path, monkeypatch):
    act, expected = MESSAGES[case]
    with pytest.raises((AudioError, EngineBridgeError)) as caught:
        act(tmp_path, monkeypatch)
    assert str(caught.value) == expected.format(folder=tmp_path)


class TestFields:
    def test_a_decode_error_keeps_source_and_reason(self, tmp_path):
        path = tmp_path / "noise.mp3"
        path.write_bytes(bytes(range(256)) * 40)
        with pytest.raises(UnreadableAudioError) as caught:
            load_audio(path)
        assert caught.value.source == str(path)
        assert str(caught.value) == f"{path}: {caught.value.reason}"
        assert "\n" not in str(caught.value)
        assert "soundfile cannot read it" in caught.value.reason

    def test_a_film_without_sound_is_no_damaged_file(self, tmp_path):
        with pytest.raises(NoAudioStreamError) as caught:
            load_audio(write_silent_film(tmp_path / "film.mp4"))
        assert caught.value.source.endswith("film.mp4")

    def test_an_absent_backend_keeps_name_reason_and_remedy(self, monkeypatch):
        with pytest.raises(BackendUnavailableError) as caught:
            missing_torchcodec(monkeypatch)
        assert caught.value.backend == "torchcodec"
        assert caught.value.reason == "No module named 'torchcodec'"
        assert caught.value.remedy.startswith("Install it with: pip install")

    def test_a_missing_model_keeps_all_places(self):
        with pytest.raises(ModelNotFoundError) as caught:
            open_engine("embedded:no-such-model")
        assert caught.value.model == "no-such-model"
        assert len(caught.value.tried) == 4
