"""Engines by specification."""

import inspect
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from engine_bridge.engines.model_files import DEFAULT_MODEL
from engine_bridge.engines.protocol import Engine
from engine_bridge.errors import EngineSpecError

DEFAULT_SPEC = f"embedded:{DEFAULT_MODEL}"
"""The engine used when none is named."""


def open_engine(spec: str = DEFAULT_SPEC, **engine_args: Any) -> Engine:
    """Open an engine.

    Parameters
    ----------
    spec : str
        ``embedded`` or ``embedded:MODEL``, where MODEL is a name such as ``tiny.en``, a folder with a CTranslate2
        model, or a hub repository ``owner/name``. ``http://HOST:PORT/v1#MODEL``, also with ``https`` and with several
        addresses separated by commas, is a model on OpenAI-compatible servers: see `HttpEngine`. ``vllm:MODEL``, with a
        folder in Hugging Face's layout, a hub repository or a size of Whisper, is a model in vLLM in this process: see
        `VllmEngine`. Settings may follow it: ``vllm:large-v3-turbo?max_num_seqs=64&dtype=float16``.
    **engine_args
        What the engine's class takes by name, such as ``device`` and ``compute_type`` of `EmbeddedEngine`,
        ``max_concurrency`` of `HttpEngine`, or any argument of vLLM's own engine.

    Raises
    ------
    EngineSpecError
        If the specification cannot be understood, or the engine takes no argument of a name.
    ModelNotFoundError
        If no place holds the model.
    EngineUnavailableError
        If the engine cannot load here.

    """
    if spec.startswith(("http://", "https://")):
        from engine_bridge.engines.http_engine import HttpEngine

        return HttpEngine(spec, **_known(spec, HttpEngine, engine_args))
    kind, separator, model = spec.partition(":")
    if kind == "embedded" and not (separator and not model):
        from engine_bridge.engines.embedded import EmbeddedEngine

        return EmbeddedEngine(model or DEFAULT_MODEL, **_known(spec, EmbeddedEngine, engine_args))
    if kind == "vllm" and model.partition("?")[0]:
        from engine_bridge.engines.vllm_engine import VllmEngine

        name, settings = _settings(model)
        return VllmEngine(name, **{**settings, **engine_args})
    raise EngineSpecError(
        f"engine {spec!r} is not understood: use embedded:MODEL with a model name, a folder or a hub repository, "
        f"for example {DEFAULT_SPEC}, vllm:MODEL for vLLM in this process, or http://HOST:PORT/v1#MODEL for a server"
    )


def _settings(model: str) -> tuple[str, dict[str, Any]]:
    """Return a model's name and the settings behind its question mark, each a number, true, false, or text."""
    name, _, query = model.partition("?")
    settings: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return name, settings


def _known(spec: str, engine: type, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an engine's arguments, if it takes them all; vLLM tells by itself which are its own."""
    takes = [
        name
        for name, parameter in inspect.signature(engine).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for name in arguments:
        if name not in takes:
            raise EngineSpecError(f"{spec} takes no argument {name!r}: it takes {', '.join(sorted(takes))}")
    return arguments
