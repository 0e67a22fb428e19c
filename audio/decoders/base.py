"""What all backends share: the verdict on whether a library works, and the translation of its errors."""

from __future__ import annotations

import re
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from audio.decoders.protocol import Block, Decoder
from audio.errors import AudioError, BackendUnavailableError, UnreadableAudioError
from audio.info import AudioInfo
from audio.selection import EVERYTHING, Selection
from audio.source import Source

FOREIGN_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    EOFError,
    SyntaxError,
    ImportError,
)
"""What decoding libraries have been seen to raise on bad files and on bad installations."""

_PROBE_FRAMES = 800

_CODE_POSITION = re.compile(r"^.*\.(cpp|h|py):\d+,\s*")
"""The function, file and line that torch puts before its messages."""


def _probe_clip() -> bytes:
    """Return a tenth of a second of 16-bit mono WAV at 8 kHz."""
    samples = struct.pack(f"<{_PROBE_FRAMES}h", *(256 * (n % 64) - 8192 for n in range(_PROBE_FRAMES)))
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def brief(error: BaseException) -> str:
    """Return the first line of an error's text, short enough for a sentence, or its class name if it has no text."""
    said = getattr(error, "strerror", None) or getattr(error, "error_string", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    text = _CODE_POSITION.sub("", text).rstrip(". ")
    return text if len(text) <= 160 else text[:157] + "..."


@contextmanager
def translated(source: Source, backend: str, *more: type[Exception]) -> Iterator[None]:
    """Turn whatever a library raises into an `UnreadableAudioError`; let this package's own errors pass.

    Parameters
    ----------
    source : Source
        What is being decoded.
    backend : str
        The name of the backend, for the message.
    *more : exception classes
        The library's own classes, where they derive from nothing but Exception.

    """
    foreign: tuple[type[Exception], ...] = FOREIGN_ERRORS + more
    try:
        yield
    except AudioError:
        raise
    except foreign as error:
        raise UnreadableAudioError(source.name, f"{backend} cannot read it ({brief(error)})") from error


class DecoderBase(ABC):
    """A decoder with the parts that all of them need.

    Parameters
    ----------
    info : AudioInfo
        What the source claims.
    doubt : str, optional
        Why this backend is known to give less of this source than another one would.

    """

    def __init__(self, info: AudioInfo, doubt: str | None = None) -> None:
        self._info = info
        self._warnings: list[str] = []
        self._doubt = doubt

    @property
    def doubt(self) -> str | None:
        """Why this backend is known to give less of this source than another one would; None if it is not."""
        return self._doubt

    @property
    def info(self) -> AudioInfo:
        """What the source claims."""
        return self._info

    @property
    def warnings(self) -> list[str]:
        """What went wrong so far, one sentence each."""
        return self._warnings

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the audio in order."""

    def enter(self, selection: Selection) -> bool:  # noqa: ARG002 - those that can seek override it
        """Go to the beginning of another range, and return whether that is done."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Let go of the source."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class BackendBase(ABC):
    """A backend that has proved itself, once per process, before it is trusted with a source."""

    name: str
    remedy: str

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried = False
        self._fault: str | None = None

    @abstractmethod
    def _open(self, source: Source, selection: Selection) -> Decoder:
        """Begin to decode a source; the library may be absent and any error may escape."""

    def load(self) -> None:
        """Decode a short clip in memory, the first time, and remember whether that worked.

        That a package can be found proves nothing: its native libraries may be missing or of another version.

        Raises
        ------
        BackendUnavailableError
            The library is absent or does not work here.

        """
        with self._lock:
            if not self._tried:
                self._fault = self._try()
                self._tried = True
        if self._fault is not None:
            raise BackendUnavailableError(self.name, self._fault, self.remedy)

    def rule_out(self, reason: str) -> None:
        """Treat the library as one that does not work here, for the life of the process."""
        with self._lock:
            self._tried, self._fault = True, reason

    def open(self, source: Source, selection: Selection = EVERYTHING) -> Decoder:
        """Begin to decode the wanted part of a source, from its beginning or from somewhat before.

        Raises
        ------
        BackendUnavailableError
            The library does not work here.
        NoAudioStreamError
            The container is valid and holds no audio that can be decoded.
        SelectionError
            The wanted track is not in it, or this backend cannot tell.
        UnreadableAudioError
            This backend cannot read it.

        """
        self.load()
        with translated(source, self.name, *self._own_errors()):
            return self._open(source, selection)

    def _own_errors(self) -> tuple[type[Exception], ...]:
        """Return the library's error classes that derive from nothing but Exception."""
        return ()

    def _try(self) -> str | None:
        clip = _probe_clip()
        source = Source("a test clip", data=clip, size=len(clip))
        try:
            with self._open(source, EVERYTHING) as decoder:
                frames = sum(len(block) for block in decoder.blocks())
        except FOREIGN_ERRORS as error:
            return brief(error)
        except AudioError as error:
            return brief(error.__cause__ or error)
        if frames != _PROBE_FRAMES:
            return f"it gave {frames} of the {_PROBE_FRAMES} samples of a test clip"
        return None
