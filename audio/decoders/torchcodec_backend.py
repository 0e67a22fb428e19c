"""The system's FFmpeg, through torchcodec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from audio.decoders.base import BackendBase, DecoderBase, translated
from audio.decoders.protocol import Block
from audio.errors import NoAudioStreamError, UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.source import Source

_WINDOW_SECONDS = 10.0
"""Length of the ranges that are decoded one after the other; four megabytes of stereo at 48 kHz."""

# torchcodec keeps a frame when its timestamps fall into the range asked for. Codecs whose packets hold several frames,
# or frames without timestamps, lose audio that way without an error (measured: ADPCM, Monkey's Audio, Musepack,
# Windows Media, Speex). These are the ones that lose nothing.
_SOUND_CODECS = frozenset({"aac", "ac3", "alac", "eac3", "flac", "mp1", "mp2", "mp3", "opus", "vorbis"})


class TorchCodecDecoder(DecoderBase):
    """Decodes one range of time after the other, without going back."""

    def __init__(self, source: Source) -> None:
        from torchcodec.decoders import AudioDecoder

        self._source = source
        self._reader: BinaryIO = source.open()
        try:
            # A file object without a name: FFmpeg reads names as addresses, and guesses formats from their endings.
            self._decoder: Any = self._opened(AudioDecoder)
            super().__init__(self._describe())
        except BaseException:
            self._reader.close()
            raise

    def _opened(self, kind: Any) -> Any:
        try:
            return kind(self._reader)
        except ValueError as error:
            if "audio stream" in str(error):
                raise NoAudioStreamError(self._source.name, "there is no audio stream in it") from error
            raise

    def _describe(self) -> AudioInfo:
        metadata = self._decoder.metadata
        codec = str(metadata.codec)
        rate, channels = int(metadata.sample_rate or 0), int(metadata.num_channels or 0)
        if not (codec in _SOUND_CODECS or codec.startswith("pcm_")):
            raise UnreadableAudioError(self._source.name, f"torchcodec loses audio of the codec {codec}")
        if rate <= 0 or channels <= 0:
            raise UnreadableAudioError(self._source.name, "torchcodec finds no sample rate in it")
        index = int(self._decoder.stream_index)
        return AudioInfo(
            container="unknown",
            codec=codec,
            sample_rate=rate,
            channels=channels,
            channel_layout=None,
            claimed_duration=metadata.duration_seconds_from_header or None,
            start_time=float(metadata.begin_stream_seconds_from_header or 0.0),
            streams=(StreamInfo(index, codec, rate, channels, default=True),),
            backend="torchcodec",
        )

    def blocks(self) -> Iterator[Block]:
        """Yield up to one second at a time."""
        rate = self._info.sample_rate
        for window in self._windows():
            for start in range(0, len(window), rate):
                yield window[start : start + rate]

    def _windows(self) -> Iterator[Block]:
        """Yield ranges of whole frames, each beginning where the one before ended."""
        rate = self._info.sample_rate
        start = self._info.start_time - 1.0  # a stream may begin a little before its stated start
        stop = self._info.start_time + _WINDOW_SECONDS
        while True:
            found = self._frames(start, stop)
            if found is None:
                return
            samples, first = found
            if samples.shape[0]:
                yield samples
            start = first + samples.shape[0] / rate
            stop = start + _WINDOW_SECONDS

    def _frames(self, start: float, stop: float) -> tuple[Block, float] | None:
        """Return the whole frames that overlap a range of time, and the time of the first; None at the end.

        The public method cuts frames at the ends of the range by their timestamps. Where a container rounds these to
        milliseconds, samples would be lost or doubled at each cut; whole frames have no such cut.
        """
        from torchcodec import _core

        with translated(self._source, "torchcodec"):
            try:
                data, first = _core.get_frames_by_pts_in_range_audio(
                    self._decoder._decoder,  # noqa: SLF001 - see above; the backend's trial run covers it
                    start_seconds=start,
                    stop_seconds=stop,
                )
            except RuntimeError as error:
                if "No audio frames were decoded" in str(error):
                    return None
                raise
            return np.ascontiguousarray(data.numpy().T), float(first)

    def close(self) -> None:
        """Let go of the decoder and close the file."""
        self._decoder = None
        self._reader.close()


class TorchCodecBackend(BackendBase):
    """The torchcodec package."""

    name = "torchcodec"
    remedy = "Install it with: pip install 'auricle[torch]', and FFmpeg's shared libraries with the system's packages"

    def _open(self, source: Source) -> TorchCodecDecoder:
        return TorchCodecDecoder(source)
