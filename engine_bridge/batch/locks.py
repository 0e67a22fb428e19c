"""Locks on single bytes of a file, which the kernel frees when a process ends, however it does."""

import errno
import fcntl
import os
import struct
import threading
from pathlib import Path

_FLOCK = struct.Struct("hhqqi0q")  # struct flock of Linux: type, whence, start, length, process


class ByteLocks:
    """Holds bytes of a file against all other objects of this class, in this process and in others.

    Where the system has locks of open files (Linux), they are these: those of POSIX belong to the process, and closing
    any descriptor of the file would free them all.

    Parameters
    ----------
    path : path
        The file. It stays empty: bytes beyond its end can be locked as well.

    Raises
    ------
    OSError
        The file cannot be opened, or its file system has no locks.

    """

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._lock = threading.Lock()
        self._held: set[int] = set()

    def acquire(self, position: int) -> bool:
        """Take a byte without waiting for it, and return whether it is taken now."""
        with self._lock:
            if position in self._held or self._descriptor is None:
                return False
            try:
                self._set(position, fcntl.F_WRLCK)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    return False
                raise
            self._held.add(position)
            return True

    def release(self, position: int) -> None:
        """Free a byte, if it is held."""
        with self._lock:
            if position in self._held:
                self._held.discard(position)
                self._set(position, fcntl.F_UNLCK)

    def close(self) -> None:
        """Free all bytes. It may be called more than once."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            self._held.clear()

    def _set(self, position: int, kind: int) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            return
        command = getattr(fcntl, "F_OFD_SETLK", None)
        if command is not None:
            fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, position, 1, 0))
        elif kind == fcntl.F_UNLCK:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, position)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, position)
