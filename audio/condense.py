"""Samples on their way from blocks to chunks: what is kept of them, in one row, and where it came from."""

from collections import deque

import numpy as np

from audio.chunk import Span
from audio.running import FloatArray

_SLAB_PAGES = 2
_FIRST_SHARE = 16
"""The first slab is so much smaller than the largest, and each is twice the one before: most recordings of a job are
short, and what they hold in vain adds up."""


class SampleRow:
    """Samples in a row: added at the end, taken from the front.

    They lie in slabs, and what is taken is a view of a slab where it does not reach beyond it.

    Parameters
    ----------
    slab : int
        Samples in the largest slab.

    """

    def __init__(self, slab: int) -> None:
        self._most = slab
        self._size = -(-slab // _FIRST_SHARE)
        self._slabs: deque[FloatArray] = deque()
        self._used = 0  # of the last slab
        self._taken = 0  # of the first slab

    def room(self) -> FloatArray:
        """Return the free end of the row, at least one sample, to be filled and then counted by `extend`."""
        if not self._slabs or self._used == len(self._slabs[-1]):
            self._slabs.append(np.empty(self._size, np.float32))
            self._size = min(2 * self._size, self._most)
            self._used = 0
        return self._slabs[-1][self._used :]

    def extend(self, count: int) -> None:
        """Count samples that were written to the free end."""
        self._used += count

    def adopt(self, samples: FloatArray) -> None:
        """Make an array the next slab as it is, without a copy."""
        if self._slabs:
            self._slabs[-1] = self._slabs[-1][: self._used]
            if self._taken == self._used and len(self._slabs) == 1:
                self._slabs.popleft()
                self._taken = 0
        self._slabs.append(samples)
        self._used = len(samples)

    def append(self, samples: FloatArray) -> None:
        """Copy samples to the end."""
        while len(samples):
            room = self.room()
            part = samples[: len(room)]
            room[: len(part)] = part
            self.extend(len(part))
            samples = samples[len(part) :]

    def take(self, count: int) -> FloatArray:
        """Take samples from the front; there must be so many."""
        parts = []
        while count:
            part = self._slabs[0][self._taken : self._taken + count]
            parts.append(part)
            count -= len(part)
            self._taken += len(part)
            if self._taken == len(self._slabs[0]):
                self._slabs.popleft()
                self._taken = 0
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)


class Condenser:
    """Holds a recording's samples until it is decided which are kept, and those until a chunk takes them.

    Where everything is kept, pages are written where chunks take them from, so that most samples are copied once.

    Parameters
    ----------
    page : int
        Samples in the largest page.
    keeps_all : bool
        Whether nothing will be left out.

    """

    def __init__(self, page: int, *, keeps_all: bool) -> None:
        self._keeps_all = keeps_all
        self._row = SampleRow(page * _SLAB_PAGES)
        self._raw: deque[tuple[int, FloatArray]] = deque()  # undecided pages and where they start
        self._spans: deque[Span] = deque()
        self.total = 0

    def page(self, size: int) -> FloatArray:
        """Return the page that the next samples are to be written to: so many, or fewer where a slab ends."""
        return self._row.room()[:size] if self._keeps_all else np.empty(size, np.float32)

    def add(self, samples: FloatArray, *, foreign: bool = False) -> None:
        """Take over a page: one from `page`, or as it is a foreign array that nobody will write to.

        Only the recording's last page may be short.
        """
        if not self._keeps_all:
            self._raw.append((self.total, samples))
        elif foreign:
            self._row.adopt(samples)
        else:
            self._row.extend(len(samples))
        self.total += len(samples)

    def keep(self, start: int, stop: int) -> None:
        """Keep a stretch of the recording; the stretches ascend, and what lies between them is left out."""
        if self._spans and self._spans[-1][1] == start:
            self._spans[-1] = (self._spans[-1][0], stop)
        else:
            self._spans.append((start, stop))
        for begin, samples in self._raw:
            if begin >= stop:
                break
            self._row.append(samples[max(start - begin, 0) : stop - begin])
        self.leave_out(stop)

    def leave_out(self, stop: int) -> None:
        """Forget undecided samples before a position."""
        while self._raw and self._raw[0][0] + len(self._raw[0][1]) <= stop:
            self._raw.popleft()

    def take(self, stop: int) -> tuple[tuple[Span, ...], FloatArray]:
        """Hand over what is kept before a position: the spans, and their samples in one array."""
        spans = take_spans(self._spans, stop)
        return spans, self._row.take(sum(end - begin for begin, end in spans))


def take_spans(spans: deque[Span], stop: int) -> tuple[Span, ...]:
    """Take the spans before a position from the front, dividing the one it falls into."""
    taken: list[Span] = []
    while spans and spans[0][0] < stop:
        begin, end = spans.popleft()
        taken.append((begin, min(end, stop)))
        if end > stop:
            spans.appendleft((stop, end))
    return tuple(taken)
