"""What tells whether work that was done before is the work that is asked for."""

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audio.source import Source

if TYPE_CHECKING:
    from engine_bridge.journal import Journal

_FORM = "auricle recording 1"  # changes with what the fingerprint is made of
_WITHOUT_EFFECT = ("isolation",)  # settings that no transcript depends on


def recording_fingerprint(content: bytes, settings: Mapping[str, Any], engine: str) -> str:
    """Return a text that is the same exactly where a transcript made before is the one asked for.

    Parameters
    ----------
    content : bytes
        The hash of the recording's content: see `Journal.content_digest`.
    settings : mapping
        The options of `stream_transcript` that it is made with, source, engine and `on_progress` left out.
    engine : str
        Which engine, by `engine_identity`.

    Returns
    -------
    str
        64 hexadecimal digits. This package's version is part of what they stand for.

    """
    telling = {name: value for name, value in settings.items() if name not in _WITHOUT_EFFECT}
    parts = [_FORM, package_version(), content.hex(), engine, telling]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=_plain).encode()).hexdigest()


def engine_identity(spec: str, journal: "Journal") -> str:
    """Return a text that tells engines apart: the specification, and the files of a model that lies on this machine.

    What a server runs behind an address is not known here; only its address and the model's name count.

    Parameters
    ----------
    spec : str
        The engine's specification.
    journal : Journal
        Remembers the hashes of files.

    Raises
    ------
    ModelNotFoundError
        If no place holds the model of an embedded engine.

    """
    folder = _model_folder(spec)
    files = [] if folder is None else sorted(path for path in folder.iterdir() if path.is_file())
    hashes = [(path.name, journal.content_digest(Source.of(path)).hex()) for path in files if path.stat().st_size > 0]
    return json.dumps([spec, hashes])


@cache
def package_version() -> str:
    """Return this package's version; "source" where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("auricle")
    except PackageNotFoundError:
        return "source"


def _model_folder(spec: str) -> Path | None:
    from engine_bridge.engines.model_files import DEFAULT_MODEL, locate_model

    kind, _, model = spec.partition(":")
    if kind == "embedded":
        return locate_model(model or DEFAULT_MODEL)
    if kind == "vllm":
        folder = Path(model.partition("?")[0])
        return folder if folder.is_dir() else None
    return None


def _plain(value: object) -> object:
    """Return what stands for a setting in JSON."""
    return value.value if isinstance(value, Enum) else repr(value)
