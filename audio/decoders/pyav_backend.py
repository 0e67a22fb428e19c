"""FFmpeg, through PyAV, which brings its own copy: nearly every format there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO

from audio.decoders.base import FOREIGN_ERRORS, BackendBase, DecoderBase, brief, translated
from audio.decoders.ogg_links import link_offsets
from audio.decoders.protocol import Block
from audio.decoders.pyav_frames import FrameConverter
from audio.errors import NoAudioStreamError, UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.source import READ_SIZE, Source

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.packet import Packet

# Containers that hold recordings. Everything else FFmpeg knows stays closed: playlists and manifests (concat, hls,
# dash, imf), which open other files; picture sequences and subtitles; device and filter inputs; and raw formats, which
# would take any bytes for samples.
_CONTAINERS = (
    "aac ac3 eac3 act adx aea aiff amr amrnb amrwb ape apc asf asf_o ast au avi bink brstm caf dsf dss dts dtshd "
    "dv ea flac flv gsm gxf iff ircam kvag latm loas matroska mlp mov mp3 mpc mpc8 mpeg mpegts mpegtsraw mxf "
    "nistsphere nut nuv ogg oma paf pva qcp qoa rm rso sbc shn smjpeg smk sol sox swf tak thp truehd tta tty voc vqf "
    "w64 wav wc3movie wsd wtv wv wve xa xwma"
)
_OPTIONS = {"format_whitelist": ",".join(_CONTAINERS.split()), "protocol_whitelist": ""}

# Endings that help FFmpeg to recognise a file whose beginning is damaged or behind a foreign tag. Others are withheld:
# it would take a file for raw samples or a picture by its ending alone.
_HELPFUL_ENDINGS = (
    ".aac .ac3 .aif .aiff .amr .ape .au .caf .dts .eac3 .flac .m4a .mka .mkv .mlp .mov .mp2 .mp3 .mp4 .mpc .oga .ogg "
    ".opus .spx .tta .w64 .wav .webm .wma .wv"
)

_BAD_READS_IN_A_ROW = 64
"""After so many failed reads without a packet between them, the rest of a file counts as lost."""


class _Named:
    """A binary reader under the only name that FFmpeg gets to see."""

    def __init__(self, reader: BinaryIO, ending: str) -> None:
        self.name = "recording" + (ending if ending in _HELPFUL_ENDINGS.split() else "")
        self.read = reader.read
        self.seek = reader.seek
        self.tell = reader.tell
        self.close = reader.close


class PyAVDecoder(DecoderBase):
    """Demultiplexes and decodes packet by packet, so that a bad packet costs only itself."""

    def __init__(self, source: Source) -> None:
        import av

        self._source = source
        self._library: tuple[type[Exception], ...] = (av.error.FFmpegError,)
        self._errors = FOREIGN_ERRORS + self._library
        self._reader: _Named | None = None
        self._container: InputContainer | None = None
        self._bad_packets = 0
        self._bad_read: str | None = None
        self._links = link_offsets(source)
        try:
            container, stream = self._open_link(0)
            self._frames = self._decoded(container, stream)
            self._first = next(self._frames, None)
            super().__init__(self._describe(container, stream))
        except BaseException:
            self.close()
            raise
        count = len(container.streams.audio)
        if count > 1:
            self._warnings.append(f"there are {count} audio streams; number {stream.index} was decoded")

    def _open_link(self, number: int) -> tuple[InputContainer, AudioStream]:
        """Open the file, or one link of a chained one, in place of what is open."""
        import av

        self.close()
        stop = self._links[number + 1] if number + 1 < len(self._links) else None
        ending = PurePath(self._source.path or "").suffix.lower()
        self._reader = _Named(self._source.open(self._links[number], stop), ending)
        container = av.open(self._reader, "r", options=_OPTIONS, metadata_errors="ignore", buffer_size=READ_SIZE)
        self._container = container
        stream = self._choose(container)
        stream.codec_context.thread_count = 1
        return container, stream

    def _choose(self, container: InputContainer) -> AudioStream:
        """Return the stream that the container marks as default, or else the first that can be decoded."""
        import av

        streams = container.streams.audio
        if not streams:
            kinds = sorted({stream.type for stream in container.streams})
            held = f"it holds {' and '.join(kinds)} only" if kinds else "it holds no streams"
            raise NoAudioStreamError(self._source.name, f"there is no audio in it: {held}")
        known = [stream for stream in streams if stream.codec_context is not None]
        if not known:
            raise NoAudioStreamError(self._source.name, "FFmpeg has no decoder for the codec of its audio")
        default = av.stream.Disposition.default
        return next((stream for stream in known if stream.disposition & default), known[0])

    def _describe(self, container: InputContainer, stream: AudioStream) -> AudioInfo:
        first, context = self._first, stream.codec_context
        rate = first.sample_rate if first is not None else context.sample_rate
        layout = first.layout if first is not None else context.layout
        if rate <= 0 or layout.nb_channels <= 0:
            raise UnreadableAudioError(self._source.name, "its header gives no sample rate, and nothing was decoded")
        return AudioInfo(
            container=container.format.name,
            codec=context.name,
            sample_rate=rate,
            channels=layout.nb_channels,
            channel_layout=layout.name,
            claimed_duration=_claim(container, stream) if len(self._links) == 1 else None,
            start_time=float(stream.start_time * stream.time_base) if stream.start_time and stream.time_base else 0.0,
            streams=tuple(_stream_info(each) for each in container.streams.audio),
            backend="pyav",
        )

    def _packets(self, container: InputContainer, stream: AudioStream) -> Iterator[Packet[AudioStream]]:
        """Yield packets; where reading one fails, go on behind it."""
        in_a_row = 0
        while in_a_row < _BAD_READS_IN_A_ROW:
            try:
                for packet in container.demux(stream):
                    if packet.size:
                        in_a_row = 0
                        yield packet
            except self._errors as error:
                in_a_row += 1
                self._bad_read = brief(error)
            else:
                return

    def _decoded(self, container: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
        """Yield frames as they come, at the end what the decoder still holds, and then those of the other links."""
        yield from self._decoded_link(container, stream)
        unusable: tuple[type[Exception], ...] = (*self._errors, NoAudioStreamError)
        for number in range(1, len(self._links)):
            try:
                container, stream = self._open_link(number)
            except unusable as error:
                self._bad_read = brief(error)
                continue
            yield from self._decoded_link(container, stream)

    def _decoded_link(self, container: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
        context = stream.codec_context
        for packet in self._packets(container, stream):
            try:
                yield from context.decode(packet)
            except self._errors:
                self._bad_packets += 1
        try:
            yield from context.decode(None)
        except self._errors:
            self._bad_packets += 1

    def blocks(self) -> Iterator[Block]:
        """Yield about half a second at a time."""
        if self._first is not None:
            yield from self._converted(self._first)
        if self._bad_packets:
            self._warnings.append(f"damaged packets were skipped: {self._bad_packets}")
        if self._bad_read is not None:
            self._warnings.append(f"parts of the file could not be read ({self._bad_read})")

    def _converted(self, first: AudioFrame) -> Iterator[Block]:
        converter = FrameConverter(first)
        with translated(self._source, "pyav", *self._library):
            yield from converter.convert(first)
            for frame in self._frames:
                yield from converter.convert(frame)
            yield from converter.flush()
        self._warnings.extend(converter.warnings)

    def close(self) -> None:
        """Close the container and the file."""
        if self._container is not None:
            self._container.close()
        if self._reader is not None:
            self._reader.close()


def _claim(container: InputContainer, stream: AudioStream) -> float | None:
    """Return the length that the stream states, else the container's, in seconds."""
    import av

    if stream.duration and stream.time_base:
        duration = float(stream.duration * stream.time_base)
    elif container.duration:
        duration = container.duration / av.time_base
    else:
        return None
    return duration if duration > 0 else None


def _stream_info(stream: AudioStream) -> StreamInfo:
    import av

    context = stream.codec_context
    return StreamInfo(
        index=stream.index,
        codec=context.name if context is not None else "unknown",
        sample_rate=context.sample_rate if context is not None else 0,
        channels=context.channels if context is not None else 0,
        language=stream.metadata.get("language"),
        default=bool(stream.disposition & av.stream.Disposition.default),
        title=stream.metadata.get("title"),
    )


class PyAVBackend(BackendBase):
    """The PyAV package."""

    name = "pyav"
    remedy = "Install it with: pip install av"

    def _open(self, source: Source) -> PyAVDecoder:
        return PyAVDecoder(source)

    def _own_errors(self) -> tuple[type[Exception], ...]:
        import av

        return (av.error.FFmpegError,)
