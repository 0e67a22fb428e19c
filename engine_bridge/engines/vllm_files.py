"""The configuration of a model that vLLM is to load: a folder, the hub's local cache, or the hub."""

import os
from pathlib import Path

from engine_bridge.errors import ModelNotFoundError
from engine_bridge.models.info import ModelFiles

_REMEDY = "Name a folder with a model in Hugging Face's layout, or a repository that the hub has."
_PATTERNS = ["*.json", "*.model", "*.txt", "*.jinja"]  # not the weights, which vLLM fetches itself


def is_folder(model: str) -> bool:
    """Tell whether a model is named by a folder."""
    return Path(model).expanduser().is_dir()


def repository_of(model: str) -> str:
    """Return the hub repository of a model name: OpenAI's for Whisper's sizes, otherwise the name itself."""
    return model if "/" in model else f"openai/whisper-{model}"


def read_model_files(model: str) -> ModelFiles:
    """Return a model's configuration.

    Parameters
    ----------
    model : str
        A folder in Hugging Face's layout, a hub repository "owner/name", or a size of Whisper such as "large-v3-turbo".

    Raises
    ------
    ModelNotFoundError
        If none of the places holds it.
    EngineUnavailableError
        If what is there is no model.

    """
    if is_folder(model):
        return ModelFiles.read(Path(model).expanduser(), model)
    if model.startswith(("/", ".", "~")):
        raise ModelNotFoundError(model, ("no folder of that name",), _REMEDY)
    repository = repository_of(model)
    tried = ["no folder of that name"]
    for local_only in (True, False):
        if not local_only and os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
            tried.append("the hub was not asked because HF_HUB_OFFLINE is set")
            continue
        try:
            return ModelFiles.read(_snapshot(repository, local_only=local_only), model)
        except (OSError, ValueError, RuntimeError) as error:
            where = "the hub's local cache does not hold" if local_only else "the hub could not give"
            reason = "" if local_only else f" ({type(error).__name__}: {str(error).splitlines()[0]})"
            tried.append(f"{where} {repository}{reason}")
    raise ModelNotFoundError(model, tuple(tried), _REMEDY)


def _snapshot(repository: str, *, local_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repository, allow_patterns=_PATTERNS, local_files_only=local_only))
