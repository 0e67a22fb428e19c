"""What a job's recordings are called: text that can name files, each name once, however many there are."""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from engine_bridge.batch.recording import Recording
from engine_bridge.databases import open_tables

_KEY_BYTES = 16
_NOWHERE = ("", ".", "..", "/")


class Names:
    """The names that are taken.

    They are kept as hashes in a database that SQLite moves to a temporary file when it grows, so that memory does not
    depend on how many there are. Use it as a context manager.
    """

    def __init__(self) -> None:
        self._taken = open_tables("CREATE TABLE taken (key BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID")
        # Nothing here outlives the process, so there is nothing to keep safe: one transaction, never ended.
        self._taken.execute("PRAGMA journal_mode = OFF")
        self._taken.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._taken.close()

    def claim(self, name: str) -> bool:
        """Take a name and return whether it was free."""
        return self._taken.execute("INSERT OR IGNORE INTO taken VALUES (?, 1)", (_key(name),)).rowcount == 1

    def unique(self, name: str) -> str:
        """Take a name, or the first free of those like it: "talk.wav", then "talk~2.wav", "talk~3.wav"."""
        chosen = name
        while not self.claim(chosen):
            # Counted on from the last time, so that a name given a million times is not looked for a million times.
            count = "UPDATE taken SET times = times + 1 WHERE key = ? RETURNING times"
            ((times,),) = self._taken.execute(count, (_key(name),)).fetchall()
            chosen = marked(name, f"~{times}")
        return chosen


def _key(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def marked(name: str, mark: str) -> str:
    """Return a name with a mark before its extension: "talk~2.wav"."""
    stem, extension = os.path.splitext(name)  # noqa: PTH122 - a path object for each of millions would be slow
    return stem + mark + extension


def name_of_parts(parts: Iterable[str]) -> str:
    """Return the name made of a path's parts: no part leads elsewhere, and all of it can be written as UTF-8."""
    return "/".join(_clean(part) for part in parts if part not in _NOWHERE) or "recording"


def name_of_source(source: str) -> str:
    """Return the name of a path or an address as its manifest writes it.

    Of an address, host and path remain: neither its scheme, nor what may be secret in it.
    """
    if "://" not in source:
        return name_of_parts(source.split("/"))
    address = urlsplit(source)
    return name_of_parts([address.hostname or "", *PurePosixPath(unquote(address.path)).parts])


def name_of_part(name: str, recording: Recording) -> str:
    """Return a recording's name with the part that is wanted of it: "talk@left@60-90.wav"."""
    marks = [
        f"@{_clean(str(choice)).replace('/', '_')}"
        for choice in (None if recording.track is None else f"track{recording.track}", recording.channels)
        if choice is not None
    ]
    if recording.from_seconds is not None or recording.to_seconds is not None:
        end = "" if recording.to_seconds is None else f"{recording.to_seconds:g}"
        marks.append(f"@{recording.from_seconds or 0:g}-{end}")
    return marked(name, "".join(marks)) if marks else name


def name_problem(name: str) -> str | None:
    """Return why a name that somebody chose cannot name outputs, or None.

    Names become paths below the output folder, so none may lead out of it.
    """
    if not name.strip():
        return "is empty"
    if any(ord(letter) < ord(" ") or letter == "\x7f" for letter in name):
        return "holds control characters"
    if name != _clean(name):
        return "is no valid text"
    if any(part in _NOWHERE for part in name.split("/")):
        return "has a part that is empty, . or .."
    return None


def _clean(text: str) -> str:
    """Return text with what UTF-8 cannot carry, as in names of other encodings, written as a backslash escape."""
    return text.encode("utf-8", "backslashreplace").decode()
