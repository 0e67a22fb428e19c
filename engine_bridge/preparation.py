"""Audio made ready for an engine: decoded, one channel, at the engine's rate, and kept in a cache."""

import json
from dataclasses import asdict, dataclass, field

import numpy as np
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
from engine_bridge.content import recalled_hash
from engine_bridge.errors import CacheMissError

_FORM = "auricle waveform 1"  # changes with what is computed from the same content and settings


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
    return cache_key(owner, "content", recalled_hash(source, owner), settings.fingerprint())


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
