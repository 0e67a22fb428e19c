"""Audio that requests may come back to: decoded once, and found again by its content or by the caller's own name."""

from functools import cache

from audio.errors import LimitExceededError
from audio.source import Source
from audio.stream import SPEECH_RATE
from engine_bridge.cache import InputCache, open_cache
from engine_bridge.preparation import PreparationSettings, PreparedAudio, prepared
from engine_bridge.server.settings import ServerSettings


@cache
def _opened(kind: str, size: float) -> InputCache:
    return open_cache(kind, size, name="chats")


def inputs_of(settings: ServerSettings) -> InputCache:
    """Return the cache of this process, or the one that processes share: one for all that a server keeps."""
    return _opened(settings.mm_processor_cache_type, settings.mm_processor_cache_gb)


def keeps_inputs(settings: ServerSettings) -> bool:
    """Tell whether a server keeps audio at all."""
    return settings.mm_processor_cache_type != "none" and settings.mm_processor_cache_gb > 0


def held_recording(
    source: Source | None, settings: ServerSettings, sample_rate: int = SPEECH_RATE, *, uuid: str, owner: str | None
) -> PreparedAudio:
    """Return the audio that an owner calls `uuid`, decoded now if it is not there yet.

    It is held in memory as a whole, so that the limits of chats apply.

    Parameters
    ----------
    source : Source or None
        The recording, where it was sent along.
    settings : ServerSettings
        What it may cost.
    sample_rate : int
        Samples per second wanted.
    uuid : str
        The owner's name for it.
    owner : str or None
        Whose it is; nobody else is given it.

    Raises
    ------
    CacheMissError
        It was not sent along and is not there, or not any more.
    AudioError
        It cannot be decoded within the limits.

    """
    wanted = PreparationSettings(
        sample_rate=sample_rate,
        audio_backend=settings.audio_backend,
        limits=settings.chat_limits,
        isolation=settings.isolation,
        timeline="container",
    )
    try:
        return prepared(source, wanted, cache=inputs_of(settings), uuid=uuid, owner=owner)
    except LimitExceededError as error:
        raise LimitExceededError(error.source, error.reason, settings.held_limit(error.limit)) from error
