"""What a server allows strangers, and where it is said: the ``audio`` part of vLLM's ``--media-io-kwargs``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from audio.decoders.auto import AUTO_ORDER
from audio.isolation import Isolation
from audio.limits import DecodeLimits
from audio.stream import SPEECH_RATE
from engine_bridge.cache import CACHE_TYPES
from engine_bridge.errors import UnsupportedOptionError
from engine_bridge.media import MediaPolicy

BACKENDS = ("auto", *AUTO_ORDER)

_LIMITS = tuple(each.name for each in fields(DecodeLimits))


@dataclass(frozen=True)
class ServerSettings:
    """What a server allows.

    Attributes
    ----------
    audio_backend : str
        The decoder: "auto", or one by name. The one setting that requests may change.
    limits : DecodeLimits
        What decoding one recording may cost; `DecodeLimits.strict()` by default.
    max_chat_seconds : float or None
        Seconds of audio in a part of a chat, or in a recording kept under a `uuid`: it is held in memory as a whole.
    sample_rate : int or None
        Samples per second of the audio in chats: 16 kHz, which the models expect, so that nothing is resampled twice;
        None keeps the recording's own.
    mm_processor_cache_type : {"none", "processor_only", "lru", "shm"}
        How decoded audio of chats is kept for when it is sent again: see `engine_bridge.cache.open_cache`.
    mm_processor_cache_gb : float
        GiB of decoded audio that are kept; none by default.
    isolate : bool
        Decode in a process of its own, so that a crash or a hang in a codec costs one request. It adds its start to
        each request: 0.7 s on two busy cores.
    max_recordings : int
        Recordings that are transcribed at once; more are refused with status 503 until one of them is done.
    media : MediaPolicy
        What addresses in requests may lead to.

    Raises
    ------
    ValueError
        A value makes no sense.

    """

    audio_backend: str = "auto"
    limits: DecodeLimits = field(default_factory=DecodeLimits.strict)
    max_chat_seconds: float | None = 600.0
    sample_rate: int | None = SPEECH_RATE
    mm_processor_cache_type: str = "processor_only"
    mm_processor_cache_gb: float = 0.0
    isolate: bool = True
    max_recordings: int = 64
    media: MediaPolicy = field(default_factory=MediaPolicy)

    def __post_init__(self) -> None:
        if self.audio_backend not in BACKENDS:
            raise ValueError(f"there is no audio backend {self.audio_backend!r}: choose {', '.join(BACKENDS)}")
        for name in ("max_chat_seconds", "sample_rate", "max_recordings"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}: give a number above 0")
        if self.mm_processor_cache_type not in CACHE_TYPES:
            kinds = ", ".join(CACHE_TYPES)
            raise ValueError(f"mm_processor_cache_type is {self.mm_processor_cache_type!r}: choose {kinds}")
        if not 0 <= self.mm_processor_cache_gb < float("inf"):
            raise ValueError(f"mm_processor_cache_gb is {self.mm_processor_cache_gb!r}: give GiB, from 0 on")

    @classmethod
    def from_options(
        cls,
        options: Mapping[str, Any] | None,
        *,
        allowed_domains: Sequence[str] | None = None,
        allowed_local_path: str | None = None,
        allow_redirects: bool = True,
    ) -> "ServerSettings":
        """Return the settings that a server was started with.

        Parameters
        ----------
        options : mapping or None
            ``audio_backend``; the fields of `DecodeLimits`, where null sets no limit; ``max_chat_seconds``,
            ``sample_rate``, ``mm_processor_cache_type``, ``mm_processor_cache_gb``, ``isolate`` and
            ``max_recordings``; for addresses, ``allow_private_addresses`` and
            ``fetch_seconds``.
        allowed_domains, allowed_local_path
            See `MediaPolicy`.
        allow_redirects : bool
            Whether redirects are followed at all.

        Raises
        ------
        ValueError
            There is no such option, or its value makes no sense.

        """
        given = dict(options or {})
        unknown = given.keys() - _OPTIONS.keys()
        if unknown:
            raise ValueError(f"there is no audio option {min(unknown)!r}: choose among {', '.join(_OPTIONS)}")
        values = {name: _OPTIONS[name](name, value) for name, value in given.items()}
        limits = replace(DecodeLimits.strict(), **{name: values.pop(name) for name in _LIMITS if name in values})
        media = MediaPolicy(
            allowed_domains=tuple(allowed_domains or ()),
            allowed_local_path=allowed_local_path or None,
            allow_private_addresses=values.pop("allow_private_addresses", False),
            max_bytes=limits.max_encoded_bytes,
            max_redirects=MediaPolicy.max_redirects if allow_redirects else 0,
            deadline_seconds=values.pop("fetch_seconds", MediaPolicy.deadline_seconds),
        )
        return cls(limits=limits, media=media, **values)

    def for_request(self, options: Mapping[str, Any] | None) -> "ServerSettings":
        """Return the settings for a request that brings options of its own.

        Raises
        ------
        UnsupportedOptionError
            It asks for anything else than a backend.

        """
        check_request_options(options)
        return replace(self, audio_backend=str(options["audio_backend"])) if options else self

    @property
    def isolation(self) -> Isolation | None:
        """The bounds of the decoder's own process, if it has one."""
        return Isolation() if self.isolate else None

    @property
    def chat_limits(self) -> DecodeLimits:
        """The limits for a part of a chat."""
        lengths = [each for each in (self.limits.max_seconds, self.max_chat_seconds) if each is not None]
        return replace(self.limits, max_seconds=min(lengths, default=None))

    def held_limit(self, limit: str) -> str:
        """Return the option that a limit of audio held in memory comes from."""
        is_its_own = self.chat_limits.max_seconds != self.limits.max_seconds
        return "max_chat_seconds" if limit == "max_seconds" and is_its_own else limit


def check_request_options(options: Mapping[str, Any] | None) -> None:
    """Raise UnsupportedOptionError if a request asks for anything else than a backend that there is."""
    for name, value in (options or {}).items():
        if name != "audio_backend":
            raise UnsupportedOptionError(
                f"the audio option {name!r} is the server's to set: a request may choose audio_backend alone"
            )
        if value not in BACKENDS:
            raise UnsupportedOptionError(f"there is no audio_backend {value!r}: choose {', '.join(BACKENDS)}")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}: give a text")  # noqa: TRY004 - servers stop at any ValueError
    return value


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}: give true or false")  # noqa: TRY004 - see above
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}: give a number")  # noqa: TRY004 - see above
    return value


def _limit(name: str, value: Any) -> float | None:
    return None if value is None else _number(name, value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}: give a whole number")  # noqa: TRY004 - see above
    return value


_OPTIONS: dict[str, Callable[[str, Any], Any]] = {
    "audio_backend": _text,
    **dict.fromkeys(_LIMITS, _limit),
    "max_chat_seconds": _limit,
    "sample_rate": lambda name, value: None if value is None else _count(name, value),
    "mm_processor_cache_type": _text,
    "mm_processor_cache_gb": _number,
    "isolate": _truth,
    "max_recordings": _count,
    "allow_private_addresses": _truth,
    "fetch_seconds": _number,
}
