"""The one door to decoded audio: it picks the backend, checks what it gives, and goes on where one fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from audio.decoders.array_decoder import ArrayDecoder
from audio.decoders.base import DecoderBase
from audio.decoders.containment import refuse_scripts
from audio.decoders.protocol import Backend, Block, Decoder
from audio.decoders.pyav_backend import PyAVBackend
from audio.decoders.soundfile_backend import SoundFileBackend
from audio.decoders.torchcodec_backend import TorchCodecBackend
from audio.errors import (
    BackendUnavailableError,
    DecodeError,
    NoAudioStreamError,
    UnreadableAudioError,
)
from audio.info import AudioInfo
from audio.positions import seconds_from_samples
from audio.source import AudioSource, Source

AUTO_ORDER = ("soundfile", "torchcodec", "pyav")
"""The order in which `auto` tries the backends."""

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (SoundFileBackend(), TorchCodecBackend(), PyAVBackend())
}
"""All backends by name."""


def available_backends() -> dict[str, str | None]:
    """Return each backend's name with None if it works here, else the reason why not."""
    found: dict[str, str | None] = {}
    for name in AUTO_ORDER:
        try:
            BACKENDS[name].load()
        except BackendUnavailableError as error:
            found[name] = f"{error.reason}. {error.remedy}"
        else:
            found[name] = None
    return found


def open_decoder(source: AudioSource, backend: str = "auto") -> Decoder:
    """Begin to decode a source.

    The beginning is decoded before this returns, so a decoder that is returned gives at least one block; an array
    without samples alone gives none.

    Parameters
    ----------
    source : path, bytes, binary file, (array, sample_rate) or Source
        What to decode.
    backend : {"auto", "soundfile", "torchcodec", "pyav"}
        The library that decodes. "auto" tries them in the order soundfile, torchcodec, PyAV; one that is absent, that
        refuses the source, or that gives nothing is passed over, and when one fails midway the next goes on from
        there. A named backend has no fallback.

    Returns
    -------
    Decoder
        A context manager. Its blocks have shape (frames, channels), are float32, finite, C-contiguous, not empty, and
        at most one second long.

    Raises
    ------
    ValueError
        There is no backend of that name.
    InvalidSourceError, AudioFileNotFoundError, EmptyAudioError
        There is nothing to decode.
    NoAudioStreamError
        The container is valid and holds no audio that can be decoded.
    UnreadableAudioError
        No backend can read it; the reason of each is given.
    BackendUnavailableError
        The named backend does not work here, or none that could read the source does.

    """
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(f"there is no audio backend {backend!r}; choose auto, {', '.join(AUTO_ORDER)}")
    opened = Source.of(source)
    if opened.array is not None:
        return CheckedDecoder(opened, ArrayDecoder(opened.array), _Candidates(opened, ()))
    refuse_scripts(opened)
    candidates = _Candidates(opened, AUTO_ORDER if backend == "auto" else (backend,))
    first = candidates.next_decoder()
    if first is None:
        raise candidates.refusal()
    return CheckedDecoder(opened, first, candidates)


class _Begun(DecoderBase):
    """A decoder whose first block is already there."""

    def __init__(self, decoder: Decoder, first: Block, rest: Iterator[Block]) -> None:
        super().__init__(decoder.info)
        self._decoder = decoder
        self._first = first
        self._rest = rest

    @property
    def warnings(self) -> list[str]:
        return self._decoder.warnings

    def blocks(self) -> Iterator[Block]:
        yield self._first
        yield from self._rest

    def close(self) -> None:
        self._decoder.close()


class _Candidates:
    """The backends that have not been tried yet on a source, and what the others said."""

    def __init__(self, source: Source, names: tuple[str, ...]) -> None:
        self._source = source
        self._names = list(names)
        self._errors: list[DecodeError] = []
        self._missing: list[BackendUnavailableError] = []

    def next_decoder(self) -> _Begun | None:
        """Return the next decoder that gives at least one block, or None if there is none."""
        while self._names:
            name = self._names.pop(0)
            try:
                return self._begin(name)
            except BackendUnavailableError as error:
                self._missing.append(error)
            except DecodeError as error:
                self._errors.append(error)
        return None

    def _begin(self, name: str) -> _Begun:
        decoder = BACKENDS[name].open(self._source)
        try:
            blocks = decoder.blocks()
            first = next(blocks, None)
        except BaseException:
            decoder.close()
            raise
        if first is None:
            decoder.close()
            detail = f" ({decoder.warnings[0]})" if decoder.warnings else ""
            raise UnreadableAudioError(self._source.name, f"{name} finds no samples in it{detail}")
        return _Begun(decoder, first, blocks)

    def refusal(self) -> Exception:
        """Return the one error that tells the truth about all attempts."""
        if self._missing and not self._errors:
            return self._missing[0]
        for error in self._errors:
            if isinstance(error, NoAudioStreamError):
                return error
        reasons = "; ".join(error.reason for error in self._errors)
        for missing in self._missing:
            # torchcodec reads nothing that PyAV does not; its absence matters only when PyAV is absent too.
            if missing.backend == "pyav":
                reasons += f"; {missing.backend}, which reads more formats, cannot be used here ({missing.reason})"
                return UnreadableAudioError(self._source.name, f"{reasons}. {missing.remedy}")
        return UnreadableAudioError(self._source.name, f"{reasons}; check that it is a recording and is complete")


class CheckedDecoder(DecoderBase):
    """What `open_decoder` returns: blocks in the promised form, and the truth about how they ended.

    Parameters
    ----------
    source : Source
        What is decoded.
    decoder : Decoder
        The backend's decoder that goes first.
    candidates : _Candidates
        The backends that may go on when it fails.

    """

    def __init__(self, source: Source, decoder: Decoder, candidates: _Candidates) -> None:
        super().__init__(decoder.info)
        self._source = source
        self._current = decoder
        self._candidates = candidates
        self._position = 0
        self._repaired = 0

    def blocks(self) -> Iterator[Block]:
        """Yield the audio, in blocks of at most one second."""
        skip = 0
        while True:
            failure = None
            try:
                for block in self._current.blocks():
                    dropped = min(skip, len(block))
                    skip -= dropped
                    yield from self._checked(block[dropped:])
            except DecodeError as error:
                failure = error.reason
            self._collect(self._current)
            if failure is None and not self._is_short(self._current.info):
                break
            if not self._hand_over(failure):
                break
            skip = self._position
        self._settle()

    def _checked(self, block: Block) -> Iterator[Block]:
        """Cut a block to seconds, and replace what is not a number by silence."""
        rate = self._info.sample_rate
        for start in range(0, len(block), rate):
            piece = np.ascontiguousarray(block[start : start + rate], dtype=np.float32)
            finite = np.isfinite(piece)
            if not finite.all():
                self._repaired += int(finite.size - np.count_nonzero(finite))
                piece = np.where(finite, piece, np.float32(0))
            self._position += len(piece)
            yield piece

    def _is_short(self, info: AudioInfo) -> bool:
        """Return whether clearly less was decoded than was claimed: by over half a second and over 2 %."""
        claimed = info.claimed_duration
        if claimed is None:
            return False
        return claimed - self._seconds > max(0.5, 0.02 * claimed)

    @property
    def _seconds(self) -> float:
        return seconds_from_samples(self._position, self._info.sample_rate)

    def _hand_over(self, failure: str | None) -> bool:
        """Let the next backend go on from the position reached; return whether there is one that can."""
        stopped = self._current.info.backend
        self._current.close()
        while True:
            decoder = self._candidates.next_decoder()
            if decoder is None:
                break
            info = decoder.info
            if (info.sample_rate, info.channels) == (self._info.sample_rate, self._info.channels):
                self._current = decoder
                reason = failure or f"{stopped} gave no more"
                self._warnings.append(f"at {self._seconds:.2f} s {reason}; {info.backend} went on from there")
                return True
            decoder.close()
        if failure is not None:
            self._warnings.append(f"decoding stopped at {self._seconds:.2f} s: {failure}{self._claim()}")
        return False

    def _claim(self) -> str:
        claimed = self._info.claimed_duration
        return f" (the file claims {claimed:.2f} s)" if claimed is not None else ""

    def _collect(self, decoder: Decoder) -> None:
        self._warnings.extend(decoder.warnings)

    def _settle(self) -> None:
        if self._repaired:
            self._warnings.append(f"{self._repaired} samples were not numbers and were replaced by silence")
        if self._is_short(self._info):
            self._warnings.append(
                f"the file claims {self._info.claimed_duration:.2f} s but only {self._seconds:.2f} s could be "
                "decoded: it looks truncated"
            )

    def close(self) -> None:
        """Let go of the source."""
        self._current.close()
