"""What tells one recording's content from every other."""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from typing import BinaryIO

import numpy as np
from blake3 import blake3

from audio.source import Source

_PIECE_BYTES = 1 << 22
_GMAC_BYTES = 1 << 30  # OpenSSL takes less than 2 GiB at once
_MOST_WORKERS = 4  # hash faster than memory is read, and of a file two pieces for each are in memory
SETTLED_NANOSECONDS = 2_000_000_000
"""Age from which on a file's times are believed to change with its content; some file systems count whole seconds."""

_MOST_KNOWN = 512
_known_hashes: dict[tuple[object, ...], bytes] = {}
_known_lock = threading.Lock()


def content_hash(source: Source) -> bytes:
    """Return a hash of a recording's whole content, 32 bytes.

    It is the BLAKE3 of the BLAKE3s of its pieces of 4 MiB, which several cores work out side by side: where audio is
    not compressed even SHA-256 takes a fourth as long as decoding. BLAKE3's own threads are not used, as they do not
    outlive a fork. A file on disk that has not changed since it was read last, by its inode, size and times, is not
    read again.

    Parameters
    ----------
    source : Source
        Bytes count as they are; an array counts with its shape, type and sample rate.

    """
    inside = _in_memory(source)
    if inside is not None:
        return _hash_of_pieces(blake3(inside[0]), _parts(inside[1]))
    identity = _identity(source)
    known = _known(identity)
    if known is not None:
        return known
    with source.open() as reader:
        found = _hash_of_pieces(blake3(), _pieces(reader, source.size))
    if identity is not None and identity == _identity(source):
        _remember(identity, found)
    return found


def recalled_hash(source: Source, owner: str | None = None) -> bytes:
    """Return the `content_hash` of a recording that this process may have been given before.

    What is in memory is recognised by its GMAC (NIST SP 800-38D) under a key that this process draws and keeps: two
    contents of one length have the same one with a probability below 2**-100, whoever chose them, as nobody is told
    the key or a GMAC. It takes a third of the time of BLAKE3, which uncompressed audio is decoded nearly as fast as.
    Without the package `cryptography` each content is hashed anew.

    Parameters
    ----------
    source : Source
        As for `content_hash`.
    owner : str or None
        Whose it is. What others have given is not recalled, or the time taken would tell that they have it too.

    """
    inside = _in_memory(source)
    tag = _gmac() if inside is not None and len(inside[1]) >= _PIECE_BYTES else None
    if inside is None or tag is None:
        return content_hash(source)
    kind, content = inside
    middle = len(content) // 2
    second = _beside().submit(_tags, tag, content[middle:])
    identity = (owner, kind, len(content), *_tags(tag, content[:middle]), *second.result())
    found = _known(identity)
    if found is None:
        found = _hash_of_pieces(blake3(kind), _parts(content))
        _remember(identity, found)
    return found


@cache
def _beside() -> ThreadPoolExecutor:
    """Return threads that recognise other halves. They stay: to start one takes a tenth of recognising 20 MB."""
    return ThreadPoolExecutor(_MOST_WORKERS, thread_name_prefix="auricle-recall")


os.register_at_fork(after_in_child=_beside.cache_clear)  # a child has the pool but not its threads


def _tags(tag: Callable[[memoryview], bytes], content: memoryview) -> list[bytes]:
    return [tag(content[at : at + _GMAC_BYTES]) for at in range(0, len(content), _GMAC_BYTES)]


@cache
def _gmac() -> Callable[[memoryview], bytes] | None:
    """Return what authenticates a piece under this process's own key, or None where the package for it is absent."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        return None
    # A nonce that is used again gives the key away to who sees several tags of it. Nobody sees one.
    key, nonce = AESGCM(secrets.token_bytes(32)), secrets.token_bytes(12)
    return lambda piece: key.encrypt(nonce, b"", piece)


def _in_memory(source: Source) -> tuple[bytes, memoryview] | None:
    """Return what tells an array's kind, and the content; None for what has to be read."""
    if source.array is not None:
        samples = np.ascontiguousarray(source.array.samples)
        kind = f"{samples.dtype.str} {samples.shape} {source.array.sample_rate}\n".encode()
        return kind, samples.data.cast("B") if samples.nbytes else memoryview(b"")
    if source.data is not None:
        return b"", memoryview(source.data).cast("B")
    return None


def _known(identity: tuple[object, ...] | None) -> bytes | None:
    return None if identity is None else _known_hashes.get(identity)


def _remember(identity: tuple[object, ...], found: bytes) -> None:
    with _known_lock:
        if len(_known_hashes) >= _MOST_KNOWN:
            _known_hashes.clear()
        _known_hashes[identity] = found


def _identity(source: Source) -> tuple[int, ...] | None:
    """Return what tells a state of a file on disk from every other; None where nothing does."""
    if source.path is None:
        return None
    status = os.stat(source.path)  # noqa: PTH116 - the path as it was given
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < SETTLED_NANOSECONDS:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _parts(content: memoryview) -> Iterator[memoryview]:
    return (content[at : at + _PIECE_BYTES] for at in range(0, len(content), _PIECE_BYTES))


def _hash_of_pieces(whole: blake3, pieces: Iterator[bytes | memoryview]) -> bytes:
    first = list(islice(pieces, 2))
    if len(first) < 2:  # one piece needs no threads, and most of many recordings are one
        for piece in first:
            whole.update(_hash_of(piece))
        return whole.digest()
    pieces = chain(first, pieces)
    workers = min(len(os.sched_getaffinity(0)), _MOST_WORKERS)
    with ThreadPoolExecutor(workers, thread_name_prefix="auricle-hash") as pool:
        while group := list(islice(pieces, 2 * workers)):  # not the whole recording at once
            for digest in pool.map(_hash_of, group):
                whole.update(digest)
    return whole.digest()


def _pieces(reader: BinaryIO, size: int | None) -> Iterator[bytes]:
    """Yield a file's pieces; room for a whole one is not taken for a file that is smaller."""
    if size is not None and size < _PIECE_BYTES:
        first = reader.read(size + 1)
        if len(first) > size:  # it has grown
            first += reader.read(_PIECE_BYTES - len(first))
        if first:
            yield first
        if len(first) < _PIECE_BYTES:
            return
    while piece := reader.read(_PIECE_BYTES):
        yield piece


def _hash_of(piece: bytes | memoryview) -> bytes:
    return blake3(piece).digest()
