"""Recordings at addresses such as s3://bucket/talk.mp3, read in place through fsspec.

Whoever gives an address, also in a manifest, makes this machine open it, with the credentials that it has: read
manifests from people you trust with that. Retries, time limits and credentials are those of fsspec and of the package
for the scheme, to be set in fsspec's own configuration (`fsspec.config`, ``~/.config/fsspec``, ``FSSPEC_...``).
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

from audio.errors import AudioError, AudioFileNotFoundError, BackendUnavailableError, UnreadableAudioError
from audio.source import READ_SIZE, AudioSource, Source, seekable_position

_BLOCK_BYTES = 1 << 22
"""Read ahead of what is asked for: storage services answer a request in a tenth of a second, whatever its size."""

_LONGEST_REASON = 200

_ABSENT = (404, 410)
_FORBIDDEN = (401, 403)  # RFC 9110: 15.5.2, 15.5.4; absent are 15.5.5 and 15.5.11


def is_address(source: object) -> bool:
    """Return whether a source is an address, and not a path."""
    return isinstance(source, str) and "://" in source


def shown_address(address: str) -> str:
    """Return an address without what may be secret in it: a password, and the query, which holds signatures."""
    if not address.startswith(("http://", "https://")) and "@" not in urlsplit(address).netloc:
        return address
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


@contextmanager
def opened(source: AudioSource) -> Iterator[AudioSource]:
    """Give what can be decoded of a source: an address is opened, anything else is given as it is.

    Parameters
    ----------
    source : str, path, bytes, binary file, (array, sample_rate) or Source
        As `Recording.source`.

    Raises
    ------
    AudioError
        As `opened_address` does.

    """
    if not isinstance(source, str) or not is_address(source):
        yield source
        return
    with opened_address(source) as remote:
        yield remote


@contextmanager
def opened_address(address: str) -> Iterator[Source]:
    """Open an address for as long as the context lasts.

    What its server lets be read in parts is read ahead by some megabytes where decoding stands, and not copied. Other
    addresses are copied to an unnamed temporary file. A read that fails ends the audio there for the decoder, and the
    error is raised when the context ends, also where the decoder made do with less: no recording is taken for shorter
    than it is.

    Parameters
    ----------
    address : str
        With a scheme that fsspec knows, also chained, such as ``simplecache::s3://bucket/talk.mp3``.

    Yields
    ------
    Source
        Named by the address, without what may be secret in it.

    Raises
    ------
    BackendUnavailableError
        fsspec, or its package for the scheme, is absent.
    AudioFileNotFoundError
        There is no such file.
    UnreadableAudioError
        It may not be read, or cannot be reached; also when the context ends.

    """
    name = shown_address(address)
    with _translated(name):
        file = _open(address)
    reader = _EndingReader(file, name)
    try:
        with _translated(name):
            source = _source(reader, name)
        try:
            yield source
        except Exception:
            reader.check()
            raise
        reader.check()
    finally:
        reader.close()


@contextmanager
def opened_lines(address: str) -> Iterator[IO[str]]:
    """Open a text at an address, as UTF-8; what is not is kept in lone surrogates. Raises as `opened_address` does."""
    with (
        opened_address(address) as source,
        io.TextIOWrapper(source.open(), encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        yield text


def addresses_below(
    base: str, *, wanted: Callable[[tuple[str, ...]], bool], entered: Callable[[tuple[str, ...]], bool]
) -> Iterator[str]:
    """Yield the addresses of the files below one, in the order of their names.

    One folder's names are held at a time, and those of the folders above it.

    Parameters
    ----------
    base : str
        The address of a folder.
    wanted, entered : callable
        Take a file's or a folder's parts below `base` and tell whether it is yielded or looked into.

    Raises
    ------
    AudioError
        As `opened_address` does, where a folder cannot be listed.

    """
    name = shown_address(base)
    with _translated(name):
        from fsspec.core import url_to_fs

        # A million names would stay in its cache of listings.
        system, root = url_to_fs(base, use_listings_cache=False)
    stack = [iter(_listed(system, root, (), name))]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        parts, path, is_folder = entry
        if is_folder:
            if entered(parts):
                stack.append(iter(_listed(system, path, parts, name)))
        elif wanted(parts):
            yield "/".join((base.rstrip("/"), *parts))


def _listed(system: Any, folder: str, above: tuple[str, ...], name: str) -> list[tuple[tuple[str, ...], str, bool]]:
    """Return each entry of a folder: its parts, its path, and whether it is a folder."""
    with _translated(name):
        entries = system.ls(folder, detail=True)
    below = folder.strip("/") + "/"
    return sorted(
        ((*above, path.strip("/").removeprefix(below)), path, entry["type"] == "directory")
        for entry in entries
        # Some stores list the folder itself, and web pages link elsewhere.
        if (path := entry["name"]).strip("/").startswith(below) and "/" not in path.strip("/").removeprefix(below)
    )


def _open(address: str) -> Any:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(address)
    file = system.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
    if "http" in system.protocol and not _reads_parts(file):
        file.close()
        file = system.open(path, "rb", block_size=0)
    return file


def _reads_parts(file: Any) -> bool:
    """Return whether a web server gives parts of a file; many do not, and do not say so."""
    if not isinstance(file.size, int) or file.size == 0:
        return False
    try:
        file.seek(file.size - 1)
        file.read(1)
        file.seek(0)
    except ValueError:
        return False
    return True


def _source(reader: "_EndingReader", name: str) -> Source:
    """Return the source that a file stands for; one that cannot seek is copied."""
    size = reader.size()
    if size is None:
        size = reader.spool()
    if size == 0:
        raise UnreadableAudioError(name, "the file at this address is empty; check what was uploaded")
    return Source(name, file=reader, size=size)


class _EndingReader:
    """A remote file that ends where reading it fails, and remembers why: decoders cope with an end, not with errors."""

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._name = name
        self._failure: AudioError | None = None

    def size(self) -> int | None:
        """Return the number of bytes, or None if the file cannot be read in parts."""
        size = getattr(self._file, "size", None)
        if isinstance(size, int):
            return size if self._file.seekable() else None
        if seekable_position(self._file) is None:
            return None
        end = int(self._file.seek(0, io.SEEK_END))
        self._file.seek(0)
        return end

    def spool(self) -> int:
        """Copy the file to a temporary one, read that from here on, and return the number of bytes."""
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed in place of the file
        try:
            while data := self._file.read(READ_SIZE):
                copy.write(data)
        except BaseException:
            copy.close()
            raise
        self._file.close()
        self._file = copy
        return copy.tell()

    def seek(self, offset: int) -> int:
        """Move to a position, counted from the beginning."""
        return int(self._file.seek(offset))

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none once a read has failed."""
        if self._failure is not None:
            return b""
        try:
            with _translated(self._name):
                return bytes(self._file.read(size))
        except AudioError as error:
            self._failure = error
            return b""

    def check(self) -> None:
        """Raise the error by which a read failed, if one did."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Turn whatever fsspec and the packages under it raise into errors of `audio`."""
    try:
        yield
    except AudioError:
        raise
    except ModuleNotFoundError as error:
        raise BackendUnavailableError("fsspec", str(error), "Install it with: pip install 'auricle[remote]'") from error
    except ImportError as error:
        reason = "the package for its addresses is not installed"
        raise BackendUnavailableError(f"{urlsplit(name).scheme}://", reason, _line(error)) from error
    except Exception as error:  # fsspec's packages raise classes of their own, that have nothing in common
        raise _told(name, error) from error


def _told(name: str, error: Exception) -> AudioError:
    # For the web, fsspec calls all that fails a missing file, with the reason as its cause.
    cause = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ is not None else error
    status = getattr(cause, "status", None)
    if isinstance(cause, FileNotFoundError | IsADirectoryError) or status in _ABSENT:
        return AudioFileNotFoundError(f"{name}: there is no such file; check the address")
    if isinstance(cause, PermissionError) or status in _FORBIDDEN:
        return UnreadableAudioError(name, "it may not be read; check the credentials that this machine has for it")
    reason = _line(cause) if status is None else f"status {status}"
    return UnreadableAudioError(name, f"it cannot be read ({reason}); check the address and the connection")


def _line(error: BaseException) -> str:
    """Return what an error says, in one line without its full stop."""
    text = next(iter(str(error).strip().splitlines()), "").strip().rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
