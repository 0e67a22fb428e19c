"""One long recording decoded by several threads at once, each seeking to a stretch of its own.

Decoding is bound to one core as long as it goes from beginning to end. Codecs let go of the interpreter's lock, so
threads that decode different stretches use as many cores as there are. What comes out is what decoding from beginning
to end gives: each stretch is decoded a little further than it is used, and the next one is joined to it only if it
begins with the same audio. Where it does not, as in files with damage or with a false index, the recording is decoded
in order from there on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from audio.decoders.base import DecoderBase
from audio.decoders.protocol import Block, Decoder
from audio.decoders.ranges import RangedDecoder
from audio.errors import SelectionError
from audio.selection import Selection

STRETCH_SECONDS = 30
"""Length of a stretch: long against a decoder's opening and pre-roll, short enough to hold several in memory."""

_STRETCH_VALUES = 1 << 22
"""At most this many samples of all channels in a stretch (16 MiB)."""

_OVERLAP_SECONDS = 0.1
"""How much of the next stretch is decoded with each, to see whether the two fit."""

_FARTHEST_RUN_UP = 15.0
"""Seconds that a backend may begin before the place asked for. One that begins earlier has not found the place, and
would decode all before it for every stretch."""

_GOING_FORWARD = {"torchcodec"}
"""Backends that seek in audio by decoding from the beginning, so that stretches would cost more than the whole."""

_DIFFERENCE = 1e-4
"""Energy of the difference at a joint against that of the audio: 40 dB, above what lossy decoders forget in their
pre-roll and far below what one sample's shift makes of speech."""

_SILENT = 1e-10
"""Mean square (-100 dBFS) below which a difference is none."""


class ParallelDecoder(DecoderBase):
    """Gives what a decoder gives, decoded stretch by stretch by several threads, in order.

    Memory is that of as many stretches as there are threads, and one.

    Parameters
    ----------
    first : Decoder
        The decoder of the whole recording, at its beginning. It goes on where stretches do not fit.
    open_at : callable (Selection) -> Decoder
        Opens the same recording, with the same backend, at or before the beginning of a range.
    selection : Selection
        What `first` was asked for: all of a track.
    workers : int
        How many threads decode, at least 2.
    source : str
        The source's name, for messages.

    """

    def __init__(
        self,
        first: Decoder,
        open_at: Callable[[Selection], Decoder],
        selection: Selection,
        workers: int,
        source: str,
    ) -> None:
        super().__init__(first.info, first.doubt)
        self._first = first
        self._open_at = open_at
        self._selection = selection
        self._workers = workers
        self._source = source
        rate = first.info.sample_rate
        self._stretch = stretch_frames(rate, first.info.channels)
        self._overlap = max(round(_OVERLAP_SECONDS * rate), 1)
        self._in_order = False
        # Decoders that have done their stretch; list.append and list.pop are atomic.
        self._idle: list[Decoder] = []

    @property
    def warnings(self) -> list[str]:
        """What went wrong so far, one sentence each."""
        return [*self._warnings, *(self._first.warnings if self._in_order else [])]

    def blocks(self) -> Iterator[Block]:
        """Yield the audio in order.

        Raises
        ------
        DecodeError
            A stretch cannot be decoded; all before it has been given.

        """
        claimed = self._info.claimed_duration or 0.0
        count = int(claimed * self._info.sample_rate) // self._stretch + 1
        position = 0
        tail: Block | None = None
        executor = ThreadPoolExecutor(self._workers, thread_name_prefix="decode")
        ahead: deque[Future[list[Block] | None]] = deque()
        try:
            ahead.extend(executor.submit(self._decoded, number) for number in range(min(count, self._workers)))
            submitted = len(ahead)
            while ahead:
                stretch = ahead.popleft().result()
                if submitted < count:
                    ahead.append(executor.submit(self._decoded, submitted))
                    submitted += 1
                if stretch is None or not (tail is None or fits(tail, _joined(stretch, 0, len(tail)))):
                    break
                if sum(map(len, stretch)) < self._stretch + self._overlap:
                    yield from stretch
                    return
                tail = _joined(stretch, self._stretch, self._stretch + self._overlap)
                yield from _between(stretch, 0, self._stretch)
                position += self._stretch
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            while self._idle:
                self._idle.pop().close()
        yield from self._rest(position)

    def _decoded(self, number: int) -> list[Block] | None:
        """Return a stretch and the overlap behind it, or None if its place cannot be found."""
        rate = self._info.sample_rate
        start = number * self._stretch
        stop = start + self._stretch + self._overlap
        wanted = replace(self._selection, start=start / rate, stop=stop / rate, resampled_to=None)
        decoder: Decoder | None = None
        try:
            decoder = self._entered(wanted)
            info = decoder.info
            same = (info.sample_rate, info.channels) == (rate, self._info.channels)
            if not same or start - info.offset > _FARTHEST_RUN_UP * rate:
                decoder.close()
                return None
            blocks = list(RangedDecoder(decoder, wanted, self._source).blocks())
        except BaseException as error:
            if decoder is not None:
                decoder.close()
            if isinstance(error, SelectionError):
                return None
            raise
        self._warnings.extend(warning for warning in decoder.warnings if warning not in self._warnings)
        self._idle.append(decoder)
        return blocks

    def _entered(self, wanted: Selection) -> Decoder:
        """Return a decoder at a range: one that has been used, as opening the file may cost as much as a stretch."""
        while self._idle:
            try:
                decoder = self._idle.pop()
            except IndexError:  # another thread took it
                break
            try:
                entered = decoder.enter(wanted)
            except BaseException:
                decoder.close()
                raise
            if entered:
                return decoder
            decoder.close()
        return self._open_at(wanted)

    def _rest(self, position: int) -> Iterator[Block]:
        """Yield what the decoder of the whole gives from a position on."""
        self._in_order = True
        passed = 0
        for block in self._first.blocks():
            begin = max(position - passed, 0)
            passed += len(block)
            if begin < len(block):
                yield block[begin:]

    def close(self) -> None:
        """Let go of the source."""
        self._first.close()


def _between(blocks: list[Block], start: int, stop: int) -> Iterator[Block]:
    """Yield the frames of an interval of blocks."""
    position = 0
    for block in blocks:
        piece = block[max(start - position, 0) : max(stop - position, 0)]
        position += len(block)
        if len(piece):
            yield piece


def _joined(blocks: list[Block], start: int, stop: int) -> Block:
    """Return the frames of an interval of blocks as one array, with fewer frames where there are no more."""
    found = list(_between(blocks, start, stop))
    return np.concatenate(found) if found else np.empty((0, 1), np.float32)


def in_parallel(
    first: Decoder, open_at: Callable[[Selection], Decoder], selection: Selection, workers: int, source: str
) -> Decoder:
    """Return a decoder that several threads work for, or `first` itself where that would not pay.

    It does not for a range, for a clock with holes, for a backend that cannot seek without decoding, for a recording
    that states no length, and for a short one.

    Parameters
    ----------
    first, open_at, selection, workers, source
        As for `ParallelDecoder`; `workers` may be 1.

    """
    info = first.info
    seconds = stretch_frames(info.sample_rate, info.channels) / info.sample_rate
    whole = not selection.is_range and selection.timeline == "file"
    if workers < 2 or not whole or info.backend in _GOING_FORWARD or (info.claimed_duration or 0.0) < 2 * seconds:
        return first
    return ParallelDecoder(first, open_at, selection, workers, source)


def stretch_frames(rate: int, channels: int) -> int:
    """Return the length of a stretch in frames.

    Parameters
    ----------
    rate : int
        Frames per second.
    channels : int
        Channels of each frame.

    """
    return max(min(STRETCH_SECONDS * rate, _STRETCH_VALUES // channels), 1)


def fits(tail: Block, head: Block) -> bool:
    """Return whether two decodings of a place are the same audio.

    Parameters
    ----------
    tail : ndarray, shape (frames, channels), float32
        What one stretch gave behind its end.
    head : ndarray, shape (frames, channels), float32
        What the next one begins with.

    """
    if tail.shape != head.shape:
        return False
    difference = (tail - head).reshape(-1).astype(np.float64)
    values = tail.reshape(-1).astype(np.float64)
    allowed = _DIFFERENCE * np.dot(values, values) + _SILENT * len(values)
    return bool(np.dot(difference, difference) <= allowed)
