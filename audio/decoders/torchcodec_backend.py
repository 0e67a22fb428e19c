"""The system's FFmpeg, through torchcodec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from audio.decoders.base import BackendBase, DecoderBase, translated
from audio.decoders.containment import is_recording
from audio.decoders.ogg_links import link_offsets
from audio.decoders.protocol import Block
from audio.errors import NoAudioStreamError, UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.selection import EVERYTHING, Selection, find_track, several_tracks
from audio.source import Source

_BATCH_SECONDS = 0.5
"""Frames, of a few milliseconds each, are joined to about this length: so short that their samples stay in a core's
cache until they are mixed."""

_LEAST_FRAMES = 1 << 12
"""At least so many samples of each channel are joined, whatever rate a header states: at 1 Hz each codec frame would
come on its own."""

_ROUNDING_SECONDS = 0.002
"""Matroska, Flash and ASF round the times of frames and their lengths to milliseconds."""

# torchcodec keeps a frame when its timestamps fall into the range asked for. Codecs whose packets hold several frames,
# or frames without timestamps, lose audio that way without an error (measured: ADPCM, Monkey's Audio, Musepack,
# Windows Media, Speex). These are the ones that lose nothing, in containers that time each frame.
_SOUND_CODECS = frozenset({"aac", "ac3", "alac", "eac3", "flac", "mp1", "mp2", "mp3", "opus", "vorbis"})
_UNTIMED_IN_MATROSKA = frozenset({"alac"})
_CLOCKLESS = frozenset({b"RIFF", b"RF64", b"fLaC", b"ID3\x02", b"ID3\x03", b"ID3\x04", b"FORM", b"caff", b".snd"})
"""How files begin that hold audio alone, without a clock."""

_MATROSKA = b"\x1a\x45\xdf\xa3"


class TorchCodecDecoder(DecoderBase):
    """Decodes frame by frame, without going back."""

    def __init__(self, source: Source, selection: Selection = EVERYTHING) -> None:
        from torchcodec.decoders import AudioDecoder

        self._source = source
        self._selection = selection
        head = source.head(1024)
        self._matroska = head.startswith(_MATROSKA)
        if not is_recording(source):
            # torchcodec takes no list of allowed formats, and the system's FFmpeg may know music modules and scripts.
            raise UnreadableAudioError(source.name, "torchcodec is given only formats of recordings, and it is none")
        # Read as one, the links of a chained Ogg file are not cut at their ends.
        self._links = link_offsets(source)
        self._reader: BinaryIO = self._link(0)
        try:
            # A file object without a name: FFmpeg reads names as addresses, and guesses formats from their endings.
            self._decoder: Any = self._opened(AudioDecoder)
            tracks = self._tracks()
            if selection.track is not None:
                track = find_track(tracks, selection.track, source.name)
                if tracks[track].index != self._decoder.stream_index:
                    self._reader.close()
                    self._reader = self._link(0)
                    self._decoder = AudioDecoder(self._reader, stream_index=tracks[track].index)
            super().__init__(self._describe())
            self._doubt = self._find_doubt()
        except BaseException:
            self._reader.close()
            raise

    def _link(self, number: int) -> BinaryIO:
        """Open one link of a chained file, or the whole of any other."""
        stop = self._links[number + 1] if number + 1 < len(self._links) else None
        return self._source.open(self._links[number], stop)

    def _next_link(self, number: int) -> None:
        """Begin with another link, which has to be of the same form."""
        from torchcodec.decoders import AudioDecoder

        self._reader.close()
        self._reader = self._link(number)
        self._decoder = self._opened(AudioDecoder)
        metadata = self._decoder.metadata
        if (metadata.sample_rate, metadata.num_channels) != (self._info.sample_rate, self._info.channels):
            raise UnreadableAudioError(self._source.name, "torchcodec does not follow its change of rate or channels")

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

        streams = _core.get_container_metadata(self._decoder._decoder).streams  # noqa: SLF001 - there is no other way
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
            claimed_duration=_claim(metadata) if len(self._links) == 1 else None,
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
        """Yield about half a second at a time, and never more than a second."""
        import torch

        rate = self._info.sample_rate
        enough = max(round(_BATCH_SECONDS * rate), _LEAST_FRAMES)
        with translated(self._source, "torchcodec"):
            for number in range(len(self._links)):
                if number:
                    self._next_link(number)
                for held in self._batches(enough):
                    block: Block = (held[0] if len(held) == 1 else torch.cat(held, 1)).numpy().T
                    for start in range(0, len(block), rate):
                        yield block[start : start + rate]

    def _batches(self, enough: int) -> Iterator[list[Any]]:
        """Yield the samples of the codec's frames, as lists of tensors of shape (channels, samples).

        One frame at a time is asked for, as what a range of time holds is bounded by nothing: the times in a file may
        be false, and the public method decodes until they reach the end of the range.

        Parameters
        ----------
        enough : int
            From how many samples of each channel on a list is complete.

        """
        from torch import ops

        next_frame = ops.torchcodec_ns.get_next_frame.default
        decoder = self._decoder._decoder  # noqa: SLF001 - see above; the backend's trial run covers it
        held: list[Any] = []
        count, begun = 0, False
        while True:
            try:
                samples, time, length = next_frame(decoder)
            except IndexError:  # there are no more
                break
            if not begun:
                samples, begun = self._behind_run_up(samples, float(time), float(length))
            channels, frames = samples.shape
            if channels != self._info.channels:
                raise UnreadableAudioError(self._source.name, "torchcodec does not follow its change of channels")
            held.append(samples)
            count += frames
            if count >= enough:
                yield held
                held, count = [], 0
        if count:
            yield held

    def _behind_run_up(self, samples: Any, time: float, length: float) -> tuple[Any, bool]:
        """Drop what lies before time zero, the encoder's run-up, which players skip; return whether that is over.

        AAC in Matroska has its run-up at zero, in a frame without a length, which FFmpeg before version 8 does not
        skip.
        """
        if self._matroska and self._info.codec == "aac" and time <= 0.0 and time + length <= 0.0:
            return samples[:, :0], False
        if time >= -_ROUNDING_SECONDS:
            return samples, True
        return samples[:, round(-time * self._info.sample_rate) :], False

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
