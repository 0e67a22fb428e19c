"""Lists of recordings as JSON Lines or CSV, in and out.

Each entry names its audio as ``path``, ``url`` or ``audio``: a path, relative to the manifest's folder or absolute, or
an address, which is opened as it stands (see `engine_bridge.batch.remote`). All else may be absent or empty: ``id``;
``language``; ``channels`` or ``channel``; ``track``; ``from`` and ``to``, in seconds or as h:m:s; ``priority``. What
other columns hold is carried on to the results. JSON Lines have one object a line. CSV has a header; its columns are
parted by commas, or by semicolons or tabs where the header has those. The text is UTF-8.

A line that cannot be understood does not lose the others: it becomes a recording that fails, with the file, the line
and what to do as its reason. An entry without an id is called after its path or address, and the part wanted of it.
"""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, TextIO

from engine_bridge.batch.entries import KNOWN_COLUMNS, recording_of
from engine_bridge.batch.failing import failing
from engine_bridge.batch.names import Names, name_of_parts
from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address, opened_lines, shown_address
from engine_bridge.errors import EngineBridgeError, ManifestError
from engine_bridge.outputs import write_atomically

_JSON_LINES = (".jsonl", ".ndjson")

_LONGEST_LINE = 1 << 24
"""Characters of a line of JSON: 16 Mi, far more than any entry, and few enough to hold."""

_DELIMITERS = ("\t", ";")

Entry = tuple[int, Mapping[str, Any] | ManifestError]
"""A line's number, and what it says or what is wrong with it."""


def read_manifest(path: str | os.PathLike[str], *, names: Names | None = None) -> Iterator[Recording]:
    """Read a manifest, one entry at a time.

    Parameters
    ----------
    path : str or path
        A file, or an address. Its ending tells what it is: ``.jsonl``, ``.ndjson``, ``.csv`` or ``.tsv``.
    names : Names, optional
        The ids that are taken; those of this manifest alone by default.

    Yields
    ------
    Recording
        In the manifest's order. What cannot be read, the manifest itself included, is a recording that fails with a
        `ManifestError`.

    """
    where = os.fspath(path)
    shown = shown_address(where) if is_address(where) else where
    base = where.partition("?")[0].rpartition("/")[0] if is_address(where) else os.path.dirname(where)  # noqa: PTH120 - as it is written
    with Names() if names is None else nullcontext(names) as taken:
        try:
            for number, entry in _entries(where, shown):
                try:
                    yield recording_of(_understood(entry), base=base, names=taken)
                except ManifestError as error:
                    name = taken.unique(f"{_called(shown)}:{number}")
                    yield failing(name, error if entry is error else ManifestError(f"{shown}:{number}: {error}"))
        except _UnreadableError as error:
            yield failing(taken.unique(_called(shown)), ManifestError(str(error)))


class _UnreadableError(EngineBridgeError):
    """The manifest as a whole cannot be read on."""


def _understood(entry: Mapping[str, Any] | ManifestError) -> Mapping[str, Any]:
    if isinstance(entry, ManifestError):
        raise entry
    return entry


def _called(shown: str) -> str:
    return name_of_parts([shown.rstrip("/").rpartition("/")[2]])


def _entries(path: str, shown: str) -> Iterator[Entry]:
    from audio.errors import AudioError

    is_json = (path.partition("?")[0] if is_address(path) else path).lower().endswith(_JSON_LINES)
    try:
        with _opened(path) as file:
            yield from _json_entries(file, shown) if is_json else _csv_entries(file, shown)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise _UnreadableError(f"{shown}: the manifest cannot be read ({reason}); check the path") from error
    except AudioError as error:
        raise _UnreadableError(str(error)) from error


def _opened(path: str) -> AbstractContextManager[IO[str]]:
    if is_address(path):
        return opened_lines(path)
    return Path(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _json_entries(file: IO[str], shown: str) -> Iterator[Entry]:
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE and not line.endswith("\n"):
            while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith("\n"):
                pass
            yield number, ManifestError(f"{shown}:{number}: the line is longer than any entry; part it into lines")
        elif line.strip():
            yield number, _parsed(line, f"{shown}:{number}")


def _parsed(line: str, where: str) -> Mapping[str, Any] | ManifestError:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error)).lower()
        return ManifestError(f"{where}: the line is not JSON ({reason}); write one object a line")
    if not isinstance(entry, dict):
        return ManifestError(f'{where}: the line is no JSON object; write one such as {{"path": "talk.mp3"}}')
    extra = entry.pop("extra", None)
    if isinstance(extra, dict):
        return {**extra, **entry}
    return entry if extra is None else {**entry, "extra": extra}


def _csv_entries(file: IO[str], shown: str) -> Iterator[Entry]:
    first = file.readline(_LONGEST_LINE)
    delimiter = next((each for each in _DELIMITERS if each in first), ",")
    header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    if not {"path", "url", "audio"} & {name.lower() for name in header}:
        raise _UnreadableError(f"{shown}:1: no column is called path, url or audio; name the columns in the first line")
    rows = csv.reader(file, delimiter=delimiter)
    while True:
        # The header's line is not the reader's, and a quoted field can take several.
        number = rows.line_num + 2
        try:
            row = next(rows, None)
        except csv.Error as error:
            yield number, ManifestError(f"{shown}:{number}: the line is not CSV ({error}); check its quotes")
            continue
        if row is None:
            return
        if len(row) > len(header):
            reason = f"there are {len(row)} fields, and the header names {len(header)}"
            mark = "a tab" if delimiter == "\t" else repr(delimiter)
            yield number, ManifestError(f"{shown}:{number}: {reason}; quote those with {mark} in them")
        elif any(field.strip() for field in row):
            yield number, _unfolded(dict(zip(header, (field.strip() for field in row), strict=False)))


def _unfolded(entry: dict[str, Any]) -> dict[str, Any]:
    """Put what `write_manifest` folded into one column back into columns."""
    if "extra" in entry:
        with suppress(ValueError):
            extra = json.loads(entry["extra"] or "{}")
            if isinstance(extra, dict):
                del entry["extra"]
                return {**extra, **entry}
    return entry


def write_manifest(recordings: Iterable[Recording], path: str | os.PathLike[str]) -> None:
    """Write a manifest that `read_manifest` reads back, one entry at a time; the file is there as a whole or not.

    Parameters
    ----------
    recordings : iterable of Recording
        Their sources are paths or addresses.
    path : str or path
        The file, ending in ``.jsonl``, ``.ndjson``, ``.csv`` or ``.tsv``. Paths below its folder are written relative
        to it, others absolute.

    Raises
    ------
    ManifestError
        The ending is another, or a recording's source is neither a path nor an address.
    OutputError
        The file cannot be written.

    """
    target = os.fspath(path)
    ending = os.path.splitext(target)[1].lower()  # noqa: PTH122
    folder = os.path.dirname(os.path.abspath(target))  # noqa: PTH100, PTH120 - links stay as they are
    if ending not in (*_JSON_LINES, ".csv", ".tsv"):
        raise ManifestError(f"{target}: the ending does not say how to write it; use .jsonl, .csv or .tsv")

    def write(file: TextIO) -> None:
        entries = (_entry(recording, folder) for recording in recordings)
        if ending in _JSON_LINES:
            file.writelines(json.dumps(_without_empty(entry)) + "\n" for entry in entries)
        else:
            _write_csv(entries, file, "\t" if ending == ".tsv" else ",")

    write_atomically(target, write, what="manifest")


def _write_csv(entries: Iterable[dict[str, Any]], file: TextIO, delimiter: str) -> None:
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow([*KNOWN_COLUMNS, "extra"])
    for entry in entries:
        extra = {name: value for name, value in entry.items() if name not in KNOWN_COLUMNS}
        known = [entry[name] for name in KNOWN_COLUMNS]
        writer.writerow([*known, json.dumps(extra) if extra else ""])


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if value is not None or name not in KNOWN_COLUMNS}


def _entry(recording: Recording, folder: str) -> dict[str, Any]:
    source = recording.source
    if not isinstance(source, str | os.PathLike):
        raise ManifestError(f"{recording.id}: its audio lies in no file; a manifest lists paths and addresses")
    text = os.fsdecode(source)
    if not is_address(text):
        whole = os.path.abspath(text)  # noqa: PTH100
        text = os.path.relpath(whole, folder) if whole.startswith(folder.rstrip("/") + "/") else whole
    return {
        "id": recording.id,
        "path": text,
        "language": recording.language,
        "channels": recording.channels,
        "track": recording.track,
        "from": recording.from_seconds,
        "to": recording.to_seconds,
        "priority": recording.priority or None,
        **{name: value for name, value in recording.extra.items() if name not in KNOWN_COLUMNS},
    }
