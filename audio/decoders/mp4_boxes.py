"""The boxes of MP4 and QuickTime files, those of ISO/IEC 14496-12."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from audio.source import Source

_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")

_MOST_BOXES = 4096
"""A file that has more boxes within one is not looked at further."""


class UnclearError(Exception):
    """The file does more than this module follows, or is not as the standard says."""


@dataclass(frozen=True)
class Box:
    """A box, which begins at byte `head`; its contents are the half-open interval of bytes ``[start, stop)``."""

    kind: bytes
    head: int
    start: int
    stop: int


class Boxes:
    """Reads boxes and the numbers in them, and of neither more than is asked for."""

    def __init__(self, reader: BinaryIO, size: int) -> None:
        self._reader = reader
        self.file = Box(b"", 0, 0, size)

    def within(self, outer: Box) -> Iterator[Box]:
        """Yield the boxes in one, in their order."""
        at = outer.start
        for _ in range(_MOST_BOXES):
            if outer.stop - at < 8:
                return
            size, kind, header = self.number(at, 4), self.read(at + 4, 4), 8
            if size == 1:
                size, header = self.number(at + 8, 8), 16
            elif size == 0:
                size = outer.stop - at
            if size < header:
                raise UnclearError
            yield Box(kind, at, at + header, min(at + size, outer.stop))
            at += size
        raise UnclearError

    def child(self, outer: Box, *path: bytes) -> Box | None:
        """Return the first box on a path of kinds, or None."""
        found: Box | None = outer
        for kind in path:
            if found is None:
                return None
            found = next((box for box in self.within(found) if box.kind == kind), None)
        return found

    def required(self, outer: Box, *path: bytes) -> Box:
        """Return the first box on a path of kinds, which has to be there."""
        found = self.child(outer, *path)
        if found is None:
            raise UnclearError
        return found

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of the file, all that are asked for."""
        self._reader.seek(at)
        data = self._reader.read(size)
        if len(data) < size:
            raise UnclearError
        return data

    def number(self, at: int, size: int, *, signed: bool = False) -> int:
        """Return a number of so many bytes."""
        return int.from_bytes(self.read(at, size), "big", signed=signed)


def may_be_mp4(source: Source) -> bool:
    """Return whether a file begins as MP4 and QuickTime files do."""
    return source.head(8)[4:] in _FIRST_BOXES


def handler(boxes: Boxes, track: Box) -> bytes:
    """Return what kind of media a track holds."""
    return boxes.read(boxes.required(track, b"mdia", b"hdlr").start + 8, 4)


def time_scale(boxes: Boxes, header: Box) -> tuple[int, int]:
    """Return the ticks of a second and the duration in ticks that a movie's or a media's header states."""
    wide = boxes.number(header.start, 1) == 1
    at = header.start + (20 if wide else 12)
    scale, duration = boxes.number(at, 4), boxes.number(at + 4, 8 if wide else 4)
    if scale == 0:
        raise UnclearError
    return scale, duration
