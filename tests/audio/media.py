"""Recordings in many formats, made on the spot."""

import io
import struct

import av
import numpy as np
import soundfile

RATE = 16_000


def signal(seconds=3.0, rate=RATE, channels=1):
    """A rising tone in a little noise, another in each channel: every moment of it is unlike every other."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(7).standard_normal((len(time), channels))
    tones = [np.sin(2 * np.pi * (200 + 170 * channel + 150 * time) * time) for channel in range(channels)]
    return (0.4 * np.stack(tones, axis=1) + 0.02 * noise).astype(np.float32)


def written(samples, rate=RATE, *, container="WAV", subtype=None, endian=None):
    """The bytes of a file that libsndfile writes."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype, endian=endian)
    return file.getvalue()


def encoded(samples, rate=RATE, *, container, codec, bit_rate=96_000, picture=False, tracks=1, default=0):
    """The bytes of a file that FFmpeg writes, with pictures or several audio tracks, each softer, if wanted."""
    file = io.BytesIO()
    layout = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}[samples.shape[1]]
    with av.open(file, "w", format=container) as output:
        video = _add_picture(output) if picture else None
        streams = []
        for number in range(tracks):
            stream = output.add_stream(codec, rate=rate, layout=layout)
            if not codec.startswith("pcm_"):
                stream.bit_rate = bit_rate
            if tracks > 1:
                stream.metadata["language"] = ("eng", "deu", "fra")[number]
                stream.disposition = av.stream.Disposition.default if number == default else av.stream.Disposition(0)
            streams.append(stream)
        if video is not None:
            for packet in _pictures(video):
                output.mux(packet)
        for number, stream in enumerate(streams):
            for packet in _packets(stream, samples / np.float32(2**number), rate, layout):
                output.mux(packet)
    return file.getvalue()


def _packets(stream, samples, rate, layout):
    context = stream.codec_context
    resampler = av.AudioResampler(context.format, context.layout, rate, context.frame_size or 1024)
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples.reshape(1, -1)), format="flt", layout=layout)
    frame.sample_rate = rate
    for piece in (frame, None):
        for ready in resampler.resample(piece):
            yield from stream.encode(ready)
    yield from stream.encode(None)


def _add_picture(output):
    video = output.add_stream("mpeg4", rate=5)
    video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
    return video


def _pictures(video):
    for number in range(10):
        picture = np.full((48, 64, 3), 20 * number, np.uint8)
        yield from video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24"))
    yield from video.encode(None)


def silent_film():
    """The bytes of an MP4 with pictures and no sound."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        for packet in _pictures(_add_picture(output)):
            output.mux(packet)
    return file.getvalue()


def with_data_size(wav, size):
    """A WAV file's bytes with another size in the header of its samples."""
    at = wav.index(b"data") + 4
    return wav[:at] + struct.pack("<I", size) + wav[at + 4 :]


def decoded(decoder):
    """All blocks of a decoder as one array, which is closed; each is held to the promise on the way."""
    blocks = []
    with decoder:
        for block in decoder.blocks():
            assert block.dtype == np.float32
            assert block.shape[1] == decoder.info.channels
            assert 0 < len(block) <= decoder.info.sample_rate
            blocks.append(block)
    return np.concatenate(blocks) if blocks else np.empty((0, decoder.info.channels), np.float32)


def delay(found, wanted, most):
    """The number of frames, up to `most`, by which one recording begins later than another."""
    part = wanted[: RATE // 2].sum(axis=1)
    return int(np.argmax(np.correlate(found[: len(part) + most].sum(axis=1), part)))


def correlation(one, other):
    """The correlation of two recordings' mono mixes over their common length."""
    count = min(len(one), len(other))
    a, b = one[:count].mean(axis=1, dtype=np.float64), other[:count].mean(axis=1, dtype=np.float64)
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)))
