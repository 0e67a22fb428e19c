"""A cache in shared memory for all processes of one user on one host.

Each value lies in an anonymous file in memory (memfd) of its own, sealed so that nobody can change it. One of the
processes keeps the files in order: it answers to a name among the abstract addresses of Unix sockets, and hands a
file's descriptor to whoever asks, who maps it. All readers thus share one copy.

Nothing of this has a name in a file system, so that nothing can stay behind: the kernel frees each file with its last
descriptor and mapping, however the processes end, and no sweeping up is needed as it would be for files in /dev/shm.
When the process that keeps them ends, its entries go, and the next process that asks takes its place. Abstract
addresses know no permissions; both ends therefore look whether the other is the same user.
"""

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import selectors
import socket
import struct
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np

from engine_bridge.cache import CacheCounters, CacheValue, InputCache, SizedLru

_PAGE_BYTES = mmap.PAGESIZE
_HEADER = struct.Struct("<QQ")  # bytes of the description, bytes of the array
_ALIGNED_BYTES = 64
_MESSAGE_BYTES = 4096
_PATIENCE_SECONDS = 5.0  # for an answer of some microseconds' work
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_CREDENTIALS = struct.Struct("3i")  # process, user, group, as SO_PEERCRED gives them


class SharedCache(InputCache):
    """A cache that all processes of this user on this host share.

    Parameters
    ----------
    capacity : int
        Bytes that it may hold, if this is the first process; what readers still map after its eviction is theirs.
    name : str
        Which cache.

    Raises
    ------
    OSError, AttributeError
        This system has no sealed files in memory, or no abstract Unix sockets.

    """

    kind = "shm"

    def __init__(self, capacity: int, *, name: str = "inputs") -> None:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._address = f"\0auricle-cache-{os.getuid()}-{digest}"
        self._capacity = capacity
        self._lock = threading.Lock()
        self._keeper: _Keeper | None = None
        self._connection: socket.socket | None = None
        self._process = os.getpid()
        self._closed = False
        os.close(_sealed_file(CacheValue(np.zeros(1, np.float32))))
        self._connect()

    def get(self, key: bytes) -> CacheValue | None:
        """Return what is kept under a key, or None; the array is the memory that all processes share."""
        answer, descriptor = self._ask({"do": "get", "key": key.hex()})
        if descriptor is None:
            return None
        try:
            return _mapped(descriptor, int(answer["size"]))
        finally:
            os.close(descriptor)

    def put(self, key: bytes, value: CacheValue) -> None:
        """Keep a value under a key; one that is larger than the whole cache is not kept."""
        if value.size > self._capacity:
            return
        descriptor = _sealed_file(value)
        try:
            self._ask({"do": "put", "key": key.hex()}, descriptor)
        finally:
            os.close(descriptor)

    def counters(self) -> CacheCounters:
        """Return what the cache has done so far, for all processes together."""
        answer, _ = self._ask({"do": "count"})
        return CacheCounters(**answer) if answer else CacheCounters(capacity=self._capacity)

    def close(self) -> None:
        """Leave; if this process keeps the entries, they go."""
        with self._lock:
            self._closed = True
            self._disconnect()
            if self._keeper is not None:
                self._keeper.close()
                self._keeper = None

    def _ask(self, question: dict[str, Any], descriptor: int | None = None) -> tuple[dict[str, Any], int | None]:
        """Return the keeper's answer; an empty one where there is none to be had, for a cache may fail to help."""
        if self._process != os.getpid():
            self._start_again_after_fork()
        with self._lock:
            if self._closed:
                return {}, None
            for _ in range(2):  # the keeper may have ended since the last question
                try:
                    if self._connection is None:
                        self._connect()
                    return _exchange(self._connection, question, descriptor)
                except (OSError, ValueError, TypeError, EOFError):
                    self._disconnect()
            return {}, None

    def _connect(self) -> None:
        for _ in range(3):  # between the two attempts another process may come or go
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(_PATIENCE_SECONDS)
            try:
                connection.connect(self._address)
            except ConnectionRefusedError:
                connection.close()
                with contextlib.suppress(OSError):
                    self._keeper = _Keeper(self._address, self._capacity)
                continue
            except OSError:
                connection.close()
                raise
            if not _is_same_user(connection):
                connection.close()
                raise PermissionError("another user answers to the name of the shared cache: give it another name")
            self._connection = connection
            return
        raise ConnectionError("no process keeps the shared cache, and this one cannot")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _start_again_after_fork(self) -> None:
        """Let go of what belongs to the parent, whose threads may have held the lock."""
        self._lock = threading.Lock()
        self._disconnect()
        self._keeper = None
        self._process = os.getpid()


class _Keeper:
    """Keeps the descriptors, in a thread, and answers one question after the other."""

    def __init__(self, address: str, capacity: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listener.bind(address)
            self._listener.listen(64)
        except OSError:
            self._listener.close()
            raise
        most = max(16, os.sysconf("SC_OPEN_MAX") // 4)
        self._files: SizedLru[int] = SizedLru(capacity, most=most, released=os.close)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._sockets = {self._wake, self._woken, self._listener}
        self._ending = False
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._end)
        self._thread = threading.Thread(target=self._serve, name="auricle-shared-cache", daemon=True)
        _KEEPERS.add(self)
        self._thread.start()

    def close(self) -> None:
        """Stop answering and let the entries go."""
        self._wake.send(b"x")
        self._thread.join()
        self.abandon()

    def abandon(self) -> None:
        """Close all descriptors: at the end, or in a child that has copies of them but not the thread."""
        _KEEPERS.discard(self)
        for each in self._sockets:
            each.close()
        self._selector.close()
        self._files.clear()

    def _serve(self) -> None:
        while not self._ending:
            for key, _ in self._selector.select():
                key.data()

    def _end(self) -> None:
        self._ending = True

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # out of descriptors, or the other end has gone
            return
        if not _is_same_user(connection):
            connection.close()
            return
        connection.settimeout(_PATIENCE_SECONDS)
        self._sockets.add(connection)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._answer_or_let_go, connection))

    def _answer_or_let_go(self, connection: socket.socket) -> None:
        try:
            self._answer(connection)
        except (OSError, ValueError, KeyError, TypeError, EOFError):  # whoever asks nonsense, or has gone
            self._selector.unregister(connection)
            self._sockets.discard(connection)
            connection.close()

    def _answer(self, connection: socket.socket) -> None:
        question, descriptor = _receive(connection)
        answer: dict[str, Any] = {}
        try:
            if question["do"] == "count":
                answer = vars(self._files.counters)
            elif question["do"] == "get":
                held = self._files.get(bytes.fromhex(question["key"]))
                if held is not None:
                    _send(connection, {"size": os.fstat(held).st_size}, held)
                    return
            elif question["do"] == "put" and descriptor is not None:
                answer = {"kept": self._keep(bytes.fromhex(question["key"]), descriptor)}
        finally:
            if descriptor is not None:
                os.close(descriptor)
        _send(connection, answer)

    def _keep(self, key: bytes, descriptor: int) -> bool:
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) != _SEALS:
            return False
        size = -(-os.fstat(descriptor).st_size // _PAGE_BYTES) * _PAGE_BYTES
        kept = os.dup(descriptor)
        if not self._files.put(key, kept, size):
            os.close(kept)
            return False
        return True


_KEEPERS: "weakref.WeakSet[_Keeper]" = weakref.WeakSet()


def _abandon_keepers() -> None:
    """In a child: let go of the parent's listening sockets and entries, which would outlive the parent."""
    for keeper in list(_KEEPERS):
        keeper.abandon()


os.register_at_fork(after_in_child=_abandon_keepers)


def _sealed_file(value: CacheValue) -> int:
    """Return the descriptor of a file in memory that holds a value and cannot be changed any more."""
    array = np.ascontiguousarray(value.array)
    described = json.dumps({"dtype": array.dtype.str, "shape": array.shape, "notes": dict(value.notes)}).encode()
    head = _HEADER.pack(len(described), array.nbytes) + described
    head += bytes(-len(head) % _ALIGNED_BYTES)
    descriptor = os.memfd_create("auricle-cache", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in (memoryview(head), array.reshape(-1).view(np.uint8).data):
            left = part
            while left.nbytes:
                left = left[os.write(descriptor, left) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _mapped(descriptor: int, size: int) -> CacheValue:
    """Return the value in a sealed file; its array is a view of the file."""
    view = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    length, array_bytes = _HEADER.unpack_from(view)
    described = json.loads(view[_HEADER.size : _HEADER.size + length])
    start = -(-(_HEADER.size + length) // _ALIGNED_BYTES) * _ALIGNED_BYTES
    dtype = np.dtype(described["dtype"])
    array = np.frombuffer(view, dtype, array_bytes // dtype.itemsize, start).reshape(described["shape"])
    return CacheValue(array, described["notes"])


def _exchange(
    connection: socket.socket | None, question: dict[str, Any], descriptor: int | None
) -> tuple[dict[str, Any], int | None]:
    if connection is None:
        raise ConnectionError("not connected")
    _send(connection, question, descriptor)
    return _receive(connection)


def _send(connection: socket.socket, message: dict[str, Any], descriptor: int | None = None) -> None:
    data = json.dumps(message).encode()
    if descriptor is None:
        connection.sendall(data)
    else:
        socket.send_fds(connection, [data], [descriptor])


def _receive(connection: socket.socket) -> tuple[dict[str, Any], int | None]:
    data, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
    try:
        message = _message(data)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors[0] if descriptors else None


def _message(data: bytes) -> dict[str, Any]:
    if not data:
        raise EOFError("the other end has gone")
    message = json.loads(data)
    if not isinstance(message, dict):
        raise TypeError("a message is an object")
    return message


def _is_same_user(connection: socket.socket) -> bool:
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(user == os.getuid())
