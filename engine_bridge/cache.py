"""Inputs that are kept after they were prepared, so that the same audio is not decoded twice.

Four kinds, named as vLLM names them (`mm_processor_cache_type`, `mm_processor_cache_gb`):

- ``none`` keeps nothing.
- ``processor_only`` keeps values in this process.
- ``lru`` keeps keys where audio is prepared and values where it is used, both in step: see `cache_mirrored`.
- ``shm`` keeps one copy for all processes of this user on this host: see `cache_shared`.

What lies in a cache is found by a key of 32 bytes from `cache_key`, which always holds the owner: what one owner has
put in is never given to another, not even where both send the same audio.
"""

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

logger = logging.getLogger(__name__)

CACHE_TYPES = ("none", "processor_only", "lru", "shm")
"""The kinds of cache there are."""

DEFAULT_GB = 4.0
"""Size of a cache in GiB unless it is given: vLLM's default."""

_OVERHEAD_BYTES = 512  # what Python takes for an entry beside its samples and notes
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class CacheCounters:
    """What a cache has done so far.

    Attributes
    ----------
    hits, misses : int
        Questions that were answered, and that were not.
    evictions : int
        Entries that made room for others.
    entries : int
        Entries held now.
    bytes : int
        Bytes held now; never above `capacity`.
    capacity : int
        Bytes that may be held.

    """

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    entries: int = 0
    bytes: int = 0
    capacity: int = 0


@dataclass(frozen=True, eq=False)
class CacheValue:
    """What a cache holds: one array and what is to be known of it.

    Attributes
    ----------
    array : ndarray
        Of any shape and numeric dtype. It cannot be written to, for others may have the same one.
    notes : mapping
        What JSON can hold.

    """

    array: NDArray[Any]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.array.setflags(write=False)

    @property
    def size(self) -> int:
        """Bytes that it counts with."""
        return self.array.nbytes + len(json.dumps(self.notes)) + _OVERHEAD_BYTES


def cache_key(owner: str | None, *parts: bytes | str) -> bytes:
    """Return the key of what belongs to an owner and is told from the owner's other things by `parts`.

    Parameters
    ----------
    owner : str or None
        Whom it belongs to, such as an API key's name; None where there is only one owner, who is nobody else's.
    parts : bytes or str
        Such as a content hash and the settings. ``("ab", "c")`` is not ``("a", "bc")``.

    Returns
    -------
    bytes
        SHA-256 of all of it, 32 bytes.

    """
    digest = hashlib.sha256(b"\0" if owner is None else b"\1")
    for part in ("" if owner is None else owner, *parts):
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


class SizedLru(Generic[_Value]):
    """Values up to a number of bytes; the one that was not asked for the longest makes room. Not thread-safe.

    Parameters
    ----------
    capacity : int
        Bytes; never exceeded, not even for a moment.
    most : int, optional
        The most entries.
    released : callable, optional
        Called with each value that leaves.

    """

    def __init__(
        self, capacity: int, *, most: int | None = None, released: Callable[[_Value], object] | None = None
    ) -> None:
        self._capacity = capacity
        self._most = most
        self._released = released
        self._entries: OrderedDict[bytes, tuple[int, _Value]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def get(self, key: bytes) -> _Value | None:
        """Return a value, which then counts as used last, or None."""
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: bytes, value: _Value, size: int) -> bool:
        """Keep a value of so many bytes and tell whether there is room for it at all."""
        self.drop(key)
        if size > self._capacity:
            return False
        while self._bytes + size > self._capacity or (self._most is not None and len(self._entries) >= self._most):
            self.drop(next(iter(self._entries)))
            self._evictions += 1
        self._entries[key] = (size, value)
        self._bytes += size
        return True

    def drop(self, key: bytes) -> None:
        """Let go of a value, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[0]
            if self._released is not None:
                self._released(entry[1])

    def clear(self) -> None:
        """Let go of everything."""
        for key in list(self._entries):
            self.drop(key)

    @property
    def counters(self) -> CacheCounters:
        """What it has done so far."""
        return CacheCounters(self._hits, self._misses, self._evictions, len(self._entries), self._bytes, self._capacity)


class InputCache:
    """A cache that keeps nothing, and what all caches can do. Every method may be called from any thread."""

    kind = "none"
    """Which of `CACHE_TYPES` it is."""

    def get(self, key: bytes) -> CacheValue | None:  # noqa: ARG002 (nothing is kept)
        """Return what is kept under a key of 32 bytes, or None."""
        return None

    def put(self, key: bytes, value: CacheValue) -> None:
        """Keep a value under a key, as long as there is room."""

    def counters(self) -> CacheCounters:
        """Return what the cache has done so far."""
        return CacheCounters()

    def close(self) -> None:
        """Give back what it holds. Arrays that were handed out stay readable."""


class ProcessCache(InputCache):
    """A cache in this process.

    Parameters
    ----------
    capacity : int
        Bytes that it may hold.

    """

    kind = "processor_only"

    def __init__(self, capacity: int) -> None:
        self._values: SizedLru[CacheValue] = SizedLru(capacity)
        self._lock = threading.Lock()

    def get(self, key: bytes) -> CacheValue | None:
        """Return what is kept under a key, or None."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: bytes, value: CacheValue) -> None:
        """Keep a value under a key; one that is larger than the whole cache is not kept."""
        with self._lock:
            self._values.put(key, value, value.size)

    def counters(self) -> CacheCounters:
        """Return what the cache has done so far."""
        with self._lock:
            return self._values.counters

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()


def open_cache(
    mm_processor_cache_type: str = "processor_only",
    mm_processor_cache_gb: float = DEFAULT_GB,
    *,
    name: str = "inputs",
) -> InputCache:
    """Open a cache.

    Parameters
    ----------
    mm_processor_cache_type : {"none", "processor_only", "lru", "shm"}
        Which kind; see this module. Where shared memory cannot be had, "shm" becomes "processor_only" and a warning
        is logged.
    mm_processor_cache_gb : float
        Its size in GiB; 0 keeps nothing.
    name : str
        Processes share a cache of the kind "shm" if they give it the same name. The size is that of the first of them.

    Raises
    ------
    ValueError
        The kind is not known, or the size makes no sense.

    """
    if mm_processor_cache_type not in CACHE_TYPES:
        raise ValueError(f"mm_processor_cache_type is {mm_processor_cache_type!r}: use one of {', '.join(CACHE_TYPES)}")
    if not 0 <= mm_processor_cache_gb < float("inf"):
        raise ValueError(f"mm_processor_cache_gb is {mm_processor_cache_gb!r}: give GiB, from 0 on")
    capacity = int(mm_processor_cache_gb * 2**30)
    if mm_processor_cache_type == "none" or not capacity:
        return InputCache()
    if mm_processor_cache_type == "lru":
        from engine_bridge.cache_mirrored import MirroredCache

        return MirroredCache(capacity)
    if mm_processor_cache_type == "shm":
        from engine_bridge.cache_shared import SharedCache

        try:
            return SharedCache(capacity, name=name)
        except (OSError, AttributeError) as error:
            logger.warning(
                "a cache in shared memory cannot be had here (%s): each process keeps its own, as with processor_only",
                error,
            )
    return ProcessCache(capacity)
