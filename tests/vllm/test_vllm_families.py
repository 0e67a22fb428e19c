"""The registry of audio models against what the installed vLLM itself lists."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine_bridge.models import audio_models

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

NOT_TRANSCRIBING = {
    "Qwen2AudioForConditionalGeneration",
    "Qwen2_5OmniModel",
    "Qwen2_5OmniForConditionalGeneration",
    "UltravoxModel",
}
"""Families that vLLM runs and that we prompt to transcribe, though it does not list them as transcription models."""

OTHER_NAMES = {"KimiAudioForConditionalGeneration"}
"""Architectures of published configurations that vLLM knows by another name."""


@pytest.fixture(scope="module")
def models_folder():
    pytest.importorskip("vllm.version", reason="vLLM is not installed; see .ci/vllm-environment")
    return Path(find_spec("vllm").submodule_search_locations[0]) / "model_executor" / "models"


@pytest.fixture(scope="module")
def registered(models_folder):
    """Return vLLM's architectures with the module and class of each."""
    from vllm.model_executor.models import registry

    return dict(registry._VLLM_MODELS)


@pytest.fixture(scope="module")
def classes(models_folder):
    """Return the source of each model class by its name, read without importing a hundred modules."""
    found = {}
    for path in models_folder.glob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        found |= {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    return found


def ancestors(name, classes):
    bases = classes[name].bases if name in classes else ()
    return {name}.union(*(ancestors(base.id, classes) for base in bases if isinstance(base, ast.Name)))


def classifies(name, classes):
    """Tell whether a class gives classes or vectors: it has a transcribing parent's encoder, and writes no text."""
    return any("is_pooling_model = True" in ast.unparse(part) for part in classes[name].body)


def test_every_transcription_model_of_vllm_has_a_family_here(registered, classes):
    listed = {
        architecture
        for architecture, (_, name) in registered.items()
        if "SupportsTranscription" in ancestors(name, classes) and not classifies(name, classes)
    }
    # Those take a stream of audio in a session of its own, not clips.
    realtime = {
        architecture for architecture in listed if "SupportsRealtime" in ancestors(registered[architecture][1], classes)
    }
    assert "WhisperForConditionalGeneration" in listed
    assert listed - realtime == set(audio_models()) - NOT_TRANSCRIBING - OTHER_NAMES


def test_every_family_here_is_one_that_vllm_runs(registered):
    assert set(audio_models()) - OTHER_NAMES <= set(registered)
    assert set(registered) >= NOT_TRANSCRIBING


ARCHITECTURES = sorted(set(audio_models()) - NOT_TRANSCRIBING - OTHER_NAMES)


def languages_of(path, name):
    """Return the languages of a model class, from its source where it names a list: not every model imports here."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    (own,) = (node for node in body if isinstance(node, ast.ClassDef) and node.name == name)
    assigned = [node for node in own.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    (value,) = (node.value for node in assigned if "supported_languages" in ast.unparse(node).split("=")[0])
    if not isinstance(value, ast.Name):
        return set(getattr(import_module(f"vllm.model_executor.models.{path.stem}"), name).supported_languages)
    for node in body:
        if isinstance(node, ast.Assign) and node.targets[0].id == value.id:
            return set(ast.literal_eval(node.value))
    from vllm.model_executor.models import whisper_utils

    return set(getattr(whisper_utils, value.id))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_its_languages_are_those_that_vllm_takes(registered, models_folder, architecture):
    module, name = registered[architecture]
    theirs = languages_of(models_folder / f"{module}.py", name)
    ours = set(audio_models()[architecture].describe().languages)
    if architecture == "WhisperForConditionalGeneration":
        # The models know more than vLLM's list, which is that of OpenAI's API; it takes those with a warning.
        assert ours > theirs
    else:
        assert ours == theirs
