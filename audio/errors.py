"""Everything `audio` raises on purpose, in one tree.

::

    AudioError
    ├── InvalidSourceError          (TypeError)          not a path, bytes, binary file or (array, rate)
    ├── AudioFileNotFoundError      (FileNotFoundError)  no such file, or a folder
    ├── DecodeError                 the source cannot be turned into samples
    │   ├── UnreadableAudioError    no backend recognises the bytes, or none of them survives decoding
    │   ├── EmptyAudioError         the source holds no bytes at all
    │   ├── NoAudioStreamError      a valid container without a decodable audio stream
    │   └── SelectionError          the track or range of time that was asked for is not in the source
    ├── BackendUnavailableError     (ImportError)        a decoder or resampler that is absent or cannot load here
    ├── ChannelLayoutError          (ValueError)         a layout that is ambiguous or does not fit the array
    ├── ResampleError               (ValueError)         a sample rate that cannot be converted
    ├── SplitError                  (ValueError)         lengths that no splitting can satisfy
    └── LimitExceededError          (ValueError)         a decode that would cost more than its limits allow

Each message is one sentence that names the source, the reason and what to do next; the parts stay available as fields.
"""


class AudioError(Exception):
    """Anything that goes wrong between a source and its chunks."""


class InvalidSourceError(AudioError, TypeError):
    """The source is not something that can be decoded."""


class AudioFileNotFoundError(AudioError, FileNotFoundError):
    """The path does not exist or is not a file."""


class DecodeError(AudioError):
    """The source cannot be turned into samples.

    Attributes
    ----------
    source : str
        The source's name as the user knows it: a path, or "<bytes>" and the like.
    reason : str
        What is wrong with it.

    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class UnreadableAudioError(DecodeError):
    """No backend recognises the bytes as audio, or none of them survives decoding."""


class EmptyAudioError(DecodeError):
    """The source holds no bytes at all."""


class NoAudioStreamError(DecodeError):
    """The container is valid but holds no audio stream that can be decoded."""


class SelectionError(DecodeError):
    """The track or the range of time that was asked for is not in the source."""


class BackendUnavailableError(AudioError, ImportError):
    """A decoder or resampler that is absent or cannot load on this machine.

    Attributes
    ----------
    backend : str
        The backend's name, such as "torchcodec".
    reason : str
        Why it cannot be used, from a real attempt to use it.
    remedy : str
        The way to get it.

    """

    def __init__(self, backend: str, reason: str, remedy: str) -> None:
        super().__init__(backend, reason, remedy)
        self.backend = backend
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.backend} cannot be used here: {self.reason}. {self.remedy}"


class ChannelLayoutError(AudioError, ValueError):
    """The channel layout is ambiguous or does not fit the array."""


class ResampleError(AudioError, ValueError):
    """The sample rate cannot be converted."""


class SplitError(AudioError, ValueError):
    """The asked-for lengths cannot be satisfied by any splitting."""


class LimitExceededError(AudioError, ValueError):
    """Decoding would cost more than its limits allow.

    Attributes
    ----------
    source : str
        The source's name.
    reason : str
        What is too much, what is allowed, and how to allow more.
    limit : str
        The field of `audio.limits.DecodeLimits` that is exceeded, such as "max_seconds".

    """

    def __init__(self, source: str, reason: str, limit: str) -> None:
        super().__init__(source, reason, limit)
        self.source = source
        self.reason = reason
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"
