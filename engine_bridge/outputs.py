"""Where transcripts go on disk: names that never collide, and files that are whole or absent."""

import contextlib
import errno
import os
import secrets
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TextIO
from urllib.parse import unquote, urlsplit

from engine_bridge.errors import OutputError
from engine_bridge.formats import find_format

_REMEDIES = {
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.EROFS: "choose a folder that is not read-only",
    errno.ENOSPC: "free some space, or choose another disk",
    errno.EDQUOT: "free some of your quota, or choose another disk",
    errno.ENOTDIR: "choose a path whose parents are folders",
    errno.EEXIST: "choose a path whose parents are folders",
    errno.EISDIR: "remove the folder of that name, or choose another folder",
    errno.ENAMETOOLONG: "give the recording a shorter name",
}


@dataclass(frozen=True)
class OutputPlan:
    """Which file each transcript is written to.

    Attributes
    ----------
    directory : Path
        The folder that holds them all.
    names : mapping of str to str
        Each source, as it was given, to the file name its outputs share, without the format's extension.

    """

    directory: Path
    names: Mapping[str, str]

    def path(self, source: str | os.PathLike[str], format_name: str) -> Path:
        """Tell where a source's transcript goes.

        Parameters
        ----------
        source : str or path
            One of the planned sources, written as it was given.
        format_name : str
            The transcript's format, such as "srt".

        Returns
        -------
        Path
            The file's path.

        Raises
        ------
        KeyError
            If the source was not planned.
        UnsupportedOptionError
            If there is no such format.

        """
        return self.directory / (self.names[os.fspath(source)] + find_format(format_name).extension)


def plan_outputs(
    sources: Sequence[str | os.PathLike[str]], formats: Sequence[str], directory: str | os.PathLike[str]
) -> OutputPlan:
    """Give each source of a run its own output names.

    A source keeps its name without extension: "talk.mp3" gives "talk.txt", and "talk.part1.mp3" gives
    "talk.part1.txt". All those that would write the same file keep their whole name ("talk.mp3.txt", "talk.wav.txt"),
    and where that is the same too, the folders they lie in go before it ("monday_talk.mp3.txt"), and last a number.
    An output never takes the place of a source. The plan depends on the set of sources, not on their order; names
    that differ only in case count as the same, since some file systems take them so.

    Parameters
    ----------
    sources : sequence of str or path
        Paths, or addresses with "://". Two spellings of one file share their outputs.
    formats : sequence of str
        The formats that each source is written in.
    directory : str or path
        The folder to write into. It need not exist yet.

    Returns
    -------
    OutputPlan
        The name of every output.

    Raises
    ------
    UnsupportedOptionError
        If there is no such format.

    """
    extensions = [find_format(name).extension for name in formats]
    given = [os.fspath(source) for source in sources]
    folder = Path(directory)
    identities = {source: _identity(source) for source in given}
    by_identity = {identities[source]: source for source in sorted(given, reverse=True)}
    taken = {folded(identity) for identity in by_identity}
    candidates = {identity: _candidates(identity, by_identity[identity]) for identity in by_identity}
    ranks = {identity: rank for rank, identity in enumerate(sorted(by_identity), start=1)}
    real_folder = os.path.realpath(folder)

    levels = dict.fromkeys(by_identity, 0)
    while True:
        names = {identity: _name(candidates[identity], levels[identity], ranks[identity]) for identity in by_identity}
        claims: defaultdict[str, set[str]] = defaultdict(set)
        for identity, name in names.items():
            for extension in extensions:
                claims[folded(str(Path(real_folder, name + extension)))].add(identity)
        contested = {
            identity
            for path, claimants in claims.items()
            if len(claimants) > 1 or path in taken
            for identity in claimants
        }
        if not contested:
            return OutputPlan(folder, {source: names[identities[source]] for source in given})
        for identity in contested:
            levels[identity] += 1


def write_atomically(
    path: str | os.PathLike[str], content: str | Callable[[TextIO], None], *, what: str = "transcript"
) -> None:
    """Write a text file so that it is there as a whole or not at all.

    The text goes into a new file in the same folder, reaches the disk, and then takes the place of whatever bore the
    name before. When anything fails, or the run is interrupted, the old file stays as it was and the new one is
    removed. Folders that are missing are made.

    Parameters
    ----------
    path : str or path
        The file. A symbolic link is followed.
    content : str or callable
        The text, or a function that writes it to the text stream it is given. Written as UTF-8, line ends unchanged;
        what UTF-8 cannot carry is written as a backslash escape.
    what : str
        What it is called in messages.

    Raises
    ------
    OutputError
        If the file cannot be written; the message names it, the reason and what to do.

    """
    with (
        written(path, what=what),
        replaced(path, what=what) as temporary,
        temporary.open("x", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        if callable(content):
            content(file)
        else:
            file.write(content)


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str], *, what: str = "file") -> Iterator[Path]:
    """Give the path of a new file, which takes the place of another once it is written.

    Parameters
    ----------
    path : str or path
        The file to replace, or to make. A symbolic link is followed, and folders that are missing are made.
    what : str
        What it is called in messages.

    Yields
    ------
    Path
        A file in the same folder, not there yet. When the context ends, what was written to it reaches the disk and
        takes the name `path`. When anything fails in the context, it is removed, and the old file stays as it was.

    Raises
    ------
    OutputError
        If the folder or the file cannot be written. What the context itself raises passes; see `written`.

    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".auricle-{secrets.token_hex(8)}.part")
    with written(path, what=what):
        target.parent.mkdir(parents=True, exist_ok=True)
    with _removed_on_failure(temporary):
        yield temporary
        with written(path, what=what):
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
    _sync_folder(target.parent)


@contextlib.contextmanager
def written(path: str | os.PathLike[str], *, what: str = "file") -> Iterator[None]:
    """Turn what goes wrong while a file is written into an `OutputError` that names it; other errors pass.

    Parameters
    ----------
    path : str or path
        The file.
    what : str
        What it is called in messages.

    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise _output_error(os.fspath(path), error, what) from error


@contextlib.contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make the new name itself reach the disk, where the system can do that for folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _output_error(path: str, error: OSError, what: str) -> OutputError:
    reason = (error.strerror or str(error)).lower()
    remedy = _REMEDIES.get(error.errno or 0, "check the folder and the disk")
    translated = OutputError(f"{path}: the {what} cannot be written ({reason}); {remedy}")
    translated.errno = error.errno
    return translated


def _is_address(source: str) -> bool:
    return "://" in source


def _identity(source: str) -> str:
    return source if _is_address(source) else os.path.realpath(source)


def folded(path: str) -> str:
    """Fold a path as the least discerning file systems do: by case and by Unicode composition."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _candidates(identity: str, source: str) -> list[str]:
    """List the names a source may have, from the shortest to the most telling."""
    if _is_address(source):
        address = urlsplit(source)
        parts = [address.hostname or "", *PurePosixPath(unquote(address.path)).parts]
    else:
        # The name as the user knows it, in the folder it really lies in.
        parts = [*Path(identity).parent.parts, Path(source).name or Path(identity).name]
    parts = [part for part in parts if part.strip(os.sep + "/")] or ["recording"]
    longer = ("_".join(part.replace(":", "") for part in parts[-count:]) for count in range(2, len(parts) + 1))
    return [Path(parts[-1]).stem, parts[-1], *longer]


def _name(candidates: list[str], level: int, rank: int) -> str:
    if level < len(candidates):
        return candidates[level]
    return candidates[-1] + f"-{rank}" * (level - len(candidates) + 1)
