"""The one door to decoded audio: it picks the backend, and `checked` watches over what that gives."""

from __future__ import annotations

from audio.decoders.array_decoder import ArrayDecoder
from audio.decoders.checked import Begun, CheckedDecoder
from audio.decoders.containment import refuse_scripts
from audio.decoders.protocol import Backend, Decoder
from audio.decoders.pyav_backend import PyAVBackend
from audio.decoders.ranges import RangedDecoder
from audio.decoders.soundfile_backend import SoundFileBackend
from audio.decoders.torchcodec_backend import TorchCodecBackend
from audio.errors import (
    AudioError,
    BackendUnavailableError,
    DecodeError,
    LimitExceededError,
    NoAudioStreamError,
    SelectionError,
    UnreadableAudioError,
)
from audio.isolation import Isolation, open_isolated
from audio.limits import Deadline, DecodeLimits
from audio.parallel import in_parallel
from audio.selection import EVERYTHING, Selection
from audio.source import AudioSource, Source

AUTO_ORDER = ("soundfile", "torchcodec", "pyav")
"""The order in which `auto` tries the backends."""

SEEKING_ORDER = ("soundfile", "pyav", "torchcodec")
"""The order for several workers: torchcodec decodes all audio before the place it is asked to seek to."""

FFMPEG_ORDER = ("pyav", "torchcodec", "soundfile")
"""The order for what FFmpeg's own decoders are fastest at, in PyAV above all: it asks them for frames in less time."""

_OPUS, _VORBIS = b"OpusHead", b"\x01vorbis"
_OGG_HEAD = 64
"""The first packet of an Ogg stream stands behind the 28 bytes of its first page's header (RFC 7845, 3)."""

_MP4 = b"ftyp"
"""What bytes 4 to 8 of an MP4 file are."""

BACKENDS: dict[str, Backend] = {
    backend.name: backend for backend in (SoundFileBackend(), TorchCodecBackend(), PyAVBackend())
}
"""All backends by name."""


def available_backends() -> dict[str, str | None]:
    """Return each backend's name with None if it works here, else the reason why not and the way to get it."""
    found: dict[str, str | None] = {}
    for name in AUTO_ORDER:
        try:
            BACKENDS[name].load()
        except BackendUnavailableError as error:
            found[name] = f"{error.reason}. {error.remedy}"
        else:
            found[name] = None
    return found


def open_decoder(
    source: AudioSource,
    backend: str = "auto",
    *,
    limits: DecodeLimits | None = None,
    selection: Selection = EVERYTHING,
    workers: int = 1,
    isolation: Isolation | None = None,
) -> Decoder:
    """Begin to decode a source.

    The beginning is decoded before this returns, so a decoder that is returned gives at least one block; an array
    without samples alone gives none.

    Parameters
    ----------
    source : path, bytes, binary file, (array, sample_rate) or Source
        What to decode.
    backend : {"auto", "soundfile", "torchcodec", "pyav"}
        The library that decodes. "auto" tries them in the order soundfile, torchcodec, PyAV, but PyAV first and
        soundfile last for Opus, Vorbis and MP4, which FFmpeg decodes faster. One that is absent, that refuses the
        source, that gives nothing, or that is known to give less of such a source is passed over, and when one fails
        midway the next goes on from there. A named backend has no fallback.
    limits : DecodeLimits, optional
        What the decode may cost, enforced while it runs; `DecodeLimits.generous()` by default.
    selection : Selection
        The track and the range of time to decode, and the clock to read times on; the default track as a whole by
        default. A range is found by seeking where that is exact.
    workers : int
        How many threads decode, at least 1. With more than one, a recording of over a minute is decoded in several
        places at once where its backend can seek exactly, with PyAV before torchcodec, which cannot. The audio is the
        same, but for AAC with noise substitution, whose decoder makes other noise. Memory grows by some 20 MiB each.
    isolation : Isolation, optional
        Decode in a process of its own under these bounds, so that a crash, a hang or a flood of memory in a library
        costs this source only. Arrays need no decoding and are not affected.

    Returns
    -------
    Decoder
        A context manager. Its blocks have shape (frames, channels), are float32, finite, not empty, and at most one
        second long; their memory is in either order, as the library gives it.

    Raises
    ------
    ValueError
        There is no backend of that name, or `workers` is below 1.
    InvalidSourceError, AudioFileNotFoundError, EmptyAudioError
        There is nothing to decode.
    ChannelLayoutError
        The dimensions of an array cannot be told apart.
    LimitExceededError
        The source costs more than the limits allow. While its blocks are read, those before the limit are good.
    NoAudioStreamError
        The container is valid and holds no audio that can be decoded.
    SelectionError
        There is no such track or range in it. That the recording ends before the range may show only later.
    UnreadableAudioError
        No backend can read it; the reason of each is given.
    BackendUnavailableError
        The named backend does not work here, or the one that reads the most formats does not and the others refuse.

    """
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(f"there is no audio backend {backend!r}; choose auto, {', '.join(AUTO_ORDER)}")
    if workers < 1:
        raise ValueError(f"workers is {workers}: give at least 1")
    limits = limits if limits is not None else DecodeLimits.generous()
    opened = Source.of(source, limits)
    if opened.array is not None:
        return CheckedDecoder(_ranged(ArrayDecoder(opened.array), selection, opened), lambda: None, opened.name, limits)
    if isolation is not None:
        return open_isolated(
            opened, isolation, open_decoder, backend=backend, limits=limits, selection=selection, workers=workers
        )
    deadline = Deadline(opened.name, limits)
    opened = opened.stopped_by(deadline.is_over)
    refuse_scripts(opened)
    names = _order(opened, workers) if backend == "auto" else (backend,)
    candidates = _Candidates(opened, names, selection, limits, deadline)
    first = candidates.next_decoder()
    if first is None:
        raise candidates.refusal()
    chosen = BACKENDS[first.info.backend]
    decoder = in_parallel(first, lambda wanted: chosen.open(opened, wanted), selection, workers, opened.name)
    return CheckedDecoder(decoder, candidates.next_decoder, opened.name, limits)


def _order(source: Source, workers: int) -> tuple[str, ...]:
    """Return the backends in the order in which `auto` tries them on a source.

    Opus and Vorbis go to FFmpeg first: its own decoders take a third of the time of libopus on stereo at 48 kHz, and
    less than libvorbis, which is what libsndfile uses; libsndfile does not read MP4 (bench/THROUGHPUT.md).
    """
    head = source.head(_OGG_HEAD)
    if _OPUS in head or _VORBIS in head or head[4:8] == _MP4:
        return FFMPEG_ORDER
    return AUTO_ORDER if workers == 1 else SEEKING_ORDER


def _ranged(decoder: Decoder, selection: Selection, source: Source) -> Decoder:
    """Return a decoder of the wanted range alone."""
    return RangedDecoder(decoder, selection, source.name) if selection.is_range else decoder


class _Candidates:
    """The backends that have not been tried yet on a source, and what the others said."""

    def __init__(
        self,
        source: Source,
        names: tuple[str, ...],
        selection: Selection,
        limits: DecodeLimits,
        deadline: Deadline,
    ) -> None:
        self._source = source
        self._selection = selection
        self._limits = limits
        self._deadline = deadline
        self._names = list(names)
        self._reserve: list[str] = []
        self._errors: list[DecodeError] = []
        self._missing: list[BackendUnavailableError] = []

    def next_decoder(self) -> Begun | None:
        """Return the next decoder that gives at least one block, or None if there is none.

        A backend with a doubt comes after all those without.

        Raises
        ------
        LimitExceededError
            The source asks for more than the limits allow, or takes too long.

        """
        self._deadline.start()
        try:
            return self._next()
        finally:
            self._deadline.lift()

    def _next(self) -> Begun | None:
        while self._names:
            name = self._names.pop(0)
            begun = self._attempt(name)
            if begun is None:
                continue
            if begun.doubt is None or not self._names:
                return begun
            begun.close()
            self._reserve.append(name)
        while self._reserve:
            begun = self._attempt(self._reserve.pop(0))
            if begun is not None:
                return begun
        return None

    def _attempt(self, name: str) -> Begun | None:
        begun: Begun | None = None
        try:
            with self._deadline.paused():
                BACKENDS[name].load()
            begun = self._begun(name)
        except BackendUnavailableError as error:
            self._missing.append(error)
        except DecodeError as error:
            self._errors.append(error)
        try:
            # The library found a source that ended early, which it may have refused or taken for all there is.
            self._deadline.check()
        except LimitExceededError:
            if begun is not None:
                begun.close()
            raise
        return begun

    def _begun(self, name: str) -> Begun:
        decoder = BACKENDS[name].open(self._source, self._selection)
        try:
            self._limits.check_form(self._source.name, decoder.info.sample_rate, decoder.info.channels)
        except LimitExceededError:
            decoder.close()
            raise
        return Begun.of(_ranged(decoder, self._selection, self._source), self._source)

    def refusal(self) -> AudioError:
        """Return the one error that tells the truth about all attempts."""
        if self._missing and not self._errors:
            return self._missing[0]
        for error in self._errors:
            if isinstance(error, NoAudioStreamError):
                return error
        for error in reversed(self._errors):
            # The last to tell is the one that knows most of tracks.
            if isinstance(error, SelectionError):
                return error
        reasons = "; ".join(error.reason for error in self._errors)
        for missing in self._missing:
            # torchcodec reads nothing that PyAV does not: its absence matters only when PyAV is absent too.
            if missing.backend == "pyav":
                reason = f"{missing.reason}; without it, {self._source.name} cannot be decoded ({reasons})"
                return BackendUnavailableError(missing.backend, reason, missing.remedy)
        return UnreadableAudioError(self._source.name, f"{reasons}; check that it is a recording, and whole")
