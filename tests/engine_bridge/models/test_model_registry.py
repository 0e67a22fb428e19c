"""The registry of audio models: how families join, how a model finds its own, and what importing it costs."""

import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from audio.channels import AudioSpec
from engine_bridge.errors import EngineBridgeError, EngineUnavailableError
from engine_bridge.models import (
    AudioModelInfo,
    ModelFiles,
    audio_models,
    find_audio_model,
    register_audio_model,
    registry,
)

INFO = AudioModelInfo(
    family="Parrot",
    sample_rate=24_000,
    audio_spec=AudioSpec(target_channels=None),
    max_clip_seconds=12.0,
    languages=("en",),
    audio_tokens_per_second=10.0,
)


class ParrotProcessor:
    def __init__(self, info, files, tokenizer):
        self.made_of = (info, files, tokenizer)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Let a test register families that the next one does not see."""
    audio_models()
    monkeypatch.setattr(registry, "_models", dict(registry._models))
    monkeypatch.setattr(registry, "_loaded", set(registry._loaded))


def test_a_family_joins_by_decorating_its_processor():
    decorated = register_audio_model("ParrotForSpeech", info=lambda files: INFO)(ParrotProcessor)
    assert decorated is ParrotProcessor
    files = ModelFiles("parrot", {"architectures": ["SomethingElse", "ParrotForSpeech"]})
    model = find_audio_model(files)
    info = model.describe(files)
    assert info is INFO
    assert model.processor(info, files, None).made_of == (INFO, files, None)


def test_a_family_may_bring_each_factory_by_itself():
    class Inputs:
        def __init__(self, info, processor):
            self.made_of = (info, processor)

    def make_processor(info, files, tokenizer):
        return ParrotProcessor(info, files, tokenizer)

    register_audio_model(
        ["ParrotA", "ParrotB"],
        info=lambda files: replace(INFO, family=files.name),
        processor=make_processor,
        dummy_inputs=Inputs,
    )(ParrotProcessor)
    for name in ("ParrotA", "ParrotB"):
        model = audio_models()[name]
        info = model.describe()
        assert info.family == name
        processor = model.processor(info, ModelFiles(name, {}), None)
        assert model.dummy_inputs(info, processor).made_of == (info, processor)


def test_no_architecture_is_registered_twice():
    with pytest.raises(ValueError, match="WhisperForConditionalGeneration"):
        register_audio_model("WhisperForConditionalGeneration", info=lambda files: INFO)(ParrotProcessor)


def test_a_model_of_no_known_family_is_refused_with_what_it_is_and_where_to_look():
    with pytest.raises(EngineUnavailableError, match=r"acme/bert: .*BertModel.*auricle models"):
        find_audio_model(ModelFiles("acme/bert", {"architectures": ["BertModel"]}))


def test_installed_packages_join_by_entry_point(monkeypatch):
    module = SimpleNamespace()
    loads = []

    def load(point):
        loads.append(point.value)
        register_audio_model("ParrotForSpeech", info=lambda files: INFO)(ParrotProcessor)
        return module

    point = EntryPoint("parrot", "parrot_package.models", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.ENTRY_POINTS else [])
    monkeypatch.setattr(EntryPoint, "load", load)
    assert audio_models()["ParrotForSpeech"].describe() is INFO
    audio_models()
    assert loads == ["parrot_package.models"]


def test_a_package_whose_families_do_not_import_is_named(monkeypatch):
    point = EntryPoint("broken", "no_such_package_here", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    with pytest.raises(EngineBridgeError, match=r"no_such_package_here.*ModuleNotFoundError.*remove the package"):
        audio_models()


def test_importing_the_families_imports_neither_torch_nor_vllm():
    code = (
        "import sys\nfrom engine_bridge.models import audio_models\nfound = audio_models()\n"
        "assert 'WhisperForConditionalGeneration' in found\n"
        "heavy = {'torch', 'vllm', 'transformers', 'scipy', 'av', 'ctranslate2', 'tokenizers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"


class TestModelFiles:
    def test_a_folder_is_read_with_what_it_has(self, tmp_path):
        (tmp_path / "config.json").write_text('{"architectures": ["A"], "text_config": {"hidden_size": 5}}')
        files = ModelFiles.read(tmp_path)
        assert files.architectures == ("A",)
        assert files.generation_config == {}
        assert files.setting("text_config", "hidden_size", default=None) == 5
        assert files.setting("text_config", "depth", default=3) == 3
        assert files.setting("hidden_size", "width", default=7) == 7

    def test_mistrals_layout_is_read(self, tmp_path):
        (tmp_path / "params.json").write_text('{"dim": 3072}')
        files = ModelFiles.read(tmp_path, "mistralai/Voxtral")
        assert find_audio_model(files).describe(files).hidden_size == 3072

    @pytest.mark.parametrize("content", [None, "{not json"])
    def test_a_folder_without_a_readable_configuration_is_refused(self, tmp_path, content):
        if content:
            (tmp_path / "config.json").write_text(content)
        with pytest.raises(EngineUnavailableError, match=r"acme/parrot: .*download"):
            ModelFiles.read(tmp_path, "acme/parrot")
