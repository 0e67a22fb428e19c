"""A place of its own to read from, on bytes that others may read at the same time."""

import io
import os
from collections.abc import Callable
from typing import Any


class Reader(io.RawIOBase):
    """A seekable reader with a position of its own on bytes that others may read at the same time.

    Seeking only notes the position. Decoders seek to where a damaged header points, far behind the end at times; they
    then read nothing, as they would expect, where the system's own seek would fail.

    Parameters
    ----------
    read_at : callable (offset, size) -> bytes
        Reads at a position; gives fewer bytes, or none, at the end.
    size : int
        Where the bytes end.
    release : callable, optional
        Called once, when the reader is closed.

    """

    def __init__(
        self, read_at: Callable[[int, int], bytes], size: int, release: Callable[[], None] | None = None
    ) -> None:
        super().__init__()
        self._read_at = read_at
        self._size = size
        self._release = release
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer` from the current position and return the number of bytes written, 0 at the end."""
        target = memoryview(buffer).cast("B")
        wanted = min(len(target), self._size - self._position)
        data = self._read_at(self._position, wanted) if wanted > 0 else b""
        target[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move this reader alone and return its new position."""
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._size
        if offset < 0:
            raise ValueError(f"cannot seek to {offset}, before the beginning")
        self._position = offset
        return offset

    def tell(self) -> int:
        """Return the current position."""
        return self._position

    def close(self) -> None:
        """Close this reader alone."""
        if not self.closed and self._release is not None:
            self._release()
        super().close()
