"""Engines by specification."""

from engine_bridge.engines.model_files import DEFAULT_MODEL
from engine_bridge.engines.protocol import Engine
from engine_bridge.errors import EngineSpecError

DEFAULT_SPEC = f"embedded:{DEFAULT_MODEL}"
"""The engine used when none is named."""


def open_engine(spec: str = DEFAULT_SPEC) -> Engine:
    """Open an engine.

    Parameters
    ----------
    spec : str
        ``embedded`` or ``embedded:MODEL``, where MODEL is a name such as ``tiny.en``, a folder with a CTranslate2
        model, or a hub repository ``owner/name``. ``http://HOST:PORT/v1#MODEL``, also with ``https`` and with several
        addresses separated by commas, is a model on OpenAI-compatible servers: see `HttpEngine`.

    Raises
    ------
    EngineSpecError
        If the specification cannot be understood.
    ModelNotFoundError
        If no place holds the model.
    EngineUnavailableError
        If the engine cannot load here.

    """
    if spec.startswith(("http://", "https://")):
        from engine_bridge.engines.http_engine import HttpEngine

        return HttpEngine(spec)
    kind, separator, model = spec.partition(":")
    if kind == "embedded" and not (separator and not model):
        from engine_bridge.engines.embedded import EmbeddedEngine

        return EmbeddedEngine(model or DEFAULT_MODEL)
    raise EngineSpecError(
        f"engine {spec!r} is not understood: use embedded:MODEL with a model name, a folder or a hub repository, "
        f"for example {DEFAULT_SPEC}, or http://HOST:PORT/v1#MODEL for a server"
    )
