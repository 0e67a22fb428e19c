"""FFmpeg, through PyAV, which brings its own copy: nearly every format there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from audio.decoders.array_decoder import scaled
from audio.decoders.base import FOREIGN_ERRORS, BackendBase, DecoderBase, brief, translated
from audio.decoders.protocol import Block
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

_BAD_READS_IN_A_ROW = 64
"""After so many failed reads without a packet between them, the rest of a file counts as lost."""

_BATCH_SECONDS = 0.5
"""Frames, of a few milliseconds each, are joined to blocks of about this length."""


class PyAVDecoder(DecoderBase):
    """Demultiplexes and decodes packet by packet, so that a bad packet costs only itself."""

    def __init__(self, source: Source) -> None:
        import av

        self._source = source
        self._library: tuple[type[Exception], ...] = (av.error.FFmpegError,)
        self._errors = FOREIGN_ERRORS + self._library
        self._reader: BinaryIO = source.open()
        self._container: InputContainer | None = None
        self._bad_packets = 0
        self._bad_read: str | None = None
        try:
            # A file object without a name: FFmpeg reads names as addresses, and guesses formats from their endings.
            container = av.open(self._reader, "r", options=_OPTIONS, metadata_errors="ignore", buffer_size=READ_SIZE)
            self._container = container
            stream = self._choose(container)
            stream.codec_context.thread_count = 1
            self._frames = self._decoded(container, stream)
            self._first = next(self._frames, None)
            super().__init__(self._describe(container, stream))
        except BaseException:
            self.close()
            raise
        if len(container.streams.audio) > 1:
            self._warnings.append(
                f"there are {len(container.streams.audio)} audio streams; number {stream.index} was decoded"
            )

    def _choose(self, container: InputContainer) -> AudioStream:
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
        import av

        first = self._first
        context = stream.codec_context
        rate = first.sample_rate if first is not None else context.sample_rate
        channels = len(first.layout.channels) if first is not None else context.channels
        if rate <= 0 or channels <= 0:
            raise UnreadableAudioError(self._source.name, "its header gives no sample rate, and nothing was decoded")
        layout = first.layout.name if first is not None else context.layout.name
        duration = None
        if stream.duration is not None and stream.time_base is not None:
            duration = float(stream.duration * stream.time_base)
        elif container.duration is not None:
            duration = container.duration / av.time_base
        start = 0.0
        if stream.start_time is not None and stream.time_base is not None:
            start = float(stream.start_time * stream.time_base)
        return AudioInfo(
            container=container.format.name,
            codec=context.name,
            sample_rate=rate,
            channels=channels,
            channel_layout=layout,
            claimed_duration=duration if duration and duration > 0 else None,
            start_time=start,
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
        """Yield frames as they come, and at the end what the decoder still holds."""
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
        if self._first is None:
            self._settle()
            return
        converter = _Converter(self._first)
        wanted = max(int(_BATCH_SECONDS * self._info.sample_rate), 1)
        batch: list[Block] = []
        held = 0
        frame: AudioFrame | None = self._first
        while frame is not None:
            with translated(self._source, "pyav", *self._library):
                for block in converter.convert(frame):
                    batch.append(block)
                    held += len(block)
            if held >= wanted:
                yield np.concatenate(batch)
                batch, held = [], 0
            with translated(self._source, "pyav", *self._library):
                frame = next(self._frames, None)
        with translated(self._source, "pyav", *self._library):
            batch.extend(converter.flush())
        if batch:
            yield np.concatenate(batch)
        self._warnings.extend(converter.warnings)
        self._settle()

    def _settle(self) -> None:
        if self._bad_packets:
            self._warnings.append(f"{self._bad_packets} damaged packets were skipped")
        if self._bad_read is not None:
            self._warnings.append(f"parts of the file could not be read ({self._bad_read})")

    def close(self) -> None:
        """Close the container and the file."""
        if self._container is not None:
            self._container.close()
        self._reader.close()


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


def _samples(frame: AudioFrame) -> Block:
    """Return a frame as (frames, channels) float32, whether it is planar or packed, integer or float."""
    array = frame.to_ndarray()
    if not frame.format.is_planar:
        return scaled(array.reshape(-1, len(frame.layout.channels)))
    return np.ascontiguousarray(scaled(array).T)


class _Converter:
    """Turns frames into blocks of the first frame's rate and channels, whatever the stream changes to.

    A resampler, or FIFO, that is fed another layout than it was made for reads memory that is not its own; so every
    frame is compared with the one before, and each change gets a resampler of its own.
    """

    def __init__(self, first: AudioFrame) -> None:
        self._rate = first.sample_rate
        self._layout = first.layout
        self._form = self._form_of(first)
        self._native = self._form[:2]
        self._resampler: Any = None
        self._frames = 0
        self.warnings: list[str] = []

    @staticmethod
    def _form_of(frame: AudioFrame) -> tuple[int, int, str, str]:
        return frame.sample_rate, len(frame.layout.channels), frame.layout.name, frame.format.name

    def convert(self, frame: AudioFrame) -> list[Block]:
        """Return the blocks that a frame gives, which may lag behind it by the length of a filter."""
        blocks: list[Block] = []
        form = self._form_of(frame)
        if form != self._form:
            if form[:2] != self._form[:2]:
                self._note_change(form)
            blocks += self.flush()
            self._form = form
        if form[:2] == self._native and frame.format.name not in ("s64", "s64p"):
            blocks.append(_samples(frame))
        else:
            blocks += self._resample(frame)
        self._frames += sum(len(block) for block in blocks)
        return [block for block in blocks if len(block)]

    def flush(self) -> list[Block]:
        """Return what the resampler in use still holds, and let go of it."""
        resampler, self._resampler = self._resampler, None
        if resampler is None:
            return []
        return [_samples(out) for out in resampler.resample(None) if out.samples]

    def _resample(self, frame: AudioFrame) -> list[Block]:
        import av

        if self._resampler is None:
            self._resampler = av.AudioResampler(format="fltp", layout=self._layout, rate=self._rate)
        # Timestamps that jump would make the filter insert silence or drop samples.
        frame.pts = None
        return [_samples(out) for out in self._resampler.resample(frame)]

    def _note_change(self, form: tuple[int, int, str, str]) -> None:
        if len(self.warnings) < 8:
            at = self._frames / self._rate
            self.warnings.append(
                f"from {at:.2f} s on the stream has {form[1]} channels at {form[0]} Hz; it was converted to "
                f"{self._native[1]} at {self._native[0]} Hz"
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
