"""Watches over a decoder: blocks in the promised form, a successor where it fails, and the truth about the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Self

import numpy as np
from numpy.typing import NDArray

from audio.decoders.base import DecoderBase
from audio.decoders.protocol import Block, Decoder
from audio.errors import DecodeError, UnreadableAudioError
from audio.limits import DecodeLimits
from audio.positions import seconds_from_samples
from audio.source import Source

_TAIL_SECONDS = 0.25
"""How much of what was delivered is kept, to find the place in another backend's audio."""

_SHIFT_SECONDS = 0.06
"""Backends differ by an encoder's delay at most: 2257 samples of AAC at 44.1 kHz, rounded up."""

_SAME = 0.9
"""Correlation from which two decodings count as the same audio. Lossy decoders agree to 0.9999."""

_AS_GOOD = 0.01
"""Difference of correlation that does not tell two places apart."""

_MOST_FRAMES = 1 << 16
"""At most this many frames are kept for comparing, whatever rate a header states."""

_QUIET = 1e-4
"""Root mean square (-80 dBFS) below which there is nothing to compare."""


class Begun(DecoderBase):
    """A decoder that has proved itself by its first block."""

    def __init__(self, decoder: Decoder, first: Block, rest: Iterator[Block]) -> None:
        super().__init__(decoder.info, decoder.doubt)
        self._decoder = decoder
        self._first = first
        self._rest = rest

    @classmethod
    def of(cls, decoder: Decoder, source: Source) -> Self:
        """Return a decoder with its first block at hand.

        Raises
        ------
        UnreadableAudioError
            There is no first block.

        """
        blocks = decoder.blocks()
        try:
            first = next(blocks, None)
        except BaseException:
            decoder.close()
            raise
        if first is None:
            decoder.close()
            detail = f" ({decoder.warnings[0]})" if decoder.warnings else ""
            raise UnreadableAudioError(source.name, f"{decoder.info.backend} finds no samples in it{detail}")
        return cls(decoder, first, blocks)

    @property
    def warnings(self) -> list[str]:
        """What went wrong so far, one sentence each."""
        return self._decoder.warnings

    def blocks(self) -> Iterator[Block]:
        """Yield the first block and the rest."""
        yield self._first
        yield from self._rest

    def close(self) -> None:
        """Let go of the source."""
        self._decoder.close()


class CheckedDecoder(DecoderBase):
    """What `open_decoder` returns.

    Parameters
    ----------
    decoder : Decoder
        The backend's decoder that goes first.
    successor : callable
        Gives the decoder of the next backend for the same source, or None when there are no more.
    source : str
        The source's name, for messages.
    limits : DecodeLimits
        What the decode may cost.

    Raises
    ------
    LimitExceededError
        The header states more than the limits allow.

    """

    def __init__(
        self, decoder: Decoder, successor: Callable[[], Decoder | None], source: str, limits: DecodeLimits
    ) -> None:
        limits.check_form(source, decoder.info.sample_rate, decoder.info.channels)
        super().__init__(decoder.info, decoder.doubt)
        self._source = source
        self._limits = limits
        self._current = decoder
        self._successor = successor
        self._position = 0
        self._repaired = 0
        self._tail: list[Block] = []
        if decoder.doubt is not None:
            self._warnings.append(decoder.doubt)

    def blocks(self) -> Iterator[Block]:
        """Yield the audio, in blocks of at most one second.

        Raises
        ------
        LimitExceededError
            There is more than the limits allow; what was yielded before is good.

        """
        blocks: Iterator[Block] | None = self._current.blocks()
        while blocks is not None:
            failure: str | None = None
            try:
                for block in blocks:
                    yield from self._checked(block)
            except DecodeError as error:
                failure = error.reason
            self._warnings.extend(self._current.warnings)
            ended_well = failure is None and not self._is_short(self._current)
            blocks = None if ended_well else self._hand_over(failure)
        self._settle()

    def _checked(self, block: Block) -> Iterator[Block]:
        """Replace what is not a number by silence, and cut a block to seconds."""
        rate, channels = self._info.sample_rate, self._info.channels
        block = np.asarray(block, dtype=np.float32)
        if not _is_surely_finite(block):
            finite = np.isfinite(block)
            self._repaired += int(finite.size - np.count_nonzero(finite))
            block = np.where(finite, block, np.float32(0))
        for start in range(0, len(block), rate):
            piece = block[start : start + rate]
            self._position += len(piece)
            self._limits.check_decoded(self._source, self._position, rate, channels)
            yield piece
        self._remember(block)

    def _remember(self, piece: Block) -> None:
        """Keep the last blocks, as many as the tail needs."""
        self._tail.append(piece)
        wanted = self._tail_frames
        held = sum(len(each) for each in self._tail)
        while held - len(self._tail[0]) >= wanted:
            held -= len(self._tail.pop(0))

    @property
    def _tail_frames(self) -> int:
        return max(min(round(_TAIL_SECONDS * self._info.sample_rate), _MOST_FRAMES), 1)

    @property
    def _seconds(self) -> float:
        return seconds_from_samples(self._position, self._info.sample_rate)

    def _is_short(self, decoder: Decoder) -> bool:
        """Return whether clearly less was decoded than a decoder claimed: by over half a second and over 2 %."""
        claimed = decoder.info.claimed_duration
        return claimed is not None and claimed - self._seconds > max(0.5, 0.02 * claimed)

    def _hand_over(self, failure: str | None) -> Iterator[Block] | None:
        """Return the rest of the audio from another backend, or None if none has more."""
        stopped = self._current.info.backend
        while (decoder := self._successor()) is not None:
            self._current.close()
            self._current = decoder
            rest = self._rest_of(decoder, must_match=failure is None)
            first = _first_of(rest)
            if rest is not None and first is not None:
                reason = failure or f"{stopped} gave no more"
                self._warnings.append(f"at {self._seconds:.2f} s {reason}; {decoder.info.backend} went on from there")
                return _chained(first, rest)
        if failure is not None:
            self._warnings.append(f"decoding stopped at {self._seconds:.2f} s: {failure}")
        return None

    def _rest_of(self, decoder: Decoder, *, must_match: bool) -> Iterator[Block] | None:
        """Return what a decoder gives behind the position reached, or None if it cannot follow on.

        It cannot when it fails before, or when its rate or channels differ. Where the backend before it ended without
        an error, the audio around the position must match as well: if it is other audio, then what is missing lies
        before, and the rest would repeat what was delivered.
        """
        info = decoder.info
        if (info.sample_rate, info.channels) != (self._info.sample_rate, self._info.channels):
            return None
        margin = min(round(_SHIFT_SECONDS * info.sample_rate), _MOST_FRAMES // 4)
        tail = np.concatenate(self._tail)[-self._tail_frames :]
        start = max(self._position - len(tail) - margin, 0)
        blocks = decoder.blocks()
        try:
            around = _between(blocks, start, self._position + margin)
        except DecodeError:
            return None
        expected = self._position - start
        place = _end_of(tail, around, expected)
        if place is None:
            if must_match:
                return None
            place = expected
        return _chained(around[place:], blocks)

    def _settle(self) -> None:
        if self._repaired:
            self._warnings.append(f"{self._repaired} samples were not numbers and were replaced by silence")
        if self._is_short(self):
            self._warnings.append(
                f"the file claims {self._info.claimed_duration:.2f} s but only {self._seconds:.2f} s could be "
                "decoded: it looks truncated or damaged"
            )

    def close(self) -> None:
        """Let go of the source."""
        self._current.close()


def _is_surely_finite(block: Block) -> bool:
    """Return whether no value is infinite or none at all, by their energy: the fastest pass over them that there is.

    Energies overflow above 1e19, so that False says only that the values are worth a closer look.
    """
    if not (block.flags.c_contiguous or block.flags.f_contiguous):
        return all(_is_surely_finite(block[:, channel]) for channel in range(block.shape[1]))
    values = block.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(np.dot(values, values))


def _between(blocks: Iterator[Block], start: int, stop: int) -> Block:
    """Return the frames from `start` on, to `stop` or a little further; the iterator is left behind them."""
    passed = 0
    kept: list[Block] = []
    for block in blocks:
        if passed + len(block) > start:  # even an empty slice would keep its whole block in memory
            kept.append(block[max(start - passed, 0) :])
        passed += len(block)
        if passed >= stop:
            break
    return np.concatenate(kept) if kept else np.empty((0, 1), np.float32)


def _end_of(tail: Block, around: Block, expected: int) -> int | None:
    """Return where in `around` the audio of `tail` ends, or None if it is other audio.

    Parameters
    ----------
    tail : ndarray, shape (frames, channels)
        The last audio that was delivered.
    around : ndarray, shape (frames, channels)
        Another decoding of the place where it should be.
    expected : int
        Where it would end if both decodings began at the same sample.

    """
    known, found = _mono(tail), _mono(around)
    count = len(known)
    if len(found) < count:
        return None
    floor = _QUIET**2 * count
    energy = float(np.dot(known, known))
    if energy < floor:
        return expected
    found = found[: 2 * expected]
    sums = np.concatenate([[0.0], np.cumsum(found * found)])
    energies = np.maximum(sums[count:] - sums[:-count], floor)
    match = np.correlate(found, known, mode="valid") / np.sqrt(energy * energies)
    best = int(np.argmax(match))
    if match[best] < _SAME:
        return None
    # A steady tone matches at each of its periods: the expected place is as good as the best.
    at = expected - count
    return expected if at < len(match) and match[at] > match[best] - _AS_GOOD else best + count


def _mono(samples: Block) -> NDArray[np.float64]:
    return np.asarray(samples.sum(axis=1, dtype=np.float64))


def _first_of(blocks: Iterator[Block] | None) -> Block | None:
    """Return the next block, or None if there is none or it cannot be decoded."""
    try:
        return next(blocks, None) if blocks is not None else None
    except DecodeError:
        return None


def _chained(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    if len(first):
        yield first
    yield from rest
