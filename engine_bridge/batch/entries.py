"""One entry of a manifest or table, as a recording: the columns that are known, and what each may hold."""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from audio.errors import ChannelLayoutError
from audio.mixing import check_choice
from audio.source import AudioSource
from engine_bridge.batch.names import Names, name_of_part, name_of_source, name_problem
from engine_bridge.batch.recording import Recording
from engine_bridge.errors import ManifestError

KNOWN_COLUMNS = ("id", "path", "language", "channels", "track", "from", "to", "priority")
"""The columns of an entry as they are written. Reading, ``url`` and ``audio`` stand for ``path`` as well, and
``channel`` for ``channels``."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})

_ALIASES = {name: name for name in KNOWN_COLUMNS} | {"url": "path", "audio": "path", "channel": "channels"}


def recording_of(
    entry: Mapping[str, Any],
    *,
    base: str,
    names: Names,
    audio: AudioSource | None = None,
    default_id: str = "",
    carried: Mapping[str, Any] = _NOTHING,
) -> Recording:
    """Return the recording that an entry stands for, under an id that is free.

    Parameters
    ----------
    entry : mapping
        Columns by name; case does not matter for those that are known.
    base : str
        The folder, or the address of one, that its path is relative to.
    names : Names
        The ids that are taken.
    audio : source, optional
        The audio itself, where it does not lie at a path.
    default_id : str
        What it is called where neither an id nor a path is given.
    carried : mapping
        What is carried on besides, whatever its names.

    Raises
    ------
    ManifestError
        A value cannot be understood, there is no audio, or the id is taken.

    """
    known, extra = _parted(entry)
    path = _path(known.get("path"))
    if audio is None and path is None:
        raise ManifestError("the entry names no audio; give it a path, url or audio")
    start, stop = _seconds(known.get("from"), "from"), _seconds(known.get("to"), "to")
    if stop is not None and stop <= (start or 0.0):
        raise ManifestError(f"to is {stop:g} s, not after from, {start or 0.0:g} s; the range holds nothing")
    found = Recording(
        "",
        audio if audio is not None else _joined(base, path or ""),
        language=_text(known.get("language"), "language"),
        channels=_channels(known.get("channels")),
        track=_track(known.get("track")),
        from_seconds=start,
        to_seconds=stop,
        priority=_priority(known.get("priority")),
        extra={**carried, **extra},
    )
    chosen = _identifier(known.get("id"))
    if chosen is None:
        name = names.unique(name_of_part(name_of_source(path) if path else default_id, found))
    elif not names.claim(chosen):
        raise ManifestError(f"the id {chosen!r} is that of an earlier recording; give each its own")
    else:
        name = chosen
    return Recording(**{**vars(found), "id": name})


def _parted(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the known columns that hold something, by their names here, and the others."""
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for column, value in entry.items():
        name = _ALIASES.get(column.lower())
        if name is None:
            extra[column] = value
        elif value is not None and value != "":
            if name in known:
                raise ManifestError(f"{column!r} says again what another column says; leave one of them out")
            known[name] = value
    return known, extra


def _identifier(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ManifestError(f"the id is {value!r}; give text or a whole number")
    text = str(value)
    problem = name_problem(text)
    if problem is not None:
        raise ManifestError(f"the id {text!r} {problem}; outputs are named by it, so give one that can name a file")
    return text


def _path(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("path")
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value or not value.strip():
        raise ManifestError(f"the path is {value!r}; give a path or an address as text")
    return value


def _joined(base: str, path: str) -> str:
    """Return a path or address, relative to where the entry stands."""
    if "://" in path:
        return path
    if "://" in base:
        # Stores of objects take names as they are: ".." has to be gone before they see it.
        scheme, _, place = base.partition("://")
        host, _, folder = place.partition("/")
        return f"{scheme}://{host}{posixpath.normpath(posixpath.join('/', folder, path))}"
    return os.path.join(base, path)  # noqa: PTH118 - the path as it is written


def _text(value: object, column: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ManifestError(f"{column} is {value!r}; give text")
    return value.strip() or None


def _channels(value: object) -> str | int | None:
    if isinstance(value, str):
        value = value.strip().lower()
        value = int(value) if value.isdecimal() else value
    if value is None or value == "each":
        return value
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        try:
            check_choice(value)
        except ChannelLayoutError:
            pass
        else:
            return value
    raise ManifestError(
        f"channels is {value!r}; give mean, first, max, sum, left, right, each, or a channel's number from 0"
    )


def _track(value: object) -> int | str | None:
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.isdecimal() else text or None
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ManifestError(f"track is {value!r}; give a track's number from 0, or a language such as de")


def _seconds(value: object, column: str) -> float | None:
    """Return a time in seconds, from a number or a text such as 90, 1:30 or 1:02:03.5."""
    if value is None:
        return None
    try:
        seconds = _seconds_of_text(value) if isinstance(value, str) else _number(value)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ManifestError(f"{column} is {value!r}; give a time such as 90, 1:30 or 1:02:03.5")
    return seconds


def _seconds_of_text(text: str) -> float:
    *whole, last = text.strip().split(":")
    if len(whole) > 2 or not all(part.isdecimal() for part in whole):
        return math.nan
    return float(last) + sum(60.0**power * int(part) for power, part in enumerate(reversed(whole), start=1))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _priority(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            return int(value)
    raise ManifestError(f"priority is {value!r}; give a whole number, the higher the earlier")
