"""The edit lists of MP4 files: whether they do no more than leave out an encoder's run-up.

FFmpeg holds an index of all packets, and to apply edit lists in general it builds a second one beside it. Ten hours of
AAC have 1.6 million packets, and cost 50 MiB more that way. Nearly every recording has one edit, or an empty one before
it where the sound begins late; without the general treatment FFmpeg handles these all the same (`mov_build_index` in
libavformat/mov.c): it skips the run-up of AAC and shifts the timestamps. This module finds out which files those are.
The boxes are those of ISO/IEC 14496-12.
"""

from __future__ import annotations

from audio.decoders.mp4_boxes import Box, Boxes, UnclearError, handler, may_be_mp4, time_scale
from audio.source import Source

_RATE_ONE = 0x0001_0000
"""The media rate of an edit that plays at its speed, in 16.16 fixed point."""


def plain_edits(source: Source) -> tuple[float | None, ...] | None:
    """Return how long the audio tracks are, if FFmpeg decodes them alike with its general treatment of edit lists.

    Parameters
    ----------
    source : Source
        Any file; of one that is no MP4, a few bytes are read.

    Returns
    -------
    lengths : tuple of float or None
        Seconds of each audio track by its edit list, None for a track without one. None in place of the tuple where
        the general treatment is needed. It is not for MP4 and QuickTime files whose audio tracks all are of the sample
        entry "mp4a" and have no edit list, or one edit to the end of the track at normal speed, alone or behind an
        empty one. It is for all others, those in fragments among them, and for what cannot be understood.

    """
    if source.size is None or not may_be_mp4(source):
        return None
    with source.open() as reader:
        boxes = Boxes(reader, source.size)
        try:
            movie = boxes.required(boxes.file, b"moov")
            if boxes.child(movie, b"mvex") is not None:
                return None
            ticks = time_scale(boxes, boxes.required(movie, b"mvhd"))[0]
            tracks = [box for box in boxes.within(movie) if box.kind == b"trak"]
            sounds = [track for track in tracks if handler(boxes, track) == b"soun"]
            return tuple(_length(boxes, track, ticks) for track in sounds)
        except UnclearError:
            return None


def _length(boxes: Boxes, track: Box, movie_scale: int) -> float | None:
    """Return the seconds of a track by its edit list, None if it has none; refuse a list that does more."""
    table = boxes.required(track, b"mdia", b"minf", b"stbl")
    if boxes.read(boxes.required(table, b"stsd").start + 12, 4) != b"mp4a":
        raise UnclearError
    edits = _edits(boxes, boxes.child(track, b"edts", b"elst"))
    if not edits:
        return None
    if edits[0][1] == -1:
        edits = edits[1:]
    if len(edits) != 1:
        raise UnclearError
    length, begin, rate = edits[0]
    scale, duration = time_scale(boxes, boxes.required(track, b"mdia", b"mdhd"))
    length = (2 * length * scale + movie_scale) // (2 * movie_scale)  # rounded to the nearest tick, as FFmpeg does
    # Of packets that begin behind the edit's end nothing is played, so that there may be none.
    last = duration - _last_packet(boxes, boxes.required(table, b"stts"))
    if rate != _RATE_ONE or begin < 0 or begin + length <= last:
        raise UnclearError
    return min(length, duration) / scale


def _edits(boxes: Boxes, edit_list: Box | None) -> list[tuple[int, int, int]]:
    """Return the length, in the movie's ticks, the beginning, in the track's, and the rate of the first three edits."""
    if edit_list is None:
        return []
    size = 8 if boxes.number(edit_list.start, 1) == 1 else 4
    count = boxes.number(edit_list.start + 4, 4)
    edits = []
    for number in range(min(count, 3)):
        at = edit_list.start + 8 + number * (2 * size + 4)
        edits.append(
            (boxes.number(at, size), boxes.number(at + size, size, signed=True), boxes.number(at + 2 * size, 4))
        )
    return edits


def _last_packet(boxes: Boxes, times: Box) -> int:
    """Return the length of the last packet in the track's ticks."""
    count = boxes.number(times.start + 4, 4)
    at = times.start + 8 * count
    if count == 0 or at + 8 > times.stop:
        raise UnclearError
    return boxes.number(at + 4, 4)
