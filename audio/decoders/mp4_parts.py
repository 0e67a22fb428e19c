"""Long MP4 recordings in parts, so that the memory for them does not grow with their length.

FFmpeg holds an index of all packets, 40 bytes for each: 60 MB for ten hours of AAC. It builds it from tables in the
file that tell the packets' sizes, places and times (ISO/IEC 14496-12, 8.6 and 8.7). A part is the same file as seen by
a reader that shows tables for some of the packets only, and a box of no meaning in the room that is left, so that all
else stays where it is. The packets of one part after the other are those of the whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from audio.decoders.mp4_boxes import Box, Boxes, UnclearError, handler, may_be_mp4, time_scale
from audio.reader import Reader
from audio.source import READ_SIZE, Source

PART_PACKETS = 1 << 16
"""How many packets a part has at the least: 25 minutes of AAC at 44.1 kHz, for which FFmpeg takes 3 MB."""

_FEW_PACKETS = 4096
"""Other tracks may have as many, which a picture and the titles of chapters stay below; videos are left whole."""

_MOST_RUNS = 1 << 20
"""Tables of more runs are not looked at, for they are held in memory."""

_TABLES = frozenset((b"stsd", b"stts", b"stsc", b"stsz", b"stco", b"co64"))
_OF_NO_PACKETS = frozenset((b"sgpd", b"sbgp", b"free", b"skip"))
"""What a track may be described by. Others, such as keys to encrypted packets, would have to be divided too."""

_FREE = b"free"
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class _Runs:
    """A table of runs: how many things are alike, shape (runs,), and what holds for each, shape (runs, columns)."""

    counts: Numbers
    values: Numbers

    @property
    def ends(self) -> Numbers:
        """How many there are up to the end of each run."""
        return np.cumsum(self.counts)

    def between(self, start: int, stop: int) -> _Runs:
        """Return the runs of the things in ``[start, stop)``."""
        ends = self.ends
        counts = np.minimum(ends, stop) - np.maximum(ends - self.counts, start)
        kept = counts > 0
        return _Runs(counts[kept], self.values[kept])


@dataclass(frozen=True)
class _Tables:
    """The boxes that tell of a track's packets, and the runs in them.

    Attributes
    ----------
    sizes, places, times, chunks : Box
        Of "stsz", "stco" or "co64", "stts", and "stsc".
    durations : _Runs
        Of packets: how long one is, in the track's ticks.
    held : _Runs
        Of chunks: how many packets one holds, and the number of their description.

    """

    sizes: Box
    places: Box
    times: Box
    chunks: Box
    durations: _Runs
    held: _Runs


class Mp4Parts:
    """The parts of a recording.

    Parameters
    ----------
    source : Source
        The file.
    tables : _Tables
        Of its sound.
    bounds : sequence of (int, int)
        The chunk and the packet with which each part begins, and both of their numbers.
    hidden : sequence of Box
        What only the first part shows: its other tracks, edit lists, and what programs have noted.
    scale : int
        Ticks of a second.

    """

    def __init__(
        self, source: Source, tables: _Tables, bounds: Sequence[tuple[int, int]], hidden: Sequence[Box], scale: int
    ) -> None:
        self._source = source
        self._tables = tables
        self._bounds = bounds
        self._hidden = hidden
        durations = tables.durations
        self.seconds = int(durations.counts @ durations.values[:, 0]) / scale
        """Length of the track by its table."""

    def __len__(self) -> int:
        """Return how many parts there are."""
        return len(self._bounds) - 1

    def ticks_before(self, number: int) -> int:
        """Return how long all packets before a part are, in ticks of the track."""
        before = self._tables.durations.between(0, self._bounds[number][1])
        return int(before.counts @ before.values[:, 0])

    def open(self, number: int) -> BinaryIO:
        """Return a reader that shows one part. Raises OSError where the file is not what it was."""
        whole = self._source.open()
        try:
            patches = sorted(self._patches(whole, number))
        except UnclearError as error:
            whole.close()
            raise OSError("the file has become shorter while it was read") from error
        except BaseException:
            whole.close()
            raise

        def read_at(offset: int, size: int) -> bytes:
            whole.seek(offset)
            data = bytearray(whole.read(size))
            for at, patch in patches:
                start, stop = max(at, offset), min(at + len(patch), offset + len(data))
                if start < stop:
                    data[start - offset : stop - offset] = patch[start - at : stop - at]
            return bytes(data)

        return io.BufferedReader(Reader(read_at, self._source.size or 0, whole.close), READ_SIZE)

    def _patches(self, reader: BinaryIO, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield what stands at which offset in place of what the file has there."""
        (chunk, packet), (end_chunk, end_packet) = self._bounds[number : number + 2]
        tables = self._tables
        boxes = Boxes(reader, self._source.size or 0)
        durations, held = tables.durations.between(packet, end_packet), tables.held.between(chunk, end_chunk)
        firsts = held.ends - held.counts + 1
        width = _place_width(tables.places)
        sizes = boxes.read(tables.sizes.start + 12 + 4 * packet, 4 * (end_packet - packet))
        places = boxes.read(tables.places.start + 8 + width * chunk, width * (end_chunk - chunk))
        yield from _shorter(tables.sizes, _numbers(0, 0, end_packet - packet) + sizes)
        yield from _shorter(tables.places, _numbers(0, end_chunk - chunk) + places)
        yield from _shorter(tables.times, _table(durations.counts, durations.values))
        yield from _shorter(tables.chunks, _table(firsts, held.values))
        if number:
            for box in self._hidden:
                yield box.head + 4, _FREE


def parts_of(source: Source) -> Mp4Parts | None:
    """Return the parts of an MP4 recording that has one track of sound, and is long.

    Parameters
    ----------
    source : Source
        Any file. Its edit list has to be plain (`audio.decoders.mp4_edits`).

    Returns
    -------
    parts : Mp4Parts or None
        None where there would be one part only, or the file cannot be divided with certainty.

    """
    if source.size is None or not may_be_mp4(source):
        return None
    with source.open() as reader:
        boxes = Boxes(reader, source.size)
        try:
            movie = boxes.required(boxes.file, b"moov")
            tracks = [box for box in boxes.within(movie) if box.kind == b"trak"]
            sounds = [track for track in tracks if handler(boxes, track) == b"soun"]
            if len(sounds) != 1 or boxes.child(movie, b"mvex") is not None:
                return None
            (sound,) = sounds
            tables = _tables(boxes, sound)
            if any(_packets(boxes, track) > _FEW_PACKETS for track in tracks if track is not sound):
                return None
            bounds = _bounds(tables.held)
            chunks = bounds[-1][0]
            alone = any(stop - start == chunks - 1 for (start, _), (stop, _) in pairwise(bounds))
            if len(bounds) <= 2 or alone:  # where one chunk is left out, there is no room for a free box
                return None
            shown = {b"mdia", b"tkhd"}
            hidden = [track for track in tracks if track is not sound]
            hidden += [box for box in boxes.within(movie) if box.kind in (b"udta", b"meta")]
            hidden += [box for box in boxes.within(sound) if box.kind not in shown]
            scale, _ = time_scale(boxes, boxes.required(sound, b"mdia", b"mdhd"))
            return Mp4Parts(source, tables, bounds, hidden, scale)
        except UnclearError:
            return None


def _tables(boxes: Boxes, track: Box) -> _Tables:
    inside = list(boxes.within(boxes.required(track, b"mdia", b"minf", b"stbl")))
    found = {box.kind: box for box in inside}
    if not found.keys() <= _TABLES | _OF_NO_PACKETS or sum(box.kind in _TABLES for box in inside) != len(_TABLES) - 1:
        raise UnclearError
    try:
        places = found[b"stco"] if b"stco" in found else found[b"co64"]
        sizes, times, chunks = found[b"stsz"], found[b"stts"], found[b"stsc"]
    except KeyError:
        raise UnclearError from None
    packets, number_of_chunks = _packets(boxes, track), boxes.number(places.start + 4, 4)
    all_of_one_size = boxes.number(sizes.start + 4, 4)
    room_for_sizes, room_for_places = sizes.stop - sizes.start - 12, places.stop - places.start - 8
    if all_of_one_size or room_for_sizes < 4 * packets or room_for_places < _place_width(places) * number_of_chunks:
        raise UnclearError
    times_table, chunks_table = _rows(boxes, times, 2), _rows(boxes, chunks, 3)
    durations = _Runs(times_table[:, 0], times_table[:, 1:])
    held = _Runs(np.diff(chunks_table[:, 0], append=number_of_chunks + 1), chunks_table[:, 1:])
    told = int(durations.counts.sum()), int(held.counts @ held.values[:, 0])
    if told != (packets, packets) or chunks_table[0, 0] != 1 or held.counts.min() < 1 or held.values.min() < 1:
        raise UnclearError
    return _Tables(sizes, places, times, chunks, durations, held)


def _bounds(held: _Runs) -> list[tuple[int, int]]:
    """Return the chunk and the packet with which each part begins, and both of their numbers.

    Chunks are not divided, and what would be less than half a part goes with the one before.
    """
    each = held.values[:, 0]
    chunks, packets = held.ends, np.cumsum(held.counts * each)
    bounds = [(0, 0)]
    while bounds[-1][1] + 1.5 * PART_PACKETS < packets[-1]:
        wanted = bounds[-1][1] + PART_PACKETS
        run = int(np.searchsorted(packets, wanted))
        rest = int(packets[run] - wanted) // int(each[run])  # chunks of the run that are left for the next part
        bounds.append((int(chunks[run]) - rest, int(packets[run]) - rest * int(each[run])))
    return [*bounds, (int(chunks[-1]), int(packets[-1]))]


def _packets(boxes: Boxes, track: Box) -> int:
    """Return how many packets a track has."""
    return boxes.number(boxes.required(track, b"mdia", b"minf", b"stbl", b"stsz").start + 8, 4)


def _rows(boxes: Boxes, table: Box, columns: int) -> Numbers:
    rows = boxes.number(table.start + 4, 4)
    if not 0 < rows <= _MOST_RUNS or table.stop - table.start < 8 + 4 * columns * rows:
        raise UnclearError
    numbers = np.frombuffer(boxes.read(table.start + 8, 4 * columns * rows), ">u4")
    return numbers.reshape(rows, columns).astype(np.int64)


def _place_width(places: Box) -> int:
    return 4 if places.kind == b"stco" else 8


def _numbers(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def _table(first: Numbers, others: Numbers) -> bytes:
    rows = np.column_stack((first, others)).astype(">u4")
    return _numbers(0, len(rows)) + rows.tobytes()


def _shorter(box: Box, contents: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield what makes a box one of other contents, with a free box in the room that is left."""
    left = box.stop - box.head - 8 - len(contents)
    if left < 0 or 0 < left < 8:
        raise UnclearError
    yield box.head, _numbers(8 + len(contents)) + box.kind + contents
    if left:
        yield box.stop - left, _numbers(left) + _FREE
