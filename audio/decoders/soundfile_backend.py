"""libsndfile, through soundfile: WAV, FLAC, Ogg, MP3, AIFF, CAF, AU and more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from audio.decoders.base import BackendBase, DecoderBase, translated
from audio.decoders.protocol import Block
from audio.errors import UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.source import Source

_UNKNOWN_LENGTH = 2**62
"""libsndfile gives 2**63 - 1 frames, or nearly, for a length that it does not know."""

_OGG_TAIL = 1 << 16
"""An Ogg page is at most 65 307 bytes, so the last page of a file begins within its last 64 KiB."""


def _is_chained(source: Source) -> bool:
    """Return whether an Ogg file ends with another logical stream than it begins with.

    libsndfile stops at the end of the first. Bytes 14 to 18 of a page are the serial number of its stream (RFC 3533).
    """
    with source.open() as reader:
        first = reader.read(18)
        if first[:4] != b"OggS":
            return False
        reader.seek(max((source.size or 0) - _OGG_TAIL, 0))
        tail = reader.read(_OGG_TAIL)
    last = tail.rfind(b"OggS\0")
    serial = tail[last + 14 : last + 18]
    return last >= 0 and len(serial) == 4 and serial != first[14:18]


class SoundFileDecoder(DecoderBase):
    """Reads through libsndfile, one second at a time, until it gives no more."""

    def __init__(self, source: Source) -> None:
        import soundfile

        if _is_chained(source):
            raise UnreadableAudioError(source.name, "libsndfile reads only the first of the streams chained in it")
        self._source = source
        self._reader: Any = None
        if source.path is not None:
            # By descriptor: libsndfile takes a path of "-" for standard input, and guesses raw formats from endings.
            # libsndfile owns the descriptor from here on, and closes it when it refuses the file.
            self._file = soundfile.SoundFile(os.open(source.path, os.O_RDONLY), closefd=True)
        else:
            self._reader = source.open()
            self._file = soundfile.SoundFile(self._reader)
        # soundfile seeks after each read of a seekable file. That fails where the length is unknown, and repeats audio
        # where a page is missing. Reading straight on needs no seek.
        self._file.seekable = lambda: False
        super().__init__(self._describe())

    def _describe(self) -> AudioInfo:
        file = self._file
        rate, channels, frames = int(file.samplerate), int(file.channels), int(file.frames)
        codec = str(file.subtype).lower()
        return AudioInfo(
            container=str(file.format).lower(),
            codec=codec,
            sample_rate=rate,
            channels=channels,
            channel_layout=None,
            claimed_duration=frames / rate if 0 < frames < _UNKNOWN_LENGTH and rate > 0 else None,
            start_time=0.0,
            streams=(StreamInfo(0, codec, rate, channels, default=True),),
            backend="soundfile",
        )

    def blocks(self) -> Iterator[Block]:
        """Yield one second at a time."""
        while True:
            with translated(self._source, "soundfile"):
                block: Block = self._file.read(self._info.sample_rate, dtype="float32", always_2d=True)
            if not len(block):
                return
            yield block

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._reader is not None:
            self._reader.close()


class SoundFileBackend(BackendBase):
    """The soundfile package."""

    name = "soundfile"
    remedy = "Install it with: pip install soundfile"

    def _open(self, source: Source) -> SoundFileDecoder:
        return SoundFileDecoder(source)
