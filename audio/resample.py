"""Resampling: one streaming interface, with several libraries behind it.

Whichever library does the work, the same holds:

- the output does not depend on how the input is cut: fed in any pieces, it equals the whole in one pass bit for bit;
- there is no delay: what sounds at t seconds in the input sounds at t seconds in the output;
- there are ``ceil(frames * target_rate / source_rate)`` output samples, one for each output instant within the
  recording (`resampled_frames`), and none is lost at the end;
- equal rates give back the input itself.
"""

import operator
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Literal, Protocol, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from audio.errors import BackendUnavailableError, ResampleError
from audio.resamplers.blocks import checked_samples, resampled_frames

__all__ = [
    "IMPLEMENTATIONS",
    "MAX_RATE",
    "Implementation",
    "StreamingResampler",
    "check_implementation",
    "check_rate",
    "open_resampler",
    "resample",
    "resampled_frames",
    "resampler_problem",
]

Implementation = Literal["auto", "soxr", "pyav", "torchaudio", "scipy"]
"""A resampler library; "auto" is the first of `IMPLEMENTATIONS` that works here."""

MAX_RATE = 768_000
"""The highest sample rate taken, in Hz: the highest of any PCM hardware."""

IMPLEMENTATIONS: tuple[Implementation, ...] = ("soxr", "pyav", "scipy", "torchaudio")
"""The libraries, in the order in which "auto" tries them."""

_CLASSES = {
    "soxr": ("audio.resamplers.soxr_stream", "SoxrResampler"),
    "pyav": ("audio.resamplers.pyav_stream", "PyavResampler"),
    "scipy": ("audio.resamplers.scipy_polyphase", "ScipyResampler"),
    "torchaudio": ("audio.resamplers.torchaudio_sinc", "TorchaudioResampler"),
}

_REMEDIES = {
    "soxr": "Install it with: pip install soxr",
    "pyav": "Install it with: pip install 'av>=17.1'",
    "scipy": "Install it with: pip install scipy",
    "torchaudio": "Install it with: pip install 'auricle[torch]'",
}


class StreamingResampler(Protocol):
    """Changes the sample rate of one channel, piece by piece."""

    def process(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Take the next samples, shape (frames,), and return those at the target rate that can be given by now."""
        ...

    def flush(self) -> NDArray[np.float32]:
        """End the recording and return its remaining samples."""
        ...


class _PassThrough:
    """The resampler between equal rates."""

    def process(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        return checked_samples(samples)

    def flush(self) -> NDArray[np.float32]:
        return np.zeros(0, dtype=np.float32)


def check_rate(rate: SupportsIndex, name: str = "sample rate") -> int:
    """Return a sample rate as an int.

    Parameters
    ----------
    rate : int
        Samples per second, 1 to `MAX_RATE`.
    name : str
        What the rate is called in the message.

    Raises
    ------
    ResampleError
        If it is not a whole number in that range.

    """
    try:
        value = operator.index(rate)
    except TypeError:
        value = 0
    if isinstance(rate, bool) or not 1 <= value <= MAX_RATE:
        raise ResampleError(f"the {name} is {rate!r}: give a whole number of Hz from 1 to {MAX_RATE}.")
    return value


@cache
def _loaded(implementation: str) -> Callable[[int, int], StreamingResampler] | str:
    """Return a library's resampler class, or why it cannot be used; found out once, by converting a few samples."""
    module, name = _CLASSES[implementation]
    try:
        opener: Callable[[int, int], StreamingResampler] = getattr(import_module(module), name)
        trial = opener(16_000, 8_000)
        trial.process(np.ones(400, dtype=np.float32))
        converted = trial.flush()
    # What a broken installation raises: a missing module or symbol, a library that does not load, an older release
    # that does not know an argument, a native part that was built for another release.
    except (ImportError, OSError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}".rstrip(".")
    return opener if np.isfinite(converted).all() else "it does not convert a constant to finite samples"


def resampler_problem(implementation: str) -> str | None:
    """Return why a resampler library cannot be used on this machine, or None where it works.

    Parameters
    ----------
    implementation : str
        One of `IMPLEMENTATIONS`.

    Raises
    ------
    ResampleError
        If the name is not known.

    """
    if implementation == "auto":
        raise ResampleError(f"auto is not one library: ask about one of {', '.join(IMPLEMENTATIONS)}.")
    check_implementation(implementation)
    found = _loaded(implementation)
    return found if isinstance(found, str) else None


def check_implementation(implementation: str) -> None:
    """Make sure that a resampler library's name, or "auto", is known.

    Raises
    ------
    ResampleError
        If it is not.

    """
    if implementation != "auto" and implementation not in _CLASSES:
        names = ", ".join(("auto", *IMPLEMENTATIONS))
        raise ResampleError(f"the resampler {implementation!r} is not known: choose one of {names}.")


def _opener(implementation: str) -> Callable[[int, int], StreamingResampler]:
    """Return what opens a named library's resampler, or that of the first library which works."""
    check_implementation(implementation)
    if implementation != "auto":
        found = _loaded(implementation)
        if isinstance(found, str):
            raise BackendUnavailableError(implementation, found, _REMEDIES[implementation])
        return found
    for name in IMPLEMENTATIONS:
        found = _loaded(name)
        if not isinstance(found, str):
            return found
    raise BackendUnavailableError("resampling", "no resampler library works on this machine", _REMEDIES["soxr"])


def open_resampler(
    source_rate: int, target_rate: int, *, implementation: Implementation = "auto"
) -> StreamingResampler:
    """Return a resampler to feed one channel through, piece by piece.

    Parameters
    ----------
    source_rate, target_rate : int
        Samples per second, 1 to `MAX_RATE`.
    implementation : {"auto", "soxr", "pyav", "scipy", "torchaudio"}
        The library that does the work. "auto" takes the first that works on this machine.

    Returns
    -------
    resampler : StreamingResampler
        Call `process` with each piece and `flush` once at the end.

    Raises
    ------
    ResampleError
        If a rate is out of range, or the implementation is unknown or cannot convert between these rates.
    BackendUnavailableError
        If the named implementation cannot be used on this machine.

    Notes
    -----
    soxr at its HQ setting comes first because, of the libraries that a plain installation has, it is both the fastest
    and the cleanest (bench/resample.py, kept in bench/RESAMPLE.md): from 44.1 kHz to 16 kHz about twice as fast as
    FFmpeg's resampler at a filter length that keeps aliases 90 dB down, with ripple of 0.01 dB up to 7.2 kHz, aliases
    126 dB down from 8 kHz, and no growth for rates without a common divisor. Its MQ setting is up to a sixth faster,
    and leaves over 0.1 dB of ripple between some rates. FFmpeg's resampler as it comes (filter length 32) is slower
    than soxr, lets aliases through 43 dB down and loses 1 dB at 7.2 kHz.

    """
    source_rate = check_rate(source_rate, "source sample rate")
    target_rate = check_rate(target_rate, "target sample rate")
    opener = _opener(implementation)
    return _PassThrough() if source_rate == target_rate else opener(source_rate, target_rate)


def resample(
    waveform: NDArray[np.float32], source_rate: int, target_rate: int, *, implementation: Implementation = "auto"
) -> NDArray[np.float32]:
    """Return a whole channel at another sample rate.

    Parameters
    ----------
    waveform : ndarray, shape (frames,), float32 in [-1, 1]
        One channel.
    source_rate, target_rate : int
        Samples per second, 1 to `MAX_RATE`.
    implementation : {"auto", "soxr", "pyav", "scipy", "torchaudio"}
        As for `open_resampler`.

    Returns
    -------
    resampled : ndarray, shape (ceil(frames * target_rate / source_rate),), float32
        `waveform` itself where the rates are equal.

    Raises
    ------
    ResampleError, BackendUnavailableError
        As for `open_resampler`.
    ChannelLayoutError, InvalidSourceError
        If `waveform` is not one channel of floats.

    """
    resampler = open_resampler(source_rate, target_rate, implementation=implementation)
    body = resampler.process(waveform)
    tail = resampler.flush()
    return body if not len(tail) else np.concatenate((body, tail))
