"""What is known of an audio model before it runs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from audio.channels import AudioSpec
from engine_bridge.engines.protocol import TRANSCRIBE
from engine_bridge.errors import EngineUnavailableError


@dataclass(frozen=True)
class AudioModelInfo:
    """What a model takes and gives.

    Attributes
    ----------
    family : str
        The family's name, for people.
    sample_rate : int
        Samples per second of the waveforms it takes.
    audio_spec : AudioSpec
        The channels it takes.
    max_clip_seconds : float
        The longest waveform that is recognised as one item.
    languages : tuple of str
        ISO 639-1 codes it is documented to recognise; one that speaks only English has ("en",).
    tasks : tuple of str
        "transcribe", and "translate" where it can translate into English.
    audio_tokens_per_second : float
        Positions that a second of audio takes, in the encoder's output or in the prompt.
    padded_to_seconds : float or None
        Audio is padded to a multiple of this before it is encoded; None where it is not.
    items_per_prompt : int or None
        The most waveforms that one prompt takes; None for as many as fit.
    encoder_decoder : bool
        Whether audio goes to an encoder of its own and takes no room in the prompt.
    timestamps : bool
        Whether it can write the times of its segments.
    detects_language : bool
        Whether the language of a clip can be told from one decoding step.
    hidden_size : int or None
        Width of the audio encoder's states, where the configuration tells it.
    context_tokens : int or None
        The longest prompt and text together, where the configuration tells it.

    """

    family: str
    sample_rate: int
    audio_spec: AudioSpec
    max_clip_seconds: float
    languages: tuple[str, ...]
    audio_tokens_per_second: float
    tasks: tuple[str, ...] = (TRANSCRIBE,)
    padded_to_seconds: float | None = None
    items_per_prompt: int | None = 1
    encoder_decoder: bool = False
    timestamps: bool = False
    detects_language: bool = False
    hidden_size: int | None = None
    context_tokens: int | None = None

    def audio_tokens(self, seconds: float) -> int:
        """Return how many positions a waveform takes, rounded up."""
        if self.padded_to_seconds is not None:
            seconds = self.padded_to_seconds * max(1, ceil(seconds / self.padded_to_seconds))
        return ceil(seconds * self.audio_tokens_per_second)


@dataclass(frozen=True)
class ModelFiles:
    """The configuration files of one model in Hugging Face's layout.

    Attributes
    ----------
    name : str
        How the model was asked for, for messages.
    config, generation_config, preprocessor_config : mapping
        The contents of the JSON files of these names; the latter two are empty where a model has none.
    folder : Path or None
        Where they lie, with ``tokenizer.json`` beside them; None for a configuration made up in memory.

    """

    name: str
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    preprocessor_config: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @classmethod
    def read(cls, folder: Path, name: str | None = None) -> "ModelFiles":
        """Read a model's folder.

        Parameters
        ----------
        folder : Path
            With ``config.json``, or Mistral's ``params.json`` instead.
        name : str or None
            How the model was asked for; None for the folder's own path.

        Raises
        ------
        EngineUnavailableError
            If the folder has no configuration, or one that cannot be read.

        """
        name = name or str(folder)
        config = _json(folder / "config.json", name)
        if not config and _json(folder / "params.json", name):
            config = {"architectures": ["VoxtralForConditionalGeneration"], **_json(folder / "params.json", name)}
        if not config:
            raise EngineUnavailableError(
                f"{name}: {folder} holds no config.json, so it is no model in Hugging Face's layout; download it again"
            )
        return cls(
            name,
            config,
            _json(folder / "generation_config.json", name),
            _json(folder / "preprocessor_config.json", name),
            folder,
        )

    @property
    def architectures(self) -> tuple[str, ...]:
        """The names of the model's classes, as its configuration lists them."""
        return tuple(self.config.get("architectures") or ())

    def setting(self, *path: str, default: Any) -> Any:
        """Return a value of the configuration by its keys from the outermost on, or the default where one is absent."""
        value: Any = self.config
        for key in path:
            if not isinstance(value, Mapping) or value.get(key) is None:
                return default
            value = value[key]
        return value


def _json(path: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineUnavailableError(f"{name}: {path} cannot be read ({error}); download the model again") from error
    return content if isinstance(content, dict) else {}
