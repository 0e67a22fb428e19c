"""FFmpeg, through PyAV, which brings its own copy: nearly every format there is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO

from audio.decoders.base import FOREIGN_ERRORS, BackendBase, DecoderBase, brief, translated
from audio.decoders.mp4_edits import plain_edits
from audio.decoders.mp4_parts import parts_of
from audio.decoders.ogg_links import link_offsets
from audio.decoders.protocol import Block
from audio.decoders.pyav_clock import PREROLL_SECONDS, Clock, Grid, Seeker, is_clocked, lead_of, silent_blocks, time_of
from audio.decoders.pyav_frames import FrameConverter
from audio.decoders.pyav_packets import PacketCheck
from audio.errors import NoAudioStreamError, UnreadableAudioError
from audio.info import AudioInfo, StreamInfo
from audio.selection import EVERYTHING, Selection, find_track, several_tracks
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

_PLAIN_EDITS = {"advanced_editlist": "0"}
"""For files of which `plain_edits` gives the lengths: FFmpeg's index of packets is then not held twice."""

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

    def __init__(self, source: Source, selection: Selection = EVERYTHING) -> None:
        import av

        self._source = source
        self._selection = selection
        self._library: tuple[type[Exception], ...] = (av.error.FFmpegError,)
        self._errors = FOREIGN_ERRORS + self._library
        self._reader: _Named | None = None
        self._container: InputContainer | None = None
        self._seeker: Seeker | None = None
        self._bad_packets = 0
        self._bad_read: str | None = None
        self._links = link_offsets(source)
        self._edits = plain_edits(source)
        # To seek, FFmpeg needs the whole index.
        from_beginning = self._edits is not None and selection.start < 2 * PREROLL_SECONDS
        self._parts = parts_of(source) if from_beginning else None
        try:
            container, stream = self._begin()
            super().__init__(self._describe(container, stream))
            self._enter(container, stream)
        except BaseException:
            self.close()
            raise
        tracks = self._info.streams
        if len(tracks) > 1 and selection.track is None:
            self._warnings.append(several_tracks(tracks, self._info.track))

    def _begin(self) -> tuple[InputContainer, AudioStream]:
        """Open the file and decode its first frame, which may come from a later link or part."""
        number = self._open_first_link()
        container, stream = self._opened
        self._frames = self._decoded(container, stream, number)
        self._first = next(self._frames, None)
        container, stream = self._opened
        self._lead = lead_of(container, self._first) if self._selection.timeline == "container" else 0.0
        return container, stream

    def _enter(self, container: InputContainer, stream: AudioStream) -> None:
        """Go to where the wanted range begins, or stay at the beginning where that is near or there is no other way."""
        rate = self._info.sample_rate
        start, _ = self._selection.frames(rate)
        time = time_of(self._first) if self._first is not None else None
        self._zero = time - self._lead if time is not None else 0.0
        if self._first is None or start < 2 * PREROLL_SECONDS * rate:
            return
        if time is not None and len(self._links) == 1:
            beginning = [self._first, *islice(self._frames, 2)]
            grid = Grid.of(beginning, self._info.codec, round(self._lead * rate))
            self._seeker = Seeker(stream, self._zero, rate, grid, rounds=self._selection.timeline == "container")
        if not self._found(container, stream, start):
            self._seeker = None
            self._begin()
            self._warnings.append("no place in it can be found exactly, so all before the range was decoded too")

    def _found(self, container: InputContainer, stream: AudioStream, start: int) -> bool:
        """Go to a frame, and return whether its place is certain."""
        found = None
        if self._seeker is not None:
            with suppress(*self._errors):
                if self._seeker.seek(container, start):
                    found = self._seeker.found(self._decoded(container, stream), start)
        self._bad_packets, self._bad_read = 0, None
        if found is None:
            return False
        offset, self._frames = found
        self._first = next(self._frames)
        self._info = replace(self._info, offset=offset)
        return True

    def enter(self, selection: Selection) -> bool:
        """Go to another range from one that was found by seeking; not to the beginning."""
        start, _ = selection.frames(self._info.sample_rate)
        container = self._container
        if self._seeker is None or container is None or start < 2 * PREROLL_SECONDS * self._info.sample_rate:
            return False
        self._selection = selection
        return self._found(container, container.streams.audio[self._info.track], start)

    def _open_first_link(self) -> int:
        """Open the first link that can be opened, and return which it is."""
        for number in range(len(self._links) - 1):
            with suppress(*self._errors, NoAudioStreamError):
                self._open_link(number)
                return number
        self._open_link(len(self._links) - 1)
        return len(self._links) - 1

    def _open_link(self, number: int) -> tuple[InputContainer, AudioStream]:
        """Open the file, its first part, or one link of a chained one, in place of what is open."""
        if self._parts is not None:
            reader = self._parts.open(number)
        else:
            stop = self._links[number + 1] if number + 1 < len(self._links) else None
            reader = self._source.open(self._links[number], stop)
        container, stream = self._open(reader)
        streams = container.streams.audio
        if self._edits is not None and (stream.codec_context.name != "aac" or len(streams) != len(self._edits)):
            # Of other codecs FFmpeg skips the run-up only in its general treatment of edit lists.
            self._edits = self._parts = None
            return self._open_link(number)
        return container, stream

    def _open(self, reader: BinaryIO) -> tuple[InputContainer, AudioStream]:
        import av

        self.close()
        self._reader = _Named(reader, PurePath(self._source.path or "").suffix.lower())
        options = _OPTIONS if self._edits is None else {**_OPTIONS, **_PLAIN_EDITS}
        container = av.open(self._reader, "r", options=options, metadata_errors="ignore", buffer_size=READ_SIZE)
        self._container = container
        stream = self._choose(container)
        stream.codec_context.thread_count = 1
        self._opened = container, stream
        return container, stream

    def _choose(self, container: InputContainer) -> AudioStream:
        """Return the wanted stream: by default the one that the container marks so, or the first with a decoder."""
        import av

        streams = container.streams.audio
        if not streams:
            kinds = sorted({stream.type for stream in container.streams})
            held = f"it holds {' and '.join(kinds)} only" if kinds else "it holds no streams"
            raise NoAudioStreamError(self._source.name, f"there is no audio in it: {held}")
        known = [stream for stream in streams if stream.codec_context is not None]
        if not known:
            raise NoAudioStreamError(self._source.name, "FFmpeg has no decoder for the codec of its audio")
        wanted = self._selection.track
        if wanted is None:
            default = av.stream.Disposition.default
            return next((stream for stream in known if stream.disposition & default), known[0])
        chosen = streams[find_track(tuple(map(_stream_info, streams)), wanted, self._source.name)]
        if chosen.codec_context is None:
            raise NoAudioStreamError(self._source.name, f"FFmpeg has no decoder for the codec of its track {wanted}")
        return chosen

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
            claimed_duration=self._claim(container, stream) if len(self._links) == 1 else None,
            start_time=float(stream.start_time * stream.time_base) if stream.start_time and stream.time_base else 0.0,
            streams=tuple(_stream_info(each) for each in container.streams.audio),
            backend="pyav",
            track=_number_of(stream, container),
        )

    def _claim(self, container: InputContainer, stream: AudioStream) -> float | None:
        """Return the length that the stream states, else the container's, in seconds, with silence before it or not."""
        import av

        edited = self._edits[_number_of(stream, container)] if self._edits is not None else None
        if edited is not None:
            duration = edited + self._lead
        elif self._parts is not None:
            duration = self._parts.seconds + self._lead
        elif stream.duration and stream.time_base:
            duration = float(stream.duration * stream.time_base) + self._lead
        elif container.duration:
            duration = container.duration / av.time_base
            if not self._lead and stream.start_time and stream.time_base:
                # The container's length counts from its earliest stream, and so from before a stream that begins late.
                begin = (container.start_time or 0) / av.time_base
                duration -= max(float(stream.start_time * stream.time_base) - begin, 0.0)
        else:
            return None
        return duration if duration > 0 else None

    def _packets(self, container: InputContainer, stream: AudioStream) -> Iterator[Packet[AudioStream]]:
        """Yield packets, of one part of the file after the other."""
        begin: int | None = None  # where the edit list puts the first packet; later parts show none
        for packet in self._packets_within(container, stream):
            begin = packet.dts if begin is None else begin
            yield packet
        if self._parts is None:
            return
        for number in range(1, len(self._parts)):
            try:
                container, stream = self._open(self._parts.open(number))
            except self._errors as error:
                self._bad_read = brief(error)
                continue
            ticks = self._parts.ticks_before(number) + (begin or 0)
            for packet in self._packets_within(container, stream):
                if packet.pts is not None and packet.dts is not None:
                    packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
                yield packet

    def _packets_within(self, container: InputContainer, stream: AudioStream) -> Iterator[Packet[AudioStream]]:
        """Yield packets of what is open; where reading one fails, go on behind it."""
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

    def _decoded(self, container: InputContainer, stream: AudioStream, link: int = 0) -> Iterator[AudioFrame]:
        """Yield frames as they come, at the end what the decoder still holds, and then those of the links behind."""
        yield from self._decoded_link(container, stream)
        unusable: tuple[type[Exception], ...] = (*self._errors, NoAudioStreamError)
        for number in range(link + 1, len(self._links)):
            try:
                container, stream = self._open_link(number)
            except unusable as error:
                self._bad_read = brief(error)
                continue
            yield from self._decoded_link(container, stream)

    def _decoded_link(self, container: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
        context, errors = stream.codec_context, self._errors
        check = PacketCheck(context)
        for packet in self._packets(container, stream):
            if not check.admits(packet):
                self._bad_packets += 1
                continue
            try:
                frames = context.decode(packet)
            except errors:
                self._bad_packets += 1
            else:
                yield from frames
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
        frames = chain([first], self._frames)
        with translated(self._source, "pyav", *self._library):
            if self._selection.timeline == "container" and len(self._links) == 1:
                yield from self._timed(frames, converter)
            else:
                yield from converter.convert(frames)
            yield from converter.flush()
        self._warnings.extend(converter.warnings)
        self._bad_packets += converter.unconverted

    def _timed(self, frames: Iterator[AudioFrame], converter: FrameConverter) -> Iterator[Block]:
        """Yield frames where the container's clock has them, with silence between."""
        rate, channels = self._info.sample_rate, self._info.channels
        clock = Clock(self._zero, rate, self._info.offset)
        clocked = is_clocked(self._info.container)
        for frame in frames:
            due = clock.silence_before(frame) if clocked else 0
            if due:
                yield from converter.flush()
                yield from silent_blocks(due, rate, channels)
            yield from converter.convert((frame,))
        if clock.silence > self._lead * rate + 1:
            seconds = clock.silence / rate - self._lead
            self._warnings.append(
                f"the container's clock has holes without audio: {seconds:.2f} s of silence fill them"
            )

    def close(self) -> None:
        """Close the container and the file."""
        if self._container is not None:
            self._container.close()
        if self._reader is not None:
            self._reader.close()


def _number_of(stream: AudioStream, container: InputContainer) -> int:
    """Return which of a container's audio tracks a stream is."""
    return next(number for number, each in enumerate(container.streams.audio) if each.index == stream.index)


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

    def _open(self, source: Source, selection: Selection) -> PyAVDecoder:
        return PyAVDecoder(source, selection)

    def _own_errors(self) -> tuple[type[Exception], ...]:
        import av

        return (av.error.FFmpegError,)
