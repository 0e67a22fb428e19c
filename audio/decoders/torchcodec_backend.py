"""The system's FFmpeg, through torchcodec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from audio.decoders.base import BackendBase, DecoderBase, translated
from audio.decoders.containment import is_recording
from audio.decoders.protocol import Block
from audio.errors import NoAudioStreamError, UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.selection import EVERYTHING, Selection, find_track, several_tracks
from audio.source import Source

_WINDOW_SECONDS = 0.7537
"""Length of the ranges that are decoded one after the other: so short that their samples stay in a core's cache until
they are mixed, and that with its last frame none is longer than a block may be.

It is no multiple of a usual frame's length. torchcodec stops where the end of a range falls into the frame at hand; at
an end between two frames it may miss that, and decode to the end of the file for nothing.
"""

_WINDOW_VALUES = 1 << 23
"""At most about this many samples of all channels in a range (32 MiB), whatever rate and channels a header states."""

_ROUNDING_SECONDS = 0.002
"""Matroska, Flash and ASF round the times of frames and their lengths to milliseconds."""

_RUN_UP_SECONDS = 0.25
"""How much earlier a fresh decoder begins: what it gives first is timed by whole pages of Ogg, and has to be cut."""

_LONGEST_GAP_SECONDS = 3600.0
"""Where nothing more is found for this long in a stream that states no length, it has ended."""

# torchcodec keeps a frame when its timestamps fall into the range asked for. Codecs whose packets hold several frames,
# or frames without timestamps, lose audio that way without an error (measured: ADPCM, Monkey's Audio, Musepack,
# Windows Media, Speex). These are the ones that lose nothing, in containers that time each frame.
_SOUND_CODECS = frozenset({"aac", "ac3", "alac", "eac3", "flac", "mp1", "mp2", "mp3", "opus", "vorbis"})
_UNTIMED_IN_MATROSKA = frozenset({"alac"})
_CLOCKLESS = frozenset({b"RIFF", b"RF64", b"fLaC", b"ID3\x02", b"ID3\x03", b"ID3\x04", b"FORM", b"caff", b".snd"})
"""How files begin that hold audio alone, without a clock."""

_MATROSKA = b"\x1a\x45\xdf\xa3"


class TorchCodecDecoder(DecoderBase):
    """Decodes one range of time after the other, without going back."""

    def __init__(self, source: Source, selection: Selection = EVERYTHING) -> None:
        from torchcodec.decoders import AudioDecoder

        self._source = source
        self._selection = selection
        head = source.head(1024)
        self._matroska = head.startswith(_MATROSKA)
        if not is_recording(source):
            # torchcodec takes no list of allowed formats, and the system's FFmpeg may know music modules and scripts.
            raise UnreadableAudioError(source.name, "torchcodec is given only formats of recordings, and it is none")
        self._reader: BinaryIO = source.open()
        try:
            # A file object without a name: FFmpeg reads names as addresses, and guesses formats from their endings.
            self._decoder: Any = self._opened(AudioDecoder)
            tracks = self._tracks()
            if selection.track is not None:
                track = find_track(tracks, selection.track, source.name)
                if tracks[track].index != self._decoder.stream_index:
                    self._reader.close()
                    self._reader = source.open()
                    self._decoder = AudioDecoder(self._reader, stream_index=tracks[track].index)
            super().__init__(self._describe())
            self._doubt = self._find_doubt()
        except BaseException:
            self._reader.close()
            raise

    def _reopen(self) -> None:
        """Begin anew with the same stream."""
        from torchcodec.decoders import AudioDecoder

        stream = int(self._decoder.stream_index)
        self._reader.close()
        self._reader = self._source.open()
        self._decoder = AudioDecoder(self._reader, stream_index=stream)

    def _opened(self, kind: Any) -> Any:
        try:
            return kind(self._reader)
        except ValueError as error:
            if "audio stream" in str(error):
                raise NoAudioStreamError(self._source.name, "there is no audio stream in it") from error
            raise

    def _tracks(self) -> tuple[StreamInfo, ...]:
        """Return the audio tracks; torchcodec says nothing of their languages, and which one is the default."""
        from torchcodec import _core

        streams = _core.get_container_metadata(self._decoder._decoder).streams  # noqa: SLF001 - see `_frames`
        return tuple(
            StreamInfo(index, str(each.codec), int(each.sample_rate or 0), int(each.num_channels or 0))
            for index, each in enumerate(streams)
            if hasattr(each, "sample_rate")
        )

    def _describe(self) -> AudioInfo:
        metadata = self._decoder.metadata
        codec = str(metadata.codec)
        rate, channels = int(metadata.sample_rate or 0), int(metadata.num_channels or 0)
        if rate <= 0 or channels <= 0:
            raise UnreadableAudioError(self._source.name, "torchcodec finds no sample rate in it")
        index = int(self._decoder.stream_index)
        tracks = self._tracks()
        if len(tracks) < 2:
            tracks = (StreamInfo(index, codec, rate, channels, default=True),)
        return AudioInfo(
            container="unknown",
            codec=codec,
            sample_rate=rate,
            channels=channels,
            channel_layout=None,
            claimed_duration=_claim(metadata),
            start_time=float(metadata.begin_stream_seconds_from_header or 0.0),
            streams=tracks,
            backend="torchcodec",
            track=[each.index for each in tracks].index(index),
        )

    def _find_doubt(self) -> str | None:
        codec = str(self._decoder.metadata.codec)
        if not (codec in _SOUND_CODECS or codec.startswith("pcm_")):
            return f"torchcodec may lose audio of the codec {codec}"
        if codec in _UNTIMED_IN_MATROSKA and self._matroska:
            return f"torchcodec may lose audio of the codec {codec} in Matroska"
        return self._find_doubt_of_selection()

    def _find_doubt_of_selection(self) -> str | None:
        """Return why torchcodec gives less than was asked for, or only at a cost."""
        tracks, wanted = self._info.streams, self._selection
        if len(tracks) > 1 and wanted.track is None:
            return several_tracks(tracks, self._info.track)
        if self._info.channels > 2:
            return "torchcodec does not say which channel is which, so all count the same"
        if wanted.start > 0:
            return "torchcodec decodes all that lies before a range"
        if wanted.timeline == "container" and self._source.head(4) not in _CLOCKLESS:
            return "torchcodec does not keep a late start, and does not see holes in the container's clock"
        return None

    def blocks(self) -> Iterator[Block]:
        """Yield up to one second at a time."""
        rate = self._info.sample_rate
        for window in self._windows():
            for start in range(0, len(window), rate):
                yield window[start : start + rate]

    def _windows(self) -> Iterator[Block]:
        """Yield ranges of whole frames, each beginning where the one before ended."""
        rate, claimed = self._info.sample_rate, self._info.claimed_duration
        begin = max(self._info.start_time, 0.0)
        end = begin + claimed if claimed is not None else None
        usual = min(_WINDOW_SECONDS, _WINDOW_VALUES / (rate * self._info.channels))
        start, width = self._first_start(), usual
        stop = begin + width
        while True:
            last = end is not None and stop >= end
            found = self._frames(start, stop)
            if found is None and not last:
                # At some page borders of Ogg a decoder that goes on finds nothing where a fresh one does.
                self._reopen()
                found = self._frames(start - _RUN_UP_SECONDS, stop)
            # What lies before time zero is the encoder's run-up, which players skip. What lies before a later start
            # was given already.
            samples, time = self._trimmed(*found, max(start, 0.0)) if found is not None else (None, 0.0)
            if samples is not None and len(samples):
                yield samples
                reached = time + len(samples) / rate
                start, width = (stop if last else self._next_start(start, stop, reached)), usual
            elif last or width > _LONGEST_GAP_SECONDS:
                return
            else:
                width = 2 * width
            stop = start + width

    def _first_start(self) -> float:
        """Return where the first range begins: before time zero, to catch a first frame at zero that has no length.

        AAC in Matroska has such a frame as well, but there it is the encoder's run-up, which FFmpeg before version 8
        does not skip.
        """
        run_up = self._matroska and self._info.codec == "aac"
        return 0.0 if run_up else -1.0

    def _trimmed(self, samples: Block, time: float, earliest: float) -> tuple[Block, float]:
        """Drop what lies before a time: the frames of a range may begin before it, or seem to by rounded timestamps."""
        if earliest - time <= _ROUNDING_SECONDS:
            return samples, time
        return samples[round((earliest - time) * self._info.sample_rate) :], earliest

    def _next_start(self, start: float, stop: float, end: float) -> float:
        """Return where the next range begins, so that no frame is given twice.

        A range gives each frame that begins before its stop. Without gaps the frames end at or behind it, and the next
        range begins where they end. With a gap, only the frame across the stop can tell where to go on.
        """
        rate = self._info.sample_rate
        if end >= stop - 0.5 / rate:
            return max(end, start + 1.0 / rate)
        across = self._frames(stop, stop + 1.0 / rate)
        if across is None:
            return end
        return max(across[1] + len(across[0]) / rate, stop) if across[1] < stop else stop

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
            return data.numpy().T, float(first)

    def close(self) -> None:
        """Let go of the decoder and close the file."""
        self._decoder = None
        self._reader.close()


def _claim(metadata: Any) -> float | None:
    """Return the stream's claimed length. Where it claims none, the container's counts, which begins at time zero."""
    if metadata.duration_seconds_from_header:
        return float(metadata.duration_seconds_from_header)
    begin = max(float(metadata.begin_stream_seconds_from_header or 0.0), 0.0)
    claimed = float(metadata.duration_seconds or 0.0) - begin
    return claimed if claimed > 0 else None


class TorchCodecBackend(BackendBase):
    """The torchcodec package."""

    name = "torchcodec"
    remedy = "Install it with: pip install 'auricle[torch]', and FFmpeg's shared libraries with the system's packages"

    def _open(self, source: Source, selection: Selection) -> TorchCodecDecoder:
        return TorchCodecDecoder(source, selection)
