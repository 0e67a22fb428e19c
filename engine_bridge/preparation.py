"""Audio made ready for an engine: decoded, one channel, at the engine's rate, and kept in a cache."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import BinaryIO

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from audio.channels import ChannelReduction
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.mixing import ChannelChoice
from audio.positions import seconds_from_samples
from audio.selection import Timeline
from audio.source import AudioSource, Source
from audio.stream import SPEECH_RATE, open_stream
from engine_bridge.cache import CacheValue, InputCache, cache_key
from engine_bridge.errors import CacheMissError

_FORM = "auricle waveform 1"  # changes with what is computed from the same content and settings
_PIECE_BYTES = 1 << 22
_MOST_WORKERS = 4  # hash faster than memory is read, and of a file two pieces for each are in memory
SETTLED_NANOSECONDS = 2_000_000_000
"""Age from which on a file's times are believed to change with its content; some file systems count whole seconds."""

_MOST_KNOWN = 512
_known_hashes: dict[tuple[int, ...], bytes] = {}


@dataclass(frozen=True)
class PreparationSettings:
    """How audio is made ready; audio that was made ready otherwise is not the same.

    Attributes
    ----------
    sample_rate : int or None
        Samples per second wanted; None keeps those of the recording.
    audio_backend : str
        The decoder: "auto", or one by name.
    channel_reduction : ChannelReduction, "left", "right" or int
        How several channels become one.
    track : int, str or None
        The audio track, as for `audio.open_stream`.
    from_seconds, to_seconds : float, float or None
        The range of time.
    timeline : {"file", "container"}
        Where time 0 is.
    limits : DecodeLimits
        What the decode may cost. Audio that was admitted under other limits is not taken.
    isolation : Isolation or None
        Bounds for decoding in a process of its own; the result does not depend on it.

    """

    sample_rate: int | None = SPEECH_RATE
    audio_backend: str = "auto"
    channel_reduction: ChannelChoice = ChannelReduction.MEAN
    track: int | str | None = None
    from_seconds: float = 0.0
    to_seconds: float | None = None
    timeline: Timeline = "file"
    limits: DecodeLimits = field(default_factory=DecodeLimits.generous)
    isolation: Isolation | None = None

    def fingerprint(self) -> str:
        """Return a text that differs wherever the prepared audio may."""
        settings = asdict(self)
        del settings["isolation"]
        return json.dumps([_FORM, settings], sort_keys=True, default=repr)


@dataclass(frozen=True, eq=False)
class PreparedAudio:
    """Audio that is ready for an engine.

    Attributes
    ----------
    samples : ndarray, shape (frames,), float32 in [-1, 1]
        One channel; it cannot be written to, for others may have the same array.
    sample_rate : int
        Samples per second.
    backend : str
        The decoder that read it.
    warnings : tuple of str
        What the decoder told.
    cached : bool
        Whether it was there already.

    """

    samples: NDArray[np.float32]
    sample_rate: int
    backend: str
    warnings: tuple[str, ...]
    cached: bool

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return seconds_from_samples(len(self.samples), self.sample_rate)


def prepared(
    source: "AudioSource | None",
    settings: PreparationSettings | None = None,
    *,
    cache: InputCache,
    uuid: str | None = None,
    owner: str | None = None,
) -> PreparedAudio:
    """Return audio ready for an engine, from the cache where it is there.

    It is found by the caller's `uuid`, which is believed, or else by the hash of the whole content; and always by the
    settings and the owner.

    Parameters
    ----------
    source : path, bytes, binary file, (array, sample rate) or None
        The recording. None where `uuid` alone is to do, which it does while the entry lives.
    settings : PreparationSettings, optional
        How it is made ready; 16 kHz by default.
    cache : InputCache
        Where it is looked for and kept; see `engine_bridge.cache.open_cache`.
    uuid : str or None
        The caller's name for the recording.
    owner : str or None
        Whose recording it is. Nobody else is given it.

    Raises
    ------
    CacheMissError
        There is only a `uuid`, and nothing in the cache by that name.
    ValueError
        There is neither a source nor a `uuid`.
    AudioError
        The source cannot be decoded within the limits.

    """
    settings = settings if settings is not None else PreparationSettings()
    if source is None and uuid is None:
        raise ValueError("there is neither audio nor a uuid: send one of them")
    opened = None if source is None else Source.of(source, settings.limits)
    key = _key(opened, settings, uuid, owner) if cache.kind != "none" else b""
    kept = cache.get(key)
    if kept is not None:
        return _audio(kept, cached=True)
    if opened is None:
        raise CacheMissError(
            f"audio with the uuid {uuid!r} is not in the cache, or not any more: send the audio itself again"
        )
    value = _decoded(opened, settings)
    cache.put(key, value)
    return _audio(value, cached=False)


def _key(source: Source | None, settings: PreparationSettings, uuid: str | None, owner: str | None) -> bytes:
    if uuid is not None or source is None:
        return cache_key(owner, "uuid", uuid or "", settings.fingerprint())
    return cache_key(owner, "content", content_hash(source), settings.fingerprint())


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
    whole = blake3()
    if source.array is not None:
        samples = np.ascontiguousarray(source.array.samples)
        whole.update(f"{samples.dtype.str} {samples.shape} {source.array.sample_rate}\n".encode())
        return _hash_of_pieces(whole, _parts(samples.data.cast("B") if samples.nbytes else memoryview(b"")))
    if source.data is not None:
        return _hash_of_pieces(whole, _parts(memoryview(source.data)))
    identity = _identity(source)
    known = _known_hashes.get(identity) if identity is not None else None
    if known is not None:
        return known
    with source.open() as reader:
        found = _hash_of_pieces(whole, _pieces(reader, source.size))
    if identity is not None and identity == _identity(source):
        if len(_known_hashes) >= _MOST_KNOWN:
            _known_hashes.clear()
        _known_hashes[identity] = found
    return found


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


def _decoded(source: Source, settings: PreparationSettings) -> CacheValue:
    with open_stream(
        source,
        settings.sample_rate,
        backend=settings.audio_backend,
        reduction=settings.channel_reduction,
        limits=settings.limits,
        track=settings.track,
        from_seconds=settings.from_seconds,
        to_seconds=settings.to_seconds,
        timeline=settings.timeline,
        isolation=settings.isolation,
    ) as stream:
        blocks = [block.copy() for block in stream]
        samples = np.concatenate(blocks) if blocks else np.empty(0, np.float32)
        notes = {"sample_rate": stream.sample_rate, "backend": stream.info.backend, "warnings": stream.warnings}
        return CacheValue(samples, notes)


def _audio(value: CacheValue, *, cached: bool) -> PreparedAudio:
    notes = value.notes
    return PreparedAudio(value.array, notes["sample_rate"], notes["backend"], tuple(notes["warnings"]), cached)
