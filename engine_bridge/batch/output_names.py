"""Which file each recording of a job is written to, for any number of recordings."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from engine_bridge.batch.recording import Recording
from engine_bridge.batch.remote import is_address
from engine_bridge.databases import open_tables
from engine_bridge.formats import find_format
from engine_bridge.outputs import folded


class OutputNames:
    """Gives each recording of a job its own output names below a folder, as its id says.

    The recording "calls/monday.mp3" is written to "calls/monday.txt". All those that would write the same file keep
    their whole name ("monday.mp3.txt", "monday.wav.txt"), and where file systems would take that for the same too, a
    mark is added. An output never takes the place of a recording. The names depend on which recordings there are, not
    on their order. Before they are known (`plan`) each recording keeps its whole name.

    They are kept in a database that SQLite moves to a temporary file when it grows. Use it as a context manager.

    Parameters
    ----------
    folder : str or path
        The folder.
    formats : sequence of str
        The formats that each is written in.

    Raises
    ------
    UnsupportedOptionError
        If there is no such format.

    """

    def __init__(self, folder: str | os.PathLike[str], formats: Sequence[str]) -> None:
        self._folder = Path(folder)
        self._extensions = {name: find_format(name).extension for name in formats}
        # Asked by one thread; a job's iterator of recordings may be read by another while it is planned.
        self._names = open_tables(
            "CREATE TABLE names (id TEXT PRIMARY KEY, name TEXT, level INTEGER, folded TEXT) WITHOUT ROWID;"
            "CREATE INDEX by_folded ON names (folded);"
            "CREATE TABLE sources (path TEXT PRIMARY KEY) WITHOUT ROWID;"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._names.close()

    def __len__(self) -> int:
        """How many recordings are planned."""
        (count,) = self._names.execute("SELECT COUNT(*) FROM names").fetchone()
        return int(count)

    def planning(self, recordings: Iterable[Recording]) -> Iterator[Recording]:
        """Pass recordings on, and plan their names when they end."""
        self._names.execute("BEGIN")
        for recording in recordings:
            self._add(recording)
            yield recording
        self._names.execute("COMMIT")
        self._settle()

    def paths(self, recording: Recording) -> dict[str, Path]:
        """Return the file that each format of a recording is written to."""
        row = self._names.execute("SELECT name FROM names WHERE id=?", (recording.id,)).fetchone()
        name = row[0] if row is not None else recording.id
        name = _as_on_disk(name, recording)
        return {form: self._folder / (name + extension) for form, extension in self._extensions.items()}

    def _add(self, recording: Recording) -> None:
        stem = str(PurePosixPath(recording.id).with_suffix(""))
        self._names.execute("INSERT OR IGNORE INTO names VALUES (?, ?, 0, ?)", (recording.id, stem, folded(stem)))
        if isinstance(recording.source, str | os.PathLike) and not is_address(recording.source):
            self._names.execute("INSERT OR IGNORE INTO sources VALUES (?)", (_key(os.fspath(recording.source)),))

    def _settle(self) -> None:
        """Give longer names to those that claim the same file as others, until none do."""
        real = os.path.realpath(self._folder)
        self._names.create_function("output", 2, lambda name, extension: folded(f"{real}{os.sep}{name}{extension}"))
        self._names.create_function("longer", 2, _longer)
        self._names.create_function("folded", 1, folded)
        for level in range(len(_LONGER)):
            self._names.execute("CREATE TABLE contested (id TEXT PRIMARY KEY) WITHOUT ROWID")
            self._names.execute(
                "INSERT INTO contested SELECT id FROM names WHERE level=? AND folded IN "
                "(SELECT folded FROM names GROUP BY folded HAVING COUNT(*) > 1)",
                (level,),
            )
            for extension in self._extensions.values():
                self._names.execute(
                    "INSERT OR IGNORE INTO contested SELECT id FROM names WHERE level=? AND output(name, ?) IN "
                    "(SELECT path FROM sources)",
                    (level, extension),
                )
            self._names.execute(
                "UPDATE names SET name=longer(id, ?), level=?, folded=folded(longer(id, ?)) "
                "WHERE id IN (SELECT id FROM contested)",
                (level, level + 1, level),
            )
            self._names.execute("DROP TABLE contested")


_LONGER: tuple[Callable[[str], str], ...] = (
    lambda identity: identity,
    lambda identity: f"{identity}~{blake2b(identity.encode(), digest_size=4).hexdigest()}",
)


def _longer(identity: str, level: int) -> str:
    """Return a recording's name where a shorter one is contested."""
    return _LONGER[level](identity)


def _key(path: str) -> str:
    """Return what a path is compared by; what is no text of it, as text."""
    return folded(os.path.realpath(path).encode("utf-8", "backslashreplace").decode())


def _as_on_disk(name: str, recording: Recording) -> str:
    """Return an output's name with the bytes of the recording's own name, where that is no text."""
    if "\\" not in name or not isinstance(recording.source, str):
        return name
    raw = os.path.basename(recording.source)  # noqa: PTH119 - the name as it is
    plain = raw.encode("utf-8", "backslashreplace").decode()
    stem, plain_stem = Path(raw).stem, Path(plain).stem
    parts = name.split("/")
    if raw == plain or not parts[-1].startswith(plain_stem):
        return name
    return "/".join([*parts[:-1], parts[-1].replace(plain_stem, stem, 1)])
