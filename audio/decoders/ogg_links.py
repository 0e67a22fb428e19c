"""Where the links of a chained Ogg file begin.

Streams that are recorded from the air, and files that were joined by `cat`, are chains: complete Ogg files one after
the other. libsndfile reads the first link, and FFmpeg stops where the next one has another rate or channel count.
"""

from __future__ import annotations

from typing import BinaryIO

from audio.source import Source

_HEADER = 27
_BEGINS = 0x02
"""The bit of a page's type that marks the beginning of a logical stream (RFC 3533, section 6)."""

_MOST_LINKS = 1000
"""A file of more links than this is taken for one; each costs an opening."""


def link_offsets(source: Source) -> list[int]:
    """Return the byte offset of each link of an Ogg file, the first of them 0; only 0 for other files.

    A link begins at a page that begins a stream and follows one that does not: the streams of one link all begin
    before any of them goes on.

    """
    offsets = [0]
    with source.open() as reader:
        if reader.read(4) != b"OggS":
            return offsets
        at: int | None = 0
        beginning = True
        while at is not None:
            reader.seek(at)
            header = reader.read(_HEADER)
            if len(header) < _HEADER:
                break
            if header[:4] != b"OggS":
                at = _next_page(reader, at + 1)
                continue
            begins = bool(header[5] & _BEGINS)
            if begins and not beginning:
                offsets.append(at)
                if len(offsets) > _MOST_LINKS:
                    return [0]
            beginning = begins
            at += _HEADER + header[26] + sum(reader.read(header[26]))
    return offsets


def _next_page(reader: BinaryIO, start: int) -> int | None:
    """Return the offset of the next page mark from `start` on, or None if there is none."""
    step = 1 << 16
    while True:
        reader.seek(start)
        data = reader.read(step)
        found = data.find(b"OggS")
        if found >= 0:
            return start + found
        if len(data) < step:
            return None
        start += step - 3
