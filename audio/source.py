"""What can be decoded, brought to one form: something that any backend can open afresh, as often as it needs to."""

from __future__ import annotations

import io
import os
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from audio.errors import (
    AudioFileNotFoundError,
    EmptyAudioError,
    InvalidSourceError,
    LimitExceededError,
    UnreadableAudioError,
)
from audio.limits import DecodeLimits
from audio.reader import Reader

READ_SIZE = 1 << 18
"""Bytes asked of a source at a time: 256 KiB, so that slow storage is read in few calls."""


@runtime_checkable
class BinaryReader(Protocol):
    """An object that reads bytes: an open file, a pipe, a socket's file, a response body."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        ...


AudioSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryReader | tuple[Any, int] | Source"
)
"""Everything that `Source.of` takes."""


@dataclass(frozen=True, eq=False)
class ArrayAudio:
    """Samples that are already decoded.

    Attributes
    ----------
    samples : ndarray, shape (frames,) or two-dimensional in either order, any real dtype
        The samples as they were given.
    sample_rate : int
        Samples per second and channel.

    """

    samples: NDArray[Any]
    sample_rate: int


class Source:
    """One recording: a path, bytes, a binary file or an array with its sample rate.

    Use `Source.of`. A source can be opened any number of times; each reader starts at the beginning and moves alone.

    Attributes
    ----------
    name : str
        What messages call it: the path as it was given, "<bytes>", "<file>" or "<array>".
    path : str or None
        The path, for a source that is a regular file on disk.
    data : bytes or None
        The encoded bytes, for a source that is in memory.
    array : ArrayAudio or None
        The samples, for a source that needs no decoding.
    size : int or None
        Encoded bytes; None for an array.

    """

    def __init__(
        self,
        name: str,
        *,
        path: str | None = None,
        data: bytes | None = None,
        file: Any = None,
        start: int = 0,
        size: int | None = None,
        array: ArrayAudio | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.array = array
        self.size = size
        self.data = data
        self._file = file
        self._start = start
        self._lock = threading.Lock()
        self._stop = stop
        self._origin: Source | None = None

    def __repr__(self) -> str:
        return f"Source({self.name!r}, size={self.size})"

    @staticmethod
    def of(source: AudioSource, limits: DecodeLimits | None = None) -> Source:
        """Return the source that an argument stands for.

        Parameters
        ----------
        source : str, PathLike, bytes-like, binary file, (array, sample_rate) or Source
            A string is always a path on this machine, never an address. A file object is read from where it stands;
            one that cannot seek is copied to an unnamed temporary file first.
        limits : DecodeLimits, optional
            Its `max_encoded_bytes` holds, for what cannot seek while it is copied.

        Raises
        ------
        LimitExceededError
            There are more bytes than allowed.
        InvalidSourceError
            The argument is none of these.
        AudioFileNotFoundError
            The path does not exist, or is a folder.
        EmptyAudioError
            There are no bytes at all.
        UnreadableAudioError
            The path exists but may not be read.

        """
        limits = limits if limits is not None else DecodeLimits()
        opened = Source._of(source, limits)
        limits.check_encoded(opened.name, opened.size or 0)
        return opened

    @staticmethod
    def _of(source: AudioSource, limits: DecodeLimits) -> Source:
        if isinstance(source, Source):
            return source
        if isinstance(source, str | os.PathLike):
            return _from_path(source, limits)
        if isinstance(source, bytes | bytearray | memoryview):
            limits.check_encoded("<bytes>", memoryview(source).nbytes)
            return _from_bytes(bytes(source))
        if isinstance(source, tuple | list):
            return Source("<array>", array=_array_audio(source))
        if callable(getattr(source, "read", None)):
            return _from_file(source, "<file>", limits)
        if isinstance(source, np.ndarray) or hasattr(source, "__array__"):
            raise InvalidSourceError(
                "an array alone does not say how fast its samples are to be played; pass (array, sample_rate)"
            )
        try:
            data = bytes(memoryview(source))  # type: ignore[arg-type]  # array.array and the like
        except TypeError:
            raise InvalidSourceError(
                f"cannot decode an object of type {type(source).__name__}; pass a path, bytes, a file opened in "
                "binary mode, or (array, sample_rate)"
            ) from None
        return _from_bytes(data)

    def stopped_by(self, stop: Callable[[], bool]) -> Source:
        """Return the same source with a function that is asked before each of its reads whether to end it there.

        Its readers then come to an end: libraries cope with that, and not all with an error. A library that opens the
        path by itself does not ask.
        """
        view = Source(
            self.name,
            path=self.path,
            data=self.data,
            file=self._file,
            start=self._start,
            size=self.size,
            array=self.array,
            stop=stop,
        )
        # The lock guards the position of a file that both share, and a temporary copy lives as long as its source.
        view._lock, view._origin = self._lock, self
        return view

    def open(self, start: int = 0, stop: int | None = None) -> BinaryIO:
        """Return a new seekable binary reader. Whoever opens it closes it.

        It has no file name: FFmpeg would take names for addresses, and guess formats from their endings.

        Parameters
        ----------
        start, stop : int
            The bytes that it shows, as an interval ``[start, stop)``; all by default.

        Raises
        ------
        TypeError
            The source is an array.

        """
        if self.size is None:
            raise TypeError(f"{self.name} is an array; it has no bytes to read")
        length = max(min(self.size, stop if stop is not None else self.size) - start, 0)
        if self.data is not None:
            if self._stop is None:
                return io.BytesIO(self.data[start : start + length])
            raw = self._reader(self._slice, start, length)
        elif self.path is not None:
            descriptor = os.open(self.path, os.O_RDONLY)
            raw = self._reader(
                lambda offset, size: os.pread(descriptor, size, offset), start, length, lambda: os.close(descriptor)
            )
        else:
            raw = self._reader(self._read_shared, start, length)
        return io.BufferedReader(raw, min(READ_SIZE, max(length, 1)))  # many small files are open at once

    def _reader(
        self,
        read_at: Callable[[int, int], bytes],
        start: int,
        length: int,
        release: Callable[[], None] | None = None,
    ) -> Reader:
        stop = self._stop

        def read(offset: int, size: int) -> bytes:
            return b"" if stop is not None and stop() else read_at(start + offset, size)

        return Reader(read, length, release)

    def _slice(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size] if self.data is not None else b""

    def _read_shared(self, offset: int, size: int) -> bytes:
        with self._lock:
            self._file.seek(self._start + offset)
            data: bytes = self._file.read(size)
        return data or b""

    def head(self, size: int) -> bytes:
        """Return the first `size` bytes, or fewer where there are no more."""
        with self.open() as reader:
            return reader.read(size)


def _from_path(path: str | os.PathLike[str], limits: DecodeLimits) -> Source:
    given = os.fspath(path)
    name = os.fsdecode(given)
    try:
        status = os.stat(given)  # noqa: PTH116 - os.stat takes the path as given; Path would drop "./" and "//"
    except PermissionError as error:
        raise UnreadableAudioError(name, "its folder may not be entered; check the permissions") from error
    except (OSError, ValueError) as error:
        raise AudioFileNotFoundError(f"{name}: there is no such file; check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise AudioFileNotFoundError(f"{name}: this is a folder; name the recordings in it")
    if not os.access(given, os.R_OK):
        raise UnreadableAudioError(name, "it may not be read; check its permissions")
    if not stat.S_ISREG(status.st_mode):
        with open(given, "rb") as pipe:  # noqa: PTH123 - as above
            return _spooled(pipe, name, limits)
    if status.st_size == 0:
        raise EmptyAudioError(name, "the file is empty; record or copy it again")
    return Source(name, path=name, size=status.st_size)


def _from_bytes(data: bytes) -> Source:
    if not data:
        raise EmptyAudioError("<bytes>", "there are no bytes; pass the contents of a recording")
    return Source("<bytes>", data=data, size=len(data))


def _from_file(file: Any, name: str, limits: DecodeLimits) -> Source:
    if isinstance(file, io.TextIOBase):
        raise InvalidSourceError('the file was opened for text; open it with mode "rb"')
    start = seekable_position(file)
    if start is None:
        return _spooled(file, name, limits)
    size = int(file.seek(0, os.SEEK_END)) - start
    file.seek(start)
    if size <= 0:
        raise EmptyAudioError(name, "there are no bytes from its current position on; rewind it or pass another")
    return Source(name, file=file, start=start, size=size)


def seekable_position(file: Any) -> int | None:
    """Return where a binary file stands, or None if it cannot be rewound to there."""
    seekable = getattr(file, "seekable", None)
    if seekable is not None and not seekable():
        return None
    try:
        start = int(file.tell())
        end = file.seek(0, os.SEEK_END)
        file.seek(start)
    except (OSError, AttributeError, NotImplementedError, TypeError, ValueError):
        return None
    return start if isinstance(end, int) else None


def _spooled(file: Any, name: str, limits: DecodeLimits) -> Source:
    """Copy what a stream has to give to a temporary file without a name, which vanishes with the process."""
    copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the source
    size = 0
    while data := file.read(READ_SIZE):
        if isinstance(data, str):
            copy.close()
            raise InvalidSourceError('the file gives text; open it with mode "rb"')
        size += len(data)
        try:
            limits.check_encoded(name, size)
        except LimitExceededError:
            copy.close()
            raise
        copy.write(data)
    copy.flush()
    if size == 0:
        copy.close()
        raise EmptyAudioError(name, "the stream ended before its first byte; check what writes to it")
    source = Source(name, file=copy, size=size)
    weakref.finalize(source, copy.close)
    return source


def _array_audio(pair: Sequence[Any]) -> ArrayAudio:
    if len(pair) != 2:
        raise InvalidSourceError(f"expected (array, sample_rate), got {len(pair)} items")
    samples, rate = pair
    if np.ndim(samples) == 0 and np.ndim(rate) > 0:
        raise InvalidSourceError("the sample rate comes second; pass (array, sample_rate)")
    number = isinstance(rate, int | float | np.integer | np.floating) and not isinstance(rate, bool)
    if not number or not np.isfinite(rate) or rate != int(rate):
        raise InvalidSourceError(f"the sample rate is a whole number of samples per second, not {rate!r}")
    if rate <= 0:
        raise InvalidSourceError(f"the sample rate must be above 0, not {rate!r}")
    array = np.asarray(samples)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
        raise InvalidSourceError(
            f"expected real samples in one or two dimensions, not {array.dtype} in {array.ndim} dimensions"
        )
    if array.dtype.kind in "iu" and array.dtype.itemsize > 4:
        raise InvalidSourceError(
            f"{array.dtype} samples do not say what full scale is; pass float samples in [-1, 1], or int16 or int32"
        )
    return ArrayAudio(array, int(rate))
