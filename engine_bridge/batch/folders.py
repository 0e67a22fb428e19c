"""The files in folders, below one another, in order and without end: local ones, and patterns over paths."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase

from engine_bridge.databases import open_tables

_SOUNDS = (
    "3ga aac ac3 adts aif aifc aiff alac amr ape au awb bwf caf dsf dts eac3 flac gsm m4a m4b m4r mka mp1 mp2 mp3 mpa "
    "mpc mpga oga ogg opus ra rf64 snd spx tak tta voc w64 wav wave weba wma wv"
)
_FILMS = "3g2 3gp asf avi divx dv f4v flv m2ts m2v m4v mkv mov mp4 mpeg mpg mts mxf ogm ogv rm rmvb ts vob webm wmv wtv"

EXTENSIONS = frozenset(f"{_SOUNDS} {_FILMS}".split())
"""Endings, in lower case, of the files that are taken for recordings when a folder is given."""

ANY_DEPTH = "**"
"""The part of a pattern that stands for any number of folders."""

_SORTED_IN_MEMORY = 20_000
"""Entries of one folder that are sorted in memory; those of a larger one are sorted in a temporary file."""


@dataclass(frozen=True)
class Found:
    """What a walk came upon.

    Attributes
    ----------
    parts : tuple of str
        The path's parts, below the folder that was walked.
    error : OSError or None
        Why a folder could not be looked into; None for a file.

    """

    parts: tuple[str, ...]
    error: OSError | None = None


def is_recording_name(name: str) -> bool:
    """Return whether a file's name has one of `EXTENSIONS`."""
    return os.path.splitext(name)[1][1:].lower() in EXTENSIONS  # noqa: PTH122 - a pathlib object for each would be slow


def walk(
    folder: str,
    *,
    wanted: Callable[[tuple[str, ...]], bool],
    entered: Callable[[tuple[str, ...]], bool],
) -> Iterator[Found]:
    """Yield the files below a folder, in the order of their names' bytes, folders at their place in it.

    Links to folders are followed, but never into a folder that they lie in. Pipes, sockets and devices are passed
    over; links that lead nowhere are not, so that whoever opens them can say so. Memory depends on the depth alone.

    Parameters
    ----------
    folder : str
        Where to begin.
    wanted, entered : callable
        Take a file's or a folder's parts below `folder` and tell whether it is yielded or looked into.

    """
    stack: list[tuple[tuple[str, ...], Iterator[tuple[str, bool]], tuple[int, int]]] = []

    def enter(parts: tuple[str, ...]) -> Found | None:
        path = os.path.join(folder, *parts)  # noqa: PTH118 - names as they are, and many of them
        try:
            status = os.stat(path)  # noqa: PTH116
            identity = (status.st_dev, status.st_ino)
            if all(identity != above for *_, above in stack):
                stack.append((parts, _entries(path), identity))
        except OSError as error:
            return Found(parts, error)
        return None

    if problem := enter(()):
        yield problem
    while stack:
        parts, entries, _ = stack[-1]
        try:
            name, is_folder = next(entries, (None, False))
        except OSError as error:
            stack.pop()
            yield Found(parts, error)
            continue
        if name is None:
            stack.pop()
        elif is_folder:
            if entered((*parts, name)) and (problem := enter((*parts, name))):
                yield problem
        elif wanted((*parts, name)):
            yield Found((*parts, name))


def _entries(path: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a folder with whether each is a folder, in the order of their bytes."""
    few: list[tuple[bytes, bool]] = []
    with os.scandir(path) as listing:
        for entry in listing:
            kind = _kind(entry)
            if kind is not None:
                few.append((os.fsencode(entry.name), kind))
            if len(few) > _SORTED_IN_MEMORY:
                break
        else:
            yield from ((os.fsdecode(name), is_folder) for name, is_folder in sorted(few))
            return
        table = "CREATE TABLE entries (name BLOB PRIMARY KEY, folder INTEGER NOT NULL) WITHOUT ROWID"
        with closing(open_tables(table)) as many:
            many.executemany("INSERT INTO entries VALUES (?, ?)", few)
            few.clear()
            rest = ((os.fsencode(entry.name), kind) for entry in listing if (kind := _kind(entry)) is not None)
            many.executemany("INSERT INTO entries VALUES (?, ?)", rest)
            for name, is_folder in many.execute("SELECT name, folder FROM entries ORDER BY name"):
                yield os.fsdecode(name), bool(is_folder)


def _kind(entry: "os.DirEntry[str]") -> bool | None:
    """Return whether an entry is a folder; None for what is neither folder nor file."""
    if entry.is_dir():
        return True
    if entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path)):  # noqa: PTH110
        return False
    return None


class Pattern:
    """A pattern over the parts of a path, as shells have them: ``*``, ``?``, ``[...]``, and ``**`` for any folders.

    Names that begin with a dot are matched where the pattern writes the dot. A pattern whose last part names an
    extension takes whatever fits; any other takes files with one of `EXTENSIONS`.

    Parameters
    ----------
    parts : sequence of str
        Its parts, below the folder where the first wildcard stands.

    """

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = tuple(parts)
        _, _, extension = self._parts[-1].rpartition(".")
        self._by_extension = not ("." in self._parts[-1] and extension.strip("*"))

    def wants(self, parts: tuple[str, ...]) -> bool:
        """Return whether a file of these parts fits."""
        return (not self._by_extension or is_recording_name(parts[-1])) and _fits(parts, self._parts)

    def enters(self, parts: tuple[str, ...]) -> bool:
        """Return whether something below a folder of these parts may fit."""
        for part, expected in zip(parts, self._parts[:-1], strict=False):
            if expected == ANY_DEPTH:
                return not any(_is_hidden(each) for each in parts) or any(_is_hidden(each) for each in self._parts)
            if not _fits_one(part, expected):
                return False
        return len(parts) < len(self._parts) or self._parts[-1] == ANY_DEPTH


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] != ANY_DEPTH:
        return bool(parts) and _fits_one(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])
    rest = pattern[1:] or ("*",)
    for skipped in range(len(parts)):
        if _fits(parts[skipped:], rest):
            return True
        if _is_hidden(parts[skipped]):
            return False
    return False


def _fits_one(part: str, pattern: str) -> bool:
    return fnmatchcase(part, pattern) and (not _is_hidden(part) or _is_hidden(pattern))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def is_plain(parts: tuple[str, ...]) -> bool:
    """Return whether nothing in a path is hidden."""
    return not any(_is_hidden(part) for part in parts)
