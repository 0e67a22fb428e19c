"""What a server's answer means: a result, a refusal, a limit to learn, or a reason to ask again."""

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

_MIB = 1 << 20
_TEXT_SHOWN = 300  # characters of a server's message that an error carries

_SIZE = re.compile(
    r"(file|content|body|request|payload|entity|upload|audio)[\s_]*(\w+\s){0,2}(size|too large|is larger)"
)
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(bytes?|kib|kb|mib|mb|m)\b|limit\D{0,12}\((\d+)\)")
_UNITS = {"byte": 1, "bytes": 1, "kb": 1000, "kib": 1024, "m": _MIB, "mb": _MIB, "mib": _MIB}
_LENGTH = re.compile(r"\b(duration|longer than|too long|seconds? of audio|audio length|clip length)\b")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(?:s|sec|secs|seconds?)\b")
_TOKENS = re.compile(r"\btokens?\b|context[ _]length|decoder prompt|max_model_len")
_FORMAT = re.compile(r"\b(audio|file|input) (file )?format\b|unsupported (media|audio|file)|format.{0,30}not supported")


class Refused(Exception):  # noqa: N818 - what the server did, not an error of this program
    """The server will not do it, now or later.

    Attributes
    ----------
    status : int
        The HTTP status.

    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class WrongFormat(Refused):
    """The server does not read audio in this format."""


class TooMuch(Refused):
    """The clip or its prompt is more than the server takes.

    Attributes
    ----------
    seconds : float or None
        The longest clip that the server says it takes.
    size : int or None
        The largest file that the server says it takes, in bytes.
    is_tokens : bool
        Whether tokens are too many, so that a shorter prompt helps as well.

    """

    def __init__(
        self,
        message: str,
        status: int,
        *,
        seconds: float | None = None,
        size: int | None = None,
        is_tokens: bool = False,
    ) -> None:
        super().__init__(message, status)
        self.seconds = seconds
        self.size = size
        self.is_tokens = is_tokens


class Busy(Exception):  # noqa: N818 - see above
    """The server cannot do it now.

    Attributes
    ----------
    pause : float or None
        Seconds to leave it alone, if it says so.

    """

    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


class Failed(Exception):  # noqa: N818 - see above
    """The server tried and failed, on this request or on any."""


BUSY_STATUSES = frozenset({408, 429, 502, 503, 504})
"""Statuses that say nothing about the request: 408 and 429 by RFC 9110 and RFC 6585, the others from proxies too."""


def read_answer(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the JSON object that a server answered with.

    Parameters
    ----------
    status : int
        The HTTP status.
    headers : mapping
        The answer's headers; found whatever their case.
    body : bytes
        The answer's body.

    Raises
    ------
    Busy
        408, 429, 502, 503 or 504: to be tried again after a pause.
    Failed
        Another 5xx.
    TooMuch, WrongFormat, Refused
        Any other status than 2xx; or 2xx with a body that says error, is empty or is no JSON object.

    """
    if status in BUSY_STATUSES:
        raise Busy(f"answered {status}: {_message_of(_parsed(body), body)}", retry_after(headers))
    if status >= 500:
        raise Failed(f"answered {status}: {_message_of(_parsed(body), body)}")
    document = _parsed(body)
    if not 200 <= status < 300:
        raise _refusal(status, _message_of(document, body))
    if document is None:
        raise Refused(f"answered {status} with {_shown(body)} instead of a JSON object", status)
    told = _error_in(document)
    if told is not None:
        raise _refusal(status, f"an error under this status: {told}")
    return document


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _error_in(document: dict[str, Any]) -> str | None:
    """Return what a body says went wrong, in any of the forms servers use, or None."""
    error = document.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error)
    if error:
        return str(error)
    if document.get("object") == "error":
        return str(document.get("message") or document)
    if "detail" in document and not {"text", "choices", "data"} & document.keys():
        return str(document["detail"])
    return None


def _message_of(document: dict[str, Any] | None, body: bytes) -> str:
    told = _error_in(document) if document is not None else None
    return _cut(told) if told else _shown(body)


def _shown(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    return repr(_cut(text)) if text else "an empty body"


def _cut(text: str) -> str:
    """Return a server's words on one line, without what a terminal would obey, and not too long."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 4 * _TEXT_SHOWN]).split())
    return line if len(line) <= _TEXT_SHOWN else line[:_TEXT_SHOWN] + "…"


def _refusal(status: int, message: str) -> Refused:
    """Return the refusal that a message amounts to."""
    text, told = message.casefold(), f"answered {status}: {message}"
    if _TOKENS.search(text):
        return TooMuch(told, status, is_tokens=True)
    if _LENGTH.search(text):
        # "1600 seconds is longer than 1500 seconds": the smaller one is the limit.
        named = [float(number) for number in _SECONDS.findall(text)]
        return TooMuch(told, status, seconds=min((each for each in named if each > 0), default=None))
    if status == 413 or _SIZE.search(text):
        return TooMuch(told, status, size=_least_size(text))
    if status == 415 or _FORMAT.search(text):
        return WrongFormat(told, status)
    return Refused(told, status)


def _least_size(text: str) -> int | None:
    sizes = [int(plain) if plain else int(float(number) * _UNITS[unit]) for number, unit, plain in _BYTES.findall(text)]
    return min((size for size in sizes if size > 0), default=None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that Retry-After asks for, in either of its forms (RFC 9110, 10.2.3)."""
    value = next((text for name, text in headers.items() if name.casefold() == "retry-after"), "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
