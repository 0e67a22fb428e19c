"""The recordings that a job's inputs stand for: files, folders, patterns, manifests, tables and addresses."""

import heapq
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.request import url2pathname

from engine_bridge.batch.failing import failing
from engine_bridge.batch.folders import ANY_DEPTH, Pattern, is_plain, is_recording_name, walk
from engine_bridge.batch.names import Names, name_of_parts, name_of_source
from engine_bridge.batch.recording import Recording
from engine_bridge.errors import InputError

STANDARD_INPUT = "-"
MANIFESTS = (".jsonl", ".ndjson", ".csv", ".tsv")
"""Endings of the files that list recordings; see `engine_bridge.batch.manifests`."""

TABLES = (".parquet",)
"""Endings of the tables that hold or list recordings; see `engine_bridge.batch.tables`."""

LOOK_AHEAD = 1000
"""Entries of a manifest that are read ahead of the one that is begun, for a higher priority among them."""

_WILDCARDS = "*?["

Kind = Literal["standard input", "file", "folder", "pattern", "manifest", "table", "address", "addresses"]


@dataclass(frozen=True)
class _Input:
    """One input, looked at once.

    Attributes
    ----------
    text : str
        The input as it was given; a file:// address has become a path.
    kind : str
        What it is.
    base : str
        The folder or address that a folder's or pattern's files lie below, as it was given.
    pattern : tuple of str
        The parts of a pattern below `base`.

    """

    text: str
    kind: Kind
    base: str = ""
    pattern: tuple[str, ...] = ()

    @property
    def anchor(self) -> str | None:
        """The folder on this machine that the names of its recordings can begin at."""
        if self.kind == "file":
            return os.path.dirname(os.path.abspath(self.text))  # noqa: PTH100, PTH120 - names as they are
        return os.path.abspath(self.base) if self.kind in ("folder", "pattern") else None  # noqa: PTH100


def find_recordings(
    inputs: Iterable[str], *, skipped: Sequence[str | os.PathLike[str]] = (), look_ahead: int = LOOK_AHEAD
) -> Iterator[Recording]:
    """Find the recordings that inputs stand for, one after the other.

    A recording comes up when it is asked for: a folder of any size, or a manifest without end, costs no memory. Each
    input that holds none, each folder that cannot be read and each line that cannot be understood becomes a recording
    that fails with that reason when its turn comes, so that the others are done.

    Parameters
    ----------
    inputs : iterable of str
        - A file, of whatever name; one ending in `MANIFESTS` or `TABLES` lists recordings.
        - A folder: all files below it, at any depth, whose endings are in `folders.EXTENSIONS`. What begins with a dot
          is passed over.
        - A pattern, where no file has that name: ``talks/**/*.mp3``. ``**`` stands for any number of folders.
        - An address such as ``s3://bucket/talk.mp3``: a file. One that ends in ``/`` is a folder, and one with ``*`` a
          pattern. Addresses of manifests and tables are read as such. ``file://`` leads to this machine.
        - ``-``: what comes on standard input.
    skipped : sequence of path
        Folders that are not looked into, such as the one that outputs go to.
    look_ahead : int
        A manifest's recordings come in its order, those of higher priority earlier: among so many entries, which are
        read ahead. What a manifest without end, such as a pipe, lists is begun once so many have come, or it ends; 1
        keeps the order and begins each at once. All others come in the order of the inputs.

    Yields
    ------
    Recording
        Its id is the file's path below its folder, or below the one that holds all inputs on this machine; host and
        path of an address; what the manifest says. Each id comes once, and each file once where inputs overlap.

    """
    places = [_look_at(text) for text in dict.fromkeys(inputs)]
    if look_ahead < 1:
        raise ValueError(f"look_ahead is {look_ahead}; give 1 or more")
    return _recordings(places, tuple(os.path.realpath(folder) for folder in skipped), look_ahead)


def prioritised(recordings: Iterable[Recording], look_ahead: int = LOOK_AHEAD) -> Iterator[Recording]:
    """Yield recordings of higher priority earlier, and those of one priority in their order.

    Parameters
    ----------
    recordings : iterable of Recording
        May have no end.
    look_ahead : int
        How many are known at a time: the next one is the first among these. At least 1.

    """
    known: list[tuple[int, int, Recording]] = []
    for number, recording in enumerate(recordings):
        heapq.heappush(known, (-recording.priority, number, recording))
        if len(known) >= look_ahead:
            yield heapq.heappop(known)[2]
    while known:
        yield heapq.heappop(known)[2]


def _look_at(text: str) -> _Input:
    if text == STANDARD_INPUT:
        return _Input(text, "standard input")
    if text.lower().startswith("file://"):
        text = url2pathname("/" + text[len("file://") :].partition("/")[2])
    if "://" in text:
        return _look_at_address(text)
    if os.path.isdir(text):  # noqa: PTH112
        return _Input(text, "folder", base=text)
    if not os.path.lexists(text) and any(mark in text for mark in _WILDCARDS):
        base, pattern = _parted(text, PurePosixPath(text).parts)
        return _Input(text, "pattern", base=base, pattern=pattern)
    return _Input(text, _kind_of_file(text) or "file")


def _look_at_address(text: str) -> _Input:
    scheme, _, path = text.partition("://")
    if path.endswith("/"):
        return _Input(text, "addresses", base=text, pattern=(ANY_DEPTH,))
    if "*" in path:
        base, pattern = _parted(path, tuple(path.split("/")))
        return _Input(text, "addresses", base=f"{scheme}://{base}/", pattern=pattern)
    return _Input(text, _kind_of_file(path.partition("?")[0]) or "address")


def _kind_of_file(path: str) -> Kind | None:
    ending = path.lower()
    return "manifest" if ending.endswith(MANIFESTS) else "table" if ending.endswith(TABLES) else None


def _parted(text: str, parts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return what of a pattern comes before its first wildcard, and the parts from there on."""
    wildcards = "*" if "://" in text else _WILDCARDS
    plain = next(number for number, part in enumerate(parts) if any(mark in part for mark in wildcards))
    return "/".join(parts[:plain]).replace("//", "/", 1), parts[plain:]


def _recordings(places: Sequence[_Input], skipped: tuple[str, ...], look_ahead: int) -> Iterator[Recording]:
    anchors = [anchor for place in places if (anchor := place.anchor) is not None]
    root = os.path.commonpath(anchors) if anchors else ""
    with Names() as names:
        finders: dict[Kind, Callable[[_Input], Iterator[Recording]]] = {
            "standard input": lambda _: iter([Recording(names.unique("stdin"), sys.stdin.buffer)]),
            "file": lambda place: _files([(place.text, None)], root, names),
            "folder": lambda place: _files(_in_folder(place, skipped), root, names),
            "pattern": lambda place: _files(_in_folder(place, skipped), root, names),
            "manifest": lambda place: prioritised(_listed_in_manifest(place.text, names), look_ahead),
            "table": lambda place: _listed_in_table(place.text, names),
            "address": lambda place: _at_addresses([place.text], names),
            "addresses": lambda place: _below_address(place, names),
        }
        for place in places:
            yield from finders[place.kind](place)


def _nothing_in(place: _Input) -> str:
    if place.kind == "folder":
        return f"{place.text}: there is no recording in this folder; name another, or the recordings themselves"
    if place.kind == "pattern":
        return f"{place.text}: there is no such file, and no recording that fits it as a pattern; check the path"
    return f"{place.text}: there is no recording below this address; check it, and the end of the names"


def _in_folder(place: _Input, skipped: tuple[str, ...]) -> Iterator[tuple[str, InputError | None]]:
    """Yield the path of each file that an input stands for, and of each folder without them with the reason."""
    base = place.base or "."
    pattern = Pattern(place.pattern) if place.pattern else None

    def wanted(parts: tuple[str, ...]) -> bool:
        return pattern.wants(parts) if pattern is not None else is_plain(parts[-1:]) and is_recording_name(parts[-1])

    def entered(parts: tuple[str, ...]) -> bool:
        if skipped and os.path.realpath(os.path.join(base, *parts)) in skipped:  # noqa: PTH118
            return False
        return pattern.enters(parts) if pattern is not None else is_plain(parts[-1:])

    empty = True
    for found in walk(base, wanted=wanted, entered=entered):
        if found.error is not None and not os.path.isdir(base):  # noqa: PTH112
            break
        empty = False
        path = os.path.join(place.base, *found.parts)  # noqa: PTH118
        yield path, None if found.error is None else _unreadable(path, found.error)
    if empty:
        yield place.text, InputError(_nothing_in(place))


def _unreadable(path: str, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    return InputError(f"{path}: the folder cannot be read ({reason}); check its permissions")


def _files(paths: Iterable[tuple[str, InputError | None]], root: str, names: Names) -> Iterator[Recording]:
    for path, error in paths:
        whole = os.path.abspath(path)  # noqa: PTH100 - links stay as they are
        if names.claim(f"file:{whole}"):
            below = PurePosixPath(os.path.relpath(whole, root)).parts or [PurePosixPath(whole).name]
            name = names.unique(name_of_parts(below))
            yield Recording(name, path) if error is None else failing(name, error)


def _listed_in_manifest(path: str, names: Names) -> Iterator[Recording]:
    from engine_bridge.batch.manifests import read_manifest

    return read_manifest(path, names=names)


def _listed_in_table(path: str, names: Names) -> Iterator[Recording]:
    from engine_bridge.batch.tables import recordings_from_parquet

    return recordings_from_parquet(path, names=names)


def _at_addresses(addresses: Iterable[str], names: Names) -> Iterator[Recording]:
    for address in addresses:
        if names.claim(f"address:{address}"):
            yield Recording(names.unique(name_of_source(address)), address)


def _below_address(place: _Input, names: Names) -> Iterator[Recording]:
    from audio.errors import AudioError
    from engine_bridge.batch.remote import addresses_below

    pattern = Pattern(place.pattern)
    empty = True
    try:
        for address in addresses_below(place.base, wanted=pattern.wants, entered=pattern.enters):
            empty = False
            yield from _at_addresses([address], names)
    except AudioError as error:
        yield failing(names.unique(name_of_source(place.base)), error)
    else:
        if empty:
            yield failing(names.unique(name_of_source(place.text)), InputError(_nothing_in(place)))
