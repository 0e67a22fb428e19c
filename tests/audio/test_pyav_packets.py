"""Packets that hold more than a packet should: they are told from others before a decoder makes gigabytes of them."""

import io
from fractions import Fraction

import av
import numpy as np
import pytest

from audio.decoders import open_decoder
from audio.decoders.pyav_packets import PacketCheck
from tests.audio.media import signal

RATE = 48_000


def encoded(samples, codec, container):
    """The packets of a recording, and what its decoder has to know beforehand."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=RATE, layout="stereo")
        context = stream.codec_context
        resampler = av.AudioResampler(context.format, context.layout, RATE, context.frame_size or 1024)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="stereo")
        frame.sample_rate = RATE
        for ready in (*resampler.resample(frame), *resampler.resample(None)):
            output.mux(stream.encode(ready))
        output.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as read:
        stream = read.streams.audio[0]
        return [bytes(packet) for packet in read.demux(stream) if packet.size], stream.codec_context.extradata


def in_matroska(packets, extradata, codec):
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream = output.add_stream(codec, rate=RATE, layout="stereo")
        stream.codec_context.extradata = extradata
        for number, data in enumerate(packets):
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, Fraction(1, 1000)
            packet.pts = packet.dts = number * 100
            output.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize("codec", ["flac", "ac3"])
def test_many_frames_in_one_packet_are_a_damaged_packet(codec):
    silence = np.zeros((RATE * 40, 2), np.float32)
    packets, extradata = encoded(silence, codec, codec)
    data = in_matroska([*packets[:3], b"".join(packets[3:]), *packets[3:6]], extradata, codec)
    with open_decoder(data, "pyav") as decoder:
        frames = sum(len(block) for block in decoder.blocks())
        assert 0 < frames < 2 * RATE
        assert any("damaged packets were skipped: 1" in warning for warning in decoder.warnings)


@pytest.mark.parametrize(("codec", "container"), [("flac", "flac"), ("mp3", "mp3"), ("ac3", "ac3"), ("aac", "adts")])
@pytest.mark.parametrize("kind", ["noise", "tone"])
def test_packets_of_real_audio_are_admitted(codec, container, kind):
    noise = np.random.default_rng(0).uniform(-1, 1, (RATE * 4, 2)).astype(np.float32)
    packets, _ = encoded(noise if kind == "noise" else signal(4.0, rate=RATE, channels=2), codec, container)
    check = PacketCheck(av.CodecContext.create(codec, "r"))
    assert packets
    assert all(check.admits(av.Packet(packet)) for packet in packets)


@pytest.mark.parametrize("codec", ["pcm_s16le", "adpcm_ms", "alac", "dsd_lsbf"])
def test_packets_of_any_length_are_admitted_where_codecs_have_them(codec):
    assert PacketCheck(av.CodecContext.create(codec, "r")).admits(av.Packet(bytes(3 << 20)))


@pytest.mark.parametrize("codec", ["wmav2", "gsm", "vorbis"])
def test_packets_of_other_lossy_codecs_are_admitted_up_to_a_megabyte(codec):
    check = PacketCheck(av.CodecContext.create(codec, "r"))
    assert check.admits(av.Packet(bytes(1 << 20)))
    assert not check.admits(av.Packet(bytes((1 << 20) + 1)))
