"""The families of audio models, by the architecture that a model's configuration names."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TypeVar

from engine_bridge.errors import EngineBridgeError, EngineUnavailableError
from engine_bridge.models.dummy import AudioDummyInputs
from engine_bridge.models.info import AudioModelInfo, ModelFiles
from engine_bridge.models.inputs import AudioProcessor, PromptTokenizer

ENTRY_POINTS = "auricle.audio_models"
"""The group of entry points by which installed packages register families: each names a module to import."""

InfoFactory = Callable[[ModelFiles], AudioModelInfo]
"""Tells what a model takes and gives by its configuration."""

ProcessorFactory = Callable[[AudioModelInfo, ModelFiles, PromptTokenizer | None], AudioProcessor]
"""Makes a model's processor. The tokenizer is the engine's own; None where only the model's files are at hand, and a
family that cannot do without says so."""

DummyInputsFactory = Callable[[AudioModelInfo, AudioProcessor], AudioDummyInputs]
"""Makes what builds a model's largest inputs."""

_Family = TypeVar("_Family", bound=ProcessorFactory)

_FAMILIES = (
    "whisper",
    "qwen2_audio",
    "qwen2_5_omni",
    "qwen3_omni",
    "qwen3_asr",
    "ultravox",
    "voxtral",
    "cohere_asr",
    "fireredasr2",
    "funasr",
    "gemma3n",
    "glmasr",
    "granite_speech",
    "kimi_audio",
    "moss_transcribe",
)
"""The modules beside this one that register a family each."""


@dataclass(frozen=True)
class AudioModel:
    """A family, found by one of its architectures.

    Attributes
    ----------
    architecture : str
        As in a configuration's "architectures".
    info, processor, dummy_inputs : callable
        The family's three factories.

    """

    architecture: str
    info: InfoFactory
    processor: ProcessorFactory
    dummy_inputs: DummyInputsFactory

    def describe(self, files: ModelFiles | None = None) -> AudioModelInfo:
        """Return what a model of this family takes and gives; without files, what the family's usual one does."""
        return self.info(files or ModelFiles(self.architecture, {"architectures": [self.architecture]}))


_models: dict[str, AudioModel] = {}
_loaded: set[str] = set()


def register_audio_model(
    architecture: str | Iterable[str],
    *,
    info: InfoFactory,
    processor: ProcessorFactory | None = None,
    dummy_inputs: DummyInputsFactory = AudioDummyInputs,
) -> Callable[[_Family], _Family]:
    """Register a family of audio models; decorates the family's processor.

    Parameters
    ----------
    architecture : str or iterable of str
        The architectures that the family's configurations name.
    info, processor, dummy_inputs : callable
        The family's factories: see `InfoFactory`, `ProcessorFactory` and `DummyInputsFactory`. Without a `processor`
        it is what is decorated.

    Raises
    ------
    ValueError
        If another family has registered one of the architectures.

    """
    names = (architecture,) if isinstance(architecture, str) else tuple(architecture)

    def register(family: _Family) -> _Family:
        for name in names:
            model = AudioModel(name, info, processor or family, dummy_inputs)
            if name in _models:
                raise ValueError(f"the architecture {name!r} is registered twice: rename one, or remove one package")
            _models[name] = model
        return family

    return register


def audio_models() -> Mapping[str, AudioModel]:
    """Return all families by architecture: those of this package, then those of installed packages.

    Raises
    ------
    EngineBridgeError
        If an installed package's families cannot be imported; the message names the package.

    """
    for family in _FAMILIES:
        importlib.import_module(f"engine_bridge.models.{family}")
    for point in entry_points(group=ENTRY_POINTS):
        if point.value in _loaded:
            continue
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else point.value
            raise EngineBridgeError(
                f"{package}: its audio models cannot be registered ({type(error).__name__}: {error}); "
                "update or remove the package"
            ) from error
        _loaded.add(point.value)
    return MappingProxyType(dict(_models))


def find_audio_model(files: ModelFiles) -> AudioModel:
    """Return the family of a model.

    Raises
    ------
    EngineUnavailableError
        If no family has registered any of its architectures.

    """
    known = audio_models()
    for name in files.architectures:
        if name in known:
            return known[name]
    named = ", ".join(files.architectures) or "none"
    raise EngineUnavailableError(
        f"{files.name}: its architecture ({named}) is no audio model known here; see: auricle models"
    )
