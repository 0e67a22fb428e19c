"""What an engine's address says: which servers, which model, and how to ask them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from engine_bridge.errors import EngineSpecError

TRANSCRIPTIONS = "transcriptions"
CHAT = "chat"

_FORM = "use http://HOST:PORT/v1#MODEL, with several addresses separated by commas"


@dataclass(frozen=True)
class HttpSpec:
    """An engine's address, taken apart.

    Attributes
    ----------
    endpoints : tuple of str
        The servers' base addresses, such as "http://host:8000/v1", each once and without a slash at the end.
    model : str or None
        The model's name on the servers; None where the address names none.
    settings : dict
        Keyword arguments of the engine, by the address's query.

    """

    endpoints: tuple[str, ...]
    model: str | None
    settings: Mapping[str, Any]


def parse_http_spec(spec: str | Sequence[str]) -> HttpSpec:
    """Take an engine's address apart.

    Parameters
    ----------
    spec : str or sequence of str
        ``http://host:8000/v1#model``; several servers as ``http://a:8000/v1,http://b:8000/v1#model`` or as a sequence,
        whose last item may name the model. Without a path, ``/v1`` is meant. Settings come before the model, as in
        ``http://host:8000/v1?api=chat&clip=20#model``: ``api`` (transcriptions or chat), ``clip`` (longest clip in
        seconds), ``deadline`` (seconds), ``concurrency``, ``languages`` (codes with ``+`` between them).

    Raises
    ------
    EngineSpecError
        An address is none, holds a password, or a setting is not known.

    """
    text = spec if isinstance(spec, str) else ",".join(spec)
    addresses, _, model = text.partition("#")
    addresses, _, query = addresses.partition("?")
    endpoints = tuple(dict.fromkeys(_endpoint(each.strip(), text) for each in addresses.split(",") if each.strip()))
    if not endpoints:
        raise EngineSpecError(f"engine {text!r} names no server: {_FORM}")
    return HttpSpec(endpoints, model.strip() or None, _settings(query, text))


def _endpoint(address: str, spec: str) -> str:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise EngineSpecError(f"engine {spec!r} has an address that cannot be read ({address!r}): {_FORM}") from None
    if parts.username is not None or parts.password is not None:
        raise EngineSpecError(
            "the engine's address holds a name or a password, which transcripts would carry on: "
            "put the server's key into the environment variable AURICLE_API_KEY"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise EngineSpecError(f"engine {spec!r} has an address without a server ({address!r}): {_FORM}")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/') or '/v1'}"


def _settings(query: str, spec: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _READERS:
            raise EngineSpecError(f"engine {spec!r} has no setting {name!r}: use {', '.join(_READERS)}")
        keyword, read = _READERS[name]
        try:
            settings[keyword] = read(value)
        except ValueError:
            raise EngineSpecError(f"engine {spec!r}: {value!r} is no value for {name}") from None
    return settings


def _api(value: str) -> str:
    if value not in (TRANSCRIPTIONS, CHAT):
        raise ValueError(value)
    return value


def _languages(value: str) -> tuple[str, ...]:
    # A plus sign in a query is read as a space.
    codes = tuple(dict.fromkeys(value.split()))
    if not codes:
        raise ValueError(value)
    return codes


def _above_zero(read: Callable[[str], float]) -> Callable[[str], float]:
    def checked(value: str) -> float:
        number = read(value)
        if not 0 < number < float("inf"):
            raise ValueError(value)
        return number

    return checked


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "api": ("api", _api),
    "clip": ("max_clip_seconds", _above_zero(float)),
    "concurrency": ("max_concurrency", _above_zero(int)),
    "deadline": ("deadline_seconds", _above_zero(float)),
    "languages": ("languages", _languages),
}
