"""libsndfile, through soundfile: WAV, FLAC, Ogg, MP3, AIFF, CAF, AU and more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audio.decoders.array_decoder import scaled
from audio.decoders.base import BackendBase, DecoderBase, translated
from audio.decoders.protocol import Block
from audio.decoders.ranges import outside
from audio.errors import UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.layouts import flac_layout, wave_layout
from audio.selection import EVERYTHING, Selection, find_track
from audio.source import Source

_UNKNOWN_LENGTH = 2**62
"""libsndfile gives 2**63 - 1 frames, or nearly, for a length that it does not know."""

_READS_PER_BLOCK = 10
"""A failing read loses all it was asked for, so a second is read in pieces."""

_BLOCK_VALUES = 1 << 21
"""At most this many samples of all channels in a block (8 MiB), whatever rate and channel count a header states."""

_READ_VALUES = 1 << 16
"""About so many 16-bit samples of all channels are read at a time (128 KiB)."""

_LEAST_FRAMES = 1 << 12
"""A block has at least this many frames while there are more, whatever rate a header states: one of 1 Hz would ask for
a call to each sample."""

_OGG_TAIL = 1 << 16
"""An Ogg page is at most 65 307 bytes, so the last page of a file begins within its last 64 KiB."""

_OGG_END_SECONDS = 30.0
"""libsndfile misplaces what it finds in the last page of a Vorbis stream, which holds a few seconds."""

_HEAD = 1 << 12
"""The format chunk of a WAV file stands within its first 4 KiB."""

_COMPRESSED = {"flac", "ogg", "mpeg", "mp3"}
"""Formats, as libsndfile names them, that have audio to their last byte but for small tags."""

_PLAIN = {"pcm_s8", "pcm_u8", "pcm_16", "pcm_24", "pcm_32", "float", "double"}
"""Codecs in which nothing can be damaged, so that a read fails for no reason of theirs and a second is read at once."""

_TAG_BYTES = 1 << 13
_TAG_SHARE = 0.02
"""Up to 8 KiB, or 2 % of a file, behind the audio pass for tags."""


def _is_chained(source: Source) -> bool:
    """Return whether an Ogg file ends with another logical stream than it begins with.

    Bytes 14 to 18 of a page are the serial number of its stream (RFC 3533).
    """
    with source.open() as reader:
        first = reader.read(18)
        reader.seek(max((source.size or 0) - _OGG_TAIL, 0))
        tail = reader.read(_OGG_TAIL)
    last = tail.rfind(b"OggS\0")
    serial = tail[last + 14 : last + 18]
    return last >= 0 and len(serial) == 4 and serial != first[14:18]


class SoundFileDecoder(DecoderBase):
    """Reads through libsndfile, up to a second at a time, until it gives no more."""

    def __init__(self, source: Source, selection: Selection = EVERYTHING) -> None:
        import soundfile

        self._source = source
        self._reader: Any = None
        self._descriptor = -1
        if source.path is not None:
            # By descriptor: libsndfile takes a path of "-" for standard input, and guesses raw formats from endings.
            # It owns the descriptor from here on, and closes it when it refuses the file.
            self._descriptor = os.open(source.path, os.O_RDONLY)
            self._file = soundfile.SoundFile(self._descriptor, closefd=True)
        else:
            self._reader = source.open()
            self._file = soundfile.SoundFile(self._reader)
        # soundfile seeks after each read of a seekable file. That fails where the length is unknown, and repeats audio
        # where a page is missing. Reading straight on needs no seek.
        self._file.seekable = lambda: False
        self._compressed = str(self._file.format).lower() in _COMPRESSED
        self._plain = not self._compressed and str(self._file.subtype).lower() in _PLAIN
        info = self._describe()
        try:
            if selection.track is not None:
                find_track(info.streams, selection.track, source.name)
            super().__init__(info, self._find_doubt())
            self._enter(selection)
        except BaseException:
            self.close()
            raise

    def _enter(self, selection: Selection) -> None:
        """Go to the pre-roll of the wanted range; libsndfile then gives the very samples of that place."""
        rate, claimed = self._info.sample_rate, self._info.claimed_duration
        start, _ = selection.frames(rate)
        if self._info.codec == "opus":
            # Only after a seek does libsndfile leave out what Opus puts before the beginning (RFC 7845, 4.2).
            with suppress(UnreadableAudioError), translated(self._source, "soundfile"):
                self._file.seek(0)
        if not 0 < rate <= start:
            return
        if claimed is not None and start >= claimed * rate:
            raise outside(self._source.name, selection, claimed)
        with translated(self._source, "soundfile"):
            self._info = replace(self._info, offset=int(self._file.seek(self._before(start))))

    def enter(self, selection: Selection) -> bool:
        """Go to the pre-roll of another range; not to the beginning."""
        if not 0 < self._info.sample_rate <= selection.frames(self._info.sample_rate)[0]:
            return False
        self._enter(selection)
        return True

    def _before(self, start: int) -> int:
        """Return where to enter the file for a range: a second before it, for codecs that look back."""
        rate, claimed = self._info.sample_rate, self._info.claimed_duration
        if self._info.container == "ogg" and claimed is not None:
            start = min(start, round((claimed - _OGG_END_SECONDS) * rate))
        return max(start - rate, 0)

    def _describe(self) -> AudioInfo:
        file = self._file
        rate, channels, frames = int(file.samplerate), int(file.channels), int(file.frames)
        codec = str(file.subtype).lower()
        return AudioInfo(
            container=str(file.format).lower(),
            codec=codec,
            sample_rate=rate,
            channels=channels,
            channel_layout=self._layout(str(file.format), channels),
            claimed_duration=frames / rate if 0 < frames < _UNKNOWN_LENGTH and rate > 0 else None,
            start_time=0.0,
            streams=(StreamInfo(0, codec, rate, channels, default=True),),
            backend="soundfile",
        )

    def _layout(self, kind: str, channels: int) -> str | None:
        """Return which channel is which, where that matters; libsndfile does not say."""
        if channels <= 2:
            return None
        if kind == "FLAC":
            return flac_layout(channels)
        return wave_layout(self._source.head(_HEAD)) if kind in ("WAV", "WAVEX", "RF64") else None

    def _find_doubt(self) -> str | None:
        kind, codec = str(self._file.format).lower(), str(self._file.subtype).lower()
        if kind == "ogg" and _is_chained(self._source):
            return "libsndfile reads only the first of the streams chained in it"
        if codec == "opus" and self._file.samplerate < 16000:
            return "libsndfile decodes Opus at the rate of what was encoded, here too low for speech"
        return None

    def blocks(self) -> Iterator[Block]:
        """Yield up to one second at a time."""
        channels = self._info.channels
        frames = max(min(max(self._info.sample_rate, _LEAST_FRAMES), _BLOCK_VALUES // channels), 1)
        if self._plain and self._info.codec == "pcm_16":
            yield from self._whole_numbers(frames)
            return
        piece = frames if self._plain else -(-frames // _READS_PER_BLOCK)
        ended = False
        while not ended:
            block = np.empty((frames, channels), np.float32)
            filled, ended, failure = self._fill(block, piece)
            if filled:
                yield block[:filled]
            if failure is not None:
                raise failure
        self._check_end()

    def _whole_numbers(self, frames: int) -> Iterator[Block]:
        """Yield so many frames at a time, read as they are in the file and scaled here.

        That is three times faster than libsndfile's own conversion. Several blocks are read and scaled in one call
        where they fit into a core's cache.
        """
        channels = self._info.channels
        read = np.empty((max(_READ_VALUES // channels // frames, 1) * frames, channels), np.int16)
        ended = False
        while not ended:
            filled, ended, failure = self._fill(read, len(read))
            converted = scaled(read[:filled])
            for start in range(0, filled, frames):
                yield converted[start : start + frames]
            if failure is not None:
                raise failure

    def _fill(self, block: NDArray[Any], piece: int) -> tuple[int, bool, UnreadableAudioError | None]:
        """Read into a block, so many frames at a time; return how many there were, whether that is all, and why."""
        filled, kind = 0, block.dtype.name
        try:
            with translated(self._source, "soundfile"):
                while filled < len(block):
                    got = self._file.buffer_read_into(block[filled : filled + piece], kind)
                    if not got:
                        return filled, True, None
                    filled += got
        except UnreadableAudioError as error:
            return filled, True, error
        return filled, False, None

    def _check_end(self) -> None:
        """Refuse to call it the end while much of a compressed file is unread: its header states too short a length."""
        size = self._source.size or 0
        at = self._reader.tell() if self._reader is not None else os.lseek(self._descriptor, 0, os.SEEK_CUR)
        unread = size - at
        if self._compressed and unread > max(_TAG_BYTES, _TAG_SHARE * size):
            raise UnreadableAudioError(
                self._source.name, f"soundfile ends where the header says, with {unread} bytes of the file unread"
            )

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._reader is not None:
            self._reader.close()


class SoundFileBackend(BackendBase):
    """The soundfile package."""

    name = "soundfile"
    remedy = "Install it with: pip install soundfile"

    def _open(self, source: Source, selection: Selection) -> SoundFileDecoder:
        return SoundFileDecoder(source, selection)
