"""What a decode may cost: limits that hold while it runs, whatever the headers of a file claim."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from audio.errors import LimitExceededError

_BYTES_PER_SAMPLE = 4
"""Decoded audio is float32."""

_MIB = 1 << 20


@dataclass(frozen=True)
class DecodeLimits:
    """How much one source may cost; None for a field sets no limit.

    Headers can be written to say anything. A header that states too much is refused at once; one that states little
    admits nothing: what is decoded is counted as it comes, and the decode ends at the limit.

    Attributes
    ----------
    max_encoded_bytes : int or None
        Bytes of the file. A stream that cannot be rewound is read no further than this.
    max_seconds : float or None
        Seconds of decoded audio.
    max_decoded_bytes : int or None
        Bytes of decoded audio: 4 for each sample of each channel, at the source's sample rate.
    max_channels : int or None
        Channels of the audio that is decoded.
    max_sample_rate : int or None
        Samples per second and channel of the audio that is decoded.
    max_open_seconds : float or None
        Seconds from opening the source to its first samples. It is looked at between reads and between backends; only a
        process of its own (`audio.isolation`) ends a library that does neither.

    Raises
    ------
    ValueError
        A limit is not above 0.

    """

    max_encoded_bytes: int | None = None
    max_seconds: float | None = None
    max_decoded_bytes: int | None = None
    max_channels: int | None = None
    max_sample_rate: int | None = None
    max_open_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}; give a number above 0, or None for no limit")

    @classmethod
    def generous(cls) -> Self:
        """Return the limits for one's own files, the default everywhere: any length, but no absurd header.

        768 kHz is the highest rate that recorders offer, 64 channels are seventh-order ambisonics, and no medium that
        is still worth waiting for takes two minutes to give its first samples.
        """
        return cls(max_channels=64, max_sample_rate=768_000, max_open_seconds=120.0)

    @classmethod
    def strict(cls) -> Self:
        """Return the limits for strangers' files: whoever wrote the file is taken to want the machine down.

        Four hours of talk pass in any format that one would upload. 256 MiB are four hours at 149 kb/s; 5.2 GiB of
        decoded audio are four hours of stereo at 48 kHz, which a stream never holds at once. 8 channels are 7.1, and
        192 kHz is the highest rate of common recorders. Nothing honest takes ten seconds to open.
        """
        return cls(
            max_encoded_bytes=256 * _MIB,
            max_seconds=4 * 3600.0,
            max_decoded_bytes=4 * 3600 * 48_000 * 2 * _BYTES_PER_SAMPLE,
            max_channels=8,
            max_sample_rate=192_000,
            max_open_seconds=10.0,
        )

    def check_encoded(self, source: str, size: int) -> None:
        """Refuse a source of so many bytes, or a stream that has given so many.

        Raises
        ------
        LimitExceededError
            They are more than `max_encoded_bytes`.

        """
        if self.max_encoded_bytes is not None and size > self.max_encoded_bytes:
            raise _exceeded(source, "the file is larger", "max_encoded_bytes", f"{self.max_encoded_bytes} bytes")

    def check_form(self, source: str, sample_rate: int, channels: int) -> None:
        """Refuse audio of such a form, before anything is set aside for it.

        Raises
        ------
        LimitExceededError
            It has more channels or a higher rate than allowed.

        """
        if self.max_channels is not None and channels > self.max_channels:
            reason = f"it has {channels} channels, more"
            raise _exceeded(source, reason, "max_channels", str(self.max_channels))
        if self.max_sample_rate is not None and sample_rate > self.max_sample_rate:
            reason = f"its sample rate is {sample_rate} Hz, higher"
            raise _exceeded(source, reason, "max_sample_rate", f"{self.max_sample_rate} Hz")

    def check_decoded(self, source: str, frames: int, sample_rate: int, channels: int) -> None:
        """Refuse to go on when so many frames have been decoded.

        Raises
        ------
        LimitExceededError
            They are longer or take more memory than allowed.

        """
        if self.max_seconds is not None and frames > self.max_seconds * sample_rate:
            raise _exceeded(source, "the audio is longer", "max_seconds", f"{self.max_seconds:g} s")
        size = frames * channels * _BYTES_PER_SAMPLE
        if self.max_decoded_bytes is not None and size > self.max_decoded_bytes:
            reason = "the audio takes more memory"
            raise _exceeded(source, reason, "max_decoded_bytes", f"{self.max_decoded_bytes} bytes")


class Deadline:
    """The time by which the first samples of a source have to be there.

    Parameters
    ----------
    source : str
        The source's name, for the message.
    limits : DecodeLimits
        Its `max_open_seconds` counts.

    """

    def __init__(self, source: str, limits: DecodeLimits) -> None:
        self._source = source
        self._allowed = limits.max_open_seconds
        self._end: float | None = None
        self.start()

    def start(self) -> None:
        """Begin to count, afresh."""
        self._end = None if self._allowed is None else time.monotonic() + self._allowed

    def lift(self) -> None:
        """Stop counting: the source is open."""
        self._end = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time spent inside: that of loading a library is no fault of the source."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self._end is not None:
                self._end += time.monotonic() - began

    def is_over(self) -> bool:
        """Return whether the time is over."""
        return self._end is not None and time.monotonic() > self._end

    def check(self) -> None:
        """Refuse to go on when the time is over.

        Raises
        ------
        LimitExceededError
            It is.

        """
        if self.is_over():
            reason = "opening it takes longer"
            raise _exceeded(self._source, reason, "max_open_seconds", f"{self._allowed:g} s")


def _exceeded(source: str, reason: str, field: str, value: str) -> LimitExceededError:
    remedy = f"raise {field} of the DecodeLimits, or --limit {field}=..., if you trust it"
    return LimitExceededError(source, f"{reason} than the limit of {value} allows; {remedy}", field)
